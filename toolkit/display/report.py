"""Shows a report: the failure, the culprit, the repro and the next commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tcdebug.display.console import messages, note, results, write
from tcdebug.display.diff import coloured
from tcdebug.display.text import clipped, counted, short_line, short_path
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.report import (
    Culprit,
    Report,
    ReportedFailure,
    ReportedFault,
    ReportedRung,
    StageDiff,
)
from tcdebug.minifier.repros.verify import CHECK_SECONDS, Settled, python_command, settle
from tcdebug.minifier.subjects.layer_texts import listed

HEADLINES = {
    "confirmed": "[good]found[/] and confirmed both ways",
    "minimized": "[good]minimised[/]",
    "unconfirmed": "[warn]it fails, but no culprit was confirmed[/]",
    "no_failure": "nothing fails",
    "fails_in_eager": "the script fails in eager too",
    "unjudged": "no failure was seen, but not everything could be judged",
    "budget": "[warn]the budget is used up[/]; this is the best so far",
    "interrupted": "[warn]interrupted[/]; the same command continues from here",
}

MOST_LINES = 4
"""Maximum number of source lines shown per fault."""
MOST_CHANGES = 6
"""Maximum number of diff lines shown per stage."""
COMMENTS = ("# ", "//")
INDUCTOR_IR = re.compile(r"^\w+: \w*SchedulerNode\(|\.kernel = |\bops\.\w+\(")
"""Lines of inductor's IR with nodes and operations; others are dependencies, layouts, indices."""


def show_report(report: Report, console: Console | None = None) -> None:
    """Print a report."""
    out = console or results()
    rows: list[tuple[str, str]] = []
    if report.nodes_before:
        graph = "" if report.graph is None else f" of graph {report.graph}"
        rows.append(("graph", f"{report.nodes_before} -> {report.nodes_after} nodes{graph}"))
    if report.script is not None:
        small = report.script
        spent = f"{counted(small.runs, 'run')}, {small.seconds:.0f} s"
        rows.append(("script", f"{small.lines_before} -> {small.lines_after} lines ({spent})"))
    if report.ladder:
        rows.append(("runs", _runs(report.ladder)))
    if report.reruns:
        runs = counted(report.reruns, "run")
        cost = f"{runs}, {report.seconds:.0f} s, {report.cpu_seconds:.0f} CPU-s"
        rows.append(("cost", cost))
    rows += [("note", escape(text)) for text in report.notes]
    rows += [
        ("other", f"{escape(signature)}: tcdebug bisect {short_path(path)}")
        for signature, path in report.others.items()
    ]
    if report.run_dir:
        rows.append(("log", f"tcdebug logs {short_path(report.run_dir)}"))
    out.print(HEADLINES[report.status])
    if report.failure is not None and not report.faults:
        rows.insert(0, ("failure", _failure(report.failure)))
        if report.repro:
            rows.append(("repro", f"[path]{short_path(report.repro)}[/]"))
    _print_rows(out, rows)
    for number, fault in enumerate(report.faults, 1):
        if len(report.faults) > 1:
            out.print(f"fault {number} of {len(report.faults)}")
        _print_rows(out, _fault_rows(fault))
    if report.script is not None:
        out.print()
        for line in Path(report.script.path).read_text().splitlines():
            out.print(f"  {escape(line)}", highlight=False, soft_wrap=True)


def _print_rows(out: Console, rows: Sequence[tuple[str, str]]) -> None:
    for name, text in rows:
        out.print(f"  [dim]{name:<8}[/] {text}")


def _runs(ladder: Sequence[ReportedRung]) -> str:
    """Return how it ended with less of torch, the runs with the same outcome together."""
    ways: dict[str, list[str]] = {}
    for rung in ladder:
        ways.setdefault(rung.outcome, []).append(rung.how)
    return "; ".join(
        f"{'passes' if outcome == Kind.OK.value else f'fails ({outcome})'} {listed(runs)}"
        for outcome, runs in ways.items()
    )


def _failure(failure: ReportedFailure) -> str:
    detail = escape(clipped(" ".join(failure.message.split()), 200))
    return f"[bad]{failure.kind}[/] in {failure.direction}: {detail}"


def _culprit(culprit: Culprit) -> str:
    """Return the unit and its subject, if that differs. A layer has no decision."""
    place = f" [dim](site {culprit.site}, decision {culprit.ordinal})[/]" if culprit.site else ""
    subject = f" at {escape(culprit.subject)}" if culprit.subject != culprit.unit else ""
    return f"[unit]{culprit.unit}[/]{subject}{place}"


def _fault_rows(fault: ReportedFault) -> list[tuple[str, str]]:
    """Return the rows of a fault: failure, culprit, source lines, commands."""
    rows = [("failure", _failure(fault.failure))]
    rows += [("culprit", escape(operator)) for operator in fault.misregistered]
    found = "culprit" if fault.confirmed else "suspect"
    rows += [(found, _culprit(culprit)) for culprit in fault.culprits]
    rows += [
        (
            "within",
            f"[unit]{unit}[/]: it decides when only what the failure needs is on",
        )
        for unit in fault.within
    ]
    if fault.alternatives:
        these = "this is" if len(fault.alternatives) == 1 else "these are"
        units = ", ".join(fault.alternatives)
        rows.append(("or", f"[unit]{units}[/]: it passes only if {these} off too"))
    if fault.partners:
        are = "is" if len(fault.partners) == 1 else "are"
        rows.append(("only if", f"[unit]{', '.join(fault.partners)}[/] {are} on too"))
    for group in fault.either:
        rows.append(("only if", f"[unit]{' or '.join(group)}[/] is on too"))
    if fault.requires:
        rows.append(("needs", ", ".join(fault.requires)))
    rows += [("line", short_line(line)) for line in fault.lines[:MOST_LINES]]
    if fault.stages:
        rows += _stage_rows(fault.stages)
    if fault.repro:
        folder = short_path(os.path.dirname(fault.repro))
        commands = {"fails": fault.fails, "only": fault.only_fails, "passes": fault.passes}
        for name, command in commands.items():
            if command and (name == "fails" or command != fault.fails):
                arguments = command.removeprefix("python ")
                rows.append((name, f"{python_command()} {folder}/{arguments}"))
        if fault.short:
            rows.append(("short", f"[path]{short_path(fault.short)}[/]"))
        rows.append(("repro", f"[path]{short_path(fault.repro)}[/]"))
    return rows


def _stage_rows(stages: StageDiff) -> list[tuple[str, str]]:
    """Return the rows for the stage that introduces a fault, and its diff."""
    equal = f"equal up to {stages.last_equal}" if stages.last_equal else "the first stage"
    ended = f"the failing compile ended before {stages.ended_before}"
    if not stages.stage:
        what = ended if stages.ended_before else "no stage differs"
        return [("stage", f"{what}; {equal}")]
    rows = [("stage", f"[unit]{stages.stage}[/]; {equal}")]
    if stages.ended_before:
        rows.append(("", ended))
    rows += [("", coloured(line)) for line in _changes(stages)[:MOST_CHANGES]]
    if stages.path:
        rows.append(("diff", f"[path]{short_path(stages.path)}[/]"))
    return rows


def _changes(stages: StageDiff) -> list[str]:
    """Return the lines of a diff that change more than comments, without common indentation."""
    changed = [(line[:1], line[1:]) for line in stages.lines if line[:1] in ("-", "+")]
    kept = [(sign, t) for sign, t in changed if t.strip() and not t.lstrip().startswith(COMMENTS)]
    if stages.stage.startswith("ir_"):
        kept = [(sign, text) for sign, text in kept if INDUCTOR_IR.search(text)]
    indent = min((len(text) - len(text.lstrip()) for _, text in kept), default=0)
    return [f"{sign} {text[indent:]}" for sign, text in kept]


MOST_CHECKED = 3
"""Repros of a run that are checked; the others are only announced."""


def announce_repros(paths: Sequence[Path], *, hints: bool = True, run: bool = True) -> None:
    """Run the repros that failures left and print their paths.

    `hints` says what is being checked, and adds the next step before each path. Without `run` the
    repros are not run, for example after Ctrl-C, since a repro of a hang would take long.
    """
    for number, path in enumerate(paths, 1):
        if run and hints and number <= MOST_CHECKED:
            which = f"repro {number} of {len(paths)}" if len(paths) > 1 else "the repro"
            note(f"checking {which} in a fresh process, for {CHECK_SECONDS:.0f} s at most")
        checked = run and number <= MOST_CHECKED
        hint = _hint(path) if checked else f"next  {_command(path)}"
        if hints:
            note(hint)
        messages().print(f"tcdebug: repro [path]{path}[/]")


def _hint(path: Path) -> str:
    """Run a repro; what to do next."""
    match settle(path):
        case Settled.FAILS:
            return f"next  tcdebug bisect {short_path(str(path))}"
        case Settled.PASSES:
            return "the repro does not fail on its own: bisect the script"
    return f"the repro did not end in {CHECK_SECONDS:.0f} s: {_command(path)}"


def show_written(passing: Mapping[Path, bool]) -> None:
    """Print the paths of the scripts, and on stderr those that do not pass."""
    for path, passes in passing.items():
        if not passes:
            note(f"{path.name} does not pass: {_command(path)}")
    for path in passing:
        write(f"{short_path(str(path))}\n")


def _command(path: Path) -> str:
    """Return the command that runs a repro script."""
    return f"{python_command()} {short_path(str(path))}"
