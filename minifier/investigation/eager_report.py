"""The report of a script that fails in eager as well.

If it counts compiles, it may fail there because nothing is compiled. What torch traces of a
compiled run then shows the statements at which another graph begins, and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.compiler.events.log import recorded
from tcdebug.compiler.events.schema import GraphBreak, Recompile
from tcdebug.compiler.events.search_events import CodeLoaded, ProgramTraced
from tcdebug.minifier.cases.layer_names import SCRIPT
from tcdebug.minifier.cases.user_frames import last_exception
from tcdebug.minifier.investigation.report import Report, ReportedFailure
from tcdebug.minifier.investigation.script_layers import EAGER_IS_NO_EVIDENCE
from tcdebug.minifier.investigation.script_runs import ScriptRuns
from tcdebug.minifier.oracles.budget import BudgetUsed

IN_ONE_PROCESS = (
    '-c "import runpy; '
    "[runpy.run_path(s, run_name='__main__') for s in ('makes.py', 'loads.py')]\""
)
"""The arguments with which a command runs two scripts."""
TOGETHER = f"tcdebug bisect {IN_ONE_PROCESS}"
"""How two scripts are bisected in one process."""

OF_A_COMPILE = ("torch._dynamo.exc.", "torch._inductor.exc.")
COMPILED_BY_TORCH = (
    "torch compiles operators such as cond, scan and while_loop itself, without torch.compile in "
    "the script, and this compile raises"
)

MOST = 3
"""The limit on statements that are shown."""
LONGEST = 200
"""The limit on the characters of a reason."""


def eager_report(run_dir: Path, output: Path, how: str) -> Report:
    """Report a script whose run in eager failed; `output` is the output of that run.

    If the script loaded code that was compiled before, or recorded a function with a tracer, that
    code ran in eager too. It may be at fault, so the report then makes no claim about eager.
    """
    text = output.read_text(errors="replace")
    message = last_exception(text) or text.strip().rpartition("\n")[2]
    failure = ReportedFailure("exception", "eager", "script", message)
    notes = [f"{how}; its output is in {output}"]
    if message.startswith(OF_A_COMPILE):
        notes.insert(0, COMPILED_BY_TORCH)
    if what := _compiled_without_layers(run_dir):
        return Report("unconfirmed", failure, run_dir=str(run_dir), notes=[what, *notes])
    return Report("fails_in_eager", failure, layer=SCRIPT, run_dir=str(run_dir), notes=notes)


def _compiled_without_layers(run_dir: Path) -> str:
    """Describe the compiled or traced code that ran in eager too; empty if there was none."""
    if loaded := _values(run_dir, CodeLoaded.kind, "path"):
        return (
            f"it loads code that was compiled before: {', '.join(loaded)}. No layer of that code "
            "can be switched off, so whether the script fails in eager is unknown. Bisect it "
            f"together with the script that compiles the code: {TOGETHER}"
        )
    if tracers := _values(run_dir, ProgramTraced.kind, "tracer"):
        return (
            f"it calls {', '.join(tracers)}. What that records runs in eager too, so whether the "
            "script fails in eager is unknown"
        )
    return ""


def _values(run_dir: Path, kind: str, field: str) -> list[str]:
    """Return the values of a field in the events of this kind, each once."""
    found: dict[str, None] = {}
    for record in recorded(run_dir):
        if record["event"] == kind:
            found[record["data"][field] or "a file object"] = None
    return list(found)


def with_compiles(report: Report, runs: ScriptRuns) -> Report:
    """Return the report of a script that fails in eager too, with what it may count, if it counts.

    The script runs once more with torch's trace, unless the budget is used up.
    """
    if EAGER_IS_NO_EVIDENCE not in report.notes or len(report.faults) != 1:
        return report
    try:
        (folder,) = runs.traced(((),), Path(runs.job.run_dir) / "counted")
    except BudgetUsed:
        return report
    found = list(dict.fromkeys(another_graphs(folder)))[:MOST]
    fault, places = report.faults[0], list(dict.fromkeys(place for place, _ in found if place))
    fault = msgspec.structs.replace(fault, lines=fault.lines or places)
    notes = [*report.notes, *(note for _, note in found)]
    return msgspec.structs.replace(report, faults=[fault], notes=notes)


def another_graphs(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the reason of each graph break and each compile of a known frame."""
    for record in recorded(folder):
        said = {
            GraphBreak.kind: "Dynamo ends a graph here",
            Recompile.kind: "Dynamo compiles this again",
        }.get(record["event"])
        if said is not None:
            where = record.get("user_loc") or {}
            place = f"{where['filename']}:{where['line']}" if where.get("filename") else ""
            shown = f"{place}: {source}" if (source := _source(where)) else place
            reason = " ".join(record["data"]["reason"].split())[:LONGEST]
            yield shown, f"{said}{f', {place}' if place else ''}: {reason}"


def _source(where: dict[str, Any]) -> str:
    """Return the text of a line; empty if it cannot be read."""
    try:
        lines = Path(where["filename"]).read_text(errors="replace").splitlines()
        return str(lines[where["line"] - 1]).strip()
    except (KeyError, OSError, IndexError):
        return ""
