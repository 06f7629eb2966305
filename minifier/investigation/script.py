"""A whole script as the thing that fails, where no graph of it fails alone.

Each question is a fresh process: the script as it is, under the toggles of the environment. What
it printed last, its exit status, its signal or its silence is the outcome.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import CandidateRan
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome, crash_signature, normalised, signal_name
from tcdebug.minifier.judging.check import most_decisions, run_check
from tcdebug.minifier.processes.job import SCRIPT_FAILED, Job, start
from tcdebug.minifier.search.repeats import Rate, Tally, settle


@dataclass
class ScriptOracle:
    """Runs the script, compiled, under toggles. Its answers live as long as it does."""

    job: Job
    log: EventLog
    seconds: float
    hunted: Outcome | None = None
    """The failure that one run settles."""
    passes_needed: int = 1
    contradicted: bool = False
    reruns: int = 0
    _tallies: dict[tuple[str, ...], Tally] = field(default_factory=dict)

    def ask(self, toggles: Toggles, purpose: str) -> Outcome:
        """How the script ends under toggles."""
        key = tuple(toggles.texts())

        def run() -> Outcome:
            return self._rerun(toggles, purpose)

        for tally in settle(self._tallies.get(key), run, self.hunted, self.passes_needed):
            self._keep(key, tally)
        return self._tallies[key].outcome

    def rate(self, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """How often the script, which has failed once, does so again in so many further runs."""
        key = tuple(toggles.texts())
        while (tally := self._tallies[key]).runs <= runs:
            self._keep(key, tally.plus(self._rerun(toggles, "how often it fails"), failure))
        return tally.again(failure)

    def need(self, passes: int) -> None:
        """Believe a pass only after so many."""
        self.passes_needed = passes

    def _keep(self, key: tuple[str, ...], tally: Tally) -> None:
        self._tallies[key] = tally
        self.contradicted |= tally.contradictory

    def _rerun(self, toggles: Toggles, purpose: str) -> Outcome:
        self.reruns += 1
        outcome = self._run(toggles)
        event = CandidateRan(
            self.reruns, purpose, toggles.texts(), 0, outcome.kind.value, outcome.signature,
            False, round(outcome.seconds, 3), round(outcome.cpu_seconds, 3),
        )  # fmt: skip
        self.log.emit(event)
        if outcome.failed and not self.job.wanted.counts(outcome):
            return replace(outcome, kind=Kind.INVALID)
        return outcome

    def _run(self, toggles: Toggles) -> Outcome:
        name = f"compiled-{self.reruns}.log"
        if check := self.job.wanted.check:
            script, folder = Path(self.job.script).resolve(), Path(self.job.run_dir)
            with (folder / name).open("wb") as output:
                return run_check(check, script, folder, toggles.texts(), self.seconds, output)
        job = msgspec.structs.replace(self.job, mode="compiled")
        return run_script(job, toggles, self.seconds, name)


def run_script(job: Job, toggles: Toggles, seconds: float, log_name: str) -> Outcome:
    """Run a session process to its end, or to the end of its time."""
    output = Path(job.run_dir) / log_name
    variables = {
        "TCDEBUG_OFF": ",".join(toggles.texts()),
        "TCDEBUG_RUN_DIR": job.run_dir,
        "TCDEBUG_ARTIFACTS": "0",
    }
    folder = Path(job.run_dir)
    known = set(folder.glob("events*.jsonl"))
    started, used = time.monotonic(), _children_seconds()
    with output.open("wb") as file:
        process = start(job, file, variables)
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill_group(process.pid)
            process.wait()
    outcome = outcome_of(status, output.read_text(errors="replace"), seconds)
    fresh = sorted(set(folder.glob("events*.jsonl")) - known)
    return replace(
        outcome,
        decisions=most_decisions(fresh),
        seconds=time.monotonic() - started,
        cpu_seconds=_children_seconds() - used,
    )


def _children_seconds() -> float:
    """CPU seconds of all the processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def kill_group(pid: int) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def outcome_of(status: int | None, text: str, seconds: float) -> Outcome:
    """The outcome of a script by exit status and what it printed."""
    if status is None:
        return Outcome(Kind.HANG, "script", "script | hang", f"no end after {seconds:.0f} s")
    if status == 0:
        return Outcome(Kind.OK, "script")
    if status < 0:
        name = signal_name(-status)
        return Outcome(Kind.CRASH, "script", crash_signature(-status, "script"), f"ended by {name}")
    if status == SCRIPT_FAILED:
        last = _last_exception(text)
        name = last.partition(":")[0]
        what = normalised(last.replace("\n", " "))
        return Outcome(Kind.EXCEPTION, "script", f"script | {name} | {what}", last)
    message = f"exit status {status}"
    return Outcome(Kind.EXCEPTION, "script", f"script | {message}", message)


def _last_exception(text: str) -> str:
    """What a traceback ends with: the exception, and its message up to an empty line."""
    _, found, rest = text.rpartition("Traceback (most recent call last):")
    lines = rest.splitlines() if found else []
    for place, line in enumerate(lines):
        if line and not line[0].isspace() and not line.startswith(("tcdebug:", "The above")):
            return "\n".join(takewhile(bool, lines[place:]))
    return text.strip().rpartition("\n")[2]
