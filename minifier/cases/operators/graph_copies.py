"""Copies FX graphs with the metadata of their nodes."""

from __future__ import annotations

from torch import fx


def copy_graph(original: fx.Graph) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """Copy a graph with its metadata. Also return a table from original nodes to copies."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.output(graph.graph_copy(original, copies))
    copies[original.output_node()] = output
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
    return graph, copies
