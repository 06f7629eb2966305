"""Shows how the ranks of a run differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.text import counted
from tcdebug.reading.ranks import RankComparison, RankDifference


def show_ranks(found: RankComparison, folder: Path) -> None:
    """Print the groups of ranks of the run in `folder`, and the first differences."""
    out = results()
    for group in found.groups:
        caches = ", ".join(f"{n} {answer}" for answer, n in group.caches.items())
        facts = [
            counted(group.compiles, "compile"),
            counted(len(group.collectives), "collective"),
            caches,
        ]
        text = ", ".join(filter(None, facts))
        out.print(f"[unit]{ranks_text(group.ranks)}[/]  {escape(text)}")
    for name, difference in difference_rows(found):
        out.print(f"{name} differ first at step {difference.step} of rank {difference.rank}")
        out.print(f"  [bad]rank {difference.rank}[/]  {escape(difference.here)}")
        out.print(f"  [good]{ranks_text(difference.most_ranks)}[/]  {escape(difference.most)}")
        for path in difference.texts:
            out.print(f"  text  [path]{escape(str(folder / path))}[/]")
    if found.compiles is None:
        out.print("all ranks compiled the same in the same order")


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks as ranges: "ranks 0-3, 7"."""
    ranges: list[list[int]] = []
    for rank in ranks:
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in ranges]
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(parts)}"


def difference_rows(found: RankComparison) -> list[tuple[str, RankDifference]]:
    """Return one row per difference."""
    both = (("compiles", found.compiles), ("collectives", found.collectives))
    return [(name, difference) for name, difference in both if difference is not None]
