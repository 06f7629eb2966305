"""Keeps captured graphs, so that they can run in eager, with the frame of each."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import patched
from tcdebug.minifier.cases.user_frames import frames, innermost
from tcdebug.minifier.targets.dynamo.frame import CAPTURE, function_of
from tcdebug.minifier.targets.dynamo.source_line import shown_path
from tcdebug.minifier.targets.stand_ins import StandIn


@dataclass(frozen=True)
class CapturedFrame:
    """A graph: its frame, and its calls, each with the source line it comes from."""

    frame: str
    calls: tuple[tuple[str, str], ...]


@dataclass
class Graphs:
    """The graphs that a process captures. In a child they run in eager and are recorded."""

    rehearsing: bool = False
    """Whether graphs run as captured, without being compiled."""
    called: list[CapturedFrame] = field(default_factory=list)
    """The graphs that ran while rehearsing, in order."""
    captured: int = 0
    frames: list[CodeType] = field(default_factory=list)
    """The frames that are being captured, the innermost last."""
    backends: list[KeepingBackend] = field(default_factory=list)

    def wrap(self, backend: Any, inner: Callable[[Any], Any]) -> Any:
        """Return a backend that keeps its graphs and compiles with `inner(backend)`.

        Equal backends share one wrapper, because Dynamo shares graphs among them.
        """
        for kept in self.backends:
            if kept.original is backend or (
                type(kept.original) is type(backend) and kept.original == backend
            ):
                return kept
        self.backends.append(KeepingBackend(self, backend, inner(backend)))
        return self.backends[-1]

    @contextlib.contextmanager
    def following(self, log: EventLog) -> Iterator[None]:
        """Record which frame each graph belongs to, for the duration of this block."""

        def noting(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def capture(code: CodeType, *args: Any, **kwargs: Any) -> Any:
                self.frames.append(code)
                self.captured += 1
                try:
                    return original(code, *args, **kwargs)
                finally:
                    self.frames.pop()

            return capture

        with patched(CAPTURE, noting, log):
            yield


@dataclass(eq=False, slots=True)
class KeepingBackend(StandIn):
    """A backend whose graphs are kept."""

    graphs: Graphs
    original: Any
    compile: Any

    @property
    def compiler_name(self) -> str:
        """The name of the backend in torch's messages."""
        return str(getattr(self.original, "compiler_name", None) or self.original)

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs = self.graphs
        kept = fx.GraphModule(module, copy.deepcopy(module.graph))  # backends edit their graph
        named = _captured(module.graph, graphs.frames[-1] if graphs.frames else None)
        compiled = kept if graphs.rehearsing else self.compile(module, inputs)

        def call(*values: Any) -> Any:
            if not graphs.rehearsing:
                return compiled(*values)
            graphs.called.append(named)
            return kept(*values)

        return call


def _captured(graph: fx.Graph, code: CodeType | None) -> CapturedFrame:
    if code is None:
        frame = "?"
    else:
        function, line = function_of(code)
        frame = f"{function} ({shown_path(code)}:{line or code.co_firstlineno})"
    number: dict[fx.Node, str] = {}
    calls = []
    for node in graph.nodes:
        number[node] = f"%{len(number)}"
        if node.op not in ("placeholder", "get_attr"):
            target = getattr(node.target, "__name__", str(node.target))
            args = fx.node.map_arg((node.args, node.kwargs), lambda n: _Unquoted(number[n]))
            given = ", ".join([*map(str, args[0]), *(f"{k}={v}" for k, v in args[1].items())])
            calls.append((f"{target}({given})", _place(node)))
    return CapturedFrame(frame, tuple(calls))


class _Unquoted(str):
    """A name that is printed without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _place(node: fx.Node) -> str:
    """Return the user's innermost line of a node."""
    stack = [frame for frame in frames(node.meta.get("stack_trace") or "") if frame.code]
    found = innermost(stack)
    return f"{found.place}: {found.code}" if found else ""


def first_difference(
    stale: Sequence[CapturedFrame], fresh: Sequence[CapturedFrame]
) -> tuple[str, str, str, str]:
    """Return where a fresh capture deviates: frame, source line, the old call and the new one."""
    for old, new in zip(stale, fresh, strict=False):
        for k in range(max(len(old.calls), len(new.calls))):
            before = old.calls[k] if k < len(old.calls) else ("nothing", "")
            now = new.calls[k] if k < len(new.calls) else ("nothing", "")
            if before[0] != now[0]:
                return new.frame, now[1] or before[1], before[0], now[0]
    frame = fresh[-1].frame if fresh else (stale[-1].frame if stale else "")
    return frame, "", "", ""
