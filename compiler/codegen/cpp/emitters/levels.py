"""Divides a loop in several where values are rounded to float16, which is then done between them.

In the loop itself, rounding is ten operations on the bits; a conversion to float16 and back is two
instructions. Values that a later loop reads are kept in arrays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.compiler.codegen.cpp.emitters.text import TYPES, Block

DEFINED = re.compile(r"const (\w+) (\w+) = ([^;]*);")
DECLARED = re.compile(r"(const )?\w+ \w+( =.*|\[.*)?;.*")
ROUNDED = re.compile(r"round_to_float16\((\w+)\)")
NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNED = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])? [-+*/|&^]?= ")
CLAUSE = re.compile(r" reduction\([^:]*:\s*([^)]*)\)")
KEPT = {*TYPES.values()} - {"bool"}
"""The types of the elements of arrays."""
MOST_LOOPS = 12
"""The most loops for one; each takes g++ some milliseconds."""


@dataclass(frozen=True)
class Line:
    """A statement of a loop: what it defines, if anything, and the names in it."""

    text: str
    ctype: str
    name: str
    value: str

    @property
    def reads(self) -> set[str]:
        return set(NAME.findall(self.value))

    @property
    def rounded(self) -> str:
        """What it rounds to float16; empty if it does something else."""
        found = ROUNDED.fullmatch(self.value)
        return found[1] if found else ""

    @property
    def changes(self) -> set[str]:
        """What it changes, such as a sum; nothing if it defines a value."""
        return set() if self.name else set(ASSIGNED.findall(self.value)) or self.reads

    @property
    def reports(self) -> bool:
        """Whether it may report an error in the data, so that it is needed for that."""
        return any(name == "status" or name.startswith("missed") for name in self.reads)


@dataclass(frozen=True)
class DividedLoop:
    """The lines of one of the loops, and what is rounded after it."""

    lines: tuple[str, ...]
    rounded: tuple[str, ...]


def needed_lines(items: Sequence[str | Block]) -> list[Line] | None:
    """Return the lines of a loop but those whose value nothing reads.

    None if some are blocks, or declare what another line sets.
    """
    lines: list[Line] = []
    for item in items:
        if isinstance(item, Block):
            return None
        found = DEFINED.fullmatch(item)
        if found is None and DECLARED.fullmatch(item):
            return None
        ctype, name, value = found.groups() if found else ("", "", item)
        lines.append(Line(item, ctype, name, value))
    read: set[str] = set()
    kept: list[Line] = []
    for line in reversed(lines):
        if not line.name or line.name in read or line.reports:
            read |= line.reads
            kept.append(line)
    return kept[::-1]


def divided(lines: Sequence[Line], place: str) -> tuple[dict[str, str], list[DividedLoop]] | None:
    """Return the loops that stand for one with these lines; None if it stays whole.

    `place` is the place of the current point in arrays, whose names and types come first.
    """
    levels = _levels(lines) if any(line.rounded for line in lines) else None
    if levels is None or max(levels) >= MOST_LOOPS:
        return None
    division = _LoopDivision(lines, levels, place)
    if not set(division.arrays.values()) <= KEPT:
        return None
    return division.arrays, [division.loop(level) for level in range(max(levels) + 1)]


def clauses(pragma: str, lines: Sequence[str]) -> str:
    """Return the pragma of a loop with these lines, without the sums of others."""
    read = set(NAME.findall("\n".join(lines)))

    def kept(clause: re.Match[str]) -> str:
        return clause[0] if read & set(NAME.findall(clause[1])) else ""

    return CLAUSE.sub(kept, pragma)


def _levels(lines: Sequence[Line]) -> list[int] | None:
    """Return the loop of each line: the first one after the roundings that it needs.

    For a rounding, it is the loop that reads the result. A line that reads a sum is in no earlier
    loop than the lines before it that change the sum. None if both would be in different loops.
    """
    found: dict[str, int] = {}
    levels: list[int] = []
    for line in lines:
        level = max((found.get(name, 0) for name in line.reads), default=0)
        levels.append(level + bool(line.rounded))
        found.update(dict.fromkeys({line.name} if line.name else line.changes, levels[-1]))
    for state in {name for line in lines for name in line.changes}:
        users = [n for n, line in enumerate(lines) if state in line.reads]
        last = max(levels[n] for n in users)
        if any(lines[n].name and levels[n] != last for n in users):
            return None
        for n in users:
            levels[n] = last
    return levels


class _LoopDivision:
    """Writes the loops that stand for one, whose lines have levels."""

    def __init__(self, lines: Sequence[Line], levels: Sequence[int], place: str) -> None:
        self._lines = lines
        self._levels = levels
        self._place = place
        self._made = {line.name: line for line in lines if line.name}
        self._level_of = {line.name: n for line, n in zip(lines, levels, strict=True)}
        self._repeated: set[str] = set()
        for line in lines:
            if self._can_repeat(line):
                self._repeated.add(line.name)
        self.arrays: dict[str, str] = {}
        """Value that a later loop reads -> the C++ type of the elements of its array."""
        for line, level in zip(lines, levels, strict=True):
            if line.rounded:
                self.arrays[line.name] = "float"
                continue
            for name in sorted(line.reads & self._made.keys() - self._repeated):
                if self._level_of[name] < level:
                    ctype = self._made[name].ctype
                    self.arrays[name] = "uint8_t" if ctype == "bool" else ctype

    def _can_repeat(self, line: Line) -> bool:
        """Return whether a line is an index of the loop, or loads a number that was converted."""
        if line.value.startswith("widened"):
            return True
        free = line.reads.isdisjoint(self._made.keys() - self._repeated)
        return line.ctype == "int64_t" and free and "[" not in line.value and not line.reports

    def loop(self, level: int) -> DividedLoop:
        """Return the loop of a level."""
        written: list[str] = []
        known: set[str] = set()
        rounded: list[str] = []
        for line, its in zip(self._lines, self._levels, strict=True):
            if line.rounded and its == level + 1:
                self._read(line.rounded, level, written, known)
                written.append(f"at_{line.name}[{self._place}] = {line.rounded};")
                rounded.append(line.name)
            elif its == level and not line.rounded and line.name not in self._repeated:
                for name in sorted(line.reads):
                    self._read(name, level, written, known)
                written.append(line.text)
                if line.name in self.arrays:
                    written.append(f"at_{line.name}[{self._place}] = {line.name};")
        return DividedLoop(tuple(written), tuple(rounded))

    def _read(self, name: str, level: int, written: list[str], known: set[str]) -> None:
        """Write what makes a value known in the loop of a level."""
        line = self._made.get(name)
        if line is None or name in known:
            return
        if name in self._repeated:
            for other in sorted(line.reads):
                self._read(other, level, written, known)
            written.append(line.text)
        elif line.rounded or self._level_of[name] < level:
            stored = f"at_{name}[{self._place}]{' != 0' if line.ctype == 'bool' else ''}"
            written.append(f"const {line.ctype} {name} = {stored};")
        known.add(name)
