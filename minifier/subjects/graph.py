"""A captured graph that fails. Its candidates run in forks of this process at the failing call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.units import is_of_program
from tcdebug.minifier.bisection.layers import LayerFinding, Searchable, find_graph_layer
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import ONE_THREAD, Criteria
from tcdebug.minifier.cases.environment import variables_to_try
from tcdebug.minifier.cases.outcome import Kind, Outcome, RaisedAt
from tcdebug.minifier.cases.placement import devices, placed
from tcdebug.minifier.cases.surroundings import surroundings
from tcdebug.minifier.judging.custom_operators import custom_operators, misregistered
from tcdebug.minifier.judging.endings import outcome_of
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, Spending
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.fork import Fork, fork, fork_past_handlers
from tcdebug.minifier.processes.imports import ImportsOfChildren
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.processes.process import Child, Ended, Limits, finished
from tcdebug.minifier.reduction.first_wrong import ReturnedValues, call_alone, returned_values
from tcdebug.minifier.reduction.reducer import Reducer
from tcdebug.minifier.repros import repro
from tcdebug.minifier.repros.candidate import Candidates
from tcdebug.minifier.repros.repro_judging import SpeedLimits, seconds_of_graph
from tcdebug.minifier.repros.short import write_short
from tcdebug.minifier.subjects.device_values import DeviceValues
from tcdebug.minifier.subjects.explanations import explanations
from tcdebug.minifier.subjects.judges import Judge, judge_of, keeper_of
from tcdebug.minifier.subjects.subject import KnownReason, ReproFacts, WrittenRepro
from tcdebug.minifier.targets import Target
from tcdebug.minifier.targets.backends import EMBEDDED, INDUCTOR
from tcdebug.minifier.targets.replaced import LoadedFunctions
from tcdebug.minifier.trace.decisions import read_decisions

LEAST_SECONDS = 5.0
"""The smallest time limit of a candidate in seconds, because the machine may be busy."""
LEAST_OF_OTHERS = 15.0
"""The same for other compilers. A first run that crashed did not build all kernels."""
AUTOTUNE_CACHE = "autotune_local_cache"
VALUES = ("default", "eager", "fp64", "nan")
"""Oracles that compare values alone."""
OTHER_TARGET = (
    "the repro compiles with torch.compile and {}; one that uses AOTInductor did not fail in the "
    "same way, or did not pass with the culprit off within its time limit"
)
"""A note on a repro that does not compile as the script does."""
FORK_REFUSED = "fork-based multiprocessing"
"""The text of autograd's error in a child that was forked after device threads were started."""


JUDGE, CHECK_OPERATORS = "judge", "check operators"
"""What a child does with a candidate."""
StartReplay = Callable[[str, Question[Case], Limits], Child]


class NotOnDevices(Exception):
    """Something could not be done with a graph on its devices; the message says why."""


def graph_oracle(
    subject: GraphSubject, limits: Limits, budget: Budget, jobs: int = 1
) -> Oracle[Case]:
    """Return an oracle for one graph. It keeps its answers in the run folder of the subject."""
    folder = subject.folder
    return Oracle(
        subject, subject.log, Answers(folder / "answers.jsonl"), limits, Spending(budget),
        subject.criteria, OtherFailures(folder / "other", subject.log), jobs,
    )  # fmt: skip


@dataclass(eq=False)
class GraphSubject:
    """A graph of a script, compiled by `target`, with everything the script has set up in force."""

    target: Target
    log: EventLog
    criteria: Criteria = field(default_factory=Criteria)
    prepare: Callable[[], None] = lambda: None
    """Called first in every child."""
    setups: tuple[str, ...] = ("",)
    """Python that a repro may need before its graph, the shortest first; see `script_setup`."""
    judged_with: str = ""
    """The setup of the scripts that the user's command judges."""
    place: str = ""
    """Distinguishes graphs whose backends have no name."""
    memory: int | None = Limits().memory
    ambient: Ambient = field(default_factory=Ambient.current)
    wake: Callable[[], None] = lambda: None
    """Called in a child if the case needs a device. Raises if no device is available."""
    imports: ImportsOfChildren | None = None
    """Records what children import, if this process should import it too."""
    replay: StartReplay | None = None
    """Starts a child that runs the script up to the graph before it works on a candidate.

    If it is None, this process is forked instead. Otherwise this process may use the devices."""
    interpreters: Interpreters | None = None
    """Interpreters that wait to run its repros."""
    script: str = ""
    """The path of the user's script."""
    standalone: bool = False
    """Whether its repros contain their judge."""
    script_target: Target | None = None
    """How the script compiles the graph, if `target` is asked in its place."""
    loaded: LoadedFunctions = field(default_factory=LoadedFunctions)
    """What inductor called for each operator before the script could replace it."""
    _fork: Fork = os.fork

    @property
    def folder(self) -> Path:
        """The run folder."""
        assert self.log.folder is not None
        return self.log.folder

    @property
    def backend(self) -> str:
        """The name of the backend."""
        return self.target.name

    @property
    def keeps_stages(self) -> bool:
        """True: every target can keep the texts of its stages."""
        return True

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(self.target, self.ambient, self.judged_with)

    @cached_property
    def _judge(self) -> Judge:
        return judge_of(self.criteria, self._candidates, self.folder)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """Everything an answer depends on: backend, code, settings, memory limit, and the judge."""
        target = (self.target.name, repr(self.target.call()))
        where = ("replay",) if self.replay else ()
        return (*target, surroundings(), self.place, str(self.memory), self._judge.key, *where)

    @property
    def least_hang_seconds(self) -> float:
        """The smallest hang limit. Compilers other than the embedded one build kernels slowly."""
        return LEAST_SECONDS if self.target.name == EMBEDDED else LEAST_OF_OTHERS

    def start(self, question: Question[Case], limits: Limits) -> Child:
        """Start a child that judges the case of a question."""
        if self.replay is None:
            child = self._forked(partial(self.judged, question), limits)
        else:
            child = self.replay(JUDGE, question, limits)
        child.signs = self._events_of(child.pid)
        return child

    def done(self, work: str, question: Question[Case], notify: Callable[[str], None]) -> bytes:
        """In a child, do `JUDGE` or `CHECK_OPERATORS` with a candidate. Return the answer."""
        if work == JUDGE:
            return self.judged(question, notify)
        return self.operators_checked(question.candidate)

    def judged(self, question: Question[Case], notify: Callable[[str], None]) -> bytes:
        """In a child, judge the case of a question. Return its encoded outcome."""
        if self.imports is not None:
            self.imports.begin()
        case = self._in_place(question.candidate)
        if isinstance(case, Outcome):
            return msgspec.json.encode(case)
        kept = question.kept
        toggles = question.toggles
        judge = self._judge
        if kept is not None:
            oracle = self.criteria.oracle
            judge = keeper_of(self._candidates, self.folder, kept, toggles, oracle)
        outcome = judge(case, toggles, notify)
        if self.imports is not None:
            self.imports.save()
        return msgspec.json.encode(outcome)

    def _events_of(self, pid: int) -> Path:
        return self.folder / f"events-{pid}.jsonl"

    def _forked(self, work: Callable[[Callable[[str], None]], bytes], limits: Limits) -> Child:
        return fork(work, limits, self.folder / "candidates.log", self._fork)

    def _in_place(self, case: Case) -> Case | Outcome:
        """In a child, return the case on its devices, or an invalid outcome that says why not."""
        try:
            if devices(case):
                self.wake()
            self.prepare()
            return placed(case)
        except Exception as problem:
            message = f"it cannot be moved to its device: {type(problem).__name__}: {problem}"
            return Outcome(Kind.INVALID, "eager", message=message)

    def outcome(self, child: Child, ended: Ended) -> Outcome | None:
        """Return the outcome of a child; None if autograd refused to run after os.fork."""
        outcome = outcome_of(ended)
        if self.imports is not None:
            self.imports.take_over(ended.pid)
        if child.fork is os.fork and FORK_REFUSED in outcome.message:
            self.log.emit(Fallback("os.fork", outcome.message))
            self._fork = fork_past_handlers
            return None
        decisions = tuple(read_decisions(self._events_of(ended.pid)))
        return replace(
            outcome,
            decisions=decisions or outcome.decisions,
            seconds=ended.seconds,
            cpu_seconds=ended.cpu_seconds,
            silence=ended.silence,
            memory=ended.memory,
        )

    def write(self, candidate: Case, toggles: Toggles, outcome: Outcome, path: Path) -> None:
        """Write a candidate as a repro script."""
        write = self._candidates.write
        self._on_its_devices(candidate, lambda c: write(c, toggles, outcome, path).encode())

    def _on_its_devices(self, candidate: Case, work: Callable[[Case], bytes]) -> bytes:
        """Do work where the candidate's tensors can be on their devices; return its result.

        Raises NotOnDevices.
        """
        if self.replay is not None:
            try:
                return work(placed(candidate))
            except Exception as problem:
                raise NotOnDevices(f"{type(problem).__name__}: {problem}") from problem
        if not devices(candidate):
            return work(candidate)

        def work_there(notify: Callable[[str], None]) -> bytes:
            case = self._in_place(candidate)
            if isinstance(case, Outcome):
                raise NotOnDevices(case.message)
            return work(case)

        answer = finished(self._forked(work_there, Limits())).answer
        if answer is None:
            raise NotOnDevices("the process that may use the devices failed; see candidates.log")
        return answer

    def reducer(self, candidate: Case, log: EventLog) -> Reducer:
        """Return a reducer for the graph."""
        return Reducer(candidate, log, DeviceValues(self._on_its_devices))

    def returned_values(self, candidate: Case, failure: Outcome) -> ReturnedValues | None:
        """Return the graph that returns all its values, if a wrong value of forward was compared.

        That is a result, or an argument that the graph updates.
        Gradients of values that are not results do not leave a compiled graph.
        """
        own_draws = failure.drew and not self.target.draws_as_eager
        of_forward = failure.output is not None or failure.message.startswith("input ")
        compared = of_forward and self.criteria.oracle in VALUES
        return returned_values(candidate) if compared and not own_draws else None

    def named_call(self, candidate: Case, failure: Outcome) -> Case | None:
        """Return the call that an exception is about, if it can be taken out of the graph."""
        if failure.named not in [node.name for node in candidate.calls]:
            return None
        return call_alone(candidate, failure.named)

    def find_layer(
        self, asked: Searchable, base: Toggles, failure: Outcome, confidence: float
    ) -> LayerFinding:
        """Find the layer at fault with torch's own backends. Raises BudgetUsed."""
        return find_graph_layer(asked, base, failure, confidence, self.backend)

    def repros(self, facts: ReproFacts[Case], path: Path) -> Iterator[WrittenRepro]:
        """Write the repro without and with the script's set-up, then both with its variables.

        Variables come last, because few failures need them and each attempt starts a process. An
        exception that the script's own code raises needs the set-up, and so does a culprit that the
        script defines.
        """
        setups = self.setups
        if self._raised_by_script(facts.failure) or any(map(self._of_script, facts.culprits)):
            setups = tuple(filter(None, setups)) or setups
        if self.script_target is not None:
            through_script = replace(self, target=self.script_target)
            for setup in setups:
                inputs = through_script._write(facts, setup, {}, path)
                yield WrittenRepro(path, inputs, must_pass=True)
        without = "" if self.script_target is None else OTHER_TARGET.format(self.target.name)
        for variables, setup in product(variables_to_try(), setups):
            inputs = self._write(facts, setup, variables, path)
            needs = (
                f"the repro fails only with variables: {', '.join(variables)}" if variables else ""
            )
            yield WrittenRepro(path, inputs, "; ".join(filter(None, [without, needs])))

    def _write(
        self, facts: ReproFacts[Case], setup: str, variables: Mapping[str, str], path: Path
    ) -> str:
        """Write one form of the repro and the nearest passing graph. Return the inputs' origin."""
        content = self._content(facts, setup, variables)
        write = partial(repro.write, repro=content, path=path)
        inputs = self._on_its_devices(facts.candidate, lambda case: write(case).encode()).decode()
        if facts.passing is not None:
            passing = path.with_name(f"{path.stem}_passes.py")
            write = partial(repro.write_passing, repro=content, path=passing)
            self._on_its_devices(facts.passing, lambda case: write(case).encode())
        return inputs

    def _of_script(self, unit: str) -> bool:
        inductor = self.target.name == INDUCTOR
        return is_of_program(unit) or (inductor and self.loaded.replaced(unit))

    def _raised_by_script(self, failure: Outcome) -> bool:
        if not self.script or failure.kind is not Kind.EXCEPTION:
            return False
        return RaisedAt.of(failure).within(Path(self.script))

    def short_form(self, facts: ReproFacts[Case], path: Path) -> Path | None:
        """Write a short form of a repro; None if none fails in the same way."""
        if self.criteria.oracle != "default" or self.criteria.check:
            return None
        for target in filter(None, (self.script_target, self.target)):
            content = replace(self, target=target)._content(facts, "", {})
            if short := write_short(facts.candidate, content, path, self.interpreters):
                return short
        return None

    def _content(
        self, facts: ReproFacts[Case], setup: str, variables: Mapping[str, str]
    ) -> repro.Repro:
        if self.criteria.one_thread:
            variables = {**variables, **ONE_THREAD}
        return repro.Repro(
            facts.failure, self.target.call(), facts.culprits, self.ambient, setup,
            seconds_of_graph(facts.failure, self.target, facts.limits.seconds),
            self._speed_limits, tuple(facts.base.texts()),
            variables, facts.passing, facts.runs,
            added=self._added(facts.candidate),
            draws_as_eager=self.target.draws_as_eager,
            standalone=self.standalone,
        )  # fmt: skip

    def _added(self, candidate: Case) -> Mapping[str, Any]:
        """Return the settings of inductor that a repro needs besides the user's.

        A configuration in a cache would hide a fault in the choice between configurations.
        """
        inductor_on_gpu = devices(candidate) and self.target.name == INDUCTOR
        return {**self.target.added(), **({AUTOTUNE_CACHE: False} if inductor_on_gpu else {})}

    @property
    def _speed_limits(self) -> SpeedLimits:
        return SpeedLimits(self.criteria.slower_than, self.criteria.longer_than)

    def lines(self, candidate: Case) -> list[str]:
        """Return the user's lines that Dynamo recorded for the remaining nodes."""
        return candidate.user_lines()

    def explanations(self, candidate: Case, failure: Outcome) -> Iterator[KnownReason[Case]]:
        """Yield forms of a case that pass if a known reason explains its failure."""
        return explanations(candidate, failure)

    def misregistered(self, candidate: Case) -> list[str]:
        """Return opcheck's objections to the custom operators that remain in a candidate.

        A child calls the operators. If the child fails, that is logged, and the result is empty.
        """
        if not any(custom_operators(candidate.module)):
            return []

        if self.replay is None:
            child = self._forked(lambda notify: self.operators_checked(candidate), Limits())
        else:
            question = Question(candidate, Toggles(), "custom operators")
            child = self.replay(CHECK_OPERATORS, question, Limits())
        ended = finished(child)
        if ended.answer is None:
            why = "the process that called them failed; see candidates.log"
            self.log.emit(Fallback("custom operators were not checked", why))
            return []
        return msgspec.json.decode(ended.answer, type=list[str])

    def operators_checked(self, candidate: Case) -> bytes:
        """In a child, return what `misregistered` returns, encoded."""
        case = self._in_place(candidate)
        return msgspec.json.encode([] if isinstance(case, Outcome) else misregistered(case))
