"""Launches consecutive kernels with one call, because a call from Python takes 0.5 us."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.graph import Buffer
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
"""Operators that make a view of memory and never read its contents."""
HELD = 4 << 20
"""About the most bytes of dead buffers that are kept until the last kernel of a launch has run."""


@dataclass(frozen=True)
class Launch:
    """Kernels that one call runs in order.

    `given` are the arguments, each passed once. `kinds` has a letter for each: t for a tensor, i
    for an integer, n for a floating-point number. `places` lists the arguments of each kernel by
    position.
    """

    name: str
    device: str
    kernels: tuple[str, ...]
    given: tuple[str, ...]
    kinds: str
    places: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()
    """The kernels' own names; `kernels` has those of their code."""


def launch(name: str, calls: Sequence[KernelCall]) -> Launch:
    """Return one call for several kernels, all of which have `joins` set."""
    places: dict[tuple[str, str], int] = {}
    taken = tuple(
        tuple(places.setdefault(argument, len(places)) for argument in arguments(call))
        for call in calls
    )
    given, kinds = zip(*places, strict=True)
    kernels = tuple(call.code for call in calls)
    names = tuple(call.kernel.name for call in calls)
    device = calls[0].kernel.device.type
    return Launch(name, device, kernels, given, "".join(kinds), taken, names)


def arguments(call: KernelCall) -> list[tuple[str, str]]:
    """Return the arguments of a kernel with `joins`, as Python, and the kind of each."""
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
    """The positions of all steps in order, grouped by launch: those of a combo, and others."""
    return _with_combos(_joined(schedule, calls, last_use, buffers), schedule)


def _joined(
    schedule: Schedule,
    calls: Mapping[str, KernelCall],
    last_use: Mapping[str, int],
    buffers: Mapping[str, Buffer],
) -> Iterator[range]:
    """Yield the positions of all steps in order, grouped by launch. Each step of a combo is alone.

    Views may come between the kernels of a launch, unless a kernel reads them: such a view is
    copied if ATen returned other strides than expected. Dead buffers are kept until the launch
    ends, up to about HELD bytes.
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


def _with_combos(steps: Iterator[range], schedule: Schedule) -> Iterator[range]:
    """Yield the same positions, with the kernels of a combo in one range."""
    before: range | None = None
    for positions in steps:
        combo = _combo_at(schedule, positions.start)
        if before is not None and combo and combo == _combo_at(schedule, before.start):
            before = range(before.start, positions.stop)
            continue
        if before is not None:
            yield before
        before = positions
    if before is not None:
        yield before


def _combo_at(schedule: Schedule, position: int) -> str:
    step = schedule.steps[position]
    return step.combo if isinstance(step, Kernel) else ""


def _cut(first: int, end: int) -> Iterator[range]:
    if first < end:
        yield range(first, end)
