"""Judges that a child runs on a candidate: a replay with a comparison, or the user's command."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.autograd_stage import STAGE
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import VALIDATION, Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.surroundings import file_version
from tcdebug.minifier.judging.autograd_stages import find_autograd_stage
from tcdebug.minifier.judging.check import run_check
from tcdebug.minifier.judging.compare import Referee
from tcdebug.minifier.judging.replay import judge
from tcdebug.minifier.judging.timing.compile_time import CompileTime, Interrupted
from tcdebug.minifier.judging.timing.perf import judge_speed
from tcdebug.minifier.judging.validation import judge_validation
from tcdebug.minifier.repros.candidate import Candidates
from tcdebug.minifier.targets.ladder import only_autograd

Notify = Callable[[str], None]


class Judge(Protocol):
    """Returns the outcome of a case. Judges with equal keys judge alike."""

    @property
    def key(self) -> str: ...

    def __call__(self, case: Case, toggles: Toggles, notify: Notify) -> Outcome: ...


def judge_of(wanted: Criteria, candidates: Candidates, folder: Path) -> Judge:
    """Return the judge that the criteria ask for. It may write to `folder`."""
    if wanted.check:
        return Command(wanted.check, candidates, folder / "check")
    return Replay(wanted, candidates, folder / "candidate.py")


def keeper_of(
    candidates: Candidates, folder: Path, kept: Path, toggles: Toggles, oracle: str
) -> Judge:
    """Return a judge that keeps the texts of the stages in `kept` and compares nothing.

    With the oracle `validation`, a case may raise in eager, and passes if it raises compiled too.
    If AOTAutograd is the last layer that is on, it compares the values of its stages instead.
    """
    if only_autograd(toggles):
        return AutogradStages(folder / "candidate.py", kept)
    keeping = replace(candidates, target=candidates.target.keeping(kept))
    criteria = Criteria(oracle if oracle == VALIDATION else "crash")
    return Replay(criteria, keeping, folder / "candidate.py")


@dataclass(frozen=True)
class Replay:
    """Runs a case eagerly and compiled in this process, and compares as the criteria ask."""

    wanted: Criteria
    candidates: Candidates
    path: Path
    """The file name of the case's code in tracebacks."""

    @property
    def key(self) -> str:
        """The oracle and its limit."""
        perf = f"{self.wanted.slower_than} {self.wanted.overhead:g}"
        limits = {"perf": perf, "compile-time": self.wanted.longer_than}
        draws = "" if self.candidates.target.draws_as_eager else "own draws"
        threads = "one thread" if self.wanted.one_thread else ""
        words = (self.wanted.oracle, str(limits.get(self.wanted.oracle, "")), threads, draws)
        return " ".join(filter(None, words))

    def __call__(self, case: Case, toggles: Toggles, notify: Notify) -> Outcome:
        """Judge a case."""
        oracle, target = self.wanted.oracle, self.candidates.target
        if oracle == "compile-time":
            return self._compile_time(case, toggles, notify)
        if oracle == VALIDATION:
            return judge_validation(case, target, toggles, notify, str(self.path))
        referee = None if oracle in ("crash", "perf") else Referee(oracle)
        speed = partial(
            judge_speed, slower_than=self.wanted.slower_than, overhead=self.wanted.overhead
        )
        extra = speed if oracle == "perf" else None
        return judge(case, target, toggles, notify, str(self.path), referee, extra)

    def _compile_time(self, case: Case, toggles: Toggles, notify: Notify) -> Outcome:
        clock, path = CompileTime(self.wanted.longer_than, notify), str(self.path)
        target = self.candidates.target.in_one_process()
        try:
            with clock.interrupting():
                return judge(case, target, toggles, clock.follow, path, None, clock)
        except Interrupted:
            return clock.interrupted()


@dataclass(frozen=True)
class AutogradStages:
    """Finds the first stage of AOTAutograd whose values differ, and writes it to a folder."""

    path: Path
    """The file name of the case's code in tracebacks."""
    kept: Path

    @property
    def key(self) -> str:
        """A constant, because the judge has no settings."""
        return "autograd stages"

    def __call__(self, case: Case, toggles: Toggles, notify: Notify) -> Outcome:
        """Return "wrong" with the stage in its signature, or "ok"."""
        notify("forward")
        found = find_autograd_stage(case, str(self.path))
        if found is None:
            return Outcome(Kind.OK)
        (self.kept / STAGE).write_bytes(msgspec.json.encode(found))
        return Outcome(Kind.WRONG, "forward", f"forward | {found.stage}", found.what)


@dataclass(frozen=True)
class Command:
    """Writes a case as a script and runs the user's command on it."""

    command: str
    candidates: Candidates
    folder: Path

    @property
    def key(self) -> str:
        """The command, the versions of the files it names, and the set-up of the script."""
        files = [Path(word) for word in shlex.split(self.command)]
        versions = (file_version(f) for f in files if f.is_file())
        return " ".join([self.command, *versions, self.candidates.setup])

    def __call__(self, case: Case, toggles: Toggles, notify: Notify) -> Outcome:
        """Judge a case."""
        place = self.folder / str(os.getpid())
        script = place / "repro.py"
        bad = Outcome(Kind.BAD, "check")  # the command may run it where tcdebug is not installed
        self.candidates.write(case, toggles, bad, script, standalone=True)
        notify("check")
        outcome = run_check(self.command, script, place)
        shutil.rmtree(place, ignore_errors=True)
        return outcome
