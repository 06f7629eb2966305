"""Repro scripts that tests write, and what a script defines when it is read without being run."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.repros.repro import Repro, write

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0: 1 of 2 out of tolerance")
EAGER = {"backend": "aot_eager"}


def seeded(case: Case) -> Case:
    """Return the case with inputs that a seed gives, where that is possible."""
    simple = SimplifyInputs()
    return simple.apply(case, simple.edits(case)) or case


def written(case: Case, path: Path, content: Repro | None = None) -> tuple[str, str]:
    """Return the text of a repro script, and the origin of its inputs."""
    kind = write(case, content or Repro(WRONG, EAGER), path)
    return path.read_text(), kind


def namespace_of(path: Path) -> dict[str, Any]:
    """Return what a repro script defines, without running it."""
    names: dict[str, Any] = {"__file__": str(path), "__name__": "repro"}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    return names


def imported(text: str) -> set[str]:
    """Return what a script always imports. With --off it may import more."""
    roots: set[str] = set()
    body = ast.parse(text).body
    for node in [*body, *(n for tried in body if isinstance(tried, ast.Try) for n in tried.body)]:
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).partition(".")[0])
    return roots


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).sum(-1)


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: (y @ y).sin(), x, use_reentrant=False).masked_fill(x > 0, -math.inf)
