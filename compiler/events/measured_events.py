"""The events of choices that are measured: tiles, ways to write a kernel, matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tcdebug.compiler.events.event import Event


@dataclass(frozen=True, slots=True)
class TileChosen(Event):
    """The fastest tile of a Triton kernel. `tried` tiles were measured; 0 if it was known."""

    kind: ClassVar[str] = "tile"
    name: str
    blocks: dict[str, int]
    warps: int
    tried: int


@dataclass(frozen=True, slots=True)
class ChoicesMeasured(Event):
    """The choices of code generation without which a CPU kernel is fastest.

    `microseconds` has the time of each version that was measured, by what it leaves out, joined by
    commas; it is empty if the result was known, or if there was nothing to choose.
    """

    kind: ClassVar[str] = "choices"
    name: str
    left_out: list[str]
    microseconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ProductChosen(Event):
    """The fastest way to compute a matrix product: a call to ATen (`extern`) or a template.

    `milliseconds` has the time of each way, with the kernels around the product. `failed` has the
    ways that could not be run, and why. `known` is true if the times were measured earlier.
    """

    kind: ClassVar[str] = "product"
    name: str
    op: str
    chosen: str
    milliseconds: Mapping[str, float]
    failed: Mapping[str, str]
    known: bool


MEASURED_EVENTS: tuple[type[Event], ...] = (TileChosen, ChoicesMeasured, ProductChosen)
