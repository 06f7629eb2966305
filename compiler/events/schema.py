"""The events of a compile, and the schema of all events: one frozen dataclass per kind.

The types of all fields can be written as JSON. `events/log.py` adds an envelope to every event
(time, process, compile, stage). docs/events.md is generated from `EVENTS` and lists it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tcdebug.compiler.events.event import Event
from tcdebug.compiler.events.measured_events import MEASURED_EVENTS
from tcdebug.compiler.events.run_events import RUN_EVENTS
from tcdebug.compiler.events.search_events import SEARCH_EVENTS


@dataclass(frozen=True, slots=True)
class CompileStart(Event):
    """The compiler received a graph from Dynamo: its nodes, inputs, and number of each operator."""

    kind: ClassVar[str] = "compile.start"
    nodes: int
    inputs: int
    toggles: list[str]
    operators: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CompileEnd(Event):
    """A forward, backward or inference graph was compiled: seconds, kernels, extern calls."""

    kind: ClassVar[str] = "compile.end"
    seconds: float
    kernels: int
    externs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CompileFail(Event):
    """A compile raised. `failed_unit` and `node` are empty if only the stage is known."""

    kind: ClassVar[str] = "compile.fail"
    level: ClassVar[str] = "error"
    failed_stage: str
    failed_unit: str
    node: str
    exception: str
    message: str


@dataclass(frozen=True, slots=True)
class GraphBreak(Event):
    """Dynamo ended a graph at a line. `reason` is Dynamo's text."""

    kind: ClassVar[str] = "graph.break"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class Recompile(Event):
    """A guard failed and Dynamo captured the frame again. `reason` is Dynamo's text."""

    kind: ClassVar[str] = "recompile"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class GuardSummary(Event):
    """The guards of a compiled graph, which must hold for the graph to be reused.

    `guards` are those on values of the program, each as "kind: condition". `artifact` has all.
    """

    kind: ClassVar[str] = "guard.summary"
    total: int
    guards: list[str]
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class CompileMetrics(Event):
    """torch's metrics of one compile of a frame or of its backward: size, and seconds by phase.

    `failure` is the exception that ended the compile; empty if it succeeded.
    """

    kind: ClassVar[str] = "compile.metrics"
    frame: str
    backward: bool
    nodes: int
    guards: int
    breaks: int
    seconds: float
    phases: Mapping[str, float]
    failure: str


@dataclass(frozen=True, slots=True)
class SizeChanged(Event):
    """A constant became a symbol, because its value was different in a later call."""

    kind: ClassVar[str] = "size.changed"
    name: str
    reason: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class StageStart(Event):
    """A stage started on a graph of `nodes` nodes.

    `artifact` is the graph before the stage. Only stages of passes save it; the others start from
    what the previous stage saved.
    """

    kind: ClassVar[str] = "stage.start"
    level: ClassVar[str] = "debug"
    nodes: int
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class StageEnd(Event):
    """A stage ended: nodes before and after, whether it changed the graph, seconds.

    `artifact` is the path of the IR after the stage, relative to the run folder; empty if the IR
    is unchanged.
    """

    kind: ClassVar[str] = "stage.end"
    nodes_before: int
    nodes_after: int
    changed: bool
    seconds: float
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class PassRan(Event):
    """A pass ran, or the gate denied it.

    `artifact` is the graph after it. The embedded compiler keeps it only if it changed.
    """

    kind: ClassVar[str] = "pass"
    allowed: bool
    changed: bool
    nodes_before: int
    nodes_after: int
    seconds: float
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class StageText(Event):
    """A stage of another backend wrote a text. `artifact` is relative to the run folder."""

    kind: ClassVar[str] = "stage.text"
    level: ClassVar[str] = "debug"
    artifact: str


@dataclass(frozen=True, slots=True)
class DecisionTaken(Event):
    """The gate decided whether an optional step is taken."""

    kind: ClassVar[str] = "decision"
    level: ClassVar[str] = "debug"
    subject: str
    ordinal: int
    allowed: bool


@dataclass(frozen=True, slots=True)
class Remark(Event):
    """An optimisation that was made (passed) or not made (missed), or a finding (analysis).

    `subjects` are the nodes of the loop IR concerned. `moved` is the bytes that it saves, or would
    save.
    """

    kind: ClassVar[str] = "remark"
    level: ClassVar[str] = "debug"
    verdict: str
    message: str
    subjects: list[str]
    moved: int


@dataclass(frozen=True, slots=True)
class KernelWritten(Event):
    """A kernel was generated: its language, the nodes it computes, the bytes it moves.

    `moved` is an estimate for symbolic sizes, and 0 if it is unknown. `source` is relative to the
    run folder. `code` is the name of the kernel in `source`; another kernel's, if it shares that
    kernel's code. `origins` lists every node that is computed, inlined ones included, as [node,
    node of the ATen graph, operator, user's line].
    """

    kind: ClassVar[str] = "kernel"
    name: str
    language: str
    computes: list[str]
    moved: int
    source: str
    origins: list[list[str]] = field(default_factory=list)
    code: str = ""


@dataclass(frozen=True, slots=True)
class ComboWritten(Event):
    """Independent kernels of a GPU were fused horizontally: one launch runs them (`fuse.combo`).

    `source` is relative to the run folder.
    """

    kind: ClassVar[str] = "combo_written"
    name: str
    kernels: list[str]
    source: str


@dataclass(frozen=True, slots=True)
class GraphStep(Event):
    """A kernel or library call of a compiled graph. Written only under `tcdebug run --profile`.

    `position` is its place in the order of the graph's calls. `name` is its name in a profile: that
    of a generated kernel, or an operator such as aten::mm. `nodes` are nodes of the ATen graph, and
    `node_lines` their lines as FILE:N, empty if unknown. `lines` are all lines that it computes.
    `moved` is as in `kernel`.
    """

    kind: ClassVar[str] = "graph.step"
    level: ClassVar[str] = "debug"
    position: int
    name: str
    generated: bool
    nodes: list[str]
    node_lines: list[str]
    lines: list[str]
    moved: int


@dataclass(frozen=True, slots=True)
class KernelLoaded(Event):
    """A version of a Triton kernel was loaded on the GPU: its tile and its use of resources.

    `blocks` has the elements of a program along each dimension. `registers` is per thread,
    `spilled` in bytes per thread, `shared` in bytes per program.
    """

    kind: ClassVar[str] = "kernel_loaded"
    name: str
    blocks: dict[str, int]
    warps: int
    registers: int
    spilled: int
    shared: int


@dataclass(frozen=True, slots=True)
class CudaGraphCaptured(Event):
    """A graph was captured as a CUDA graph for some sizes.

    `copied` is the number of inputs that are copied into the graph's memory at each call, `direct`
    of those that it reads in place.
    """

    kind: ClassVar[str] = "cuda_graph_captured"
    sizes: list[int]
    copied: int
    direct: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CudaGraphSkipped(Event):
    """A CUDA graph was requested, but the graph runs without one. `reason` says why."""

    kind: ClassVar[str] = "cuda_graph_skipped"
    reason: str


@dataclass(frozen=True, slots=True)
class ExternCalled(Event):
    """An operator is a call to ATen. `reason` says why no kernel was generated for it."""

    kind: ClassVar[str] = "extern"
    level: ClassVar[str] = "debug"
    op: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fallback(Event):
    """Something that was requested is done in another way, slower, or not at all.

    No fallback happens without this event.
    """

    kind: ClassVar[str] = "fallback"
    level: ClassVar[str] = "warning"
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class CacheUsed(Event):
    """A shared object was found (`hit`), built (`miss`), or found broken and rebuilt (`corrupt`).

    For other backends, the event is about torch's caches, which may also be bypassed (`bypass`).
    """

    kind: ClassVar[str] = "cache"
    verdict: str
    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class KernelsBuilt(Event):
    """The C++ compiler built a translation unit: its kernels, and the seconds that it took."""

    kind: ClassVar[str] = "kernels_built"
    kernels: list[str]
    seconds: float


EVENTS: tuple[type[Event], ...] = (
    *RUN_EVENTS,
    CompileStart,
    CompileEnd,
    CompileFail,
    GraphBreak,
    Recompile,
    GuardSummary,
    CompileMetrics,
    SizeChanged,
    StageStart,
    StageEnd,
    PassRan,
    StageText,
    DecisionTaken,
    Remark,
    KernelWritten,
    ComboWritten,
    GraphStep,
    KernelLoaded,
    *MEASURED_EVENTS,
    CudaGraphCaptured,
    CudaGraphSkipped,
    ExternCalled,
    Fallback,
    CacheUsed,
    KernelsBuilt,
    *SEARCH_EVENTS,
)
