"""The common part of bisect and minify: a job from options, the search, the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

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
    early_variables,
    warm_sessions,
)
from tcdebug.minifier.processes.process import Limits
from tcdebug.output.formats import FORMATS
from tcdebug.output.results import of_report
from tcdebug.supervision.foreground import refused
from tcdebug.supervision.remaining_faults import ScriptBeside, with_remaining_faults
from tcdebug.supervision.script_reduction import with_small_script
from tcdebug.supervision.script_search import ScriptSearch
from tcdebug.supervision.supervisor import begin


@dataclass(frozen=True)
class SearchOptions:
    """The options and arguments of `bisect` and `minify`, as the command line names them.

    `cli/search_options.py` describes each option.
    """

    script: str
    args: Sequence[str]
    backend: str | None
    off: Sequence[str]
    seconds: float
    script_seconds: float
    reruns: int
    timeout: float
    memory: float
    oracle: str
    slower_than: float
    longer_than: float
    fail_regex: str
    check: str
    confidence: float
    jobs: int
    fresh: bool
    standalone: bool
    quiet: bool
    style: str

    def job(self, *, bisect: bool, minimise: bool) -> Job:
        """Return the job of a session."""
        return Job(
            mode="search",
            script=self.script,
            args=list(self.args),
            run_dir="",
            backend=self.backend,
            toggles=list(self.off),
            bisect=bisect,
            minimise=minimise,
            limits=Limits(self.timeout, int(self.memory * (1 << 30))),
            seconds=self.seconds,
            script_seconds=self.script_seconds,
            reruns=self.reruns,
            wanted=Criteria(
                self.oracle, self.slower_than, self.fail_regex, self.check, self.longer_than
            ),
            confidence=self.confidence,
            jobs=self.jobs,
            standalone=self.standalone,
        )


def search(command: str, options: SearchOptions, *, bisect: bool, minimise: bool) -> int:
    """Run the search, show its report, and return the exit status."""
    try:
        check_compiler()
    except NoCompiler as problem:
        error(problem.code, str(problem), "tcdebug doctor checks the requirements")
        return USAGE
    job = options.job(bisect=bisect, minimise=minimise)
    os.environ.update(early_variables(job.script))
    return _searched(command, job, options)


def _searched(command: str, job: Job, options: SearchOptions) -> int:
    """Search, run the script without the culprits, and show the report. Return the exit status."""
    with warm_sessions() as sessions:
        supervisor = begin(
            command,
            job,
            quiet=options.quiet,
            fresh=options.fresh,
            notes=not options.quiet,
            sessions=sessions,
        )
        try:
            with supervisor.progress, ScriptBeside(supervisor) as beside:
                report = with_small_script(supervisor, ScriptSearch(supervisor).report())
                report = with_remaining_faults(supervisor, report, beside)
        except UnknownBackend as problem:
            return refused(supervisor, problem)
    supervisor.finish(report.exit_status, healthy=report.status == "no_failure")
    _show(report, options.style, command)
    return report.exit_status


def _show(report: Report, style: str, command: str) -> None:
    if style == "full":
        show_report(report)
    elif style == "json":
        write(msgspec.json.encode(report).decode() + "\n")
    else:
        write(FORMATS[style](*of_report(report, f"tcdebug {command}")))
