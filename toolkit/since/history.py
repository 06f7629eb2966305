"""Finds out in which version of torch a failure began and in which it ended."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from tcdebug.since.trials import Standing, Trial

SINCE = "since.json"
"""The file beside the repro of a run that keeps the result for `repro issue`."""
RANGE = re.compile(r"(\d+)\.(\d+)\.\.(\d+)\.(\d+)")
VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
KNOWN = (Standing.PASSES, Standing.SAME)
"""The standings that say something about the failure."""


class BadVersions(ValueError):
    """Versions cannot be read. The message shows the accepted forms."""


class VersionHistory(msgspec.Struct, frozen=True):
    """The trials of a script in the order of versions, and what they show."""

    script: str
    verdict: str
    since: list[str]
    """The versions in which the failure begins."""
    fixed: list[str]
    """The versions in which it ends."""
    trials: list[Trial]


def versions(text: str) -> list[str]:
    """Return the versions of a text such as 2.11..2.13,2.14.1, in order. Raises BadVersions."""
    found: list[str] = []
    for part in text.split(","):
        if (ends := RANGE.fullmatch(part)) and ends[1] == ends[3]:
            minors = range(int(ends[2]), int(ends[4]) + 1)
            found += [f"{ends[1]}.{minor}" for minor in minors]
        elif VERSION.fullmatch(part):
            found.append(part)
        else:
            raise BadVersions(f"{part!r} is neither a version, 2.12 or 2.12.1, nor 2.11..2.15")
    if not found:
        raise BadVersions(f"{text!r} contains no version")
    return sorted(dict.fromkeys(found), key=in_order)


def in_order(version: str) -> tuple[int, ...]:
    """Return a key by which versions are sorted."""
    return tuple(int(part) for part in version.split("."))


def tried(run: Callable[[str], Trial], wanted: Sequence[str], *, every: bool) -> list[Trial]:
    """Run versions, the newest first. Return the trials in the order of versions.

    If only one of the newest and the oldest fails, a binary search finds the change, unless `every`
    version is to be run. The search assumes one change between the two. The newest version that
    fails shows what counts as the same failure.
    """
    trials: dict[int, Trial] = {}
    reference: list[Trial] = []

    def trial(k: int) -> Trial:
        if k not in trials:
            found = run(wanted[k])
            if found.standing is Standing.SAME:
                reference.append(found)
                if found.signature != reference[0].signature:
                    found = replace(found, standing=Standing.OTHER)
            trials[k] = found
        return trials[k]

    low, high = 0, len(wanted) - 1
    ends = (trial(high).standing, trial(low).standing)
    if every or ends[0] is ends[1] or not all(end in KNOWN for end in ends):
        for k in reversed(range(len(wanted))):
            trial(k)
    else:
        _narrow(low, high, trial)
    return [trials[k] for k in sorted(trials)]


def _narrow(low: int, high: int, trial: Callable[[int], Trial]) -> None:
    """Search for the change between two versions whose standings differ."""
    while high - low > 1:
        middle = (low + high) // 2
        near = sorted(range(low + 1, high), key=lambda k: abs(k - middle))
        found = next((k for k in near if trial(k).standing in KNOWN), None)
        if found is None:
            return
        if trial(found).standing is trial(low).standing:
            low = found
        else:
            high = found


def history(script: str, trials: Sequence[Trial]) -> VersionHistory:
    """Return what the trials of a script show."""
    known = [t for t in trials if t.standing in KNOWN]
    since: list[str] = []
    fixed: list[str] = []
    words: list[str] = []
    for before, after in itertools.pairwise(known):
        if before.standing is after.standing:
            continue
        between = trials[trials.index(before) + 1 : trials.index(after)]
        unsettled = f", {_listed([t.version for t in between])} unsettled" if between else ""
        if left_out := _left_out([t.version for t in (before, *between, after)]):
            unsettled += f", {_listed(left_out)} not tried"
        if after.standing is Standing.SAME:
            since.append(after.version)
            words.append(f"fails since {after.version} ({before.version} passes{unsettled})")
        else:
            fixed.append(after.version)
            words.append(f"fixed in {after.version} ({before.version} fails{unsettled})")
    if not words:
        words = [_alike(known)]
    return VersionHistory(script, ", ".join(words), since, fixed, [*trials])


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _left_out(tried: Sequence[str]) -> list[str]:
    """Return the minor versions between versions in order that were not asked for."""
    (major, first, *_), (other, last, *_) = in_order(tried[0]), in_order(tried[-1])
    done = {in_order(version)[1] for version in tried}
    return [f"{major}.{n}" for n in range(first, last) if n not in done] if major == other else []


def _alike(known: Sequence[Trial]) -> str:
    """Describe trials of which either all pass or all fail."""
    if not known:
        return "no version shows whether it fails"
    did = "passes" if known[0].standing is Standing.PASSES else "fails"
    names = [t.version for t in known]
    if len(names) == 1:
        return f"{did} in {names[0]}"
    if _left_out(names):
        return f"{did} in {_listed(names)}"
    return f"{did} in {known[0].version} to {known[-1].version}"
