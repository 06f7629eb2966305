"""Names the entries of a cache that are wrong for the compiles that used them.

torch traces each lookup in its caches, with the key, and each graph that it compiles or takes from
an entry. The script runs with this trace as it is and without the cache at fault. If a compile took
an entry in the first run, and its graph or code is different in the second, the entry was saved for
something that the key does not distinguish from this compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.log import decoded
from tcdebug.compiler.events.schema import CacheUsed, CompileMetrics, StageEnd, StageText
from tcdebug.minifier.cases.layer_names import CACHE

STAGES: Mapping[str, tuple[str, ...]] = {
    "layer.cache.aotautograd": ("aot_autograd",),
    "layer.cache.fx_graph": ("inductor",),
    CACHE: ("aot_autograd", "inductor"),
}
"""Cache -> the stages of its events. The other caches are not traced."""
TEXTS = (
    "aot_joint_graph", "aot_inference_graph", "aot_forward_graph", "aot_backward_graph",
    "inductor_post_grad_graph", "inductor_output_code",
)  # fmt: skip
"""The texts that are compared, in the order of the compile."""
ANNOTATION = re.compile(r': "[^"]*"|\s*#.*')
"""Parts of a line that are not compared: the types of values, and comments."""

JOINT, INFERENCE = "aot_joint_graph", "aot_inference_graph"
"""The texts that only a compile with gradients has, and only one without."""

Place = tuple[int, str, int]
"""A compile: the ordinal of its process, its id, and how many compiles before it had this id.

`torch._dynamo.reset()` gives the next compile the id of the first.
"""


@dataclass(frozen=True)
class TracedCompile:
    """What torch traced about a compile."""

    hits: tuple[tuple[str, str], ...]
    """The stage and the key of each entry that was used."""
    saved: tuple[str, ...]
    """The keys of the entries that it saved."""
    texts: Mapping[str, Path]
    """Stage -> the file of its graph or code. If there are several, the last."""
    frame: str
    """The compiled function and its first line."""


def wrong_entries(used: Path, unused: Path, layer: str) -> list[str]:
    """Return a note for each entry that is wrong for the compile that used it.

    `used` and `unused` are the run folders of traced runs with and without the cache, in the same
    folder. The notes name files relative to the folder of the whole run, above that one.
    """
    with_cache, without = compiles(used), compiles(unused)
    savers = {key: place for place, found in with_cache.items() for key in found.saved}
    notes = []
    for place, found in with_cache.items():
        for stage, key in found.hits:
            saver = savers.get(key)
            if stage not in STAGES.get(layer, ()) or place not in without:
                continue
            own = dict(with_cache[saver].texts) if saver else {}
            if different := first_difference({**own, **found.texts}, without[place].texts):
                origin = f", which {_name_of(saver, place)} saved," if saver else ""
                notes.append(
                    f"compile {place[1]} of {found.frame or 'a graph'} uses the entry {key}"
                    f"{origin} but is different with {layer} off: {different}"
                )
    return notes


def compiles(folder: Path) -> dict[Place, TracedCompile]:
    """Return the compiles of a traced run by their places."""
    processes = [_records(file) for file in folder.glob("events*.jsonl")]
    processes = sorted((p for p in processes if p), key=lambda records: str(records[0]["ts"]))
    found = {}
    for number, records in enumerate(processes, 1):
        by_compile: dict[str, list[list[dict[str, Any]]]] = {}
        for record in records:
            if compiled := record.get("compile_id"):
                same = by_compile.setdefault(compiled, [[]])
                if _begins(record) and any(_ends(r) for r in same[-1]):
                    same.append([])
                same[-1].append(record)
        for compiled, same in by_compile.items():
            for earlier, own in enumerate(same):
                found[number, compiled, earlier] = _compile(folder, own)
    return found


def _begins(record: Mapping[str, Any]) -> bool:
    """Return whether Dynamo has captured a graph."""
    return (record["event"], record.get("stage")) == (StageEnd.kind, "dynamo")


def _ends(record: Mapping[str, Any]) -> bool:
    """Return whether a compile has ended. Its backward may still be compiled."""
    return record["event"] == CompileMetrics.kind and not record["data"]["backward"]


def first_difference(used: Mapping[str, Path], unused: Mapping[str, Path]) -> str:
    """Return the first lines that differ, and their files; empty if nothing differs."""
    if JOINT in unused and INFERENCE in used and JOINT not in used:
        return "it needs a backward graph, and the entry has none"
    if JOINT in used and INFERENCE in unused and JOINT not in unused:
        return "it needs no gradients, and the entry computes them"
    for stage in TEXTS:
        if stage not in used or stage not in unused or used[stage].name == unused[stage].name:
            continue
        for entry, compiled in zip_longest(_lines(used[stage]), _lines(unused[stage])):
            if entry != compiled:
                files = " and ".join("/".join(p.parts[-4:]) for p in (used[stage], unused[stage]))
                return f"`{entry or 'nothing'}` instead of `{compiled or 'nothing'}` in {files}"
    return ""


def _name_of(saver: Place | None, user: Place) -> str:
    """Name a compile, with its process if that is not the process of `user`."""
    if saver is None:
        return ""
    if saver[0] != user[0]:
        return f"compile {saver[1]} of process {saver[0]}"
    return f"an earlier compile {saver[1]}" if saver[1] == user[1] else f"compile {saver[1]}"


def _records(file: Path) -> list[dict[str, Any]]:
    return list(decoded(file.read_bytes().splitlines(), dict[str, Any]))


def _compile(folder: Path, records: list[dict[str, Any]]) -> TracedCompile:
    def of(kind: str) -> Iterator[dict[str, Any]]:
        return (record for record in records if record["event"] == kind)

    caches = [(r["stage"], r["data"]["verdict"], r["data"]["key"]) for r in of(CacheUsed.kind)]
    frames = [r.get("user_loc", {}) for r in of(CompileMetrics.kind)]
    places = [f"{f['name']} ({Path(f['filename']).name}:{f['line']})" for f in frames if f]
    return TracedCompile(
        tuple((stage, key) for stage, verdict, key in caches if verdict == "hit"),
        tuple(key for _, verdict, key in caches if verdict == "miss"),
        {r["stage"]: folder / r["data"]["artifact"] for r in of(StageText.kind)},
        places[0] if places else "",
    )


def _lines(path: Path) -> list[str]:
    """Return the lines of a graph or of code, without types and comments. A signature is one."""
    lines = (ANNOTATION.sub("", line).strip() for line in path.read_text().splitlines())
    found: list[str] = []
    for line in filter(None, lines):
        if found and found[-1].startswith("def ") and not found[-1].endswith(":"):
            before = found[-1].rstrip(",") if line.startswith(")") else found[-1]
            found[-1] = before + (" " if before.endswith(",") else "") + line
        else:
            found.append(line)
    return found
