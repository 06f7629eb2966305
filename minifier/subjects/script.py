"""A whole script that fails although none of its graphs fails alone.

Each run is a fresh process that runs the script as it is, with toggles from the environment. The
outcome is its exit status, its signal, its last exception, or a hang.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.layers import LayerFinding, Searchable, find_graph_layer
from tcdebug.minifier.cases import environment
from tcdebug.minifier.cases.criteria import PrintedLine
from tcdebug.minifier.cases.exception_identity import normalised
from tcdebug.minifier.cases.outcome import Kind, Outcome, crash_signature, signal_name
from tcdebug.minifier.cases.user_frames import last_exception, raising_statement
from tcdebug.minifier.judging.check import most_decisions, run_check
from tcdebug.minifier.judging.endings import outcome_of as ending_of
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, Spending
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.processes.job import CANNOT_END, NO_END, SCRIPT_FAILED, Job, check_session
from tcdebug.minifier.processes.job import start as start_session
from tcdebug.minifier.processes.process import Child, Ended, Limits
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.minifier.repros.last_words import last_words
from tcdebug.minifier.repros.script_repro import write_repro
from tcdebug.minifier.subjects.printed import is_printed
from tcdebug.minifier.subjects.subject import KnownReason, ReproFacts, WrittenRepro

LONGER = 3.0
"""A script may take this many times as long as the first run of a graph."""


@dataclass(frozen=True)
class WholeScript:
    """A script and its arguments, as a candidate."""

    path: str
    args: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """A key over the text of the script and its arguments."""
        text = Path(self.path).read_bytes()
        parts = [text, *(argument.encode() for argument in self.args)]
        return blake2b(b"\0".join(parts), digest_size=8).hexdigest()

    @property
    def size(self) -> int:
        """0: a script has no nodes to count."""
        return 0


def script_oracle(
    subject: ScriptSubject, seconds: float, name: str, longest: float = math.inf
) -> Oracle[WholeScript]:
    """Return an oracle for a whole script, with a budget of `seconds`.

    `name` separates its answers, and the other failures it finds, from those of other searches. A
    run of the script takes `longest` seconds at most.
    """
    job, folder = subject.job, Path(subject.job.run_dir)
    limits = Limits(min(longest, job.limits.seconds * LONGER), job.limits.memory)
    return Oracle(
        subject,
        subject.log,
        Answers(folder / f"answers-{name}.jsonl"),
        limits,
        Spending(Budget(seconds, job.reruns)),
        job.wanted,
        OtherFailures(folder / "other" / name, subject.log),
    )


@dataclass(eq=False)
class ScriptSubject:
    """A script that fails as a whole, run compiled under toggles."""

    job: Job
    log: EventLog
    layer: LayerFinding | None = None
    """The layer at fault, if it is known."""
    keeps_stages: bool = False
    sessions: WarmSessions | None = None
    """Forks the process of each run. If it is None, each process is fresh."""
    interpreters: Interpreters | None = None
    """None: what a script imports may depend on what it does before."""
    runs: int = 0
    _folder: Path = field(init=False)
    _known: set[Path] = field(default_factory=set)
    """The event files that existed before the latest run. Only one run is active at a time."""

    def __post_init__(self) -> None:
        self._folder = Path(self.job.run_dir)

    @property
    def backend(self) -> str:
        """The backend that replaces those of the script, or a phrase for the script's own."""
        return self.job.backend or "the backend of the script"

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Everything an answer depends on: versions, settings of the environment, and criteria."""
        wanted = msgspec.json.encode(self.job.wanted).decode()
        versions = (platform.python_version(), version("torch"))
        return (*versions, self.job.backend or "", wanted, repr(environment.given()))

    @property
    def least_hang_seconds(self) -> float:
        """0: the job alone limits the time of a script."""
        return 0.0

    def start(self, question: Question[WholeScript], limits: Limits) -> Child:
        """Run the script in a fresh process, or let the user's command judge it."""
        self.runs += 1
        limits = Limits(limits.seconds, None)
        if check := self.job.wanted.check:
            return self._start_check(check, question.toggles, limits)
        variables = {
            "TCDEBUG_OFF": ",".join(question.toggles.texts()),
            "TCDEBUG_RUN_DIR": self.job.run_dir,
            "TCDEBUG_ARTIFACTS": "0",
        }
        self._known = set(self._folder.glob("events*.jsonl"))
        job = msgspec.structs.replace(self.job, mode="compiled")
        return start_session(job, self._output, variables, limits, self.sessions)

    @property
    def _output(self) -> Path:
        """The output file of the latest run."""
        return self._folder / f"compiled-{self.runs}.log"

    def _start_check(self, check: str, toggles: Toggles, limits: Limits) -> Child:
        script, output = Path(self.job.script).resolve(), self._output

        def work(parent: Parent) -> bytes:
            parent("check")
            outcome = run_check(check, script, self._folder, toggles.texts(), output=output)
            return msgspec.json.encode(outcome)

        return fork(work, limits, self._folder / "script-runs.log")

    def outcome(self, child: Child, ended: Ended) -> Outcome | None:
        """Return how the script ended, with the decisions of its compiles. Raises SessionError."""
        if self.job.wanted.check:
            outcome = ending_of(ended)
        else:
            check_session(self.job, ended, self._output)
            outcome = self._ending(ended)
        return replace(outcome, seconds=ended.seconds, cpu_seconds=ended.cpu_seconds)

    def _ending(self, ended: Ended) -> Outcome:
        if ended.timed_out:
            message = f"no end after {ended.seconds:.0f} s"
            outcome = Outcome(Kind.HANG, "script", "script | hang", message)
        else:
            text = self._output.read_text(errors="replace")
            outcome = outcome_of(ended.returncode, text, self.job.wanted.prints)
        fresh = sorted(set(self._folder.glob("events*.jsonl")) - self._known)
        return replace(outcome, decisions=most_decisions(fresh))

    def write(self, candidate: WholeScript, toggles: Toggles, outcome: Outcome, path: Path) -> None:
        """Write a repro that runs a copy of the script."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_repro(self._job_under(toggles), outcome, (), path)

    def reducer(self, candidate: WholeScript, log: EventLog) -> None:
        """Return None: nothing makes a script smaller."""

    def returned_values(self, candidate: WholeScript, failure: Outcome) -> None:
        """Return None: the values of a script are not compared."""

    def named_call(self, candidate: WholeScript, failure: Outcome) -> None:
        """Return None: a script has no calls that could be taken out."""

    def find_layer(
        self, asked: Searchable, base: Toggles, failure: Outcome, confidence: float
    ) -> LayerFinding:
        """Return the layer at fault: the known one, or found by backends. Raises BudgetUsed."""
        return self.layer or find_graph_layer(asked, base, failure, confidence, self.backend)

    def repros(self, facts: ReproFacts[WholeScript], path: Path) -> Iterator[WrittenRepro]:
        """Write a copy of the script, and a repro that judges how it ends."""
        write_repro(self._job_under(facts.base), facts.failure, facts.culprits, path)
        yield WrittenRepro(path, "script")

    def _job_under(self, toggles: Toggles) -> Job:
        return msgspec.structs.replace(self.job, toggles=list(toggles.texts()))

    def short_form(self, facts: ReproFacts[WholeScript], path: Path) -> None:
        """Return None: a whole script has no short form."""

    def lines(self, candidate: WholeScript) -> list[str]:
        """Return nothing: no line of a script is more suspect than another."""
        return []

    def explanations(
        self, candidate: WholeScript, failure: Outcome
    ) -> Iterator[KnownReason[WholeScript]]:
        """Yield nothing: the inputs and operators of a script are not known."""
        return iter(())

    def misregistered(self, candidate: WholeScript) -> list[str]:
        """Return nothing: the operators that a script calls are unknown."""
        return []


def outcome_of(status: int | None, text: str, prints: PrintedLine | None = None) -> Outcome:
    """Return the outcome of a script, given its exit status and its output.

    If it ends well, it is wrong if it does not print a line that it must print.
    """
    if status is None:
        return Outcome(Kind.INVALID, "script", message="it is not known how the script ended")
    if status == NO_END and text.rstrip().endswith(CANNOT_END):
        return Outcome(Kind.INVALID, "script", message=CANNOT_END)
    if status == 0:
        if prints is None or is_printed(prints, text):
            return Outcome(Kind.OK, "script")
        message = f"it does not print `{prints.text[:160]}` as it does in eager"
        return Outcome(Kind.WRONG, "script", _signature("it does not print", prints.text), message)
    if status < 0:
        name = signal_name(-status)
        return Outcome(Kind.CRASH, "script", crash_signature(-status, "script"), f"ended by {name}")
    if status == SCRIPT_FAILED:
        last = _last_exception(text)
        name = last.partition(":")[0]
        what = normalised(last.replace("\n", " "))
        place = raising_statement(text) if what == name else ""  # it has no message
        return Outcome(Kind.EXCEPTION, "script", _signature(name, what, place), last)
    message = f"exit status {status}"
    return Outcome(Kind.EXCEPTION, "script", _signature(message, last_words(text)), message)


def _signature(*parts: str) -> str:
    return " | ".join(("script", *filter(None, parts)))


def _last_exception(text: str) -> str:
    """Return the exception of the last traceback, or the last line if there is no traceback."""
    return last_exception(text) or text.strip().rpartition("\n")[2]
