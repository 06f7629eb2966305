"""Gives torch.profiler a range for each call of a graph and each launch of a kernel.

Only the option `profile` loads graphs this way. Otherwise, calls have no additional cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.profiler import record_function

from tcdebug.compiler import direct_calls
from tcdebug.compiler.codegen.wrapper.launches import Launch

Function = Callable[..., Any]

GRAPH = "tcdebug graph"
"""The first words of a graph's range. Compile id, direction and hash follow."""
RUN = "run_"
"""The prefix of a kernel's function in the wrapper."""


def graph_range(compiled: Function, compile_id: str, direction: str, graph_id: str) -> Function:
    """Return a compiled graph, each call of which is a range of the profiler."""
    label = f"{GRAPH} {compile_id or '?'} {direction} {graph_id}"
    ranged = _in_range(compiled, label)
    if direct := getattr(compiled, "direct", None):
        direct_calls.offer(ranged, lambda: _in_range(direct(), label))
    return ranged


def kernel_ranges(functions: Mapping[str, Any], launches: Sequence[Launch]) -> dict[str, Function]:
    """Return the functions of a wrapper that run kernels, each launch of which is a range.

    A launch of several kernels runs them one by one instead.
    """
    alone = {
        name: _in_range(function, name.removeprefix(RUN))
        for name, function in functions.items()
        if name.startswith(RUN)
    }
    return alone | {made.name: _one_by_one(made, alone) for made in launches}


def _in_range(function: Function, label: str) -> Function:
    def run(*args: Any) -> Any:
        with record_function(label):
            return function(*args)

    return run


def _one_by_one(launch: Launch, alone: Mapping[str, Function]) -> Function:
    """Return the same as a launch of several kernels, with the same status."""
    steps = [
        (alone[f"{RUN}{name}"], places)
        for name, places in zip(launch.names, launch.places, strict=True)
    ]

    def run(*given: Any) -> int:
        for position, (function, places) in enumerate(steps):
            status: int = function(*(given[place] for place in places))
            if status:
                return position << 8 | status & 255
        return 0

    return run
