"""Makes a call of a compiled function in a child, where it cannot affect the program."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Child, Limits
from tcdebug.minifier.reuse.graphs import CapturedFrame, Graphs
from tcdebug.minifier.reuse.reachable import ObjectNode, Reachable, reachable


class CallMode(StrEnum):
    """How a call is made in a child."""

    REUSING = "reusing"
    """With the graphs that the program has."""
    FRESH = "fresh"
    """Without them: everything is captured again."""
    EAGER = "eager"


@dataclass(frozen=True)
class CompiledCall:
    """A call of a compiled function that the program is about to make."""

    function: Callable[..., Any]
    """The function as the program wrote it."""
    compiled: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def roots(self) -> dict[str, Any]:
        """Return what the call can read, by the names that a report uses."""
        target = getattr(self.function, "__func__", self.function)
        owner = getattr(self.function, "__self__", None)
        found = {"args": self.args, "kwargs": dict(self.kwargs), "function": target}
        return found if owner is None else {**found, "self": owner}


@dataclass(frozen=True)
class CallResult:
    """What a call left behind: its result, all that it could write, and the graphs that it ran."""

    state: Reachable
    called: tuple[CapturedFrame, ...]


def start_call(
    call: CompiledCall, how: CallMode, graphs: Graphs, before: Reachable, limits: Limits
) -> Child:
    """Make a call in a child. `received` reads the child's answer.

    The process must have a single thread (see `one_thread`), because Dynamo guards on the number of
    threads.
    """
    known = {id(t): (k, _version(t), t.data_ptr()) for k, t in before.tensors.items() if _plain(t)}

    def work(parent: Parent) -> bytes:
        graphs.rehearsing = True
        raised = result = None
        try:
            result = _make_call(call, how)
        except Exception as error:
            raised = type(error).__name__
        state = reachable({"result": result, "exception": raised, **call.roots()})
        values = {k: _packed(t, known) for k, t in state.tensors.items()}
        buffer = io.BytesIO()
        torch.save((state.nodes, values, tuple(graphs.called)), buffer)
        return buffer.getvalue()

    return fork(work, limits)


def _make_call(call: CompiledCall, how: CallMode) -> Any:
    if how is CallMode.EAGER:
        torch.compiler.set_stance("force_eager")
        return call.function(*call.args, **call.kwargs)
    if how is CallMode.FRESH:
        torch._dynamo.reset()
    return call.compiled(*call.args, **call.kwargs)


def read_result(answer: bytes, before: Reachable) -> CallResult:
    """Decode what the child of a call has sent."""
    nodes, values, called = torch.load(io.BytesIO(answer), weights_only=False)
    tensors = {
        k: before.tensors[v] if isinstance(v, int) else v
        for k, v in values.items()
        if v is not None
    }
    typed: list[ObjectNode] = nodes
    return CallResult(Reachable(typed, tensors), called)


def _packed(value: torch.Tensor, known: Mapping[int, tuple[int, int, int]]) -> Any:
    """Return a tensor's values, or its place in `before` if it is unchanged since then."""
    if not _plain(value):
        return None
    place, version, address = known.get(id(value), (None, None, None))
    if place is not None and (version, address) == (_version(value), value.data_ptr()):
        return place
    return value.detach().clone()


def _plain(value: torch.Tensor) -> bool:
    """Return whether the values of a tensor can be sent."""
    kinds = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return type(value) in kinds and value.layout == torch.strided and value.device.type == "cpu"


def _version(value: torch.Tensor) -> int:
    return -1 if value.is_inference() else value._version
