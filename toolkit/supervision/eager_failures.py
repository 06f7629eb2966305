"""Failures of a script that need no search: it is not valid Python, or it reads stdin."""

from __future__ import annotations

from pathlib import Path

from tcdebug.minifier.investigation.report import Report, ReportedFailure

NO_STDIN = (
    "the script reads stdin, and a search gives it none, because it runs the script several times: "
    "let it read a file"
)


def syntax_error(script: str, run_dir: str) -> Report | None:
    """The report of a script that Python cannot compile; None if it can."""
    try:
        compile(Path(script).read_bytes(), script, "exec")
    except (SyntaxError, ValueError) as problem:
        place = f"line {problem.lineno}" if isinstance(problem, SyntaxError) else "no source"
        what = problem.msg if isinstance(problem, SyntaxError) else str(problem)
        message = f"{type(problem).__name__}: {what} ({script}, {place})"
        failure = ReportedFailure("exception", "syntax | SyntaxError", "script", message)
        note = "the script is not valid Python: nothing of it was run"
        return Report("fails_in_eager", failure, run_dir=run_dir, notes=[note])
    return None


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
