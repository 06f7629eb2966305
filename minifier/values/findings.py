"""What `tcdebug values` finds. This module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

BITWISE = "bitwise"
ORACLES = ("default", "fp64", "eager", "nan", BITWISE)
"""The values of `tcdebug values --oracle`: the referees of judging/compare.py, and equal bits."""
REPORT = "values.json"
"""The file in the run folder to which the script's process writes its report."""


class ComparedValue(msgspec.Struct, frozen=True):
    """A value that a step of a compiled graph wrote, and the reference for it.

    The reference is computed in eager and in float64 from the values that the step itself read.
    Errors are distances from float64, in units in the last place at the largest magnitude of the
    tensor. They are None where they have no meaning, such as for integers.
    """

    buffer: str
    """The name of the value in the compiled code."""
    node: str
    """The FX node that it holds."""
    dtype: str
    shape: list[int]
    hash: str
    eager_hash: str
    error: float | None = None
    eager_error: float | None = None
    detail: str = ""
    """What is wrong with it; empty if it is right."""


class WrongStep(msgspec.Struct, frozen=True):
    """The first step whose values are wrong.

    `kind` is kernel (generated code), operator (a call of ATen or a library), passes (a pass
    changed what a graph computes), overwritten (a kernel changed memory that was still needed),
    autograd (AOTAutograd changed what a graph computes), or graph (a backend whose steps cannot
    be observed).
    """

    kind: str
    name: str
    graph: int
    """The ordinal of the compiled ATen graph."""
    direction: str
    """forward, backward or inference."""
    call: int
    """The call of this graph, counted from 1."""
    step: int
    """The step in the order of the compiled code, counted from 1; 0 for a whole graph."""
    reason: str
    value: ComparedValue | None = None
    source: str = ""
    """The text of the kernel, or the call."""
    path: str = ""
    """The file that holds the text."""
    nodes: list[str] = []
    """The FX nodes that the step computes, as text."""
    lines: list[str] = []
    """The lines of the script that these nodes come from."""
    suspects: list[str] = []
    """Earlier steps that may be at fault instead, because no node describes what they wrote."""


class ValuesReport(msgspec.Struct, frozen=True):
    """The result of `tcdebug values`."""

    script: str
    oracle: str
    twice: bool
    found: WrongStep | None
    unexplained: list[str] = []
    """Graphs whose results are worse than rounding explains, without a step that is."""
    captured: int = 0
    """Graphs that Dynamo captured, and packaged programs."""
    whole: int = 0
    """Calls of these whose results were compared."""
    graphs: int = 0
    """Compiled ATen graphs whose steps were observed."""
    calls: int = 0
    steps: int = 0
    """Kernels and operators that ran in observed calls."""
    values: int = 0
    """Values that were compared."""
    unjudged: Mapping[str, int] = {}
    """Why values were not compared -> how many."""
    notes: list[str] = []
    folder: str = ""
