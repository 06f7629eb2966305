"""fuse.inline: compute a pointwise producer inside its consumers instead of storing it.

This is always legal, because a pointwise body depends only on its index. It is done if each element
of the producer is read once, or is cheaper to compute than to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.build import cast
from tcdebug.compiler.ir.chosen_places import with_chosen_places
from tcdebug.compiler.ir.expr import (
    Call,
    Expr,
    Load,
    loads,
    rewrite,
    walk,
)
from tcdebug.compiler.ir.graph import (
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
from tcdebug.compiler.schedule.inlining.inlining_cost import InliningCost, reads_few
from tcdebug.compiler.schedule.splitting.split_across import whole_loads

UNIT = "fuse.inline"
LARGEST_BODY = 300
"""The most expression nodes in a body after inlining."""


def inline_producers(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with producers computed inside their consumers where that pays.

    A producer may lose all consumers but one, and so become cheap. Therefore this is repeated.
    """
    sizes = {name: buffer.size for name, buffer in graph.buffers().items()}

    def prepared(node: Node) -> Node:
        chosen = with_chosen_places(node, sizes)
        if chosen is node or not gate.allows(UNIT, f"places of {node.name}"):
            return node
        return chosen

    stored = made_elsewhere(graph)

    def anyway(producer: Pointwise, consumer: Node) -> bool:
        more = [load for load in whole_loads(producer) if load.buffer not in stored]
        return reads_few(producer, consumer) and len(more) <= 1  # which may then be stored

    for _ in graph.nodes:
        refuses = InliningCost(graph).refuses
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


def size_after(body: Expr, producer: Pointwise) -> int:
    """Return the number of expression nodes that a body would have after inlining."""
    places = sum(load.buffer == producer.name for load in loads(body))
    return sum(1 for _ in walk(body)) + places * sum(1 for _ in walk(producer.body))


def inlined(body: Expr, producer: Pointwise) -> Expr:
    """Return a body with every load of the producer replaced by the producer's body."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Load) and node.buffer == producer.name:
            return producer.at(node.index)
        if isinstance(node, Call) and node.name == "cast":
            return cast(node.operands[0], node.dtype)
        return node

    return rewrite(body, change, in_indices=True)
