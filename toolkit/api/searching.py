"""tcdebug.bisect(f, x) and tcdebug.explain(f, x): the commands, for one call of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tcdebug.api.call_script import written_call
from tcdebug.api.comparing import NOT_COMPARED
from tcdebug.display.explanation import show_explanation
from tcdebug.display.report import show_report
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import Job, UnknownBackend, check_compiler, warm_sessions
from tcdebug.minifier.sessions.backend_check import problem_with
from tcdebug.reading.explanation import Explanation
from tcdebug.supervision.explaining import begin_explaining, explained
from tcdebug.supervision.script_search import ScriptSearch
from tcdebug.supervision.supervisor import begin


def bisect(
    function: Callable[..., Any],
    /,
    *args: Any,
    backend: str = "inductor",
    options: Mapping[str, Any] | None = None,
    seconds: float = 3600.0,
    jobs: int = 1,
    quiet: bool = False,
    **kwargs: Any,
) -> Report:
    """Find the compiler step that makes one call of `function` fail; write a repro.

    The call is made in other processes, each time in eager and then compiled with `backend`.
    `options` are further keyword arguments of `torch.compile`. The call fails if it raises or
    crashes when compiled, or if its result, or what it writes to its arguments, differs from eager.
    Results of a call that draws random numbers are compared graph by graph only; a note says so.
    A function that is already compiled is recompiled; give its backend and options again.

    The function and its arguments are pickled. Nothing else is carried over: what the program has
    patched or set is in force only if a module that the function needs does it when imported.

    `seconds` limits the search. `jobs` is the number of parallel candidates. Progress and the
    report are printed unless `quiet`. The status of the report is that of `tcdebug bisect`.
    Raises NotSaved if the call cannot be pickled, UnknownBackend if no such backend is registered,
    RuntimeError if there is no C++ compiler.
    """
    _check_backend(backend)
    check_compiler()
    script = written_call(function, args, kwargs, {**(options or {}), "backend": backend})
    job = Job("search", str(script), [], "", seconds=seconds, jobs=jobs)
    with warm_sessions() as sessions:
        supervisor = begin("bisect", job, quiet=quiet, notes=not quiet, sessions=sessions)
        with supervisor.progress:
            report = ScriptSearch(supervisor).report()
    if NOT_COMPARED in (supervisor.folder / "search.log").read_text(errors="replace"):
        report = msgspec.structs.replace(report, notes=[*report.notes, NOT_COMPARED])
    supervisor.finish(report.exit_status, healthy=report.status == "no_failure")
    if not quiet:
        show_report(report)
    return report


def explain(
    function: Callable[..., Any],
    /,
    *args: Any,
    backend: str = "inductor",
    options: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **kwargs: Any,
) -> Explanation:
    """Explain how one call of `function` is compiled: graphs, breaks, recompiles, and their cost.

    The call is made in another process, as by `bisect`. The explanation is printed unless `quiet`.
    Raises NotSaved, UnknownBackend.
    """
    _check_backend(backend)
    script = written_call(function, args, kwargs, {**(options or {}), "backend": backend})
    found = explained(begin_explaining(str(script), [], None)).found
    if not quiet:
        show_explanation(found)
    return found


def _check_backend(backend: object) -> None:
    """Reject the name of a backend that is not registered. Raises UnknownBackend."""
    if isinstance(backend, str) and (problem := problem_with(backend)):
        raise UnknownBackend(problem)
