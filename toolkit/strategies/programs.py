"""The strategy for a whole program, drawn line by line from the tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import torch
from hypothesis import strategies as st

from tcdebug.strategies.control import CONTROL
from tcdebug.strategies.devices import CPU, ON_CPU, Device, Options
from tcdebug.strategies.gpu import GPU
from tcdebug.strategies.indexing import INDEXING
from tcdebug.strategies.mutation import MUTATION
from tcdebug.strategies.neighbours import NEIGHBOURS
from tcdebug.strategies.pointwise import POINTWISE
from tcdebug.strategies.program import Program
from tcdebug.strategies.reductions import REDUCTIONS
from tcdebug.strategies.row import Row
from tcdebug.strategies.scope import Scope, is_mistaken
from tcdebug.strategies.toggles import FAMILIES, toggles
from tcdebug.strategies.views import VIEWS

TABLES: dict[str, Sequence[Row]] = {
    "pointwise": POINTWISE,
    "reductions": REDUCTIONS,
    "views": VIEWS,
    "indexing": INDEXING,
    "neighbours": NEIGHBOURS,
    "mutation": MUTATION,
    "control": CONTROL,
    "gpu": GPU,
}
TURNS = {
    "pointwise": 24, "reductions": 16, "views": 16, "indexing": 8, "neighbours": 4, "mutation": 4,
    "control": 1,
}  # fmt: skip
"""How often each table is used. Control flow is rare, since Dynamo takes long for it."""
ON_GPU = {**TURNS, "gpu": 10}
COMMON = (
    "add", "mul", "sub", "div", "exp", "tanh", "sigmoid", "relu", "where", "to", "lt", "sum",
    "mean", "amax", "var", "cumsum", "softmax", "permute", "slice", "reshape", "expand", "cat",
    "index", "index_put", "scatter_add", "matmul", "add_", "copy_tensor",
)  # fmt: skip
"""Rows that are frequent in typical programs, and are drawn more often."""
MORE_OFTEN = 8
HANDFUL = 6
"""Most programs are drawn from this many rows, so that pairs of them occur often."""
LONGEST = 10
"""Maximum number of lines."""

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def programs(
    draw: Draw,
    longest: int = LONGEST,
    rows: Sequence[Row] = (),
    units: Sequence[str] = FAMILIES,
    device: Device = ON_CPU,
    options: Sequence[Options] = (),
) -> Program:
    """Return a program that eager accepts, optionally from these rows only.

    `units` are those that may be switched off for it. It may be compiled with one of `options`.
    """
    scope = Scope(draw, device=device.name)
    scope.extents = scope.choose(device.extents)
    turns = _turns(device.name)
    chances = {"": tuple(rows)} if rows else _chances()
    if not rows and scope.integer(0, 3) > 0:
        chosen = [scope.choose(chances[scope.choose(turns)]) for _ in range(HANDFUL)]
        chances = {"": tuple(chosen)}
    scope.gradients = scope.integer(0, 3) == 3
    if scope.integer(0, 4) == 4:
        scope.stretched = scope.choose(device.stretched)
    invalid = ""
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)  # inputs are on the CPU; the others take longer
        while len(scope.steps) < longest and not invalid:
            refused = draw(_line(scope, chances))
            if refused is None:
                break
            invalid = refused
    off = draw(toggles(tuple(units))) if units else ()
    given = scope.choose(options) if options and not off and scope.integer(0, 2) == 2 else ()
    return msgspec.structs.replace(_finished(scope, invalid, off), options=given)


@st.composite
def _line(draw: Draw, scope: Scope, chances: Mapping[str, Sequence[Row]]) -> str | None:
    """Draw a line. Return why eager rejected it, or "" if it did not; None ends the program."""
    # drawn for the first line too: lines that are drawn alike can replace each other in a shrinker
    ends = draw(st.integers(0, 11)) == 0
    if ends and scope.steps:
        return None
    table = draw(st.sampled_from(_turns(scope.device))) if len(chances) > 1 else ""
    row = draw(st.sampled_from(chances[table]))
    try:
        scope.add(row.name, row.draw(scope), row.exact or row in VIEWS)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return f"{row.name}: {type(error).__name__}: {str(error)[:200]}"
    return ""


@cache
def _turns(device: str) -> tuple[str, ...]:
    """Return the names of tables, repeated by weight."""
    turns = TURNS if device == CPU else ON_GPU
    return tuple(name for name, times in turns.items() for _ in range(times))


@cache
def _chances() -> Mapping[str, Sequence[Row]]:
    """Return the tables, with each row repeated by weight."""
    return {
        name: tuple(r for r in rows for _ in range(MORE_OFTEN if r.name in COMMON else 1))
        for name, rows in TABLES.items()
    }


def _finished(scope: Scope, invalid: str, off: tuple[str, ...]) -> Program:
    """Return the program. It returns the values that no line reads, and sometimes one more."""
    parts = [v for v in scope.values if v.name.startswith("v") and is_mistaken(v, scope)]
    for value in parts:
        scope.operands.append(value)
        scope.add("clone", f"{value}.clone()", exact=True)
    read = {name for step in scope.steps for name in step.operands}
    exact = {v.name for v in scope.values if v.exact}
    names = [s.result for s in scope.steps if s.result not in {v.name for v in parts}]
    outputs = [n for n in names if n not in read] or names[-1:]
    if len(names) > 1 and scope.integer(0, 5) == 5:
        extra = scope.choose(names)
        outputs += [extra] if extra not in outputs else []
    return Program(
        tuple(scope.arguments),
        tuple(scope.steps),
        tuple(outputs),
        tuple(n for n in outputs if n in exact),
        scope.stretched is not None,
        off,
        invalid,
        scope.device,
    )
