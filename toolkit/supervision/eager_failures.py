"""Failures of a script that need no search: it is not valid Python, or it reads stdin."""

from __future__ import annotations

import shlex
from pathlib import Path

from tcdebug.display.console import error
from tcdebug.minifier.investigation.report import Report, ReportedFailure

NO_STDIN = (
    "the script reads stdin, and a search gives it none, because it runs the script several times: "
    "let it read a file"
)


def syntax_problem(script: str) -> str:
    """Why Python cannot compile a script, with the line; empty if it can. Reads nothing else."""
    try:
        compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    except SyntaxError as problem:
        line = "" if problem.lineno is None else f", line {problem.lineno}"
        return f"{type(problem).__name__}: {problem.msg} ({script}{line})"
    except ValueError as problem:
        return f"{type(problem).__name__}: {problem} ({script})"
    return ""


def syntax_error(script: str, run_dir: str) -> Report | None:
    """The report of a script that Python cannot compile; None if it can."""
    message = syntax_problem(script)
    if not message:
        return None
    failure = ReportedFailure("exception", "syntax | SyntaxError", "script", message)
    note = "the script is not valid Python: nothing of it was run"
    return Report("fails_in_eager", failure, run_dir=run_dir, notes=[note])


def said_invalid(script: str) -> bool:
    """Print why a script is not valid Python, and return whether it is not."""
    message = syntax_problem(script)
    if message:
        check = f"python -m py_compile {shlex.quote(script)}"
        error("TCD020", message, f"correct the script; {check} compiles it without running it")
    return bool(message)


def stdin_notes(report: Report) -> list[str]:
    """What to say of a script that found no stdin."""
    message = report.failure.message if report.failure else ""
    return [NO_STDIN] if "EOFError: EOF when reading" in message else []


def culprit_notes(events: list[dict[str, object]]) -> list[str]:
    """The last culprit that was printed before the search was ended."""
    found = [r for r in events if r.get("event") == "bisect.result"]
    if not found:
        return []
    data = found[-1].get("data")
    subject = data.get("subject") if isinstance(data, dict) else ""
    return [f"culprit so far, not confirmed: {found[-1].get('unit')} at {subject}"]
