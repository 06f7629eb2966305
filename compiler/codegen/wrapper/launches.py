"""Kernels that follow each other are launched by one call: a call from Python takes 0.5 us."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.schedule.cost import bytes_of
from tcdebug.compiler.schedule.kernel import Kernel, Schedule

aten = torch.ops.aten
VIEWS = frozenset(
    (
        aten.alias.default, aten.as_strided.default, aten.detach.default, aten.diagonal.default,
        aten.expand.default, aten.permute.default, aten.select.int, aten.slice.Tensor,
        aten.squeeze.dim, aten.squeeze.dims, aten.t.default, aten.transpose.int,
        aten.unsqueeze.default, aten.view.default,
    )
)  # fmt: skip
"""Operators that make another view of memory and never look at what is in it."""
HELD = 4 << 20
"""Bytes that may be free and are not freed before the last kernel of a launch has run."""


@dataclass(frozen=True)
class Launch:
    """Kernels that one call runs in order.

    An argument is passed once; `kinds` has a letter for each: t a tensor, i an integer, n a number.
    `places` has for each kernel which arguments it takes.
    """

    name: str
    device: str
    kernels: tuple[str, ...]
    given: tuple[str, ...]
    kinds: str
    places: tuple[tuple[int, ...], ...]


def launch(name: str, calls: Sequence[KernelCall]) -> Launch:
    """One call for kernels of which every one `joins`."""
    places: dict[tuple[str, str], int] = {}
    taken = tuple(
        tuple(places.setdefault(argument, len(places)) for argument in arguments(call))
        for call in calls
    )
    given, kinds = zip(*places, strict=True)
    kernels = tuple(call.code for call in calls)
    return Launch(name, calls[0].kernel.device.type, kernels, given, "".join(kinds), taken)


def arguments(call: KernelCall) -> list[tuple[str, str]]:
    """What a kernel that `joins` is given, as Python, and of which kind each is."""
    return [
        *((name, "t") for name in (*call.loads, *call.stores)),
        *((symbol, "i") for symbol in call.symbols),
        *((f"float({p})", "n") for p in call.parameters),
        *((text, "i") for text in call.after),
    ]


def together(
    schedule: Schedule,
    calls: Mapping[str, KernelCall],
    last_use: Mapping[str, int],
    buffers: Mapping[str, Buffer],
) -> Iterator[range]:
    """The places of all steps in order, those of one launch together.

    Views may stand between the kernels of a launch, unless a kernel reads them: those are laid out
    anew where ATen gave other strides than were promised. What has had its last use stays until the
    launch ends: about HELD bytes of it.
    """
    read = {name for call in calls.values() for name in call.loads}
    dying: dict[int, list[str]] = {}
    for name, last in last_use.items():
        dying.setdefault(last, []).append(name)
    first = held = 0
    device = ""
    for position, step in enumerate(schedule.steps):
        before = device
        if isinstance(step, Kernel):
            joins, device = calls[step.name].joins, step.device.type
        else:
            joins = step.target in VIEWS and step.name not in read
        if not joins or held > HELD or device != before:
            yield from _cut(first, position)
            first, held = position, 0
        if not joins:
            yield range(position, position + 1)
            first = position + 1
            continue
        for name in dying.get(position, ()):
            if name in buffers:
                known = buffers[name].numel.constant is not None
                held += bytes_of(buffers[name]) if known else HELD + 1
    yield from _cut(first, len(schedule.steps))


def _cut(first: int, end: int) -> Iterator[range]:
    if first < end:
        yield range(first, end)
