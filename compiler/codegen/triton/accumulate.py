"""How reductions and scans accumulate in Triton: neutral elements, updates, results."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.triton.text import TYPES, literal
from tcdebug.compiler.ir.expr import Constant
from tcdebug.compiler.ir.operations import SCANS, gives_place, neutral

NO_PLACE = 2**31 - 1
"""The place of no element: every element that exists wins over it."""

COMBINE = {
    "prod": "library.multiply",
    "max": "library.maximum",
    "min": "library.minimum",
    "argmax": "library.argmax",
    "argmin": "library.argmin",
}


KINDS = ("sum", *COMBINE, *SCANS)
"""The reductions and scans that are written here."""


@dataclass(frozen=True)
class TritonAccumulator:
    """The state of a reduction over r, in variables of the node's name."""

    name: str
    kind: str
    source: torch.dtype
    """The dtype of what is combined."""
    result: torch.dtype

    @property
    def by_place(self) -> bool:
        """Whether the result is a place."""
        return gives_place(self.kind)

    @property
    def dtype(self) -> torch.dtype:
        """What it accumulates in: Triton reduces no single bits."""
        return torch.int32 if self.source == torch.bool else self.source

    def taken(self, value: str) -> str:
        """A value as it is accumulated."""
        return f"{value}.to(tl.int32)" if self.source == torch.bool else value

    @property
    def neutral(self) -> str:
        """What changes no result."""
        return literal(Constant(self.dtype, neutral(self.kind, self.source)))

    def declared(self, shape: str) -> list[str]:
        """The state at the start of a loop."""
        lines = [f"best_{self.name} = tl.broadcast_to({self.neutral}, {shape})"]
        if self.by_place:
            lines.append(f"place_{self.name} = tl.full({shape}, {NO_PLACE}, INDEX)")
        return lines

    def update(self, value: str, place: str) -> list[str]:
        """Take in a tile of values, which has the neutral element where there is none."""
        best = f"best_{self.name}"
        if self.by_place:
            state = f"{best}, place_{self.name}"
            return [f"{state} = library.{self.kind}({best}, place_{self.name}, {value}, {place})"]
        if self.kind == "sum":
            return [f"{best} = ({best} + {value}).to({TYPES[self.dtype]})"]
        return [f"{best} = {COMBINE[self.kind]}({best}, {value}).to({TYPES[self.dtype]})"]

    def reduced(self, value: str, place: str) -> str:
        """A tile of values, or of states, as one result for each row."""
        if self.by_place:
            pair = f"({value}, {place})"
            return f"tl.reduce({pair}, 1, library.{self.kind}, keep_dims=True)[1].to(tl.int64)"
        if self.kind == "sum":
            text = f"tl.sum({value}, 1, keep_dims=True)"
        else:
            text = f"tl.reduce({value}, 1, {COMBINE[self.kind]}, keep_dims=True)"
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
"""What combines two states of a scan, the earlier one first."""


@dataclass(frozen=True)
class TritonScan:
    """A scan along r, in variables of the node's name; its state is a value, or that with a place.

    The last of equal extremes wins, whose zero may have another sign: they go by their places.
    """

    accumulator: TritonAccumulator

    @property
    def has_places(self) -> bool:
        """Whether the state has a place."""
        return self.accumulator.kind.startswith("last_")

    def _state(self, value: str, place: str) -> str:
        return f"({value}, {place})" if self.has_places else value

    def _variables(self, stem: str) -> str:
        name = self.accumulator.name
        return f"{stem}_{name}, {stem}_place_{name}" if self.has_places else f"{stem}_{name}"

    def declared(self, row: str) -> list[str]:
        """The state before a row."""
        name, neutral = self.accumulator.name, self.accumulator.neutral
        lines = [f"carry_{name} = tl.broadcast_to({neutral}, {row})"]
        if self.has_places:
            lines.append(f"carry_place_{name} = tl.full({row}, -1, INDEX)")
        return lines

    def states(self, value: str, place: str) -> str:
        """The states along a tile of values."""
        combine = SCANNED[self.accumulator.kind]
        if self.accumulator.kind == "log_sum_exp":
            value = f"({value} + 0.0)"  # a sum that begins with nothing has no negative zero
        given = self._state(value, place)
        return f"{self._variables('state')} = tl.associative_scan({given}, 1, {combine})"

    def carried(self, value: str, place: str) -> list[str]:
        """The states of a tile after those of the tiles before, and the last of them."""
        combine, given = SCANNED[self.accumulator.kind], self._state(value, place)
        carry, state, total = map(self._variables, ("carry", "state", "total"))
        return [
            f"{state} = {combine}({carry}, {state})",
            f"{total} = tl.reduce({given}, 1, {combine}, keep_dims=True)",
            f"{carry} = {combine}({carry}, {total})",
        ]

    def result(self) -> str:
        """The value of the scan at each point."""
        stem = "state_place" if self.accumulator.by_place else "state"
        return f"{stem}_{self.accumulator.name}.to({TYPES[self.accumulator.result]})"
