"""Failures of a script that need no search: not Python, a missing module, no stdin."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from tokenize import detect_encoding
from typing import ClassVar
from zipfile import is_zipfile

import msgspec

from tcdebug.display.console import error
from tcdebug.minifier.cases.criteria import COUNTED
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.eager_report import eager_report
from tcdebug.minifier.investigation.report import Report, ReportedFailure
from tcdebug.minifier.investigation.script_layers import EAGER_IS_NO_EVIDENCE
from tcdebug.minifier.processes.job import SCRIPT_FAILED
from tcdebug.supervision.missing_modules import MissingModule, missing_module

NO_STDIN = (
    "the script reads stdin, and a search gives it only a file, because it runs the script several "
    "times: use script.py < FILE"
)
ARGUMENTS = re.compile(
    r": error: (?:the following arguments are required|unrecognized arguments|argument )"
)
"""How argparse rejects the arguments of a script."""
NO_ARGUMENTS = "the script rejects its arguments: put them after its name, tcdebug's before it"
NOTHING_JUDGED = (
    "--oracle {oracle} judges graphs of torch.compile and of inductor, and none could be judged"
)
PIPELINE_NOT_JUDGED = (
    "--oracle {oracle} does not judge a pipeline that the script calls itself, which has the "
    "passes {passes}"
)
LET_IT_FAIL = (
    "a fault in a pipeline of the script's own is found if the script fails by itself, such as by "
    "an assertion about {what}, and --oracle is left out"
)

ONCE_PASSED = (
    "it ended well while its graphs were recorded, and failed in each later run, in eager too: if "
    "a run leaves something behind that the next one fails on, such as a file, remove that and "
    "bisect again"
)
"""A note on a script of which it is unknown whether it fails in eager."""


def eager_failed(folder: Path, status: int) -> Report:
    """Return the report of a script whose session in eager ended with this exit status."""
    how = "it raised" if status == SCRIPT_FAILED else f"exit status {status}"
    return eager_report(folder, folder / "eager.log", how)


def once_passed(report: Report, recorded: int) -> Report:
    """Return the report of a script that fails in eager, unless it passed before, when recorded."""
    if recorded != 0 or report.status != "fails_in_eager" or EAGER_IS_NO_EVIDENCE in report.notes:
        return report
    notes = [ONCE_PASSED, *report.notes]
    return msgspec.structs.replace(report, status="unconfirmed", layer="", notes=notes)


def not_judged(oracle: str, passes: Sequence[str], no_graph: bool) -> list[str]:
    """Return notes on what an oracle of graphs did not judge in a script, and a remedy.

    `passes` are those that the script called itself.
    """
    notes = [NOTHING_JUDGED.format(oracle=oracle)] if no_graph else []
    if passes:
        notes.append(PIPELINE_NOT_JUDGED.format(oracle=oracle, passes=", ".join(passes)))
    what = "the time that it takes" if Kind.SLOW in COUNTED[oracle] else "its results"
    return [*notes, LET_IT_FAIL.format(what=what)] if notes else []


@dataclass(frozen=True)
class ScriptProblem:
    """Why a script cannot run: the message of Python, a note and a remedy."""

    code: ClassVar[str]
    signature: ClassVar[str]
    message: str
    note: str
    remedy: str


class NotPython(ScriptProblem):
    """Python cannot compile the script."""

    code = "TCD020"
    signature = "syntax | SyntaxError"


class ModuleNotInstalled(ScriptProblem):
    """Python cannot find a module that the script imports."""

    code = "TCD021"
    signature = "import | ModuleNotFoundError"


def script_problem(script: str) -> ScriptProblem | None:
    """Return why Python cannot run a script; None if it can, or if only running it shows that.

    Runs and imports nothing.
    """
    path = Path(script)
    text = path.read_bytes()
    if text.startswith(MAGIC_NUMBER) or is_zipfile(path):  # Python runs these too
        return None
    if _is_notebook(text):
        return _notebook(script)
    if undecoded := _not_decoded(script, text):
        return undecoded
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(text, script, "exec", dont_inherit=True)
            tree = ast.parse(text, script)
    except SyntaxError as problem:
        line = "" if problem.lineno is None else f", line {problem.lineno}"
        message = f"{type(problem).__name__}: {problem.msg} ({script}{line})"
        return _invalid(script, text, message)
    except ValueError as problem:
        return _invalid(script, text, f"{type(problem).__name__}: {problem} ({script})")
    except RecursionError:  # deeply nested code, which Python may still run
        return None
    missing = missing_module(path, tree)
    return _not_installed(script, missing) if missing else None


def _is_notebook(text: bytes) -> bool:
    """Return whether a file is a Jupyter notebook, which may be a valid Python expression too."""
    if not text.lstrip().startswith(b"{"):
        return False
    try:
        document = json.loads(text)
    except ValueError:
        return False
    return isinstance(document, dict) and {"cells", "nbformat"} <= document.keys()


def _notebook(script: str) -> ScriptProblem:
    message = f"{script} is a Jupyter notebook, not a Python script"
    convert = f"jupyter nbconvert --to script {shlex.quote(script)}"
    remedy = f"convert it with {convert}, or call tcdebug.bisect(f, x) in a cell"
    return NotPython(message, "the script is not valid Python", remedy)


def _invalid(script: str, text: bytes, message: str) -> ScriptProblem:
    interpreter = text.partition(b"\n")[0].decode(errors="replace").strip()
    if interpreter.startswith("#!") and "python" not in interpreter:
        remedy = f"the first line is {interpreter!r}: name the Python script that this file starts"
    else:
        check = f"python -m py_compile {shlex.quote(script)}"
        remedy = f"correct the script; {check} compiles it without running it"
    return NotPython(message, "the script is not valid Python", remedy)


def _not_decoded(script: str, text: bytes) -> ScriptProblem | None:
    """Return the problem of a file that is not in the encoding that it declares, or in UTF-8.

    Python refuses it. `compile` does not, if only comments are concerned.
    """
    try:
        text.decode(detect_encoding(io.BytesIO(text).readline)[0])
    except SyntaxError as problem:
        message = f"SyntaxError: {problem.msg} ({script})"
    except UnicodeDecodeError as problem:
        line = text[: problem.start].count(b"\n") + 1
        byte = f"byte 0x{text[problem.start]:02x} is not {problem.encoding}"
        message = f"SyntaxError: {byte} ({script}, line {line})"
    else:
        return None
    remedy = "save it as UTF-8, or declare its encoding in line 1: # -*- coding: latin-1 -*-"
    return NotPython(message, "the script is not valid Python", remedy)


def _not_installed(script: str, missing: MissingModule) -> ScriptProblem:
    at = f"{script}, line {missing.line}"
    message = f"ModuleNotFoundError: No module named {missing.name!r} ({at})"
    note = f"the module is not installed for {sys.executable}, which runs tcdebug and the script"
    remedy = f"install it for {sys.executable}, or install tcdebug in the script's environment"
    return ModuleNotInstalled(message, note, remedy)


def eager_problem(script: str, run_dir: str) -> Report | None:
    """Return the report of a script that fails before it does anything; None for other scripts."""
    problem = script_problem(script)
    if problem is None:
        return None
    failure = ReportedFailure("exception", problem.signature, "script", problem.message)
    notes = [f"{problem.note}: nothing of it was run", problem.remedy]
    return Report("fails_in_eager", failure, run_dir=run_dir, notes=notes)


def print_script_problem(script: str) -> bool:
    """Print why a script fails before it does anything, and return whether it does."""
    problem = script_problem(script)
    if problem is not None:
        error(problem.code, problem.message, problem.remedy)
    return problem is not None


def input_notes(report: Report) -> list[str]:
    """Return what to say of a script that found no stdin, or rejected its arguments."""
    message = report.failure.message if report.failure else ""
    if report.status == "fails_in_eager" and ARGUMENTS.search(message):
        return [NO_ARGUMENTS]
    return [NO_STDIN] if "EOFError: EOF when reading" in message else []


def culprit_notes(events: list[dict[str, object]]) -> list[str]:
    """Return the last culprit that was printed before the search was ended."""
    found = [r for r in events if r.get("event") == "bisect.result"]
    if not found:
        return []
    data = found[-1].get("data")
    subject = data.get("subject") if isinstance(data, dict) else ""
    return [f"culprit so far, not confirmed: {found[-1].get('unit')} at {subject}"]
