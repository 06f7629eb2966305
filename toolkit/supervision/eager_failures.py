"""Failures of a script that need no search: invalid Python, a missing module, no stdin."""

from __future__ import annotations

import ast
import shlex
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tcdebug.display.console import error
from tcdebug.minifier.investigation.report import Report, ReportedFailure

NO_STDIN = (
    "the script reads stdin, and a search gives it none, because it runs the script several times: "
    "let it read a file"
)


SAFE = ("torch", "numpy")
"""Packages after whose import the same modules can be imported as before."""


@dataclass(frozen=True)
class ScriptProblem:
    """Why a script fails before it does anything. Nothing of it was run."""

    code: str
    message: str
    note: str
    remedy: str


def script_problem(script: str) -> ScriptProblem | None:
    """Why a script cannot do anything; None if it may. Reads nothing but the script."""
    try:
        text = Path(script).read_bytes()
        tree = ast.parse(text, script)
        compile(text, script, "exec", dont_inherit=True)
    except SyntaxError as problem:
        line = "" if problem.lineno is None else f", line {problem.lineno}"
        return _invalid(script, f"{type(problem).__name__}: {problem.msg} ({script}{line})")
    except ValueError as problem:
        return _invalid(script, f"{type(problem).__name__}: {problem} ({script})")
    return _missing_module(script, tree)


def _invalid(script: str, message: str) -> ScriptProblem:
    check = f"python -m py_compile {shlex.quote(script)}"
    remedy = f"correct the script; {check} compiles it without running it"
    code = "TCD020"
    return ScriptProblem(code, message, "the script is not valid Python", remedy)


def _missing_module(script: str, tree: ast.Module) -> ScriptProblem | None:
    """The first module imported at the start of a script that is not installed; None if none is.

    Stops at the first statement, or module, that may change what can be imported.
    """
    folder = Path(script).resolve().parent
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [str(node.module)]
        else:
            return None
        for root in (name.partition(".")[0] for name in names):
            if (folder / root).exists() or (folder / f"{root}.py").exists():
                return None
            if root in sys.stdlib_module_names or root in sys.builtin_module_names:
                continue
            if find_spec(root) is None:
                return _not_installed(script, node.lineno, root)
            if root not in SAFE:
                return None
    return None


def _not_installed(script: str, line: int, module: str) -> ScriptProblem:
    message = f"ModuleNotFoundError: No module named '{module}' ({script}, line {line})"
    note = f"the module is not installed for {sys.executable}, which runs tcdebug and the script"
    remedy = f"install it for {sys.executable}, or install tcdebug in the script's environment"
    code = "TCD021"
    return ScriptProblem(code, message, note, remedy)


def eager_problem(script: str, run_dir: str) -> Report | None:
    """The report of a script that fails before it does anything; None for other scripts."""
    problem = script_problem(script)
    if problem is None:
        return None
    kind = problem.message.partition(":")[0]
    signature = "syntax | SyntaxError" if problem.code == "TCD020" else f"import | {kind}"
    failure = ReportedFailure("exception", signature, "script", problem.message)
    note = f"{problem.note}: nothing of it was run"
    return Report("fails_in_eager", failure, run_dir=run_dir, notes=[note])


def said_invalid(script: str) -> bool:
    """Print why a script fails before it does anything, and return whether it does."""
    problem = script_problem(script)
    if problem is not None:
        error(problem.code, problem.message, problem.remedy)
    return problem is not None


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
