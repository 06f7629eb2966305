"""Finds the first stage whose text differs between a compile with a fault and one without.

A compile that keeps its stages leaves a run folder: a file with the text of each stage, and events
that give their order. Stages and passes alike are identified by direction and name.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import decoded
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.autograd_stage import STAGE, StageFound
from tcdebug.minifier.cases.layer_names import DECOMPOSITIONS
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.report import StageDiff
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType, Question

BEFORE = {"pregrad": "capture", "passes": "aot"}
"""A stage of the embedded compiler that keeps its input graph -> the stage that made that graph."""
KERNELS = "kernels"
"""The name under which the sources of kernels appear among the stages."""
DIRECTIONS = ("forward", "backward", "inference")
"""Directions that are shown beside the name of a stage."""
MOST_LINES = 40
"""The limit on diff lines in a report. The file has all lines."""
IGNORED = (
    (re.compile(r"(?<![\w./])(?:/[\w.+-]+)+/"), ""),  # the folders of a path
    (re.compile(r"\b0x[0-9a-f]{8,}\b"), "<address>"),
    (re.compile(r"\b[0-9a-z]{40,}\b"), "<hash>"),
    (re.compile(r"\bgraph id: \d+"), "graph id"),
    (re.compile(r"\b\d+_(forward|backward|inference)\b"), r"\1"),  # counted by process
)
"""Text that differs between any two compiles -> its replacement."""

Texts = Mapping[str, str]
"""Stage -> its text, in the order of the pipeline."""


def find_stage(
    oracle: Oracle[CandidateType],
    candidate: CandidateType,
    fails: Toggles,
    off: Sequence[str],
    folder: Path,
) -> StageDiff | None:
    """Compile a candidate as it fails and with units off, and compare the stages in two runs.

    Returns None if the compile without the fault did not pass either. Raises BudgetUsed.
    """
    good, bad = _new_run_folder(folder / "good"), _new_run_folder(folder / "bad")

    def kept(toggles: Toggles, place: Path) -> Outcome:
        return oracle.keep_stages(Question(candidate, toggles, "the texts of its stages", place))

    if kept(fails.without(off=off), good).kind is not Kind.OK:
        return None
    ended = kept(fails, bad).kind is not Kind.OK
    return first_difference(read_stages(good), read_stages(bad), folder, ended=ended)


def find_autograd_stage(
    oracle: Oracle[CandidateType], candidate: CandidateType, base: Toggles, folder: Path
) -> tuple[StageDiff, str] | None:
    """Return the first stage of AOTAutograd whose values differ, and how. Raises BudgetUsed."""
    kept = _new_run_folder(folder)
    toggles = base.without(off=[DECOMPOSITIONS])
    oracle.keep_stages(Question(candidate, toggles, "the values of AOTAutograd's stages", kept))
    path = kept / STAGE
    if not path.exists():
        return None
    found = msgspec.json.decode(path.read_bytes(), type=StageFound)
    return StageDiff(found.stage, found.last_equal, lines=list(found.lines)), found.what


def _new_run_folder(folder: Path) -> Path:
    """Create a run folder that `tcdebug logs` can read. An existing one is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_folder.write_info(folder, "stages")
    return folder


def first_difference(good: Texts, bad: Texts, folder: Path, *, ended: bool = False) -> StageDiff:
    """Return the first stage that differs between two compiles, with a diff file in the folder.

    A bad compile that `ended` early is compared as far as it got.
    """
    missing = [stage for stage in good if stage not in bad]
    stages = [*bad] if ended else [*bad, *missing]
    ended_before = missing[0] if ended and missing else ""
    last_equal = ""
    for stage in stages:
        before, after = good.get(stage, ""), bad.get(stage, "")
        if before != after:
            texts = before.splitlines(), after.splitlines()
            lines = list(difflib.unified_diff(*texts, "good", "bad", lineterm=""))
            path = folder / f"{stage.partition(' ')[0]}.diff"
            path.write_text("\n".join(lines) + "\n")
            return StageDiff(stage, last_equal, ended_before, str(path), lines[2:][:MOST_LINES])
        last_equal = stage
    return StageDiff("", last_equal, ended_before)


def read_stages(folder: Path) -> Texts:
    """Return the stages in a run folder, in order. The folder of a crashed compile works too."""
    files = sorted(folder.glob("events*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    if not files:
        return {}
    texts: dict[str, str] = {}
    latest: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for record in decoded(files[-1].read_bytes().splitlines(), dict[str, Any]):
        name, artifact = _kept(record)
        direction = str(record.get("direction", ""))
        if artifact:
            latest[direction] = _without_ignored((folder / artifact).read_text())
        label = _label(name, direction)
        if not name or direction not in latest or (name == KERNELS and label in texts):
            continue  # one file holds all kernels
        seen[label] += 1
        texts[label if seen[label] == 1 else f"{label} {seen[label]}"] = latest[direction]
    return texts


def _kept(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the stage or pass of an event, and its artifact, which is empty if nothing changed."""
    data = record["data"]
    match record["event"]:
        case "stage.start" if data["artifact"]:
            return BEFORE.get(record["stage"], record["stage"]), data["artifact"]
        case "pass":
            return record["unit"], data["artifact"]
        case "stage.end" if record["stage"] in BEFORE.values():
            return "", ""  # it ends after the stages inside it
        case "stage.end" | "stage.text":
            return record["stage"], data["artifact"]
        case "kernel":
            return KERNELS, data["source"]
    return "", ""


def _label(name: str, direction: str) -> str:
    shown = direction in DIRECTIONS and direction not in name
    return f"{name} ({direction})" if shown else name


def _without_ignored(text: str) -> str:
    """Remove from a text what differs between compiles."""
    for pattern, replacement in IGNORED:
        text = pattern.sub(replacement, text)
    return text
