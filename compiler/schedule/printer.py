"""Prints a schedule: its steps in order, with their loops."""

from __future__ import annotations

from collections.abc import Sequence

from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.printer import print_loop, print_node
from tcdebug.compiler.schedule.kernel import Kernel, Schedule


def _axes(axes: Sequence[Axis]) -> str:
    return "[" + ", ".join(f"{a.name}: {a.size}" for a in axes) + "]"


def print_kernel(kernel: Kernel) -> str:
    """Return a kernel: its loops, the nodes it stores, and the nodes inside."""
    head = f"kernel {kernel.name} outer={_axes(kernel.outer)} inner={_axes(kernel.inner)}"
    head += f" stores=[{', '.join(n.name for n in kernel.nodes if n.name in kernel.stored)}]"
    if kernel.template is not None:
        head += f" template={kernel.template.label!r}"
    if kernel.combo:
        head += f" combo={kernel.combo!r}"
    return "\n\n".join([head + ":", *(print_loop(n, "    ") for n in kernel.nodes)])


def print_schedule(schedule: Schedule, title: str = "") -> str:
    """All steps in order. `title` becomes a comment in the first line."""
    blocks = [f"# {title}"] if title else []
    for step in schedule.steps:
        blocks.append(print_kernel(step) if isinstance(step, Kernel) else print_node(step))
    return "\n\n".join(blocks) + "\n"
