"""tcdebug fuzz: run, ci, replay, triage, stats"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.cli.termination import INTERRUPTED
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import RunEnd, RunStart
from tcdebug.display.console import error, write
from tcdebug.display.fuzz import FuzzProgress, show_findings, show_tally
from tcdebug.fuzz.campaign import BadJob, Campaign, WorkerFailed
from tcdebug.fuzz.ci import MODES, written
from tcdebug.fuzz.findings import Finding, Findings, State
from tcdebug.fuzz.job import FuzzJob
from tcdebug.fuzz.on_ray import RayCampaign
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.minifier.processes.process import Limits
from tcdebug.output.structures import CampaignResult
from tcdebug.reading.run_dir import NoRun, Run, find, runs
from tcdebug.strategies.devices import CPU
from tcdebug.strategies.kinds import ProgramKind

FAILS, FAULT = 1, 3
LOCAL = "local"
NEEDED = (("hypothesis", "Hypothesis", "fuzz"), ("ray", "Ray", "ray"))
"""Module, name and extra of each requirement. The second is for the engine of that name."""
SECONDS = 600.0
"""Default duration of a campaign."""


@dataclass(frozen=True)
class FuzzOptions:
    """The options of the subcommands, as the command line names them.

    `cli/fuzz.py` describes each option.
    """

    findings: Path
    timeout: float
    memory: float
    seconds: float | None = None
    examples: int | None = None
    backend: str = "tcdebug"
    seed: int | None = None
    units: str = ""
    database: str = ""
    bisect: bool = False
    setup: Path | None = None
    stop_after: int | None = None
    device: str = CPU
    large: bool = False
    programs: str = ProgramKind.GRAPHS
    jobs: int = 1
    engine: str = LOCAL

    @property
    def endless(self) -> bool:
        """Whether no option ends the campaign."""
        return self.seconds is None and self.examples is None

    def job(self) -> FuzzJob:
        """Return the job of a worker, without a folder. Without a seed, it draws one."""
        remote = "://" in self.database
        local = str(Path(self.database).resolve()) if self.database else ""
        return FuzzJob(
            run_dir="",
            findings=str(self.findings.resolve()),
            backend=self.backend,
            seed=int.from_bytes(os.urandom(3), "little") if self.seed is None else self.seed,
            examples=self.examples,
            seconds=self.seconds,
            units=tuple(u for u in self.units.split(",") if u),
            database=self.database if remote else local,
            bisect=self.bisect,
            limits=Limits(self.timeout, int(self.memory * (1 << 30))),
            stop_after=self.stop_after,
            setup="" if self.setup is None else str(self.setup.resolve()),
            device=self.device,
            large=self.large,
            programs=ProgramKind(self.programs),
        )


def run(*, quiet: bool, as_json: bool, **given: Any) -> int:
    """Fuzz and show the findings. Return the exit status."""
    options = FuzzOptions(**given)
    if options.endless:
        options = replace(options, seconds=SECONDS)
    job, findings = options.job(), options.findings
    status, tally, found = _campaign("fuzz-run", job, quiet, options.jobs, options.engine)
    if status > FAILS and status != INTERRUPTED:
        return status
    if as_json:
        numbers = msgspec.structs.asdict(tally.summary)
        result = CampaignResult(**numbers, new=[f.slug for f in found], seed=job.seed)
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    else:
        show_tally(tally.summary)
        show_findings(found, findings)
    return status


def ci(
    *, mode: str, style: str, output: Path | None, also: Sequence[tuple[str, Path]], quiet: bool,
    **given: Any,
) -> int:  # fmt: skip
    """Judge the fixed findings again, fuzz, and write the new findings. Return the exit status."""
    files = [*also, *([(style, output)] if output else [])]
    for _, path in files:
        if not os.access(path.parent, os.W_OK):
            error("TCD004", f"cannot write {path}", "give -o and --also files in a writable folder")
            return USAGE
    options, chosen = FuzzOptions(**given), MODES[mode]
    options = replace(
        options,
        seconds=chosen.seconds if options.endless else options.seconds,
        seed=chosen.seed if options.seed is None else options.seed,
        bisect=options.bisect and chosen.bisect,
        database=options.database if chosen.database else "",
    )
    job, findings = options.job(), options.findings
    fixed = [f for f in Findings(findings) if f.state is State.FIXED]
    status, failing = _again(fixed, job) if fixed else (0, {})
    if status:
        return status
    for finding in fixed:
        if finding.slug in failing:
            Findings(findings).write(msgspec.structs.replace(finding, state=State.NEW))
    status, tally, found = _campaign("fuzz-ci", job, quiet, options.jobs, options.engine)
    if status > FAILS:
        return status
    found = [*(f for f in fixed if f.slug in failing), *found]
    for form, path in files:
        path.write_text(written(form, found, tally.summary, findings))
    if output is None:
        write(written(style, found, tally.summary, findings))
    return FAILS if found else 0


def replay(
    *, findings: Path, timeout: float, memory: float, as_json: bool, names: Sequence[str]
) -> int:
    """Judge findings again and show the outcome of each. Return the exit status."""
    chosen = _chosen(findings, names)
    if chosen is None:
        return USAGE
    status, failing = _again(chosen, FuzzOptions(findings, timeout, memory).job())
    if status:
        return status
    ended = {f.slug: failing.get(f.slug, "passes") for f in chosen}
    if as_json:
        sys.stdout.write(msgspec.json.encode(ended).decode() + "\n")
    else:
        write("".join(f"{slug}: {how}\n" for slug, how in ended.items()))
    return FAILS if failing else 0


def triage(
    *, findings: Path, timeout: float, memory: float, as_json: bool, names: Sequence[str],
    known: bool,
) -> int:  # fmt: skip
    """Update the states of findings. Return the exit status."""
    chosen = _chosen(findings, names)
    if chosen is None:
        return USAGE
    failing: dict[str, str] = {}
    if not known:
        status, failing = _again(chosen, FuzzOptions(findings, timeout, memory).job())
        if status:
            return status
    states = {f.slug: State.KNOWN if known else _state(f, f.slug in failing) for f in chosen}
    for finding in chosen:
        Findings(findings).write(msgspec.structs.replace(finding, state=states[finding.slug]))
    if as_json:
        sys.stdout.write(msgspec.json.encode(states).decode() + "\n")
    else:
        write("".join(f"{slug}: {state.value}\n" for slug, state in states.items()))
    return 0


def stats(*, run_name: str | None, as_json: bool) -> int:
    """Show the statistics of a campaign. Return the exit status."""
    try:
        chosen = _newest() if run_name is None else find(run_name)
    except NoRun as problem:
        error("TCD001", str(problem), "start a campaign with tcdebug fuzz run")
        return USAGE
    tally = CampaignTally()
    tally.feed(chosen.events())
    if as_json:
        sys.stdout.write(msgspec.json.encode(tally.summary).decode() + "\n")
    else:
        show_tally(tally.summary)
    return 0


def _newest() -> Run:
    for known in runs():
        if known.info.command.startswith("fuzz-"):
            return known
    raise NoRun("no campaign in .tcdebug")


def _state(finding: Finding, fails: bool) -> State:
    if not fails:
        return finding.state if finding.state is State.NOT_REPRODUCED else State.FIXED
    again = finding.state in (State.FIXED, State.NOT_REPRODUCED)
    return State.NEW if again else finding.state


def _campaign(
    command: str, job: FuzzJob, quiet: bool, jobs: int = 1, engine: str = LOCAL
) -> tuple[int, CampaignTally, list[Finding]]:
    """Run a campaign; exit status, statistics and new findings."""
    tally = CampaignTally()
    for package, name, extra in NEEDED[:1] if engine == LOCAL else NEEDED:
        if importlib.util.find_spec(package) is None:
            error("TCD010", f"{name} is not installed", f"pip install 'tcdebug[{extra}]'")
            return USAGE, tally, []
    before = {f.slug for f in Findings(Path(job.findings))}
    began = time.monotonic()
    folder = run_folder.create(command).resolve()
    log = EventLog(folder, own=True)
    log.emit(RunStart(command, sys.argv[1:], str(Path.cwd())))
    job = msgspec.structs.replace(job, run_dir=str(folder))
    status = 0
    with FuzzProgress(quiet=quiet) as progress:
        where = "" if job.device == CPU else f" on {job.device}"
        progress.say(f"fuzzing {job.backend}{where}, seed {job.seed}: tcdebug logs {folder.name}")
        try:
            if engine == LOCAL:
                Campaign(folder, tally, progress.show).run(job, jobs)
            else:
                RayCampaign(folder, log, tally, progress.show).run(job, jobs)
        except KeyboardInterrupt:
            status = INTERRUPTED
        except BadJob as problem:
            error("TCD011", str(problem))
            status = USAGE
        except WorkerFailed as problem:
            error("TCD011", f"a worker failed:\n{problem}", f"see {folder}")
            status = FAULT
    if not (status or job.again or tally.examples):
        error("TCD011", "no program was judged in this time", "give more --seconds")
        status = FAULT
    found = [
        f for f in Findings(Path(job.findings))
        if f.slug not in before and f.state is State.NEW
    ]  # fmt: skip
    status = status or (FAILS if found else 0)
    log.emit(RunEnd(status, round(time.monotonic() - began, 3)))
    return status, tally, found


def _again(findings: Sequence[Finding], job: FuzzJob) -> tuple[int, dict[str, str]]:
    """Judge findings again; exit status, and the signatures of those that fail, by slug."""
    failing: dict[str, str] = {}
    for backend, device in sorted({(f.backend, f.device) for f in findings}):
        slugs = tuple(f.slug for f in findings if (f.backend, f.device) == (backend, device))
        part = msgspec.structs.replace(
            job, backend=backend, device=device, again=slugs, seconds=None
        )
        status, tally, _ = _campaign("fuzz-replay", part, quiet=True)
        if status:
            return status, {}
        failing.update(tally.failing)
    return 0, failing


def _chosen(folder: Path, names: Sequence[str]) -> list[Finding] | None:
    """Return the findings with these names, or all; None after an error message."""
    known = Findings(folder)
    if not names:
        return list(known)
    chosen: list[Finding] = []
    for name in names:
        found = known.named(Path(name).name)
        if not found:
            what = f"no finding {name!r} in {folder}"
            error("TCD011", what, "tcdebug fuzz replay judges all findings")
            return None
        chosen += found
    return chosen
