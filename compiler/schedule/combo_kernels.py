"""fuse.combo: run independent kernels of a GPU in one launch, as the updates of an optimizer.

A launch takes several microseconds, which is longer than a small kernel runs. The kernels of a
combo keep their loops and tiles: some programs of the launch run the first kernel, the next ones
the second. Only kernels between two calls of ATen are combined, so that memory is not held long.
Copies into inputs do not count. They are left where a kernel does not store into the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import product
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.expr import indices, walk
from tcdebug.compiler.ir.graph import Buffer, Extern, Node, Scatter, written
from tcdebug.compiler.schedule.fusing.dependencies import Dependencies
from tcdebug.compiler.schedule.kernel import Kernel, Schedule, between_steps

Step = Kernel | Extern

UNIT = "fuse.combo"
COPY = torch.ops.aten.copy_.default
DEVICES = ("cuda",)
"""The types of devices whose kernels are combined. On a CPU, a launch costs little."""
MOST_ARGUMENTS = 480
"""The most arguments of a combo. CUDA passes at most 4096 bytes to a kernel."""
LARGEST = 1 << 20
"""The most points of a kernel in a combo. Beyond it, the time of a launch does not matter."""
HELD = 64 << 20
"""The most bytes that a combo allocates, which are all held when it runs."""


def with_combo_kernels(schedule: Schedule, gate: Gate) -> Schedule:
    """Return the schedule with independent kernels next to each other, and marked as one combo."""
    if not any(kernel.device.type in DEVICES for kernel in schedule.kernels()):
        return schedule
    buffers, dependencies = schedule.graph.buffers(), _dependencies(schedule)
    steps: list[Step] = []
    for run in _runs(schedule.steps):
        steps += _with_combos(run, dependencies, buffers, gate)
    return replace(schedule, steps=tuple(steps))


def _dependencies(schedule: Schedule) -> Dependencies:
    """Return the dependencies of the steps. Memory that a kernel takes over counts as written."""
    nodes: list[Node] = []
    for step in schedule.steps:
        nodes += [step] if isinstance(step, Extern) else step.nodes
    return between_steps(replace(schedule, graph=replace(schedule.graph, nodes=tuple(nodes))))


def _runs(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """All steps in order, with kernels and copies that follow each other in one list."""
    run: list[Step] = []
    for step in steps:
        if isinstance(step, Kernel) or step.target is COPY:
            run.append(step)
            continue
        yield run
        yield [step]
        run = []
    yield run


def _with_combos(
    run: list[Step], dependencies: Dependencies, buffers: Mapping[str, Buffer], gate: Gate
) -> list[Step]:
    """Return the steps in an order in which they can run, those of a combo next to each other.

    A step that depends on others of the run has a higher level than they have.
    """
    level_of: dict[str, int] = {}
    levels: dict[int, int] = {}
    for step in run:
        key = dependencies.key_of(step.name if isinstance(step, Extern) else step.subject)
        before = [levels[b] for b in dependencies.groups_before(key) if b in levels]
        level_of[step.name] = levels[key] = 1 + max(before, default=-1)
    alike: dict[tuple[object, ...], list[Kernel]] = {}
    for step in run:
        if isinstance(step, Kernel) and _is_small(step, buffers):
            kind = (level_of[step.name], step.device, bool(step.inner))
            alike.setdefault(kind, []).append(step)
    combo_of = {
        kernel.name: _name(members[0])
        for found in alike.values()
        for members in _combos(found, buffers, gate)
        for kernel in members
    }
    if not combo_of:
        return run
    first: dict[str, int] = {}
    for place, step in enumerate(run):
        first.setdefault(combo_of.get(step.name, step.name), place)
    ordered = sorted(
        run, key=lambda step: (level_of[step.name], first[combo_of.get(step.name, step.name)])
    )
    return [
        replace(step, combo=combo_of.get(step.name, "")) if isinstance(step, Kernel) else step
        for step in ordered
    ]


def _combos(
    kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate
) -> Iterator[list[Kernel]]:
    """Split kernels that do not depend on each other into combos. Asks for each kernel."""
    if len(kernels) < 2:
        return
    members: list[Kernel] = []
    arguments = held = 0
    for kernel in (k for k in kernels if gate.allows(UNIT, k.subject)):
        over = {n.name: memory for n in kernel.nodes for memory in written(n)}
        count = len(kernel.loaded() - set(over.values())) + len(kernel.stored)
        filled = sum(bytes_of(buffers[name]) for name in kernel.stored - over.keys())
        if arguments + count > MOST_ARGUMENTS or held + filled > HELD:
            if len(members) > 1:
                yield members
            members, arguments, held = [], 0, 0
        members.append(kernel)
        arguments, held = arguments + count, held + filled
    if len(members) > 1:
        yield members


def _is_small(kernel: Kernel, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether a kernel may be in a combo: its sizes are known, and it is not a large one."""
    if kernel.device.type not in DEVICES or kernel.template is not None:
        return False
    if any(isinstance(node, Scatter) for node in kernel.nodes):
        return False
    touched = [buffers[name] for name in (*kernel.loaded(), *kernel.stored) if name in buffers]
    sizes = [i for buffer in touched for i in (*buffer.size, *buffer.stride)]
    points = product(a.size for a in (*kernel.outer, *kernel.inner)).constant
    used = (i for node in kernel.nodes for e in walk(node.body) for i in indices(e))
    known = all(size.constant is not None for size in sizes) and points is not None
    return known and not any(i.symbols for i in used) and 0 < (points or 0) <= LARGEST


def _name(first: Kernel) -> str:
    """The name of a combo, which tells what its first kernel computes: triton_combo_add_3."""
    prefix, _, rest = first.name.partition("_")
    return f"{prefix}_combo_{rest}"
