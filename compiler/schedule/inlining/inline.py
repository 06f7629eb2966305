"""fuse.inline: compute a pointwise producer inside its consumers instead of storing it.

This is always legal, because a pointwise body depends only on its index. It is done if each element
of the producer is read once, or is cheaper to compute than to load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Atom, Index, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.chosen_places import with_chosen_places
from tcdebug.compiler.ir.cost import arithmetic, load_count
from tcdebug.compiler.ir.expr import (
    Expr,
    Load,
    indices,
    indirect_atoms,
    loads,
    rewrite,
    walk,
)
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    LoopNode,
    Node,
    Pointwise,
    body_reads,
    elements_read,
    memory_of,
    output_refs,
    reads,
    without_dead_nodes,
    written,
)
from tcdebug.compiler.ir.linear_parts import linear_parts
from tcdebug.compiler.schedule.inlining.short_choices import apart
from tcdebug.compiler.schedule.splitting.split_across import apart_across, whole_loads

UNIT = "fuse.inline"
CHEAP_ARITHMETIC = 4
CHEAP_LOADS = 2
CHEAP_USERS = 4
INDEX_ARITHMETIC = 16
"""The most operations of an index on a GPU that each of its consumers computes."""
MOST_READ_ACROSS = 4
"""The most elements that a kernel on a CPU reads in one order to store a result in another.

Those that are the same along an axis, such as the statistics of a norm, do not count.
"""
FEW = 16
"""A consumer that reads at most one element in so many computes these itself."""
LARGEST_BODY = 300
"""The most expression nodes in a body after inlining."""


def inline_producers(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with producers computed inside their consumers where that pays.

    A producer may lose all consumers but one, and so become cheap. Therefore this is repeated.
    """
    buffers = graph.buffers()
    sizes = {name: buffer.size for name, buffer in buffers.items()}

    def prepared(node: Node) -> Node:
        chosen = with_chosen_places(node, sizes)
        if chosen is node or not gate.allows(UNIT, f"places of {node.name}"):
            return node
        return chosen

    stored = made_elsewhere(graph)

    def anyway(producer: Pointwise, consumer: Node) -> bool:
        more = [load for load in whole_loads(producer) if load.buffer not in stored]
        return reads_few(producer, consumer) and len(more) <= 1  # which may then be stored

    def refuses(producer: Pointwise, consumers: Sequence[Node], in_memory: bool) -> str:
        return too_expensive(producer, consumers, in_memory, buffers)

    for _ in graph.nodes:
        changed = inlined_where(graph, gate, UNIT, refuses, prepared, anyway)
        if changed is graph:
            break
        graph = changed
    return graph


def made_elsewhere(graph: Graph) -> set[str]:
    """Return the buffers that no loop of a graph fills: inputs, constants and results of calls."""
    calls = {node.name for node in graph.nodes if isinstance(node, Extern)}
    return calls | {given.name for given in graph.inputs} | graph.constants.keys()


def inlined_where(
    graph: Graph,
    gate: Gate,
    unit: str,
    refuses: Callable[[Pointwise, Sequence[Node], bool], str],
    prepared: Callable[[Node], Node] = lambda node: node,
    anyway: Callable[[Pointwise, Node], bool] = lambda producer, consumer: False,
    expanded: Callable[[Pointwise], Pointwise] = lambda producer: producer,
) -> Graph:
    """Return the graph with producers computed inside their consumers, where that is legal.

    `refuses` takes a producer, its consumers, and whether it is in memory in any case. It returns
    why the producer is stored, or an empty text. It is not asked about consumers that compute a
    producer `anyway`, unless that is in memory. `prepared` rewrites a node that has its producers.
    What consumers compute is the `expanded` producer, which may contain its own producers. Returns
    the graph itself if nothing changes.
    """
    nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
    position = {name: k for k, name in enumerate(nodes)}
    users: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in reads(node):
            users.setdefault(name, []).append(node.name)
    in_memory = output_refs(graph) | {
        name for node in graph.nodes if isinstance(node, Extern) for name in reads(node)
    }
    memory = memory_of(graph.nodes)
    writes = _writes(graph, memory)
    updated = {name for node in graph.nodes for name in written(node)}
    for name in position:
        producer = nodes[name] = prepared(nodes[name])
        if not isinstance(producer, Pointwise) or not plain(producer) or name in updated:
            continue
        producer = expanded(producer)
        consumers = [nodes[u] for u in users.get(name, ())]
        certain = [c for c in consumers if name not in in_memory and anyway(producer, c)]
        others = [c for c in consumers if c not in certain]
        if refuses(producer, others, name in in_memory):
            consumers = certain
        operands = {memory.get(read, read) for read in reads(producer)}
        later = (p for o in operands for p in writes.get(o, ()) if p > position[name])
        last_read = min(later, default=len(position))
        for consumer in consumers:
            if isinstance(consumer, Extern) or position[consumer.name] > last_read:
                continue
            if name in elements_read(consumer) - body_reads(consumer.body):
                continue
            if size_after(consumer.body, producer) > LARGEST_BODY:
                continue
            if not gate.allows(unit, f"{name}->{consumer.name}"):
                continue
            reader = replace(consumer, body=inlined(consumer.body, producer))
            if overwrites_unread(reader, memory):
                continue
            nodes[consumer.name] = reader
            for read in reads(producer):
                if consumer.name not in users.setdefault(read, []):
                    users[read].append(consumer.name)
    return _with_nodes(graph, tuple(nodes.values()))


def _with_nodes(graph: Graph, nodes: tuple[Node, ...]) -> Graph:
    """Return a graph with other nodes, without dead ones; the same graph if it has these."""
    changed = without_dead_nodes(Graph(graph.inputs, nodes, graph.outputs, graph.constants))
    same = [*map(id, changed.nodes)] == [*map(id, graph.nodes)]
    return graph if same else changed


def _writes(graph: Graph, memory: Mapping[str, str]) -> dict[str, list[int]]:
    """Memory -> the positions of the nodes that write to it, in order."""
    found: dict[str, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        for name in written(node):
            found.setdefault(memory.get(name, name), []).append(position)
    return found


def overwrites_unread(node: LoopNode, memory: Mapping[str, str]) -> bool:
    """Return whether a node may overwrite an element before it has read it."""
    return any(
        memory.get(load.buffer, load.buffer) == target
        and (load.buffer != target or load.index != node.index)
        for target in written(node)
        for load in loads(node.body)
    )


def plain(node: Pointwise) -> bool:
    """Return whether a node fills its own memory at its axes, as lowering makes it."""
    axes = {i for i in node.index if i.constant is None}
    return not node.into and axes == {to_index(a) for a in node.axes}


def too_expensive(
    producer: Pointwise,
    consumers: Sequence[Node],
    in_memory: bool,
    buffers: Mapping[str, Buffer],
) -> str:
    """Return why computing a producer inside its consumers does not pay; empty if it pays."""
    loops = [c for c in consumers if not isinstance(c, Extern)]
    if not loops:
        return "no loop reads it"
    work, read = arithmetic(producer.body), load_count(producer.body)
    if read == 0 and not producer.body.axes:
        return ""  # a constant
    if _is_index(producer):
        return ""
    cost = f"{work} operations and {read} loads"
    if in_memory:
        cheap = work <= 1 and read <= 1 and not indirect(producer.body)
        return "" if cheap else f"it is stored anyway, and {cost} cost more than a load"
    if any(apart(producer, consumer) for consumer in loops):
        return "short rows leave no vectors for a function"
    if len(loops) == 1:
        if len(whole_loads(producer)) > MOST_READ_ACROSS and _turned(producer, loops[0]):
            return f"its consumer stores in another order, across which {cost} are slow"
        if _repeated(producer, loops[0], work) <= CHEAP_ARITHMETIC:
            return ""
    elif any(apart_across(producer, consumer, buffers) for consumer in loops):
        return "it is read several times, and its operands have different neighbours"
    if reads_indirectly(producer.body):
        return "it is read several times, and reads through an indirect index"
    if work > CHEAP_ARITHMETIC or read > CHEAP_LOADS:
        return f"it is read several times, and {cost} are too much to repeat"
    return f"{len(loops)} nodes read it" if len(loops) > CHEAP_USERS else ""


def reads_few(producer: Pointwise, consumer: Node) -> bool:
    """Return whether a consumer reads few elements of a producer, such as one of each row."""
    if isinstance(consumer, Extern):
        return False
    places = {load.key for load in loads(consumer.body) if load.buffer == producer.name}
    points = estimate(product(a.size for a in (*consumer.axes, *consumer.over)))
    return points * len(places) * FEW <= estimate(producer.out.numel)


def _is_index(producer: Pointwise) -> bool:
    """Whether a producer is cheap as an index.

    On a CPU it is linear on parts of its axis, each of which gets a loop. On a GPU it is computed
    from its axis alone; what reads another tensor there can then be computed in its consumers.
    """
    if len(producer.axes) != 1:
        return False
    if producer.out.device.type == "cpu":
        return linear_parts(producer.body, producer.axes[0]) is not None
    whole = not producer.out.dtype.is_floating_point and not load_count(producer.body)
    return whole and arithmetic(producer.body) <= INDEX_ARITHMETIC


def indirect(expr: Expr) -> bool:
    """Return whether an expression has an indirect index."""
    return any(indirect_atoms(i) for e in walk(expr) for i in indices(e))


def reads_indirectly(expr: Expr) -> bool:
    """Return whether an expression has an indirect index that is read from memory."""
    atoms = (a for e in walk(expr) for i in indices(e) for a in indirect_atoms(i))
    return any(isinstance(e, Load) for atom in atoms for e in walk(atom.expr))


def _repeated(producer: Pointwise, consumer: LoopNode, work: int) -> float:
    """Return the arithmetic per element that is repeated if the consumer computes a producer.

    A consumer reads most elements more than once if it repeats, reflects or pads rows.
    """
    places = {load.key for load in loads(consumer.body) if load.buffer == producer.name}
    domain = product(a.size for a in (*consumer.axes, *consumer.over))
    if len(places) != 1:
        return math.inf
    if domain == producer.out.numel:
        return 0.0
    more = max(0.0, estimate(domain) / max(1, estimate(producer.out.numel)) - 1)
    return math.inf if more and reads_indirectly(producer.body) else more * (work + 1)


def _turned(producer: Pointwise, consumer: LoopNode) -> bool:
    """Return whether a consumer on a CPU stores neighbours that the producer has far apart."""
    if producer.out.device.type != "cpu" or not isinstance(consumer, Pointwise):
        return False
    stored = nearest(consumer.out.address(consumer.index), consumer.axes)
    return any(
        nearest(producer.out.address(load.index), consumer.axes) != stored
        for load in loads(consumer.body)
        if load.buffer == producer.name
    )


def size_after(body: Expr, producer: Pointwise) -> int:
    """Return the number of expression nodes that a body would have after inlining."""
    places = sum(load.buffer == producer.name for load in loads(body))
    return sum(1 for _ in walk(body)) + places * sum(1 for _ in walk(producer.body))


def inlined(body: Expr, producer: Pointwise) -> Expr:
    """Return a body with every load of the producer replaced by the producer's body."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Load) and node.buffer == producer.name:
            values: dict[Atom, Index] = {
                atom: where
                for place, where in zip(producer.index, node.index, strict=True)
                for atom in place.direct_atoms
            }
            return producer.body.substitute(values)
        return node

    return rewrite(body, change, in_indices=True)
