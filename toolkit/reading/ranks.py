"""Compares the ranks of a distributed run: what each compiled, in which order.

Ranks that compile different graphs, or of which only some find a graph in a cache, wait for each
other in a collective, or run different ones. Only collectives inside graphs are known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path

import msgspec

from tcdebug.reading.run_dir import Record, Run

LAST_GRAPH = "inductor_post_grad_graph"
"""The stage whose graph has the collectives as they will run."""
GRAPHS = ("aot_forward_graph", "aot_backward_graph", "aot_inference_graph")
"""The stages that have them in other backends."""
CODE = "inductor_output_code"
"""The stage that names files and devices, which always differ."""
DEVICE = re.compile(r"\b(cuda|xpu|hpu|mtia):\d+")
COMMENT = re.compile(r"^\s*#.*\n", re.MULTILINE)
COLLECTIVE = re.compile(r"torch\.ops\._?c10d_functional\.(\w+?)(?:\.default)?\(([^)\n]*)")
LITERAL = re.compile(r"'[^']*'|(?<![\w.])\d+")
WAIT = "wait_tensor"
NOTHING = "nothing more"


class RankStep(msgspec.Struct, frozen=True):
    """One thing that a rank did while it compiled. Equal steps are the same thing."""

    where: str
    """The compile, with direction and stage."""
    what: str
    """A graph by its digest, the answer of a cache, or the reason of a break or recompile."""


class RankGroup(msgspec.Struct, frozen=True):
    """Ranks that did the same in the same order."""

    ranks: list[int]
    compiles: int
    caches: dict[str, int]
    """The answers of the caches, with their numbers."""
    collectives: list[str]


class RankDifference(msgspec.Struct, frozen=True):
    """The first step at which a rank does something other than the largest group of ranks."""

    rank: int
    step: int
    """Counted from 1."""
    here: str
    most: str
    most_ranks: list[int]
    """The ranks of that group."""
    texts: list[str] = []
    """The files of the two graphs, of the rank and of the group, relative to the run folder."""


class RankComparison(msgspec.Struct, frozen=True):
    """The groups of a run's ranks, the largest first, and their first differences."""

    groups: list[RankGroup]
    compiles: RankDifference | None
    collectives: RankDifference | None


def ranks_of(records: Sequence[Record]) -> list[int]:
    """Return the ranks whose events these are."""
    return sorted({r["rank"] for r in records if r.get("rank") is not None})


def compare_ranks(run: Run, records: Sequence[Record]) -> RankComparison:
    """Compare the ranks of a run."""
    texts: dict[tuple[int, int], str] = {}
    steps: dict[int, list[RankStep]] = {}
    collectives: dict[int, list[str]] = {}
    compiles: dict[int, int] = {}
    for rank in ranks_of(records):
        mine = [r for r in records if r.get("rank") == rank]
        steps[rank] = []
        for step, artifact in _steps(run, mine):
            texts[rank, len(steps[rank])] = artifact
            steps[rank].append(step)
        collectives[rank] = list(_collectives(run, mine))
        compiles[rank] = len({r["compile_id"] for r in mine if r.get("compile_id")})
    members: dict[tuple[RankStep, ...], list[int]] = {}
    for rank, found in steps.items():
        members.setdefault(tuple(found), []).append(rank)
    grouped = sorted(members.items(), key=lambda item: (-len(item[1]), item[1]))
    groups = [
        RankGroup(ranks, compiles[ranks[0]], _caches(found), collectives[ranks[0]])
        for found, ranks in grouped
    ]
    said = {rank: [f"{s.where}: {s.what}" for s in found] for rank, found in steps.items()}
    parted = _first_difference(said)
    if parted is not None:
        places = [(r, parted.step - 1) for r in (parted.rank, parted.most_ranks[0])]
        found_texts = [text for place in places if (text := texts.get(place))]
        parted = msgspec.structs.replace(parted, texts=found_texts)
    return RankComparison(groups, parted, _first_difference(collectives))


def _steps(run: Run, records: Sequence[Record]) -> Iterator[tuple[RankStep, str]]:
    """Yield the steps of one rank, each with the file of its graph or an empty text."""
    for r in records:
        data, stage = r["data"], str(r.get("stage") or "")
        where = " ".join(str(r[k]) for k in ("compile_id", "direction", "stage") if r.get(k))
        match r["event"]:
            case "stage.text" | "stage.end" if data.get("artifact") and stage != CODE:
                yield RankStep(where, f"graph {_digest(run, data['artifact'])}"), data["artifact"]
            case "cache":
                yield RankStep(where, f"cache {data['verdict']}"), ""
            case "recompile" | "graph.break":
                reason = str(data["reason"]).partition("\n")[0]
                yield RankStep(where, f"{r['event'].replace('.', ' ')}: {reason}"), ""


def _digest(run: Run, artifact: str) -> str:
    """Return a graph without the numbers of devices."""
    text = DEVICE.sub(r"\1", _read(run.path / artifact))
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _collectives(run: Run, records: Sequence[Record]) -> Iterator[str]:
    """Yield the collectives in the graphs of a rank, in the order in which they were compiled."""
    texts = [r for r in records if r["event"] == "stage.text"]
    last = [r for r in texts if r.get("stage") == LAST_GRAPH]
    for r in last or [r for r in texts if r.get("stage") in GRAPHS]:
        for name, arguments in COLLECTIVE.findall(_read(run.path / r["data"]["artifact"])):
            if name != WAIT:
                yield f"{name}({', '.join(LITERAL.findall(arguments))})"


def _read(path: Path) -> str:
    """Return the text of a graph without comments, some of which quote calls."""
    return COMMENT.sub("", path.read_text(errors="replace")) if path.is_file() else ""


def _caches(steps: Sequence[RankStep]) -> dict[str, int]:
    counts = Counter(
        f"{s.where.rpartition(' ')[2]} {s.what.removeprefix('cache ')}"
        for s in steps
        if s.what.startswith("cache ")
    )
    return dict(sorted(counts.items()))


def _first_difference(sequences: dict[int, list[str]]) -> RankDifference | None:
    """Return the rank that leaves the most common sequence first; the lowest of several."""
    counts = Counter(tuple(sequence) for sequence in sequences.values())
    if len(counts) < 2:
        return None
    most = max(counts, key=lambda sequence: counts[sequence])
    largest = [rank for rank, sequence in sequences.items() if tuple(sequence) == most]
    parted = [
        RankDifference(rank, place + 1, here or NOTHING, there or NOTHING, largest)
        for rank, sequence in sorted(sequences.items())
        for place, (here, there) in enumerate(zip_longest(sequence, most))
        if here != there
    ]
    return min(parted, key=lambda difference: (difference.step, difference.rank))
