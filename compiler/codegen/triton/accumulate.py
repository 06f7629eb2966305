"""Writes the accumulators of reductions and scans in Triton."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.triton.places import NO_PLACE
from tcdebug.compiler.codegen.triton.text import TYPES, literal
from tcdebug.compiler.ir.expr import Constant
from tcdebug.compiler.ir.operations import SCANS, SORTS, gives_place, neutral

COMBINE = {
    "prod": "library.multiply",
    "max": "library.maximum",
    "min": "library.minimum",
    "argmax": "library.argmax",
    "argmin": "library.argmin",
}


KINDS = ("sum", *COMBINE, *SCANS)
"""The reductions and scans that Triton kernels support."""


@dataclass(frozen=True)
class TritonAccumulator:
    """The state of a reduction over r, in variables with the node's name."""

    name: str
    kind: str
    source: torch.dtype
    """The dtype of the values that are combined."""
    result: torch.dtype
    dimension: int = 1
    """The number of the dimension r in the tile."""

    @property
    def by_place(self) -> bool:
        """Whether the result is a position."""
        return gives_place(self.kind)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the state. Triton cannot reduce bools, so these use int32."""
        return torch.int32 if self.source == torch.bool else self.source

    def taken(self, value: str) -> str:
        """Return a value converted to the dtype of the state."""
        return f"{value}.to(tl.int32)" if self.source == torch.bool else value

    @property
    def neutral(self) -> str:
        """The neutral element of the reduction."""
        return literal(Constant(self.dtype, neutral(self.kind, self.source)))

    def declared(self, shape: str) -> list[str]:
        """Statements that initialise the state before a loop."""
        lines = [f"best_{self.name} = tl.broadcast_to({self.neutral}, {shape})"]
        if self.by_place:
            lines.append(f"place_{self.name} = tl.full({shape}, {NO_PLACE}, INDEX)")
        return lines

    def update(self, value: str, place: str) -> list[str]:
        """Statements that accumulate the next tile of a row. Masked values are neutral elements."""
        best = f"best_{self.name}"
        if self.by_place:
            state = f"{best}, place_{self.name}"
            return [f"{state} = library.next_{self.kind}({state}, {value}, {place})"]
        if self.kind == "sum":
            return [f"{best} = ({best} + {value}).to({TYPES[self.dtype]})"]
        return [f"{best} = {COMBINE[self.kind]}({best}, {value}).to({TYPES[self.dtype]})"]

    def reduced(self, value: str, place: str) -> str:
        """Return the reduction of a tile of values, or of states, to one result per row."""
        if self.by_place:
            pair = f"({value}, {place})"
            combined = f"tl.reduce({pair}, {self.dimension}, library.{self.kind}, keep_dims=True)"
            return f"{combined}[1].to(tl.int64)"
        if self.kind == "sum":
            text = f"tl.sum({value}, {self.dimension}, keep_dims=True)"
            text = f"({text} + 0.0)" if self.dtype.is_floating_point else text  # never -0
        else:
            text = f"tl.reduce({value}, {self.dimension}, {COMBINE[self.kind]}, keep_dims=True)"
        return f"{text} != 0" if self.source == torch.bool else f"{text}.to({TYPES[self.result]})"


SCANNED = {
    "prod": "library.multiply",
    "sum": "library.plus",
    "log_sum_exp": "library.log_add_exp",
    "last_max": "library.last_max",
    "last_min": "library.last_min",
    "last_argmax": "library.last_max",
    "last_argmin": "library.last_min",
}
"""Accumulation of a scan -> the function that combines two states, the earlier one first."""


@dataclass(frozen=True)
class TritonScan:
    """A scan along r, in variables with the node's name.

    Its state is a value, or a value and a position. Among equal extremes the last one wins. Their
    zeros may differ in sign, so the position decides.
    """

    accumulator: TritonAccumulator

    @property
    def has_places(self) -> bool:
        """Whether the state has a position."""
        return self.accumulator.kind.startswith("last_") or self.accumulator.kind in SORTS

    def _state(self, value: str, place: str) -> str:
        return f"({value}, {place})" if self.has_places else value

    def _variables(self, stem: str) -> str:
        name = self.accumulator.name
        return f"{stem}_{name}, {stem}_place_{name}" if self.has_places else f"{stem}_{name}"

    def declared(self, row: str) -> list[str]:
        """Statements that initialise the state before a row."""
        name, neutral = self.accumulator.name, self.accumulator.neutral
        lines = [f"carry_{name} = tl.broadcast_to({neutral}, {row})"]
        if self.has_places:
            lines.append(f"carry_place_{name} = tl.full({row}, -1, INDEX)")
        return lines

    def states(self, value: str, place: str) -> str:
        """Return a statement that computes the states along a tile of values."""
        if self.accumulator.kind in SORTS:
            name, down = self.accumulator.name, self.accumulator.kind == "argsort_down"
            return f"state_place_{name} = library.places_in_order({value}, {place}, {down})"
        combine = SCANNED[self.accumulator.kind]
        if self.accumulator.kind == "log_sum_exp":
            value = f"({value} + 0.0)"  # a sum that starts from zero is never -0.0
        given = f"{self._state(value, place)}, {self.accumulator.dimension}"
        return f"{self._variables('state')} = tl.associative_scan({given}, {combine})"

    def carried(self, value: str, place: str) -> list[str]:
        """Statements that add the state of earlier tiles to a tile, and update that state."""
        combine, given = SCANNED[self.accumulator.kind], self._state(value, place)
        carry, state, total = map(self._variables, ("carry", "state", "total"))
        along = f"{self.accumulator.dimension}, {combine}, keep_dims=True"
        return [
            f"{state} = {combine}({carry}, {state})",
            f"{total} = tl.reduce({given}, {along})",
            f"{carry} = {combine}({carry}, {total})",
        ]

    def result(self) -> str:
        """Return the value of the scan at each point."""
        stem = "state_place" if self.accumulator.by_place else "state"
        return f"{stem}_{self.accumulator.name}.to({TYPES[self.accumulator.result]})"
