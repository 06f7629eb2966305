"""Writes the accumulator of a reduction in C++: state, update, merge of two states, result.

Long float sums add up to 1024 elements at a time in float, in vector lanes, and the partial sums in
double. The error is that of adding 1024 floats, whatever the length.

Along a row, element k of a block of 16 points is added to partial result k, in order. A block of a
row of at least 512 has 32 points. At the end, the second half of the partial results is added to
the first, and so on (`fold` in the prelude).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.cpp.emitters.text import TYPES, integer
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.arithmetic.index import Axis, product
from tcdebug.compiler.ir.cost import arithmetic
from tcdebug.compiler.ir.operations import FLOATS, SCANS, gives_place, neutral

CHUNK = 1024
"""The most elements that are added in float."""


@dataclass(frozen=True)
class Chunk:
    """A piece of the loops of a reduction: `length` points of one axis, and all axes inside it."""

    position: int
    """The place of the axis in the inner axes."""
    length: int


def chunk_of(inner: Sequence[Axis], bounds: tuple[str, str]) -> Chunk | None:
    """The largest piece of some loops with at most CHUNK points; None if all of them have so few.

    The axes inside the piece stay whole. A loop over a piece of a shorter axis would run once, and
    g++ does not vectorise a reduction in it. `bounds` are those of the first loop, which may be a
    part of its axis.
    """
    low, high = bounds
    if len(inner) == 1 and low.isdecimal() and high.isdecimal() and int(high) - int(low) <= CHUNK:
        return None
    points = 1
    for position in reversed(range(len(inner))):
        size = inner[position].size.constant
        if size is None or points * size > CHUNK:
            return Chunk(position, CHUNK // max(1, points))
        points *= size
    return None


SHORT = 128
"""The most points of an innermost axis that get a partial sum each."""
ROWS_TO_SPREAD = 4
"""The fewest times that such an axis must be visited."""


def spread_of(inner: Sequence[Axis]) -> int:
    """The partial sums for one visit of the innermost axis after the other; 0 if one is enough.

    g++ adds the vector lanes of a sum one after the other, each time that the innermost loop ends.
    That takes longer than a short loop itself.
    """
    size = inner[-1].size.constant if inner else None
    rows = product(a.size for a in inner[:-1]).constant
    if size is None or not 2 <= size <= SHORT or (rows is not None and rows < ROWS_TO_SPREAD):
        return 0
    return size


BLOCK = 16
"""The points of the smallest block of a row."""
WORTH_A_BLOCK = 8
"""The arithmetic of a point from which those that are left over after whole vectors matter."""


def leaves_work(nodes: Sequence[FlatNode], size: int | None) -> bool:
    """Return whether much is computed for points that are left over after the last whole vector.

    Functions of these points are computed one by one, unless the row is visited in blocks, of
    which the last two overlap. A row shorter than a block leaves those after whole quarters of it;
    one is not worth a block.
    """
    if size is None or size % (BLOCK if size > BLOCK else BLOCK // 4) == 0:
        return False
    if size == BLOCK // 2 + 1:
        return False
    return sum(arithmetic(node.body) for node in nodes) >= WORTH_A_BLOCK


FOLDS = {"sum": "Sum", "prod": "Product", "max": "Largest", "min": "Smallest"}
"""The kinds of reductions whose partial results can be folded, and how the prelude calls it."""
FOLDED = (*FLOATS, torch.int64, torch.int32)


def can_chunk(kind: str, dtype: torch.dtype) -> bool:
    """Return whether a reduction is a sum or a product of floats, which is computed in chunks."""
    return kind in ("sum", "prod") and dtype == torch.float32


@dataclass(frozen=True)
class CppAccumulator:
    """The state of a reduction: variables called <field>_<name>."""

    name: str
    kind: str
    dtype: torch.dtype
    """The dtype of the values that are combined."""
    in_one: bool = False
    """Whether chunks are disabled: for a scan, whose states are all read, or a short reduction."""
    spread: int = 0
    """The number of partial sums, one for each point of the innermost axis; 0 if there is one."""

    narrow: bool = False
    """Whether positions fit in 32 bits, as floats do, so that vectors of both have equal lanes."""

    @property
    def chunked(self) -> bool:
        """Whether partial sums in float are added to a total in double every CHUNK elements."""
        wanted = bool(self.spread) or not self.in_one
        return wanted and can_chunk(self.kind, self.dtype)

    @property
    def folds(self) -> bool:
        """Whether the points of a block may have a partial result each."""
        return self.kind in FOLDS and self.dtype in FOLDED and not self.spread

    @property
    def in_lanes(self) -> CppAccumulator:
        """The state of the points of a block."""
        return replace(self, name=f"{self.name}_lanes", in_one=True)

    def fold(self) -> list[str]:
        """Statements that add the states of the points of a block to this state."""
        lines: list[str] = []
        for _, field, _ in self.in_lanes.state:
            how = "Any" if field == "nan" else FOLDS[self.kind]
            folded = f"fold<{how}>({self.in_lanes.variable(field)})"
            if self.chunked:
                field, folded = "total", f"(double){folded}"
            target = self.variable(field)
            lines.append(f"{target} = {how}::of({target}, {folded});")
        return lines

    @property
    def by_place(self) -> bool:
        """Whether the result is a position, which vector code cannot compute."""
        return gives_place(self.kind)

    @property
    def last_wins(self) -> bool:
        """Whether the last one of equal values is the result."""
        return self.kind.startswith("last_")

    @property
    def state(self) -> list[tuple[str, str, str]]:
        """(C++ type, field, initial value) of each variable that lives as long as the reduction."""
        ctype = TYPES[self.dtype]
        if self.chunked:
            return [("double", "total", self._neutral())]
        if self.kind in ("sum", "prod"):
            return [(ctype, "part", self._neutral())]
        if self.kind == "log_sum_exp":
            return [(ctype, "part", self._neutral())]
        if self.dtype == torch.bool and not self.last_wins:
            return [("int", "part", self._neutral())]
        if self.by_place:
            place = "int32_t" if self.narrow else "int64_t"
            return [(ctype, "best", "0"), (place, "place", "-1")]
        if self.dtype in FLOATS and not self.last_wins:
            return [(ctype, "best", self._neutral()), ("int", "nan", "0")]
        return [(ctype, "best", self._neutral())]

    @property
    def part(self) -> tuple[str, str, str] | None:
        """The variable that lives for one chunk only."""
        return ("float", "part", self._neutral()) if self.chunked else None

    def chosen(self, value: str, condition: str) -> str:
        """Return a value that changes nothing unless a condition holds.

        An extreme may be found twice.
        """
        if self.kind in ("max", "min"):
            return value
        return f"({condition} ? {value} : ({TYPES[self.dtype]}){self._neutral()})"

    def _neutral(self) -> str:
        value = neutral(self.kind, self.dtype)
        if isinstance(value, float):
            suffix = "f" if self.dtype == torch.float32 else ""
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return integer(int(value))

    def variable(self, field: str) -> str:
        """Return the C++ variable of a field."""
        return f"{field}_{self.name}"

    @property
    def _sign(self) -> str:
        return "+" if self.kind == "sum" else "*"

    @property
    def fold_clause(self) -> str:
        """The reduction of a loop that adds all partial sums to the total."""
        return f"{self._sign}:{self.variable('total')}"

    @property
    def clauses(self) -> list[str]:
        """The clauses of `omp simd reduction`."""
        if self.spread:
            return []
        part = self.variable("part")
        if self.kind in ("sum", "prod"):
            return [f"{self._sign}:{part}"]
        if self.dtype == torch.bool:
            return [f"{'|' if self.kind == 'max' else '&'}:{part}"]
        clauses = [f"{self.kind}:{self.variable('best')}"]
        if self.dtype in FLOATS:
            clauses.append(f"|:{self.variable('nan')}")
        return clauses

    def update(self, value: str, place: str, at: str = "") -> list[str]:
        """Statements that accumulate a value. `at` is the subscript of a state in an array."""
        part = self.variable("part") + at
        best = self.variable("best") + at
        if self.kind in ("sum", "prod"):
            if self.dtype in (*FLOATS, torch.int64):
                return [f"{part} {self._sign}= {value};"]
            return [f"{part} = ({TYPES[self.dtype]})({part} {self._sign} {value});"]
        if self.kind == "log_sum_exp":
            return [f"{part} = log_add_exp_({part}, {value});"]
        if self.last_wins:
            return self._update_to_last(value, place, at)
        if self.dtype == torch.bool:
            return [f"{part} {'|' if self.kind == 'max' else '&'}= (int){value};"]
        better = ">" if self.kind in ("max", "argmax") else "<"
        if self.by_place:
            return self._update_place(value, place, better, at)
        lines = [f"{best} = {value} {better} {best} ? {value} : {best};"]
        if self.dtype in FLOATS:
            lines.insert(0, f"{self.variable('nan')}{at} |= {value} != {value};")
        return lines

    def _update_to_last(self, value: str, place: str, at: str) -> list[str]:
        best, here = self.variable("best") + at, self.variable("place") + at
        wins = f"{value} {'>=' if self.kind.endswith('max') else '<='} {best}"
        if self.dtype in FLOATS:  # a NaN wins, and only a later NaN replaces it
            wins = f"{wins} || {value} != {value}"
        if not self.by_place:
            return [f"{best} = {wins} ? {value} : {best};"]
        return [f"if ({here} < 0 || {wins}) {{ {best} = {value}; {here} = {place}; }}"]

    def _update_place(self, value: str, place: str, better: str, at: str) -> list[str]:
        best, here = self.variable("best") + at, self.variable("place") + at
        if at:
            return self._choose_place(value, place, better, at)
        wins = f"{value} {better} {best}"
        if self.dtype in FLOATS:  # the first NaN wins
            wins = f"({wins} && {best} == {best}) || ({value} != {value} && {best} == {best})"
        return [f"if ({here} < 0 || {wins}) {{ {best} = {value}; {here} = {place}; }}"]

    def _choose_place(self, value: str, place: str, better: str, at: str) -> list[str]:
        """Return the same without a branch, for vector lanes. Nothing is better than a NaN."""
        best, here = self.variable("best") + at, self.variable("place") + at
        wins, condition = f"wins_{self.name}", f"({here} < 0) | ({value} {better} {best})"
        if self.dtype in FLOATS:
            condition += f" | (({value} != {value}) & ({best} == {best}))"
        return [
            f"const bool {wins} = {condition};",
            f"{best} = {wins} ? {value} : {best};",
            f"{here} = {wins} ? {place} : {here};",
        ]

    def close_chunk(self, at: str = "") -> str:
        """Return a statement that adds the partial sum to the total.

        `at` is the subscript of both.
        """
        total = self.variable("total") + ("" if self.spread else at)
        return f"{total} {self._sign}= {self.variable('part')}{at};"

    def join(self, at: str, other: str) -> list[str]:
        """Statements that merge the state with the subscript `other` into that with `at`."""
        if self.chunked:
            total = self.variable("total")
            return [f"{total}{at} {self._sign}= {total}{other};"]
        lines = self.update(f"{self.variable(self.state[0][1])}{other}", "0", at)
        if len(self.state) > 1:
            nan = self.variable("nan")
            lines.append(f"{nan}{at} |= {nan}{other};")
        return lines

    def merge(self, at: str) -> list[str]:
        """Statements that merge the state of another thread, which has the subscript `at`."""
        if self.chunked:
            total = self.variable("total")
            return [f"{total} {self._sign}= slots_{total}{at};"]
        if self.by_place:
            other = f"slots_{self.variable('best')}{at}"
            place = f"slots_{self.variable('place')}{at}"
            return [f"if ({place} >= 0) {self.update(other, place)[0]}"]
        field = self.state[0][1]
        lines = self.update(f"slots_{self.variable(field)}{at}", "0")
        if len(self.state) > 1:
            lines.append(f"{self.variable('nan')} |= slots_{self.variable('nan')}{at};")
        return lines

    def result(self, at: str = "") -> str:
        """Return the value of the reduction."""
        if self.chunked:
            return f"(float){self.variable('total')}{at}"
        if self.by_place:
            return f"{self.variable('place')}{at}"
        field = self.variable(self.state[0][1]) + at
        if self.dtype == torch.bool and not self.last_wins:
            return f"{field} != 0"
        if self.kind in ("max", "min") and self.dtype in FLOATS:
            suffix = "f" if self.dtype == torch.float32 else ""
            return f'{self.variable("nan")}{at} ? __builtin_nan{suffix}("") : {field}'
        return field


def accumulators_of(
    kernel: FlatKernel, nodes: Sequence[FlatNode], lane: Axis | None
) -> list[CppAccumulator]:
    """Return the states of the reductions and scans among the nodes of a sweep."""
    elements = product(a.size for a in kernel.inner).constant
    few = elements is not None and elements <= CHUNK
    size = kernel.inner[-1].size.constant if kernel.inner else None
    blocks = size is not None and size >= BLOCK and leaves_work(nodes, size)
    spread = 0 if lane or kernel.scans or blocks else spread_of(kernel.inner)
    return [
        CppAccumulator(
            n.name,
            SCANS.get(n.kind, n.kind),
            n.body.dtype,
            in_one=few or n.scans,
            narrow=elements is not None and elements < 1 << 31,
            spread=spread if can_chunk(n.kind, n.body.dtype) else 0,
        )
        for n in nodes
        if n.kind and not n.across
    ]
