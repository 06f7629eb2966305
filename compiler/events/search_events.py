"""Events of searches: failures, candidates, bisection, reduction, repros, fuzzing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tcdebug.compiler.events.event import Event


@dataclass(frozen=True, slots=True)
class GraphFailure(Event):
    """A graph failed in comparison with eager. `minifier/cases/outcome.py` has the kinds."""

    kind: ClassVar[str] = "failure"
    level: ClassVar[str] = "error"
    failure: str
    signature: str
    direction: str
    message: str


@dataclass(frozen=True, slots=True)
class OtherFailure(Event):
    """A candidate failed in a different way from the failure searched for. Its repro is kept."""

    kind: ClassVar[str] = "failure.other"
    level: ClassVar[str] = "warning"
    failure: str
    signature: str
    nodes: int
    path: str


@dataclass(frozen=True, slots=True)
class GraphRecorded(Event):
    """The script called a compiled graph: `ordinal` among its graphs, nodes, number of the call.

    `differing` describes the inputs whose dtype is not that with which they were captured.
    """

    kind: ClassVar[str] = "graph.recorded"
    ordinal: int
    nodes: int
    call: int
    differing: str = ""


@dataclass(frozen=True, slots=True)
class HangSuspected(Event):
    """The run of a graph shows no sign of progress. The search for the cause begins beside it."""

    kind: ClassVar[str] = "hang.suspected"
    level: ClassVar[str] = "warning"
    direction: str
    message: str


@dataclass(frozen=True, slots=True)
class GraphRounded(Event):
    """A graph passed with results that differ from those of eager, but only by rounding."""

    kind: ClassVar[str] = "graph.rounded"
    ordinal: int
    call: int


@dataclass(frozen=True, slots=True)
class GraphRaised(Event):
    """A graph of the script raised an exception in eager, while its graphs were recorded."""

    kind: ClassVar[str] = "graph.raised"
    ordinal: int
    message: str


@dataclass(frozen=True, slots=True)
class ProgramExported(Event):
    """Something else ran in place of an exported program, or of one `packaged` by AOTInductor."""

    kind: ClassVar[str] = "program.exported"
    packaged: bool


@dataclass(frozen=True, slots=True)
class CompilingMentioned(Event):
    """A file of the program, or of a library, mentions the function `is_compiling`."""

    kind: ClassVar[str] = "compiling.mentioned"
    path: str


@dataclass(frozen=True, slots=True)
class CompilingAsked(Event):
    """A `line` of the program heard in eager that it is being compiled: FILE:LINE and its text."""

    kind: ClassVar[str] = "compiling.asked"
    line: str


@dataclass(frozen=True, slots=True)
class CallRaised(Event):
    """An exception left a call of a compiled function, the one of this `number` in its process.

    `off` is what was switched off. `places` are the lines that the exception names, as FILE:LINE.
    `chosen` says that a statement `raise` or `assert` raised it.
    """

    kind: ClassVar[str] = "call.raised"
    off: list[str]
    number: int
    error: str
    message: str
    places: list[str]
    chosen: bool


@dataclass(frozen=True, slots=True)
class CodeLoaded(Event):
    """The script loaded code that this process did not compile. `path` is its file, if known."""

    kind: ClassVar[str] = "code.loaded"
    path: str


@dataclass(frozen=True, slots=True)
class ProgramTraced(Event):
    """The script recorded a function with a tracer of torch, which also does so in eager."""

    kind: ClassVar[str] = "program.traced"
    tracer: str


@dataclass(frozen=True, slots=True)
class ValueCompared(Event):
    """`tcdebug values` compared a value that a step of a compiled graph wrote with its reference.

    `graph` and `call` are ordinals, from 0 and from 1. Errors are distances from float64 in units
    in the last place, or -1 where they have no meaning. `wrong` says what is wrong with the value;
    it is empty if it is right.
    """

    kind: ClassVar[str] = "value"
    level: ClassVar[str] = "debug"
    graph: int
    call: int
    step: int
    name: str
    buffer: str
    node: str
    hash: str
    eager_hash: str
    error: float
    eager_error: float
    wrong: str


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
    """A bisection started: how many items it searches, and how many reruns it expects at most."""

    kind: ClassVar[str] = "bisect.plan"
    over: str
    size: int
    expected: int


@dataclass(frozen=True, slots=True)
class BisectStep(Event):
    """A bisection narrowed the range of the first bad step to (low, high]."""

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
class MinifyPlan(Event):
    """A reduction begins. `size` is what is left of the case, in nodes or in lines of a script.

    `expected` is the number of runs left in this round of reductions if nothing more can be
    removed. It includes edits that turn out to be invalid. Each success changes it.
    """

    kind: ClassVar[str] = "minify.plan"
    level: ClassVar[str] = "debug"
    reduction: str
    size: int
    unit: str
    expected: int


@dataclass(frozen=True, slots=True)
class MinifyStep(Event):
    """A reduction made the case smaller. `unit` is what is counted: nodes, or lines of a script."""

    kind: ClassVar[str] = "minify.step"
    reduction: str
    nodes_before: int
    nodes_after: int
    unit: str


@dataclass(frozen=True, slots=True)
class CallChecked(Event):
    """`run --check` checked a call of a compiled graph or function.

    `check` is `results` or `guards`. `of` is the graph or the function, `call` counts its calls
    from 1. `verdict` is `ok`, `wrong` or `not compared`; `detail` says what was compared less
    strictly, or why nothing was.
    """

    kind: ClassVar[str] = "call.checked"
    check: str
    of: str
    call: int
    verdict: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GuardMissing(Event):
    """Dynamo reused a graph in a call for which a new capture gives a different one.

    `call` counts the calls of the function from 1. `where` and `detail` say what came out wrong.
    `changed` lists the values that the call could read and that changed since the capture. `line`,
    `reused` and `fresh` describe the first operation that differs: its source line, the operation
    that ran, and the one in the new capture.
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
    """A repro script was written. It is reported to the user only after `repro.verify`."""

    kind: ClassVar[str] = "repro.write"
    path: str
    nodes: int
    inputs: str


@dataclass(frozen=True, slots=True)
class ReproVerify(Event):
    """A repro script was run in a fresh process and a clean folder, to see whether it fails."""

    kind: ClassVar[str] = "repro.verify"
    path: str
    reproduced: bool
    exit_status: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FuzzCase(Event):
    """A generated program was judged: passed, failed, known, discarded or invalid.

    `message` says why it did not pass. `ops` are the operators it was drawn from, `fused` the
    pairs that the compiler put into one kernel. `script` is the source of a program that failed,
    before it is shrunk.
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
    script: str


@dataclass(frozen=True, slots=True)
class FuzzFinding(Event):
    """A generated program failed in a new way and was saved. `ops` are those left after shrinking.

    `culprits` are the units that a bisection named; empty if there was no bisection.
    """

    kind: ClassVar[str] = "fuzz.finding"
    level: ClassVar[str] = "error"
    signature: str
    ops: list[str]
    path: str
    examples: int
    culprits: list[str]


@dataclass(frozen=True, slots=True)
class FuzzNotReproduced(Event):
    """A generated program failed, but passes in a fresh process. It does not count as a finding.

    `path` is its folder. `note` says what was run.
    """

    kind: ClassVar[str] = "fuzz.not_reproduced"
    level: ClassVar[str] = "warning"
    signature: str
    ops: list[str]
    path: str
    note: str


@dataclass(frozen=True, slots=True)
class FuzzListed(Event):
    """A generated program failed because of a listed finding, whose name is `cause`.

    It does not count as a finding. `path` is its folder.
    """

    kind: ClassVar[str] = "fuzz.listed"
    level: ClassVar[str] = "warning"
    signature: str
    ops: list[str]
    path: str
    cause: str


@dataclass(frozen=True, slots=True)
class FuzzAgain(Event):
    """A finding was judged again: the name of its folder, and the new result."""

    kind: ClassVar[str] = "fuzz.again"
    finding: str
    status: str
    signature: str


SEARCH_EVENTS: tuple[type[Event], ...] = (
    GraphFailure,
    OtherFailure,
    GraphRecorded,
    GraphRaised,
    HangSuspected,
    GraphRounded,
    ProgramExported,
    CompilingMentioned,
    CompilingAsked,
    CallRaised,
    CodeLoaded,
    ProgramTraced,
    ValueCompared,
    CandidateRan,
    BisectPlan,
    BisectStep,
    BisectResult,
    MinifyPlan,
    MinifyStep,
    CallChecked,
    GuardMissing,
    ReproWrite,
    ReproVerify,
    FuzzCase,
    FuzzFinding,
    FuzzNotReproduced,
    FuzzListed,
    FuzzAgain,
)
