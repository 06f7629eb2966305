"""Where a fault comes in: the first stage that a compile with it and one without write differently.

A compile that keeps its stages leaves a run folder: the text of each as a file, and events that say
in which order. Stages are told apart by direction and name, passes and stages alike.
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
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.report import StageDiff
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.targets.ladder import DECOMPOSITIONS

BEFORE = {"pregrad": "capture", "passes": "aot"}
"""Stage of the embedded compiler that keeps the graph it begins with -> the stage that made it."""
KERNELS = "kernels"
"""What the sources of kernels are called among the stages."""
DIRECTIONS = ("forward", "backward", "inference")
"""Directions that are said beside the name of a stage."""
MOST_LINES = 40
"""Lines of a diff that a report has; the file has all."""
MEANINGLESS = (
    (re.compile(r"(?<![\w./])(?:/[\w.+-]+)+/"), ""),  # the folders of a path
    (re.compile(r"\b0x[0-9a-f]{8,}\b"), "<address>"),
    (re.compile(r"\b[0-9a-z]{40,}\b"), "<hash>"),
    (re.compile(r"\bgraph id: \d+"), "graph id"),
    (re.compile(r"\b\d+_(forward|backward|inference)\b"), r"\1"),  # counted by process
)
"""What differs between two compiles without meaning -> what stands there instead."""

Texts = Mapping[str, str]
"""Stage -> what it wrote, in the order of the pipeline."""


def find_stage(
    oracle: Oracle[CandidateType],
    candidate: CandidateType,
    fails: Toggles,
    off: Sequence[str],
    folder: Path,
) -> StageDiff | None:
    """Compile a candidate as it fails and with units off, and compare stage by stage.

    Two runs. None where the compile without the fault did not pass either. Raises BudgetUsed.
    """
    good, bad = _made(folder / "good"), _made(folder / "bad")

    def kept(toggles: Toggles, place: Path) -> Outcome:
        return oracle.keep_stages(Question(candidate, toggles, "the texts of its stages", place))

    if kept(fails.without(off=off), good).kind is not Kind.OK:
        return None
    ended = kept(fails, bad).kind is not Kind.OK
    return first_difference(read_stages(good), read_stages(bad), folder, ended=ended)


def find_autograd_stage(
    oracle: Oracle[CandidateType], candidate: CandidateType, base: Toggles, folder: Path
) -> tuple[StageDiff, str] | None:
    """The first stage of AOTAutograd whose values differ, and how. One run. Raises BudgetUsed."""
    kept = _made(folder)
    toggles = base.without(off=[DECOMPOSITIONS])
    oracle.keep_stages(Question(candidate, toggles, "the values of AOTAutograd's stages", kept))
    path = kept / STAGE
    if not path.exists():
        return None
    found = msgspec.json.decode(path.read_bytes(), type=StageFound)
    return StageDiff(found.stage, found.last_equal, lines=list(found.lines)), found.what


def _made(folder: Path) -> Path:
    """A new run folder, which `tcdebug logs` can read; a graph may be investigated twice."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_folder.write_info(folder, "stages")
    return folder


def first_difference(good: Texts, bad: Texts, folder: Path, *, ended: bool = False) -> StageDiff:
    """The first stage of two compiles that differs, its diff in a file of the folder.

    A bad compile that `ended` before its time is compared as far as it came.
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
    """The stages in a run folder, in order; that of a compile that crashed will do."""
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
            latest[direction] = _plain((folder / artifact).read_text())
        label = _label(name, direction)
        if not name or direction not in latest or (name == KERNELS and label in texts):
            continue  # one file has all kernels
        seen[label] += 1
        texts[label if seen[label] == 1 else f"{label} {seen[label]}"] = latest[direction]
    return texts


def _kept(record: Mapping[str, Any]) -> tuple[str, str]:
    """The stage or pass that an event tells of, and its artifact: empty where nothing changed."""
    data = record["data"]
    match record["event"]:
        case "stage.start" if data["artifact"]:
            return BEFORE.get(record["stage"], record["stage"]), data["artifact"]
        case "pass":
            return record["unit"], data["artifact"]
        case "stage.end" if record["stage"] in BEFORE.values():
            return "", ""  # it is over when those inside of it are
        case "stage.end" | "stage.text":
            return record["stage"], data["artifact"]
        case "kernel":
            return KERNELS, data["source"]
    return "", ""


def _label(name: str, direction: str) -> str:
    told = direction in DIRECTIONS and direction not in name
    return f"{name} ({direction})" if told else name


def _plain(text: str) -> str:
    """A text without what differs from compile to compile."""
    for pattern, replacement in MEANINGLESS:
        text = pattern.sub(replacement, text)
    return text
