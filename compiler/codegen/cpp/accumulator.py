"""Writes the accumulator of a reduction in C++: state, update, merge of two states, result.

Long float sums add 1024 elements at a time in float, in vector lanes, and the partial sums in
double. The error is that of adding 1024 floats, whatever the length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.cpp.text import TYPES, integer
from tcdebug.compiler.ir.operations import FLOATS, gives_place, neutral

CHUNK = 1024


@dataclass(frozen=True)
class CppAccumulator:
    """The state of a reduction: variables called <field>_<name>."""

    name: str
    kind: str
    dtype: torch.dtype
    """The dtype of the values that are combined."""
    in_one: bool = False
    """Whether chunks are disabled: for a scan, whose states are all read, or a short reduction."""

    @property
    def chunked(self) -> bool:
        """Whether a partial sum in float is added to a total in double every CHUNK elements."""
        sums = self.kind in ("sum", "prod") and self.dtype == torch.float32
        return sums and not self.in_one

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
            return [(ctype, "best", "0"), ("int64_t", "place", "-1")]
        if self.dtype in FLOATS and not self.last_wins:
            return [(ctype, "best", self._neutral()), ("int", "nan", "0")]
        return [(ctype, "best", self._neutral())]

    @property
    def part(self) -> tuple[str, str, str] | None:
        """The variable that lives for one chunk only."""
        return ("float", "part", self._neutral()) if self.chunked else None

    def _neutral(self) -> str:
        value = neutral(self.kind, self.dtype)
        if isinstance(value, float):
            suffix = "f" if self.dtype == torch.float32 else ""
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return integer(int(value))

    def variable(self, field: str) -> str:
        """The C++ variable of a field."""
        return f"{field}_{self.name}"

    @property
    def clauses(self) -> list[str]:
        """The clauses of `omp simd reduction`."""
        part = self.variable("part")
        if self.kind in ("sum", "prod"):
            return [f"{'+' if self.kind == 'sum' else '*'}:{part}"]
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
            sign = "+" if self.kind == "sum" else "*"
            if self.dtype in (*FLOATS, torch.int64):
                return [f"{part} {sign}= {value};"]
            return [f"{part} = ({TYPES[self.dtype]})({part} {sign} {value});"]
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
        wins = f"{value} {better} {best}"
        if self.dtype in FLOATS:  # the first NaN wins
            wins = f"({wins} && {best} == {best}) || ({value} != {value} && {best} == {best})"
        return [f"if ({here} < 0 || {wins}) {{ {best} = {value}; {here} = {place}; }}"]

    def close_chunk(self, at: str = "") -> str:
        """A statement that adds the partial sum to the total."""
        sign = "+" if self.kind == "sum" else "*"
        return f"{self.variable('total')}{at} {sign}= {self.variable('part')}{at};"

    def merge(self, at: str) -> list[str]:
        """Statements that merge the state of another thread, which has the subscript `at`."""
        if self.chunked:
            sign = "+" if self.kind == "sum" else "*"
            return [f"{self.variable('total')} {sign}= slots_{self.variable('total')}{at};"]
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
        """The value of the reduction."""
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
