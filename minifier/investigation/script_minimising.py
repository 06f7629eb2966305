"""Minimises a script that fails as a whole, and keeps its failure and the culprit."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.layer_names import (
    AUTOGRAD,
    BACKEND,
    DECOMPOSITIONS,
    DYNAMO,
    GUARDS,
    STAND_INS,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.investigation.minimised_script import (
    SMALLER,
    MinimisedScript,
    MinimisingTask,
    SmallVersion,
)
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, BudgetUsed, Spending
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.reduction.script.dropping.likely import texts_of
from tcdebug.minifier.reduction.script.observing import instrumented
from tcdebug.minifier.reduction.script.rewriting import Rewrite, rewritten
from tcdebug.minifier.reduction.script.script_reducer import ScriptReducer
from tcdebug.minifier.reduction.script.validity.destruction import destructive_calls
from tcdebug.minifier.reduction.script.validity.submodules import with_needed_imports
from tcdebug.minifier.search.algorithms import first_bad
from tcdebug.minifier.search.reducing import Interesting, reduce_ahead
from tcdebug.minifier.subjects.forked_script import Execute, ForkedScripts, as_clear, is_failure
from tcdebug.minifier.subjects.protected_files import FileProtected
from tcdebug.minifier.targets.backends import INDUCTOR
from tcdebug.minifier.targets.inductor.warm import set_up, warm_up_scripts

REPEATS = 2
"""The number of further runs of the script as it is, with the one after a first compile. All must
fail."""
AT_ONCE = 2
"""As many versions run at the same time, if there are as many cores."""
LAST_CHECKS, MOST_RESERVED = 0.5, 0.2
"""The last checks in forks take so many times as long as a run of the script's repro, which is a
fresh process; and the greatest part of the time that is kept for them."""
LEAST_QUICK_SECONDS, SLOWER_IN_EAGER = 5.0, 10.0
"""A version in eager may take so many seconds, and so many times as long as the script."""
SMALLEST, LAST = "the smallest version", "the last checks"
ABOVE = {
    DYNAMO: AUTOGRAD,
    GUARDS[DYNAMO]: AUTOGRAD,
    AUTOGRAD: DECOMPOSITIONS,
    GUARDS[AUTOGRAD]: DECOMPOSITIONS,
    DECOMPOSITIONS: BACKEND,
    GUARDS[DECOMPOSITIONS]: BACKEND,
}
"""Layer -> the next one. The failure may occur without that one too."""


@dataclass(frozen=True)
class VersionCheck:
    """What a version of a script must do under toggles: fail in the same way, or pass."""

    toggles: Toggles
    fails: bool


class NotMinimised(Exception):
    """The script cannot be minimised. The message says why."""


@dataclass
class ScriptMinimising:
    """The search for the smallest version of a script."""

    job: Job
    task: MinimisingTask
    execute: Execute
    log: EventLog
    versions: list[ScriptText] = field(default_factory=list)
    """The versions that failed in the same way, the original first."""
    checks: list[VersionCheck] = field(default_factory=list)
    """What every version must do."""
    later_checks: list[VersionCheck] = field(default_factory=list)
    """What the smallest version after each reduction must do too."""
    last_checks: list[VersionCheck] = field(default_factory=list)
    """What only the last version must do too, because these runs take longer."""

    def run(self) -> MinimisedScript:
        """Minimise the script within the seconds of the task."""
        folder = Path(self.job.run_dir)
        runner = ForkedScripts(self.job, folder / "versions", self.execute)
        oracle = Oracle(
            runner, self.log, Answers(folder / "answers-versions.jsonl"),
            Limits(self.job.limits.seconds, None),
            Spending(Budget(self.task.seconds, self.job.reruns)), Criteria(),
            OtherFailures(folder / "other" / "versions", self.log),
            max(self.job.jobs, min(AT_ONCE, os.cpu_count() or 1)),
        )  # fmt: skip
        reason, ended, lines = "", False, 0
        try:
            start = self._start()
            lines = start.size
            start = self._away_from_files(oracle, start)
            self._first_runs(oracle, runner, start)
            runner.quick = (self._in_eager, self._eager_limit(oracle, start))
            self._reduce(oracle, start, runner.raised.get(start.key, frozenset()))
            ended = True
        except BudgetUsed:
            reason = "" if self.versions else "the time ran out before the script had run"
        except NotMinimised as problem:
            reason = str(problem)
        finally:
            oracle.ask_ahead(())
        if not self.versions:
            runner.clear()
            return MinimisedScript("", reason=reason, runs=oracle.reruns)
        count, message = self._smallest(oracle)
        (folder / SMALLER).unlink(missing_ok=True)
        runner.clear()
        spent = (round(oracle.spending.seconds, 3), round(oracle.cpu_seconds, 3))
        *earlier, version = self.versions[:count]
        version = version.with_text(with_needed_imports(version.text))
        return MinimisedScript(
            version.text, version.args, version.alone, runner.processes, message,
            lines, version.size, oracle.reruns, *spent, ended=ended,
            earlier=tuple(SmallVersion(v.text, v.args, v.alone) for v in earlier[1:]),
        )  # fmt: skip

    def _smallest(self, oracle: Oracle[ScriptText]) -> tuple[int, str]:
        """Return the number of versions up to the smallest one, and the exception it ends with.

        It passes all checks, unless the time is up before. The exception is empty then.
        """
        count = len(self.versions)
        try:
            count = self._last(oracle)
            return count, oracle.ask(self.versions[count - 1], self._base, SMALLEST).message
        except BudgetUsed:
            return count, ""

    def _start(self) -> ScriptText:
        """Return the script without comments, and with its own path in place of `__file__`."""
        path = Path(self.job.script).resolve()
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as problem:
            raise NotMinimised(f"it is not valid Python: {problem}") from None
        if found := destructive_calls(tree):
            raise NotMinimised(f"a changed script must not call {', '.join(found)}")
        own = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "__file__"]
        if own:
            text = rewritten(tree, [Rewrite.of(node, ast.Constant(str(path))) for node in own])
            return ScriptText(text or "", tuple(self.job.args))
        return ScriptText(ast.unparse(ast.fix_missing_locations(tree)), tuple(self.job.args))

    def _away_from_files(self, oracle: Oracle[ScriptText], start: ScriptText) -> ScriptText:
        """Return the script, to be run in an empty folder if it would change files in its own."""
        toggles = self._in_eager if self._hangs else self._base.without(off=self._next_layer)
        for version in (start, replace(start, alone=True)):
            outcome = oracle.ask(version, toggles, "the script in a fork")
            if FileProtected.__name__ not in outcome.message:
                return version
        raise NotMinimised(outcome.message.strip().rpartition("\n")[2].partition(": ")[2])

    # -- checks of versions ---------------------------------------------------------------------

    def _first_runs(
        self, oracle: Oracle[ScriptText], runner: ForkedScripts, start: ScriptText
    ) -> None:
        """Run the script and find out what every version must do. The cheapest runs come first.

        If the script hangs, these are the runs that end: they limit the others.
        """
        base, eager = self._base, self._in_eager
        off = base.without(off=self.task.off or self.task.eager)
        how_off = f"with {', '.join(self.task.off)} off"
        if self._stops_above(oracle, runner, start, off):
            self.last_checks = [VersionCheck(base, True), VersionCheck(off, False)]
            return
        set_up()
        if self._hangs:
            ended = [
                self._must_pass(oracle, start, eager, "in eager"),
                self._must_pass(oracle, start, off, how_off),
            ]
            oracle.tighten(max(outcome.seconds for outcome in ended))
        failure = oracle.ask(start, base, "the script in a fork")
        if not failure.failed:
            runner.processes = 2
            failure = oracle.ask(start, base, "the script in two forks")
        if not failure.failed:
            raise NotMinimised("it does not fail in a fork of a process that has imported torch")
        if failure.kind.value != self.task.kind:
            raise NotMinimised(f"it fails differently in a fork: {failure.signature}")
        runner.failure = oracle.failure = failure
        if not self._hangs:
            oracle.tighten(failure.seconds)
            self._warm_up(oracle, runner, start, base, INDUCTOR)
            if not self._always_fails(oracle, runner, start, base):
                raise NotMinimised("it does not always fail")
        self._must_pass(oracle, start, eager, "in eager")
        self._must_pass(oracle, start, off, how_off)
        self.checks = [VersionCheck(eager, False), VersionCheck(base, True)]
        self.later_checks = [VersionCheck(off, False)]

    def _stops_above(
        self, oracle: Oracle[ScriptText], runner: ForkedScripts, start: ScriptText, off: Toggles
    ) -> bool:
        """Return whether the failure shows under the backend that stops above the next layer.

        If it does, every version runs under that backend, which builds no kernels. The last checks
        run the smallest version as the script does.
        """
        if self._hangs or not self._next_layer:
            return False
        purpose = f"with the backend {STAND_INS[self._next_layer[0]]}"
        above, without = (t.without(off=self._next_layer) for t in (self._base, off))
        failure = oracle.ask(start, above, purpose)
        wanted = self.task.signature or failure.signature
        if failure.kind.value != self.task.kind or not is_failure(wanted, failure):
            return False  # versions that fail as it does there need not fail as the script does
        if oracle.ask(start, without, purpose).kind is not Kind.OK:
            return False
        runner.failure = oracle.failure = failure
        oracle.tighten(failure.seconds)
        self._warm_up(oracle, runner, start, above, STAND_INS[self._next_layer[0]])
        if not self._always_fails(oracle, runner, start, above):
            raise NotMinimised("it does not always fail")
        self._must_pass(oracle, start, self._in_eager, "in eager")
        self.checks = [VersionCheck(self._in_eager, False), VersionCheck(above, True)]
        self.later_checks = [VersionCheck(without, False)] if off != self._in_eager else []
        return True

    def _warm_up(
        self,
        oracle: Oracle[ScriptText],
        runner: ForkedScripts,
        start: ScriptText,
        toggles: Toggles,
        backend: str,
    ) -> None:
        """Compile something in this process, so that its forks compile faster.

        A fork tries first whether the script still fails in the same way then. With a GPU in the
        machine, a compile by inductor would initialise CUDA, which no fork could use then.
        """
        if backend == INDUCTOR and torch.cuda.device_count():
            return
        runner.warm_up, runner.warm = (lambda: warm_up_scripts(backend)), True
        outcome = oracle.ask(start, toggles, "the script after a first compile")
        if oracle.failure is not None and oracle.failure.same_bug(outcome):
            runner.warm_up()
        else:
            runner.warm = False
            self.log.emit(Fallback("warm-up", "the script does not fail after a first compile"))
        runner.warm_up = None

    def _eager_limit(self, oracle: Oracle[ScriptText], start: ScriptText) -> float:
        """Return the time limit of a version in eager. Many versions loop without an end."""
        seconds = oracle.ask(start, self._in_eager, "the script in eager").seconds
        return max(LEAST_QUICK_SECONDS, SLOWER_IN_EAGER * seconds)

    def _always_fails(
        self, oracle: Oracle[ScriptText], runner: ForkedScripts, start: ScriptText, toggles: Toggles
    ) -> bool:
        assert oracle.failure is not None
        rate = oracle.rate(start, toggles, oracle.failure, REPEATS - runner.warm)
        return rate.failed == rate.runs

    def _must_pass(
        self, oracle: Oracle[ScriptText], start: ScriptText, toggles: Toggles, how: str
    ) -> Outcome:
        outcome = oracle.ask(start, toggles, f"the script {how}")
        if outcome.kind is not Kind.OK:
            last = outcome.message.strip().rpartition("\n")[2][:160]
            raise NotMinimised(f"in a fork, it does not pass {how}: {last}")
        return outcome

    @property
    def _reserved(self) -> float:
        """The seconds that are kept for the last checks in forks."""
        return min(MOST_RESERVED * self.task.seconds, LAST_CHECKS * self.task.run_seconds)

    @property
    def _next_layer(self) -> list[str]:
        """The layer after the one at fault, without which the failure may occur too."""
        layer = ABOVE.get(self.task.layer)
        return [] if layer is None else [layer]

    @property
    def _hangs(self) -> bool:
        return self.task.kind == Kind.HANG.value

    @property
    def _base(self) -> Toggles:
        return Toggles.parse(self.job.toggles)

    @property
    def _in_eager(self) -> Toggles:
        return self._base.without(off=self.task.eager)

    def _interesting(
        self, oracle: Oracle[ScriptText], checks: Sequence[VersionCheck]
    ) -> Callable[[Callable[[Question[ScriptText]], Outcome]], Interesting[ScriptText]]:
        """Return the predicate of the reducer: whether a version passes the checks."""

        def interesting(
            ask: Callable[[Question[ScriptText]], Outcome],
        ) -> Interesting[ScriptText]:
            def holds(version: ScriptText, purpose: str) -> bool:
                if oracle.spending.seconds_left < self._reserved:
                    raise BudgetUsed
                return self._holds(oracle, ask, version, purpose, checks)

            return holds

        return interesting

    def _holds(
        self,
        oracle: Oracle[ScriptText],
        ask: Callable[[Question[ScriptText]], Outcome],
        version: ScriptText,
        purpose: str,
        checks: Sequence[VersionCheck],
    ) -> bool:
        failure = oracle.failure
        assert failure is not None
        for check in checks:
            outcome = ask(Question(version, check.toggles, purpose))
            fails = failure.same_bug(outcome) and as_clear(failure, outcome)
            if not (fails if check.fails else outcome.kind is Kind.OK):
                return False
        return True

    def _last(self, oracle: Oracle[ScriptText]) -> int:
        """Return the number of versions up to the smallest that passes all checks."""
        checks = [*self.later_checks, *self.last_checks]

        def fails(count: int) -> bool:
            return not self._holds(oracle, oracle.answer, self.versions[count], LAST, checks)

        most = len(self.versions) - 1
        oracle.reset_hang_limit()
        if most < 1 or not fails(most):
            return most + 1
        return first_bad(0, most, fails)

    def _reduce(
        self, oracle: Oracle[ScriptText], start: ScriptText, raised: frozenset[int]
    ) -> None:
        """Reduce the script, with the values of the original and then with those of the result."""
        seen, backend = self._observed(oracle, start), not self.last_checks
        at_fault = texts_of(self.task.lines, self.job.script)
        reducer = ScriptReducer(start, seen, self.log, backend, raised, at_fault)
        self.versions = reducer.accepted
        interesting, smallest = self._interesting(oracle, self.checks), None
        strictly = self._interesting(oracle, [*self.checks, *self.later_checks])

        def answer(question: Question[ScriptText]) -> Outcome:
            if reducer.best is not start:
                Path(self.job.run_dir, SMALLER).write_text(f"{reducer.best.text.strip()}\n")
            return oracle.answer(question)

        while True:
            reduce_ahead(reducer, answer, oracle, interesting, strictly)
            if reducer.best == smallest:
                return
            smallest = reducer.best
            reducer.continue_with(self._observed(oracle, smallest))

    def _observed(self, oracle: Oracle[ScriptText], start: ScriptText) -> dict[str, str]:
        """Run the script in eager. Return the literal value of each expression by its text."""
        path = Path(self.job.run_dir) / "observed.json"
        text = instrumented(start.text, path)
        if text is None:
            return {}
        outcome = oracle.ask(start.with_text(text), self._in_eager, "observing values")
        if outcome.kind is not Kind.OK or not path.exists():
            return {}
        found: dict[str, str] = json.loads(path.read_text())
        path.unlink()
        return found
