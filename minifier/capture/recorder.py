"""Replaces a script's backends, and sees every graph that they would compile.

The script itself continues in eager. Graphs are compiled in children, so a backend can neither end
the script nor change what it sees next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.capture.capture_marks import CaptureMarks
from tcdebug.minifier.capture.entries import EntryCall, entry_compiled_by
from tcdebug.minifier.capture.exports import (
    copied_arguments,
    dynamic_dimensions,
    jit_settings,
)
from tcdebug.minifier.capture.updates import updates_as_inputs
from tcdebug.minifier.cases.case import Case, flatten, from_captured, recorded_value, relations
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.cases.source import for_eager
from tcdebug.minifier.cases.subclasses.apart import calling_once
from tcdebug.minifier.repros.script_setup import sets_up
from tcdebug.minifier.targets.backends import INDUCTOR, Backend
from tcdebug.minifier.targets.describe import describe
from tcdebug.minifier.targets.stand_ins import StandIn

Wrap = Callable[..., Any]
Judge = Callable[[Case, Backend, int, int], None]
"""Called with a case, its backend, the ordinal of the graph in the script, and that of the call."""

Raised = Callable[[int, Exception], None]
"""Called with the ordinal of a graph that raises in eager, and with its exception."""

CALLS = 3
"""Calls of a graph that are judged: the first ones, each with a new layout."""


@dataclass
class Recorder:
    """Passes every graph to `judge` at its first calls."""

    judge: Judge
    run_dir: str
    forced: str | None = None
    """A backend that replaces the script's backends."""
    active: bool = True
    graphs: int = 0
    entered: bool = False
    """Whether the script gave a graph directly to inductor."""
    marks: CaptureMarks | None = None
    """Marks the captures of Dynamo, if someone looks at the marks."""
    refusals: bool = False
    """Whether only calls are judged that raise in eager."""
    raised: Raised = lambda ordinal, error: None

    def wrap(self, backend: Any) -> Any:
        """Return the backend that replaces the one a script gave to torch.compile."""
        if self.marks is not None:
            self.marks.watch()
        recorded = isinstance(getattr(backend, "compiler_fn", backend), Recording)
        if not self.active or recorded or sets_up(backend):
            return backend
        return Recording(self, describe(self.forced or backend, self.run_dir), backend)

    def judge_program(self, program: Any, settings: Mapping[str, Any]) -> Callable[..., Any] | None:
        """Judge an exported program instead of packaging it; return what runs it in eager.

        Return None while a candidate is judged, which packages its own program. The program is
        judged as inductor compiles it just in time, which is faster, and as AOTInductor does: with
        its example inputs, and when it is called with other sizes.
        """
        if not self.active:
            return None
        module = program.module()
        ways: list[Callable[..., Any]] = [
            torch.compile(module, backend=Recording(self, backend))
            for backend in self._backends_of_programs(settings)
        ]
        judged = _JudgedProgram(module, ways, dynamic_dimensions(program))
        if program.example_inputs is not None:
            judged.judge(*program.example_inputs)
        return judged

    def judge_entry(self, call: EntryCall) -> Callable[..., Any] | None:
        """Return what judges a graph that the script gave to inductor, and then runs it in eager.

        Return None while a candidate is judged.
        """
        if not self.active:
            return None
        self.entered = True
        forced = self.forced
        described = describe(forced, self.run_dir) if forced else call.described(self.run_dir)
        return entry_compiled_by(Recording(self, described))(call)

    def _backends_of_programs(self, settings: Mapping[str, Any]) -> list[Backend]:
        if self.forced:
            return [describe(self.forced, self.run_dir)]
        ahead_of_time = Backend(
            AOTINDUCTOR_BACKEND, AOTINDUCTOR_BACKEND, options=dict(settings), run_dir=self.run_dir
        )
        just_in_time = Backend(
            INDUCTOR, INDUCTOR, options=jit_settings(settings), run_dir=self.run_dir,
            in_place_of=ahead_of_time,
        )  # fmt: skip
        return [just_in_time, ahead_of_time]


@dataclass(eq=False)
class _JudgedProgram:
    """An exported program that is judged with each layout of its inputs, and runs in eager."""

    module: torch.nn.Module
    ways: Sequence[Callable[..., Any]]
    dynamic: Sequence[Sequence[int]]
    """The dimensions with symbolic sizes of each input, as in `dynamic_dimensions`."""
    seen: set[Any] = field(default_factory=set)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Judge a call with a new layout, then make it."""
        self.judge(args, kwargs)
        return self.module(*args, **kwargs)

    def judge(self, args: Any, kwargs: Any) -> None:
        """Judge a call on copies of the inputs. The buffers of the program keep their values."""
        leaves = flatten([args, kwargs])
        layout = tuple(map(_layout, leaves))
        if layout in self.seen or len(self.seen) >= CALLS:
            return
        self.seen.add(layout)
        buffers = [(b, b.clone()) for b in self.module.buffers()]
        with torch.no_grad():
            for way in self.ways:
                same, named = copied_arguments(args, kwargs, self.dynamic)
                way(*same, **named)
                for buffer, before in buffers:
                    buffer.copy_(before)


@dataclass(eq=False, slots=True)
class Recording(StandIn):
    """A backend that compiles nothing: its graphs are judged, and then run in eager."""

    recorder: Recorder
    backend: Backend
    original: Any = None
    """The backend as the script gave it to torch.compile; None if it gave none."""

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if not self.recorder.active:
            compiled: Callable[..., Any] = self.backend.backend(module, inputs)
            return compiled
        ordinal = self.recorder.graphs
        self.recorder.graphs += 1
        backend = self.backend if self.original is None else self.backend.as_captured()
        return _RecordedGraph(self.recorder, backend, module, for_eager(module), ordinal)


@dataclass(eq=False)
class _RecordedGraph:
    """A captured graph as a callable."""

    recorder: Recorder
    backend: Backend
    module: fx.GraphModule
    eager: fx.GraphModule
    ordinal: int
    seen: set[Any] = field(default_factory=set)
    refused: int = 0
    """The number of calls that were judged because they raised in eager."""

    def __call__(self, *values: Any) -> Any:
        layout = (*map(_layout, values), *relations(values))
        recorder = self.recorder
        if not recorder.refusals and layout not in self.seen and len(self.seen) < CALLS:
            self.seen.add(layout)
            self._judge(values, len(self.seen) - 1)
        try:
            with calling_once(values):
                return self.eager(*values)
        except Exception as error:
            recorder.raised(self.ordinal, error)
            if recorder.refusals and self.refused < CALLS:
                self.refused += 1
                self._judge(values, self.refused - 1)
            raise

    def _judge(self, values: Sequence[Any], call: int) -> None:
        case = updates_as_inputs(from_captured(self.module, values))
        if case.size:
            self.recorder.judge(case, self.backend, self.ordinal, call)


def differing_inputs(case: Case) -> str:
    """Describe the inputs whose dtype is not that with which Dynamo captured the graph, if any."""
    given = {each.name: each.value for each in case.inputs}
    found = []
    for node in case.graph.find_nodes(op="placeholder"):
        value, told = given.get(str(node.target)), recorded_value(node)
        if not (isinstance(value, torch.Tensor) and isinstance(told, torch.Tensor)):
            continue
        if value.dtype != told.dtype:
            found.append(f"{node.target} is {value.dtype} and was captured as {told.dtype}")
    return ", ".join(found)


def _layout(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strides = value.stride() if value.layout == torch.strided else ()
        return (value.dtype, str(tuple(value.shape)), strides, value.requires_grad)
    return type(value)
