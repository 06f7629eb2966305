"""The common part of bisect and minify: a job from options, the search, the report."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.compiler.runtime.toolchain import NoCompiler
from tcdebug.display.console import error, write
from tcdebug.display.report import show_report
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import (
    Job,
    UnknownBackend,
    check_compiler,
    warm_sessions,
)
from tcdebug.minifier.processes.process import Limits
from tcdebug.output.formats import FORMATS
from tcdebug.output.results import of_report
from tcdebug.supervision.refusal import refused
from tcdebug.supervision.remaining_faults import ScriptBeside, with_remaining_faults
from tcdebug.supervision.script_reduction import with_small_script
from tcdebug.supervision.script_search import ScriptSearch
from tcdebug.supervision.supervisor import begin


def search(
    command: str,
    *,
    script: str,
    args: Sequence[str],
    backend: str | None,
    off: Sequence[str],
    seconds: float,
    script_seconds: float,
    reruns: int,
    timeout: float,
    memory: float,
    oracle: str,
    slower_than: float,
    longer_than: float,
    fail_regex: str,
    check: str,
    confidence: float,
    jobs: int,
    fresh: bool,
    standalone: bool,
    quiet: bool,
    style: str,
    bisecting: bool,
    minimising: bool,
) -> int:
    """Run the search and show its report. Return the exit status."""
    try:
        check_compiler()
    except NoCompiler as problem:
        error(problem.code, str(problem), "tcdebug doctor checks the requirements")
        return USAGE
    job = Job(
        mode="search",
        script=script,
        args=list(args),
        run_dir="",
        backend=backend,
        toggles=list(off),
        bisect=bisecting,
        minimise=minimising,
        limits=Limits(timeout, int(memory * (1 << 30))),
        seconds=seconds,
        script_seconds=script_seconds,
        reruns=reruns,
        wanted=Criteria(oracle, slower_than, fail_regex, check, longer_than),
        confidence=confidence,
        jobs=jobs,
        standalone=standalone,
    )
    return _searched(command, job, style, quiet=quiet, fresh=fresh)


def _searched(command: str, job: Job, style: str, *, quiet: bool, fresh: bool) -> int:
    """Search, run the script without the culprits, and show the report. Return the exit status."""
    with warm_sessions() as sessions:
        supervisor = begin(
            command, job, quiet=quiet, fresh=fresh, notes=not quiet, sessions=sessions
        )
        try:
            with supervisor.progress, ScriptBeside(supervisor) as beside:
                report = with_small_script(supervisor, ScriptSearch(supervisor).report())
                report = with_remaining_faults(supervisor, report, beside)
        except UnknownBackend as problem:
            return refused(supervisor, problem)
    supervisor.finish(report.exit_status, healthy=report.status == "no_failure")
    _show(report, style, command)
    return report.exit_status


def _show(report: Report, style: str, command: str) -> None:
    if style == "full":
        show_report(report)
    elif style == "json":
        write(msgspec.json.encode(report).decode() + "\n")
    else:
        write(FORMATS[style](*of_report(report, f"tcdebug {command}")))
