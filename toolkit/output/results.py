"""Results of a search or an explanation, for `formats`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.search_events import GraphFailure, GuardMissing, ReproWrite
from tcdebug.minifier.investigation.report import Report, ReportedFault
from tcdebug.minifier.repros.verify import python_command
from tcdebug.output.formats import Heading, Result
from tcdebug.reading.explanation import Explanation


def of_report(report: Report, tool: str) -> tuple[list[Result], Heading]:
    """Return the faults of a bisection or minimisation. A failure without a fault counts as one."""
    faults = report.faults
    if not faults and report.failure is not None:
        faults = [ReportedFault(report.failure, repro=report.repro, nodes=report.nodes_after)]
    summary = f"{report.status.replace('_', ' ')}: {len(faults)} faults, {report.reruns} runs"
    numbers = {
        "status": report.status, "reruns": report.reruns, "seconds": round(report.seconds, 1),
        "nodes_before": report.nodes_before, "nodes_after": report.nodes_after,
    }  # fmt: skip
    return [_fault(f) for f in faults], Heading(tool, summary, report.run_dir, numbers)


def _fault(fault: ReportedFault) -> Result:
    culprit = fault.culprits[0] if fault.culprits else None
    repro = relative(fault.repro or "")
    path, line = _place(fault.lines, repro)
    named = "culprit" if fault.confirmed or fault.misregistered else "suspect"
    who = f": {culprit.named}" if culprit else ""
    return Result(
        rule=culprit.unit if culprit else fault.failure.kind,
        kind=fault.failure.kind,
        title=f"{fault.failure.kind} in {fault.failure.direction}{who}",
        message=fault.failure.message or fault.failure.signature,
        path=path,
        line=line,
        command=f"{python_command()} {repro}" if repro else "",
        identity=fault.failure.signature,
        details=(
            (named, ", ".join([*fault.misregistered, *(c.unit for c in fault.culprits)])),
            ("within it, decides", ", ".join(fault.within)),
            ("passes only with all off", ", ".join(fault.alternatives)),
            ("only if on", ", ".join([*fault.partners, *map(" or ".join, fault.either)])),
            ("stage", fault.stages.stage if fault.stages else ""),
            ("repro", f"{repro}, {fault.nodes} nodes" if repro else ""),
        ),
    )


def _place(lines: Sequence[str], otherwise: str) -> tuple[str, int]:
    """Return the user's line, relative to the working directory; otherwise the repro."""
    for text in lines:
        path, _, rest = text.partition(":")
        number = rest.split(" ")[0].rstrip(":")
        if number.isdecimal():
            return relative(path), int(number)
    return otherwise, 0


def of_run(
    records: Iterable[Mapping[str, Any]], repros: Sequence[Path], script: str, status: int
) -> tuple[list[Result], Heading]:
    """Return the failures of a run: of each graph that left a repro, and each missing guard."""
    latest: dict[int, Mapping[str, Any]] = {}
    failures: dict[str, Mapping[str, Any]] = {}
    guards = []
    for record in records:
        data = record["data"]
        if record["event"] == GraphFailure.kind:
            latest[record["pid"]] = data
        elif record["event"] == ReproWrite.kind and record["pid"] in latest:
            failures[data["path"]] = latest[record["pid"]]
        elif record["event"] == GuardMissing.kind:
            guards.append(_guard(data))
    found = [_failed(failures.get(str(p), ENDED), relative(str(p)), script) for p in repros]
    summary = f"exit status {status}; failing graphs: {len(found)}; missing guards: {len(guards)}"
    return [*found, *guards], Heading("tcdebug run", summary, numbers={"status": status})


ENDED = {
    "failure": "crash", "signature": "the process ended", "direction": "this graph",
    "message": "the process ended while this graph compiled or ran",
}  # fmt: skip
"""The failure of a graph whose repro was written in advance."""


def _failed(failure: Mapping[str, Any], repro: str, script: str) -> Result:
    kind, title = failure["failure"], f"{failure['failure']} in {failure['direction']}"
    message, identity = failure["message"] or failure["signature"], failure["signature"]
    command = f"{python_command()} {repro}"
    path = relative(str(Path(script).absolute()))
    return Result(
        kind, kind, title, message, path, 0, "error", command, identity, (("repro", repro),)
    )


def _guard(data: Mapping[str, Any]) -> Result:
    path, line = _place([data["line"]], "")
    details = (("changed", "; ".join(data["changed"])), ("call", str(data["call"])))
    title, message = f"missing guard in {data['frame']}", f"{data['where']}: {data['detail']}"
    rule = "missing-guard"
    return Result(
        rule, "guard", title, message, path, line, identity=f"{rule} {data['frame']}",
        details=details,
    )  # fmt: skip


def of_explanation(found: Explanation) -> tuple[list[Result], Heading]:
    """Return breaks and recompiles as warnings at their lines, failures as errors."""
    results = [*_breaks(found), *_recompiles(found), *_failures(found)]
    compiles = sum(frame.compiles for frame in found.frames)
    summary = (
        f"{compiles} graphs, {len(found.breaks)} graph breaks, {len(found.recompiles)} recompiles; "
        f"compiling {found.compile_seconds:.1f} s of {found.seconds:.1f} s"
    )
    numbers = {"seconds": round(found.seconds, 1), "graphs": compiles, "kernels": found.kernels}
    return results, Heading("tcdebug explain", summary, found.run, numbers)


def _breaks(found: Explanation) -> Iterator[Result]:
    for cost in found.breaks:
        broken = cost.graph_break
        rule = broken.id or "graph-break"
        text = "\n".join([broken.explanation or broken.what, *broken.hints])
        costs = f"{cost.graphs} graphs after it, {cost.seconds:.1f} s"
        yield _at(broken.where, rule, "graph break", broken.what, text, (("costs", costs),))


def _recompiles(found: Explanation) -> Iterator[Result]:
    for cost in found.recompiles:
        row = cost.recompile
        text = "\n".join([cost.cause, *cost.advice])
        costs = (("costs", f"{row.seconds:.1f} s"),)
        yield _at(row.where, "recompile", "recompile", f"recompile of {row.frame}", text, costs)


def _failures(found: Explanation) -> Iterator[Result]:
    for text in found.failures:
        result = _at("", "failure", "failure", text.partition("\n")[0][:100], text, ())
        yield replace(result, level="error")


def _at(
    where: str, rule: str, kind: str, title: str, message: str,
    details: tuple[tuple[str, str], ...],
) -> Result:  # fmt: skip
    filename, _, line = where.rpartition(":")
    number = int(line) if line.isdecimal() else 0
    title = f"{kind}: {title}" if kind not in title else title
    identity = f"{rule} {Path(filename).name}:{number}"
    return Result(
        rule, kind, title, message, relative(filename), number, "warning", "", identity, details
    )


def relative(path: str) -> str:
    """Return a path relative to the working directory if it is below it, as CI expects."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if path and Path(path).is_relative_to(here) else path
