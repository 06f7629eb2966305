"""The event schema: one frozen dataclass a kind. docs/events.md is generated from this file.

Fields are what JSON can say. What every event carries besides (time, process, compile, stage) is
the envelope that `event_log` adds; docs/events.md lists it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """What all events have in common: a kind and a level."""

    kind: ClassVar[str] = ""
    level: ClassVar[str] = "info"


@dataclass(frozen=True, slots=True)
class RunStart(Event):
    """A command began: what it was called with, and where."""

    kind: ClassVar[str] = "run.start"
    command: str
    argv: list[str]
    cwd: str


@dataclass(frozen=True, slots=True)
class RunEnd(Event):
    """A command ended: its exit status and the seconds it took."""

    kind: ClassVar[str] = "run.end"
    exit_status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EnvSnapshot(Event):
    """The versions and environment variables that a compile depends on."""

    kind: ClassVar[str] = "env.snapshot"
    tcdebug: str
    torch: str
    python: str
    platform: str
    threads: int
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfigSnapshot(Event):
    """What a script and its environment have changed in torch's settings: a line of Python each."""

    kind: ClassVar[str] = "config.snapshot"
    changed: list[str]


@dataclass(frozen=True, slots=True)
class CompileStart(Event):
    """A graph from Dynamo reached the compiler: its nodes, inputs and operators by count."""

    kind: ClassVar[str] = "compile.start"
    nodes: int
    inputs: int
    toggles: list[str]
    operators: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CompileEnd(Event):
    """A forward, backward or inference graph was compiled: what it became."""

    kind: ClassVar[str] = "compile.end"
    seconds: float
    kernels: int
    externs: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CompileFail(Event):
    """A compile raised; `unit` and `node` are empty where the stage is all that is known."""

    kind: ClassVar[str] = "compile.fail"
    level: ClassVar[str] = "error"
    failed_stage: str
    failed_unit: str
    node: str
    exception: str
    message: str


@dataclass(frozen=True, slots=True)
class GraphBreak(Event):
    """Dynamo could not capture past a line: the reason, as Dynamo words it."""

    kind: ClassVar[str] = "graph.break"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class Recompile(Event):
    """A guard failed and Dynamo captured the frame again: which one, as Dynamo words it."""

    kind: ClassVar[str] = "recompile"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True)
class GuardSummary(Event):
    """What has to hold for a compiled graph to be used again: how many guards there are.

    `guards` are those on values of the program, each as "kind: condition"; `artifact` has all.
    """

    kind: ClassVar[str] = "guard.summary"
    total: int
    guards: list[str]
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class CompileMetrics(Event):
    """What torch says about one compile of a frame, or of its backward: size, seconds by phase.

    `failure` is the exception that ended it; empty where it went well.
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
    """A value that was a constant became a symbol, as it differed in a later call."""

    kind: ClassVar[str] = "size.changed"
    name: str
    reason: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class StageStart(Event):
    """A stage began, with this many nodes; `artifact` is the graph as the stage before left it.

    Only the stages of passes keep it: the others begin with what another stage has saved.
    """

    kind: ClassVar[str] = "stage.start"
    level: ClassVar[str] = "debug"
    nodes: int
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class StageEnd(Event):
    """A stage ended: nodes before and after, whether it changed the graph, seconds.

    `artifact` is the IR after the stage, relative to the run folder; empty where it is unchanged.
    """

    kind: ClassVar[str] = "stage.end"
    nodes_before: int
    nodes_after: int
    changed: bool
    seconds: float
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class PassRan(Event):
    """A pass ran or was held back; `artifact` is the graph after it where it changed."""

    kind: ClassVar[str] = "pass"
    allowed: bool
    changed: bool
    nodes_before: int
    nodes_after: int
    seconds: float
    artifact: str = ""


@dataclass(frozen=True, slots=True)
class StageText(Event):
    """A stage of another pipeline left a text: `artifact`, relative to the run folder."""

    kind: ClassVar[str] = "stage.text"
    level: ClassVar[str] = "debug"
    artifact: str


@dataclass(frozen=True, slots=True)
class DecisionTaken(Event):
    """The gate was asked whether a step may be taken, and answered."""

    kind: ClassVar[str] = "decision"
    level: ClassVar[str] = "debug"
    subject: str
    ordinal: int
    allowed: bool


@dataclass(frozen=True, slots=True)
class Remark(Event):
    """Something was optimised (passed), was not (missed, and why), or is so (analysis).

    `subjects` are the nodes of the loop IR that it is about; `moved` the bytes it saves, or would.
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

    `moved` is an estimate for symbolic sizes, and 0 where it is not known; `source` is relative to
    the run folder, and `code` the kernel in whose name it is there: another one, where that has the
    same code. `origins` has for each node that is computed, also inside of another one, [node,
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
class KernelLoaded(Event):
    """A version of a Triton kernel is on the GPU: its tile, and what a thread of it takes.

    `blocks` has the elements of a program along each dimension; `spilled` is in bytes a thread,
    `shared` in bytes a program.
    """

    kind: ClassVar[str] = "kernel_loaded"
    name: str
    blocks: dict[str, int]
    warps: int
    registers: int
    spilled: int
    shared: int


@dataclass(frozen=True, slots=True)
class TileChosen(Event):
    """The tile of a Triton kernel was measured: the fastest of so many, 0 where it was known."""

    kind: ClassVar[str] = "tile"
    name: str
    blocks: dict[str, int]
    warps: int
    tried: int


@dataclass(frozen=True, slots=True)
class ProductChosen(Event):
    """A product was measured as a call of ATen (`extern`) and in templates: the fastest is chosen.

    `milliseconds` are those of each, with the kernels around it; `failed` says why one could not be
    run. `known` where that was measured before.
    """

    kind: ClassVar[str] = "product"
    name: str
    op: str
    chosen: str
    milliseconds: Mapping[str, float]
    failed: Mapping[str, str]
    known: bool


@dataclass(frozen=True, slots=True)
class CudaGraphCaptured(Event):
    """A graph was captured as a CUDA graph, for these sizes, in so many seconds.

    `copied` inputs are copied into its memory at each call, `direct` ones are read where they are.
    """

    kind: ClassVar[str] = "cuda_graph_captured"
    sizes: list[int]
    copied: int
    direct: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CudaGraphSkipped(Event):
    """A graph runs without a CUDA graph, though one was asked for: why."""

    kind: ClassVar[str] = "cuda_graph_skipped"
    reason: str


@dataclass(frozen=True, slots=True)
class ExternCalled(Event):
    """An operator is left to ATen: which node, and why it was not generated."""

    kind: ClassVar[str] = "extern"
    level: ClassVar[str] = "debug"
    op: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Fallback(Event):
    """Something that was asked for is done otherwise, slower or not at all; never without this."""

    kind: ClassVar[str] = "fallback"
    level: ClassVar[str] = "warning"
    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class CacheUsed(Event):
    """A shared object was found (`hit`), built (`miss`), or broken and rebuilt (`corrupt`).

    Of other backends the caches of torch, which may also be passed by (`bypass`).
    """

    kind: ClassVar[str] = "cache"
    verdict: str
    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class GraphFailure(Event):
    """A graph failed when it was judged against eager: see `minifier.outcome` for the kinds."""

    kind: ClassVar[str] = "failure"
    level: ClassVar[str] = "error"
    failure: str
    signature: str
    direction: str
    message: str


@dataclass(frozen=True, slots=True)
class OtherFailure(Event):
    """A candidate failed in another way than what is searched for; its repro script is kept."""

    kind: ClassVar[str] = "failure.other"
    level: ClassVar[str] = "warning"
    failure: str
    signature: str
    nodes: int
    path: str


@dataclass(frozen=True, slots=True)
class GraphRecorded(Event):
    """A compiled graph was reached in a script: its place among the graphs, nodes, line."""

    kind: ClassVar[str] = "graph.recorded"
    ordinal: int
    nodes: int
    call: int


@dataclass(frozen=True, slots=True)
class CandidateRan(Event):
    """A candidate was run, or its answer was already known (`cached`)."""

    kind: ClassVar[str] = "candidate"
    number: int
    purpose: str
    toggles: list[str]
    nodes: int
    outcome: str
    signature: str
    cached: bool
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class BisectPlan(Event):
    """A bisection begins: how many things it searches, and reruns expected at most."""

    kind: ClassVar[str] = "bisect.plan"
    over: str
    size: int
    expected: int


@dataclass(frozen=True, slots=True)
class BisectStep(Event):
    """The range that holds the first bad step got smaller: it is in (low, high]."""

    kind: ClassVar[str] = "bisect.step"
    over: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class BisectResult(Event):
    """The culprit: the decision without which the failure goes away."""

    kind: ClassVar[str] = "bisect.result"
    subject: str
    ordinal: int
    confirmed: bool


@dataclass(frozen=True, slots=True)
class MinifyStep(Event):
    """A reduction made the case smaller."""

    kind: ClassVar[str] = "minify.step"
    reduction: str
    nodes_before: int
    nodes_after: int


@dataclass(frozen=True, slots=True)
class GuardMissing(Event):
    """Dynamo reused what it had captured of a frame, where a capture from scratch is different.

    `call` counts the calls of the function from 1. `where` and `detail` say what came out wrong.
    `changed` lists what the call could read and has changed since the capture. `line`, `reused` and
    `fresh` are the first operation that differs: its source line, the one that ran, and the one
    that a new capture has.
    """

    kind: ClassVar[str] = "guard.missing"
    level: ClassVar[str] = "error"
    frame: str
    call: int
    where: str
    detail: str
    changed: list[str]
    line: str
    reused: str
    fresh: str


@dataclass(frozen=True, slots=True)
class ReproWrite(Event):
    """A repro script was written; it is announced only after `repro.verify`."""

    kind: ClassVar[str] = "repro.write"
    path: str
    nodes: int
    inputs: str


@dataclass(frozen=True, slots=True)
class ReproVerify(Event):
    """A repro script was run in a fresh process in a clean folder: did it fail as expected?"""

    kind: ClassVar[str] = "repro.verify"
    path: str
    reproduced: bool
    exit_status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FuzzCase(Event):
    """A drawn program was judged: passed, failed, known, discarded or invalid.

    `message` says why it did not pass. `ops` are those that it was drawn from, `fused` the pairs
    that the compiler put into one kernel.
    """

    kind: ClassVar[str] = "fuzz.case"
    level: ClassVar[str] = "debug"
    status: str
    signature: str
    message: str
    ops: list[str]
    pairs: list[str]
    fused: list[str]
    dynamic: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class FuzzFinding(Event):
    """A program that fails as none did before was kept: its ops, as few as it could be made of.

    `culprits` are the units that a bisection names; empty where there was none.
    """

    kind: ClassVar[str] = "fuzz.finding"
    level: ClassVar[str] = "error"
    signature: str
    ops: list[str]
    path: str
    examples: int
    culprits: list[str]


@dataclass(frozen=True, slots=True)
class FuzzAgain(Event):
    """A finding was judged again: the name of its folder, and how it ended this time."""

    kind: ClassVar[str] = "fuzz.again"
    finding: str
    status: str
    signature: str


@dataclass(frozen=True, slots=True)
class WorkerStart(Event):
    """A process was started to run a script or a candidate."""

    kind: ClassVar[str] = "worker.start"
    level: ClassVar[str] = "debug"
    purpose: str
    worker_pid: int


@dataclass(frozen=True, slots=True)
class WorkerExit(Event):
    """A process that ran a script or a candidate ended: its exit status, or minus the signal."""

    kind: ClassVar[str] = "worker.exit"
    level: ClassVar[str] = "debug"
    purpose: str
    worker_pid: int
    exit_status: int
    seconds: float


EVENTS: tuple[type[Event], ...] = (
    RunStart,
    RunEnd,
    EnvSnapshot,
    ConfigSnapshot,
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
    KernelLoaded,
    TileChosen,
    ProductChosen,
    CudaGraphCaptured,
    CudaGraphSkipped,
    ExternCalled,
    Fallback,
    CacheUsed,
    GraphFailure,
    OtherFailure,
    GraphRecorded,
    CandidateRan,
    BisectPlan,
    BisectStep,
    BisectResult,
    MinifyStep,
    GuardMissing,
    ReproWrite,
    ReproVerify,
    FuzzCase,
    FuzzFinding,
    FuzzAgain,
    WorkerStart,
    WorkerExit,
)
