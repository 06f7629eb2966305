"""A bug report for PyTorch from a run: fills in the sections of PyTorch's form."""

from __future__ import annotations

import contextlib
import getpass
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from tcdebug.compiler.events.run_folder import BASE
from tcdebug.compiler.patching import SUPPORTED
from tcdebug.minifier.capture.watching.running import left_running
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.report import Report, ReportedFailure, ReportedFault
from tcdebug.minifier.repros.standalone import GRAPH, standalone
from tcdebug.output.triage import filing
from tcdebug.reading.run_dir import Record, Run, runs
from tcdebug.since.history import SINCE, VersionHistory

PACKAGES = ("triton", "numpy", "tcdebug")
"""Packages besides torch whose versions are listed."""

EXPECTED = {
    "wrong": "what eager returns, within rounding",
    "exception": "no exception, as in eager",
    "crash": "no crash, as in eager",
    "hang": "termination, as in eager",
    "killed": "about as much memory as eager needs",
    "slow": "not slower than eager",
    "recompile": "no recompile for inputs that an earlier compile serves",
}
"""The expected behaviour, by kind of failure."""

HOME = re.compile(r"/(?:home|Users)/[^/\s'\"]+")


class NoFailure(Exception):
    """A run has no failure to report. The message says why."""


def newest() -> str:
    """Return the bug report for the newest run with a failure. Raises NoFailure."""
    known = runs()
    for run in known:
        with contextlib.suppress(NoFailure):
            return issue(run)
    raise NoFailure(f"none of the {len(known)} runs in {BASE} found a failure with a repro")


def issue(run: Run) -> str:
    """Return the bug report for the failure of a run, as Markdown. Raises NoFailure."""
    found = _report(run)
    failure = found.failure
    if failure is None or found.repro is None or not Path(found.repro).is_file():
        raise NoFailure(f"{run.path.name} found no failure with a repro: {found.status}")
    fault = found.faults[0] if found.faults else ReportedFault(failure, found.culprits)
    script = Path(found.repro)
    backend = _fact(script, "backend")
    whole = failure.direction == "script"
    subject, with_backend = ("script", "") if whole else ("graph", f" with `{backend}`")
    what = f"{failure.kind} in {failure.direction}"
    filed = filing(found, fault, backend, on_gpu="cuda" in script.read_text())
    log = script.with_name("repro.log")
    lines = [
        f"# torch.compile: {what}: {_plain(failure.message or failure.signature, 80)}",
        "",
        f"<!-- Search for duplicates before you submit: {filed.search} -->",
        "",
        "### 🐛 Describe the bug",
        "",
        f"Compiled{with_backend}, this {subject} behaves differently from eager: **{what}**.",
        *_minimised(found, fault),
        "",
        f"- expected: {EXPECTED.get(failure.kind, 'the same as eager')}",
        f"- actual: {_plain(failure.message or failure.signature, 400)}",
        f"- signature: `{_plain(filed.signature, 400)}`",
        *(f"- labels: {', '.join(filed.labels)}" for _ in filed.labels[:1]),
        "",
        *_script(fault, script),
        *_ablation(found, fault, run.events()),
        *_stage(fault),
        *_versions_tried(script),
        "",
        "### Error logs",
        "",
        "```",
        _end_of(log.read_text() if log.exists() else failure.message),
        "```",
        "",
        "### Versions",
        "",
        "```",
        *versions(),
        "```",
    ]
    return scrubbed("\n".join(lines) + "\n")


def _versions_tried(script: Path) -> Iterator[str]:
    """Yield the table of `tcdebug since` for this repro, or how it is made."""
    path = script.with_name(SINCE)
    if not path.is_file():
        command = f"tcdebug since {script.name} --torch {SUPPORTED[0]}..{SUPPORTED[-1]}"
        yield from ("", f"<!-- `{command}` adds a table of versions that fail to this report -->")
        return
    found = msgspec.json.decode(path.read_bytes(), type=VersionHistory)
    yield from ("", f"With other versions of torch: **{found.verdict}**.", "")
    yield from ("| torch | result |", "|---|---|")
    for trial in found.trials:
        yield f"| {trial.torch or trial.version} | {trial.standing} |"


def _script(fault: ReportedFault, script: Path) -> Iterator[str]:
    """Yield the short form of the repro; without one the repro itself, and what it needs."""
    short = Path(fault.short) if fault.short else None
    if short is not None and short.is_file():
        yield from ("```python", short.read_text().rstrip(), "```")
        return
    text = script.read_text()
    if graph := GRAPH.search(text):
        yield from ("The graph and its inputs:", "", "```python", graph[0], "```", "")
    yield f"The whole script needs {_needs(script)}. It exits with 1 if it fails in this way,"
    yield "with 0 if it does not fail, and with 125 if it cannot tell."
    yield from ("", "<details><summary>repro.py</summary>", "")
    yield from ("```python", standalone(text).rstrip(), "```", "", "</details>")


def _report(run: Run) -> Report:
    """Return the report of a bisection, or of the first failure of a watched run."""
    path = run.path / "report.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=Report)
    records = run.events()
    failures = [r["data"] for r in records if r["event"] == "failure"]
    scripts = [r["data"]["path"] for r in records if r["event"] == "repro.write"]
    if not failures or not scripts:
        for script in left_running(run.path):
            ended = ReportedFailure("crash", "ended", message="the process ended in this graph")
            return Report("unconfirmed", ended, repro=str(script))
        raise NoFailure(f"{run.path.name} has no failure")
    first = failures[0]
    facts = (first[key] for key in ("failure", "signature", "direction", "message"))
    failure = ReportedFailure(*facts)
    return Report("unconfirmed", failure, repro=scripts[0])


def _fact(script: Path, name: str) -> str:
    """Return a fact from the docstring of a repro script."""
    found = re.search(rf"^{name} +(.*)$", script.read_text(), re.MULTILINE)
    return found.group(1) if found else "torch.compile"


def _needs(script: Path) -> str:
    needs = ["torch"] + ["tcdebug"] * ("'backend': 'tcdebug'" in script.read_text())
    beside = (script.with_suffix(".safetensors"), script.with_name("repro_script.py"))
    attached = [f"`{path.name}`" for path in beside if path.exists()]
    attach = f"; attach {' and '.join(attached)}" if attached else ""
    return " and ".join(needs) + attach


def _minimised(found: Report, fault: ReportedFault) -> Iterator[str]:
    if found.nodes_before:
        yield f"The graph was minimised from {found.nodes_before} to {found.nodes_after} nodes."
    if found.script:
        small = found.script
        yield f"The script was minimised from {small.lines_before} to {small.lines_after} lines."
    for operator in fault.misregistered:
        yield f"The cause is in the script: {operator}"
    for culprit in fault.culprits:
        if fault.confirmed:
            yield f"It passes with `{culprit.unit}` off at `{culprit.subject}`."
        else:
            yield f"`{culprit.unit}` at `{culprit.subject}` is suspected, but not confirmed."
    if found.layer:
        yield f"The layer at fault is `{found.layer}`."
    for unit in fault.within:
        yield f"Within it, `{unit}` decides when only what the failure needs is on."


def _ablation(found: Report, fault: ReportedFault, records: Sequence[Record]) -> Iterator[str]:
    """Yield a table of what was switched off, in the original or small graph, and the outcome."""
    rows = {"everything on": fault.failure.kind}
    units = {*(c.unit for c in fault.culprits), *fault.alternatives}
    sizes = (found.nodes_before, found.nodes_after)
    for record in records:
        data = record.get("data", {})
        if record.get("event") == "candidate" and data["nodes"] in sizes:
            off = data["toggles"]
            if off == ["all"] or (off and set(off) <= units):
                rows[f"off: {', '.join(off)}"] = data["outcome"]
    if found.confirmed:
        rows[f"off: {', '.join(sorted(units))}"] = Kind.OK.value
    if fault.only_fails:
        options = (word for word in fault.only_fails.split() if word.startswith("--only="))
        on = ", ".join(f"`{option.removeprefix('--only=')}`" for option in options)
        rows[f"everything off except {on}"] = fault.failure.kind
    rows |= {rung.how: rung.outcome for rung in found.ladder}
    yield from ("", "| ablation | |", "|---|---|")
    for what, outcome in rows.items():
        yield f"| {what} | {'passes' if outcome == Kind.OK.value else f'fails: {outcome}'} |"


def _stage(fault: ReportedFault) -> Iterator[str]:
    """Yield the first stage that differs with the culprit on, with its diff if there is one."""
    where = fault.stages
    if where is None or not where.stage or not where.lines:
        return
    yield from ("", f"The first stage that differs with the culprit on is `{where.stage}`:", "")
    yield from ("```diff", *(line.replace("```", "'''") for line in where.lines), "```")


def _plain(text: str, most: int) -> str:
    """Return a text as part of one line."""
    line = " ".join(text.replace("`", "'").split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def _end_of(text: str, lines: int = 40) -> str:
    return "\n".join(text.strip().replace("```", "'''").splitlines()[-lines:])


def versions() -> Iterator[str]:
    """Yield the versions that torch's own collector prints first, without private data."""
    torch = import_module("torch")
    yield f"PyTorch version: {torch.__version__}"
    yield f"Git version: {torch.version.git_version}"
    yield f"Is debug build: {torch.version.debug}"
    yield f"CUDA used to build PyTorch: {torch.version.cuda or 'none'}"
    yield f"ROCM used to build PyTorch: {torch.version.hip or 'none'}"
    yield f"Python version: {sys.version.split()[0]} ({platform.python_compiler()})"
    yield f"Python platform: {platform.platform()}"
    yield f"CPU: {_processor()}"
    if torch.cuda.is_available():
        yield f"GPU: {torch.cuda.get_device_name()}"
    for name in PACKAGES:
        try:
            yield f"{name}: {version(name)}"
        except PackageNotFoundError:
            continue


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return model.group(1) if model else platform.machine()


def scrubbed(text: str) -> str:
    """Return a text without folders, user and host name."""
    places = {
        str(Path.cwd()): ".",
        str(Path.home()): "~",
        sys.prefix: "<python>",
        sys.base_prefix: "<python>",
        tempfile.gettempdir(): "<tmp>",
    }
    for place in sorted(places, key=len, reverse=True):
        if len(place) > 1:
            text = text.replace(place, places[place])
    text = HOME.sub("~", text)
    user, host = re.escape(getpass.getuser()), re.escape(platform.node() or "-")
    return re.sub(rf"(?<=[/@]){user}\b|\b{user}(?=@)|\b{host}\b", "<private>", text)
