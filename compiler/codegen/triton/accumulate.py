"""How reductions and scans accumulate in Triton: neutral elements, updates, results."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.triton.text import TYPES, literal
from tcdebug.compiler.ir.expr import Constant
from tcdebug.compiler.ir.operations import SCANS, neutral

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
class Accumulator:
    """The state of a reduction over r, in variables of the node's name."""

    name: str
    kind: str
    source: torch.dtype
    """The dtype of what is combined."""
    result: torch.dtype

    @property
    def by_place(self) -> bool:
        """Whether the result is a place."""
        return self.kind.startswith("arg")

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


def scanned(kind: str, value: str) -> str:
    """Every state along r of a tile of values."""
    if SCANS[kind] == "sum":
        return f"tl.cumsum({value}, 1)"
    return f"tl.cumprod({value}, 1)"


def carried(kind: str, carry: str, value: str) -> str:
    """A state after another."""
    return f"{carry} + {value}" if SCANS[kind] == "sum" else f"{carry} * {value}"
