"""Inputs of a generated program: dtypes, edge values, strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from tcdebug.strategies.program import DEVICE

T = TypeVar("T")

DTYPES: dict[str, tuple[torch.dtype, ...]] = {
    "f": (torch.float32, torch.float64),
    "h": (torch.bfloat16, torch.float16),
    "i": (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16),
    "b": (torch.bool,),
    "c": (torch.complex64,),
}
"""Dtypes by kind, the simplest first: float, half, integer, bool, complex."""

FILLS = ("ones", "normal", "count", "normal", "normal", "edges")
"""What an input contains. Repeated entries are drawn more often."""

EDGES = {
    "f": "float('inf'), float('nan'), -0.0, 0.0, 1e-40, -1.5, float('-inf'), 1.0, 3e38, -65504.0",
    "h": "float('inf'), float('nan'), -0.0, 0.0, 6e-8, -1.5, float('-inf'), 1.0, 65504.0, 0.1",
    "i": "0, 1, 127, 2, 100, 5",
    "b": "True, False, False",
    "c": "0j, float('inf'), float('nan'), 1j, -0.0, 1e30",
}
"""Numbers that tests rarely use, by kind of dtype."""

LEAST = {
    torch.int64: "-2**63, 2**63 - 1, 2**53 + 1, ",
    torch.int32: "-2**31, 2**31 - 1, 2**24 + 1, ",
    torch.int16: "-2**15, 2**15 - 1, ",
    torch.int8: "-128, ",
    torch.uint8: "255, 128, ",
}
"""The limits of each integer type. The edge values of all integers follow them."""


class ArgumentChoices(Protocol):
    """The methods with which an input is drawn."""

    def choose(self, options: Sequence[T]) -> T:
        """Return one of several options. The first is the simplest."""
        ...

    def integer(self, low: int, high: int) -> int:
        """Return a number in a closed range."""
        ...


@dataclass(frozen=True)
class Layout:
    """The memory layout of an input, which is a view of a base tensor."""

    name: str
    least: int
    """The minimum number of dimensions."""

    def text(self, made: str, sizes: Sequence[int]) -> str:
        """Return the expression of the view."""
        match self.name:
            case "transposed":
                return f"{made}.mT"
            case "strided":
                return f"{made}[..., ::2]"
            case "offset":
                return f"{made}[1:]"
            case "expanded":
                return f"{made}.expand({tuple(sizes)})"
            case "channels_last":
                return f"{made}.contiguous(memory_format=torch.channels_last)"
        return made

    def sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the base."""
        match self.name:
            case "transposed":
                return (*sizes[:-2], sizes[-1], sizes[-2])
            case "strided":
                return (*sizes[:-1], sizes[-1] * 2)
            case "offset":
                return (sizes[0] + 1, *sizes[1:])
            case "expanded":
                return (1, *sizes[1:])
        return tuple(sizes)


PLAIN = Layout("contiguous", 0)
LAYOUTS = (
    PLAIN, PLAIN, PLAIN, Layout("transposed", 2), Layout("strided", 1), Layout("offset", 1),
    Layout("expanded", 1), Layout("channels_last", 4),
)  # fmt: skip


def dtypes_in(kinds: str) -> tuple[torch.dtype, ...]:
    """Return the dtypes of some kinds."""
    return tuple(d for kind in kinds for d in DTYPES[kind])


def kind_of(dtype: torch.dtype) -> str:
    """Return the kind of a dtype."""
    return next(kind for kind, dtypes in DTYPES.items() if dtype in dtypes)


@dataclass(frozen=True)
class ArgumentRecipe:
    """How an input is created. `text` returns the expression for given sizes."""

    dtype: torch.dtype
    fill: str
    layout: Layout
    seed: int
    gradients: bool
    bound: int | None
    on_device: bool = False
    """Whether it is created on the device that the program names."""

    def text(self, sizes: Sequence[int]) -> str:
        """Return the expression for these sizes."""
        text = self.layout.text(self._filled(self.layout.sizes(sizes)), sizes)
        return f"{text}.requires_grad_()" if self.gradients else text

    def _filled(self, sizes: tuple[int, ...]) -> str:
        kind, place = kind_of(self.dtype), f", {DEVICE}" if self.on_device else ""
        owner = "device" if self.on_device else ""
        seeded = f"generator=torch.Generator({owner}).manual_seed({self.seed}){place}"
        count = torch.Size(sizes).numel()
        if self.bound is not None:
            return f"torch.randint(0, {self.bound}, {sizes}, {seeded})"
        match self.fill:
            case "ones":
                plain = "" if self.dtype == torch.float32 else f", dtype={self.dtype}"
                return f"torch.ones({sizes}{plain}{place})"
            case "count":
                low = 0 if self.dtype in (torch.uint8, torch.bool) else 3
                period = 2 if kind == "b" else 7
                counted = f"torch.arange({count}{place}) % {period} - {low}"
                return f"({counted}).reshape({sizes}){self._cast}"
            case "edges":
                numbers = LEAST.get(self.dtype, "") + EDGES[kind]
                made = f"torch.tensor([{numbers}], dtype={self.dtype}{place})"
                times = -(-count // (numbers.count(",") + 1))
                return f"{made}.repeat({times})[:{count}].reshape({sizes})"
        if kind in "ib":
            low, high = {torch.uint8: (0, 9), torch.bool: (0, 2)}.get(self.dtype, (-9, 9))
            return f"torch.randint({low}, {high}, {sizes}, {seeded}){self._cast}"
        return f"torch.randn({sizes}, {seeded}){self._cast if kind != 'f' else self._wide}"

    @property
    def _cast(self) -> str:
        return f".to({self.dtype})"

    @property
    def _wide(self) -> str:
        return "" if self.dtype == torch.float32 else self._cast


def recipe(
    scope: ArgumentChoices,
    sizes: Sequence[int],
    kinds: str,
    layouts: Sequence[Layout],
    *,
    gradients: bool,
    bound: int | None,
    on_device: bool = False,
) -> ArgumentRecipe:
    """Draw how an input is created. With a `bound`, it contains indices below the bound."""
    dtype = torch.int64 if bound is not None else scope.choose(dtypes_in(kinds))
    fill = "normal" if bound is not None else scope.choose(FILLS)
    fitting = [k for k in layouts if len(sizes) == k.least or 0 <= k.least <= min(len(sizes), 3)]
    layout = scope.choose(fitting)
    wanted = gradients and kind_of(dtype) in "fh" and scope.integer(0, 3) > 0
    seed = scope.integer(0, 9)
    return ArgumentRecipe(dtype, fill, layout, seed, wanted, bound, on_device)
