"""Checks that a schedule computes the graph that it was made from."""

from __future__ import annotations

from collections.abc import Iterator

from tcdebug.compiler.ir.expr import Call, loads
from tcdebug.compiler.ir.graph import LoopNode, Reduction, Scan, memory_of, reads, written
from tcdebug.compiler.ir.verifier import InvalidGraph
from tcdebug.compiler.schedule.kernel import Kernel, Schedule


def verify_schedule(schedule: Schedule) -> None:
    """Raise InvalidGraph if a schedule breaks a rule."""
    problems = list(_problems(schedule))
    if problems:
        raise InvalidGraph(problems)


def _problems(schedule: Schedule) -> Iterator[str]:
    graph = schedule.graph
    defined = {spec.name for spec in graph.inputs} | set(graph.constants)
    scheduled: list[str] = []
    for step in schedule.steps:
        if isinstance(step, Kernel):
            yield from _kernel_problems(step, defined)
            defined |= step.stored
            scheduled += [n.name for n in step.nodes]
        else:
            missing = reads(step) - defined
            if missing:
                yield f"{step.name} runs before {sorted(missing)}"
            defined.add(step.name)
            scheduled.append(step.name)
    yield from _combo_problems(schedule)
    if sorted(scheduled) != sorted(n.name for n in graph.nodes):
        yield "the schedule does not run every node of the graph once"


def _combo_problems(schedule: Schedule) -> Iterator[str]:
    """The kernels of a combo follow each other, and none touches memory that another one writes."""
    root = memory_of(
        n for s in schedule.steps for n in (s.nodes if isinstance(s, Kernel) else (s,))
    )
    places: dict[str, list[int]] = {}
    for position, step in enumerate(schedule.steps):
        if isinstance(step, Kernel) and step.combo:
            places.setdefault(step.combo, []).append(position)
    for combo, found in places.items():
        if found != [*range(found[0], found[0] + len(found))]:
            yield f"the kernels of {combo} do not follow each other"
        kernels = [s for s in schedule.steps[found[0] : found[-1] + 1] if isinstance(s, Kernel)]
        filled = {k.name: {root.get(name, name) for name in k.stored} for k in kernels}
        read = {k.name: {root.get(name, name) for name in k.loaded()} for k in kernels}
        for one in filled:
            for other in filled:
                if other != one and filled[one] & (read[other] | filled[other]):
                    yield f"{other} depends on {one} in {combo}"


def _kernel_problems(kernel: Kernel, defined: set[str]) -> Iterator[str]:
    missing = kernel.loaded() - defined
    if missing:
        yield f"{kernel.name} runs before {sorted(missing)}"
    if kernel.template is not None:
        yield from _template_problems(kernel)
    made: dict[str, LoopNode] = {}
    for node in kernel.nodes:
        axes = (*node.axes, *node.over)
        known = (kernel.outer, kernel.outer + kernel.inner)
        if kernel.is_across(node):
            known = (kernel.inner, kernel.inner + kernel.outer)
        elif any(kernel.is_across(made[name]) for name in reads(node) if name in made):
            yield f"{node.name} reads a column before it is complete"
        if axes not in known:
            yield f"{node.name} loops over {axes} in {kernel.name}"
        if not (node.fills_exactly or isinstance(node, Scan) or written(node)):
            yield f"{node.name} fills {node.out.size} over {node.filled}"
        for load in loads(node.body):
            producer = made.get(load.buffer)
            if producer is not None and load.index != producer.index:
                yield f"{node.name} reads {load.buffer}{list(load.index)} while it is computed"
        made[node.name] = node


def _template_problems(kernel: Kernel) -> Iterator[str]:
    """The problems of a kernel with a template: it must be a sum of products, then pointwise."""
    first, *others = kernel.nodes
    body = first.body
    if not isinstance(first, Reduction) or first.kind != "sum":
        yield f"{kernel.name} has a template and begins with {first.name}, which is not a sum"
    elif not isinstance(body, Call) or body.name != "mul":
        yield f"{kernel.name} has a template and sums no products"
    for node in others:
        if node.over or kernel.is_inner(node):
            yield f"{kernel.name} has a template and computes {node.name} more than once per sum"
