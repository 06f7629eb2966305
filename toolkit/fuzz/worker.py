"""The process of one worker of a campaign: `python -m tcdebug.fuzz.worker job.json`.

It generates programs and keeps findings. A child process runs the compiled code.
"""

from __future__ import annotations

import difflib
import gc
import itertools
import os
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec
import torch
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import (
    FuzzAgain,
    FuzzCase,
    FuzzFinding,
    FuzzListed,
    FuzzNotReproduced,
)
from tcdebug.compiler.runtime.toolchain import NoCompiler
from tcdebug.fuzz.confirmation import judged_again
from tcdebug.fuzz.findings import PROGRAM, Finding, Findings, State
from tcdebug.fuzz.followup import bisected, minified
from tcdebug.fuzz.hunt import Found, Hunt
from tcdebug.fuzz.job import APART, BAD_JOB, FuzzJob
from tcdebug.fuzz.oracles import judge
from tcdebug.fuzz.python.listed import listed_cause
from tcdebug.fuzz.python.oracle import judge_python
from tcdebug.fuzz.python.standalone import FAILS, confirmed
from tcdebug.fuzz.runner import Enough, NothingCompiles, Notify, ProgramRunner
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.minifier.judging.replay import SEED
from tcdebug.minifier.processes.devices.sleeping import Sleeping
from tcdebug.minifier.processes.job import check_compiler
from tcdebug.minifier.processes.threads import one_thread
from tcdebug.minifier.sessions.execution import leave
from tcdebug.minifier.targets import inductor
from tcdebug.minifier.targets.backends import EMBEDDED, INDUCTOR, Backend
from tcdebug.minifier.targets.warm_embedded import warm_up
from tcdebug.minifier.trace.decisions import read_decisions
from tcdebug.strategies.devices import CPU, CUDA, OPTIONS, Options, device_named
from tcdebug.strategies.kinds import AnyProgram, script_of
from tcdebug.strategies.program import Program
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.toggles import FAMILIES

OF_BACKEND = {EMBEDDED: FAMILIES}
"""Units that are switched off in some programs, by backend, if the job names none."""
AGAIN = "again"
"""The folder of the process that judges a finding again."""
OFTEN = 20
"""Number of rounds after which the database is read again."""
JUDGING = 5.0
"""Seconds for judging a program, beside the start of the process that does it."""
LARGEST_RESERVE = 0.2
"""The largest part of the time of a campaign that is kept for judging its last failure again."""
COUNTED = re.compile(r"_\d+\b")


@dataclass(frozen=True)
class Judging:
    """Judges a program in the current process and reports what was fused."""

    backend: Backend
    folder: Path

    def __call__(self, program: AnyProgram, notify: Notify) -> ProgramVerdict:
        """Return the verdict on a program."""
        if isinstance(program, PythonProgram):
            return judge_python(program, self.backend.name, notify, self.folder)
        events = self.folder / f"events-{os.getpid()}.jsonl"
        backend = replace(self.backend, options=dict(program.options))
        verdict = judge(program, backend, notify, self.folder)
        fused = tuple(sorted(set(_fused(events))))
        if events.exists():
            os.truncate(events, 0)  # the worker reports what is worth keeping
        return msgspec.structs.replace(verdict, fused=fused)


def _fused(events: Path) -> Iterator[str]:
    """Yield pairs of operators in the same kernel, by fusion or inlining."""
    for decision in read_decisions(events):
        if decision.allowed and decision.unit.startswith("fuse."):
            yield COUNTED.sub("", decision.subject)


def runner(job: FuzzJob) -> ProgramRunner:
    """Return the judge for the programs of a job, set up and warm."""
    one_thread()
    gc.set_threshold(100_000, 50, 50)  # a compile makes a million objects, most of which stay
    folder = Path(job.run_dir) / f"worker-{job.worker}"
    folder.mkdir(parents=True, exist_ok=True)
    backend = Backend(job.backend, job.backend, run_dir=str(folder))
    log, prepare = EventLog(folder), _nothing
    if job.device != CPU:
        prepare = _waking(Sleeping(_not_here, log), job.workers)
        inductor.warm_up_for_devices(log)
    elif job.backend == EMBEDDED:
        warm_up()
    elif job.backend == INDUCTOR:
        backend.warm_up(log)
    if job.setup:
        runpy.run_path(job.setup)  # after warm-up, since it may break what warm-up needs
    judging, output = Judging(backend, folder), folder / "output.log"
    return ProgramRunner(judging, job.limits, output, prepare, job.until)


def _nothing() -> None:
    pass


def _not_here() -> None:
    raise RuntimeError("a worker forks children that use CUDA, so it must not initialise CUDA")


def _waking(sleeping: Sleeping, workers: int) -> Callable[[], None]:
    """Return what a child calls to use the GPU, and its part of the memory."""

    def wake() -> None:
        sleeping.wake()
        torch.cuda.init()  # type: ignore[no-untyped-call] # torch has no annotation
        torch.cuda.set_per_process_memory_fraction(1 / workers)

    return wake


def options_for(job: FuzzJob) -> tuple[Options, ...]:
    """Return the options that programs of a job may be compiled with, if this torch has them."""
    listed = OPTIONS.get((job.backend, job.device), ())
    if job.backend != INDUCTOR or not listed:
        return tuple(listed)
    known = set(torch._inductor.list_options())
    return tuple(options for options in listed if {name for name, _ in options} <= known)


class NoDatabase(Exception):
    """The database server does not answer."""


def database(address: str) -> ExampleDatabase | None:
    """Return the database in which Hypothesis keeps failing programs.

    For redis://, raises ImportError without the package, and NoDatabase without a server.
    """
    if not address:
        return None
    if address.startswith("redis://"):
        extra = import_module("hypothesis.extra.redis")  # both are optional packages
        redis = import_module("redis")
        client = redis.Redis.from_url(address)
        try:
            client.ping()
        except redis.RedisError as problem:
            raise NoDatabase(f"{address} does not answer: {problem}") from problem
        made: ExampleDatabase = extra.RedisExampleDatabase(client)
        return made
    return DirectoryBasedExampleDatabase(address)


class Worker:
    """Hunts until its limits are reached, and keeps the findings."""

    def __init__(self, job: FuzzJob) -> None:
        self.job = job
        self.log = EventLog(Path(job.run_dir))
        self.findings = Findings(Path(job.findings))
        self.runner = runner(job)
        self.hunt = Hunt(
            self.runner, self.findings, job.backend, self._tell, database(job.database),
            job.units or OF_BACKEND.get(job.backend, ()), job.examples, job.until, reserve(job),
            device_named(job.device, large=job.large), options_for(job), job.programs,
        )  # fmt: skip

    def run(self) -> None:
        """Hunt with one seed per round. In some rounds, programs of the database come first."""
        first = self.job.seed + APART * self.job.worker
        kept = 0
        try:
            for place in itertools.count():
                if place % OFTEN == 0:
                    kept += self._exhaust(self.hunt.kept, kept)
                kept += self._exhaust(partial(self.hunt.round, first + place), kept)
        except Enough:
            pass
        finally:
            self.runner.close()

    def _exhaust(self, hunted: Callable[[], Found | None], before: int) -> int:
        """Hunt until there is no further failure. Return how many findings were kept.

        `before` is how many were kept until now. Raises Enough.
        """
        kept = 0
        while self.job.stop_after is None or before + kept < self.job.stop_after:
            found = hunted()
            if found is None:
                return kept
            kept += self._keep(found)
        raise Enough

    def judge_again(self) -> None:
        """Judge existing findings again. Events report the outcomes."""
        for finding in self.findings:
            if finding.slug in self.job.again:
                same = finding.backend == self.job.backend
                verdict = self.runner(finding.program if same else _plain(finding.program))
                self.log.emit(FuzzAgain(finding.slug, verdict.status.value, verdict.signature))
        self.runner.close()

    def uncompiled(self, found: NothingCompiles) -> str:
        """Keep the programs after which a process compiles nothing, and return a message."""
        paths = []
        for place, program in enumerate(found.programs):
            path = self.runner.output.with_name(f"uncompiled_{place}.py")
            path.write_text(script_of(program, {"backend": self.job.backend}, SEED))
            paths.append(str(path))
        return f"{found}; its last programs are {' and '.join(paths)}"

    def _tell(self, program: AnyProgram, verdict: ProgramVerdict) -> None:
        failed = verdict.status is Status.FAILED  # it is kept, as shrinking may be interrupted
        self.log.emit(
            FuzzCase(
                verdict.status.value, verdict.signature, verdict.message, list(program.ops),
                sorted(program.pairs), list(verdict.fused), verdict.second, verdict.seconds,
                self._script(program) if failed else "",
            )
        )  # fmt: skip

    def _script(self, program: AnyProgram) -> str:
        """Return a program as a script that fails as long as its failure exists."""
        call: dict[str, object] = {"backend": self.job.backend}
        options = dict(program.options)
        if isinstance(program, Program) and self.job.backend == EMBEDDED and program.off:
            options["off"] = list(program.off)
        if options:
            call["options"] = options
        return script_of(program, call, SEED)

    def _keep(self, found: Found) -> bool:
        """Create the folder of a finding, then minify and bisect it.

        Returns False if it is known or listed, or does not fail in a fresh process.
        """
        verdict, program = found.verdict, found.program
        causes = program.causes if isinstance(program, PythonProgram) else program.ops
        finding = Finding(
            verdict.signature, verdict.kind, self.job.backend, verdict.message, program,
            str(torch.__version__), ops=tuple(sorted(set(causes))), seed=found.seed,
            examples=found.examples,
        )  # fmt: skip
        if not self.findings.add(finding):
            return False
        folder = self.findings.path(finding)
        (folder / PROGRAM).write_text(self._script(program))
        finding = self._followed(finding, folder)
        self.findings.write(finding)
        ops = list(finding.ops)
        if finding.state is State.NOT_REPRODUCED:
            self.log.emit(FuzzNotReproduced(finding.signature, ops, str(folder), finding.note))
            return False
        if finding.cause:
            self.log.emit(FuzzListed(finding.signature, ops, str(folder), finding.cause))
            return False
        event = FuzzFinding(
            finding.signature, ops, str(folder), finding.examples, list(finding.culprits)
        )
        self.log.emit(event)
        return True

    def _followed(self, finding: Finding, folder: Path) -> Finding:
        """Return the finding after it was seen to fail in a fresh process, and bisected."""
        if isinstance(finding.program, PythonProgram):
            return self._followed_python(finding, finding.program, folder)
        if self.job.bisect:
            finding = minified(finding, folder, self.job.setup, self.hunt.seconds_left)
        return finding if finding.repro is not None else self._judged_again(finding, folder)

    def _followed_python(self, finding: Finding, program: PythonProgram, folder: Path) -> Finding:
        """Return the finding of a Python program after the same, or with its listed cause."""
        finding = confirmed(finding, folder, self.job.setup, self.hunt.seconds_left)
        fails = finding.note == FAILS
        if not fails:
            finding = self._judged_again(finding, folder)
        if finding.state is State.NEW:
            cause = listed_cause(program, finding.signature, finding.message, self._passes)
            if cause:
                return msgspec.structs.replace(finding, state=State.KNOWN, cause=cause)
        if self.job.bisect and fails:
            return bisected(finding, folder, self.hunt.seconds_left)
        return finding

    def _judged_again(self, finding: Finding, folder: Path) -> Finding:
        return judged_again(finding, self.job, folder / AGAIN, self.hunt.seconds_left)

    def _passes(self, program: AnyProgram) -> bool:
        """Return whether a program passes; not if no time is left to see it."""
        try:
            return self.runner(program).status is Status.PASSED
        except Enough:
            return False


def reserve(job: FuzzJob) -> float:
    """Return the seconds that judging a failure in a fresh process takes, as the start did."""
    if job.seconds is None or job.until is None:
        return 0.0
    began = job.until - job.seconds
    return min(time.monotonic() - began + JUDGING, LARGEST_RESERVE * job.seconds)


def _plain(program: AnyProgram) -> AnyProgram:
    """Return a program without the options and units of a backend."""
    if isinstance(program, Program):
        return msgspec.structs.replace(program, options=(), off=())
    return program


def unfit(job: FuzzJob) -> str:
    """Return the reason why a job cannot be done; empty if it can."""
    backends: list[str] = torch.compiler.list_backends(exclude_tags=())
    if job.backend not in backends:
        near = " or ".join(difflib.get_close_matches(job.backend, backends, 2))
        which = f"did you mean {near}?" if near else f"there are {', '.join(backends)}"
        return f"torch.compile has no backend {job.backend!r}; {which}"
    try:
        check_compiler()
    except NoCompiler as missing:
        return str(missing)
    if job.device == CUDA and torch.cuda.device_count() == 0:
        return "torch finds no GPU"
    try:
        database(job.database)
    except ImportError as missing:
        return f"{missing}: pip install 'tcdebug[redis]'"
    except NoDatabase as problem:
        return str(problem)
    return ""


def main() -> None:
    """Do the job whose file is the only argument."""
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=FuzzJob)
    if problem := unfit(job):
        sys.exit(_said(problem))
    worker = Worker(job)
    try:
        if job.again:
            worker.judge_again()
        else:
            worker.run()
    except NothingCompiles as found:
        sys.exit(worker.uncompiled(found))
    leave(0)  # at once: Python takes a second to free torch


def _said(problem: str) -> int:
    sys.stderr.write(f"{problem}\n")
    return BAD_JOB


if __name__ == "__main__":
    main()
