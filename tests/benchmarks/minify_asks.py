"""Counts the questions of the reducer and of torch's minifier: python minify_asks.py

Both get the same functions and the same predicate, which replaces a compile: a graph fails if it
has certain operators. The reducer's further work on the remaining operators (shapes, dtypes,
values) is counted separately.
"""
# ruff: noqa: T201 # a table is what it is for

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._functorch.fx_minifier import minifier
from torch.fx.experimental.proxy_tensor import make_fx

sys.path.insert(0, str(Path(__file__).parents[1] / "minifier" / "support"))

from block_graphs import PLANTED, SIZES, arguments, block_graph, blocks, holds

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.reducer import OPERATORS, Reducer

MOST_ASKS = 500
"""The maximum number of questions."""


@dataclass(frozen=True)
class Result:
    """The questions that led from a graph to the operators that are left."""

    asks: int
    repeated: int
    details: int
    left: int

    def text(self, wanted: int) -> str:
        """The cells of a row."""
        verdict = "right" if self.left == wanted else "wrong"
        verdict = verdict if self.asks < MOST_ASKS else "stopped"
        return f"{self.asks:5} {self.repeated:8} {self.left:5} {verdict}"


def ours(size: int, planted: tuple[str, ...]) -> Result:
    """The reducer on a graph with this many nodes."""
    removing = {r.name for r in OPERATORS}
    asked: list[tuple[str, str]] = []

    def interesting(case: Case, purpose: str) -> bool:
        asked.append((case.key, purpose))
        return holds(case, planted)

    best = Reducer(block_graph(size), EventLog(None)).run(interesting)
    keys = [key for key, purpose in asked if purpose in removing]
    return Result(len(keys), len(keys) - len(set(keys)), len(asked) - len(keys), best.size)


class Enough(Exception):
    """The limit of questions is reached."""


def theirs(size: int, planted: tuple[str, ...]) -> Result:
    """torch's minifier on the same function, as ATen operators."""
    values = arguments()
    graph = make_fx(blocks(size))(*values)
    asked: list[str] = []
    left = sys.maxsize

    def fails(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        nonlocal left
        if len(asked) == MOST_ASKS:
            raise Enough
        shapes = [tuple(i.shape) for i in inputs if isinstance(i, torch.Tensor)]
        asked.append(f"{module.code}{shapes}")
        names = operators(module)
        if set(planted) <= set(names):
            left = min(left, len(names))
            return True
        return False

    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stderr(nowhere),
        contextlib.redirect_stdout(nowhere),
        contextlib.suppress(Enough),
    ):
        minifier(graph, list(values), fails, dump_state=lambda *args, **options: None)
    return Result(len(asked), len(asked) - len(set(asked)), 0, left)


def operators(module: fx.GraphModule) -> list[str]:
    """The operators of a graph by torch's function names: softmax for aten._softmax."""
    calls = [n.target for n in module.graph.nodes if n.op == "call_function"]
    return [str(target).split(".")[1].lstrip("_") for target in calls]


def main() -> None:
    """Print the table."""
    columns = f"{'asks':>5} {'repeated':>8} {'left':>5} {'':5}"
    print(f"{'':28} {'reducer':41} torch")
    print(f"nodes  {'planted':20} {columns} {'details':>9}  {columns}".rstrip())
    for planted in PLANTED:
        for size in SIZES:
            mine, other = ours(size, planted), theirs(size, planted)
            cells = f"{mine.text(len(planted))} {mine.details:9}  {other.text(len(planted))}"
            print(f"{size:5}  {', '.join(planted):20} {cells}", flush=True)


if __name__ == "__main__":
    main()
