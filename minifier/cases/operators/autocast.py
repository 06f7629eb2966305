"""Writes autocast as a `with` block, as the user wrote it.

Dynamo captures calls of the functions that enter and leave autocast as well. But if it then starts
to trace again, it leaves a block, and not what such a call entered.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from torch import fx

from tcdebug.minifier.cases.operators.python_text import indentation

ENTER, LEAVE = "_enter_autocast", "_exit_autocast"
"""The functions of torch that enter and leave autocast in a captured graph."""


def blocks(graph: fx.Graph) -> Mapping[str, str]:
    """Return the names of the nodes that enter autocast, each with the one that leaves it.

    A node is missing if nothing leaves it, or if another one is entered in it and left after it.
    """
    entered: list[fx.Node] = []
    found: dict[str, str] = {}
    for node in graph.nodes:
        name = getattr(node.target, "__name__", "")
        if name == ENTER:
            entered.append(node)
        elif name == LEAVE and node.args[0] in entered:
            if node.args[0] is entered[-1]:
                found[entered[-1].name] = node.name
            entered.remove(node.args[0])
    return found


def in_blocks(lines: Sequence[str], graph: fx.Graph) -> list[str]:
    """Return the lines of a graph with a `with` block for each autocast that is left again."""
    ends = blocks(graph)
    open_blocks: list[str] = []
    written: list[str] = []
    for line in lines:
        name = line.partition(" = ")[0].strip()
        if open_blocks and name == open_blocks[-1]:
            if written[-1].lstrip().startswith("with torch.autocast("):
                written.append(f"{indentation(written[-1])}    pass")
            open_blocks.pop()
            continue
        indented = textwrap.indent(line, "    " * len(open_blocks))
        if name in ends:
            arguments = line.partition("(")[2]
            written.append(f"{indentation(indented)}with torch.autocast({arguments}:")
            open_blocks.append(ends[name])
        else:
            written.append(indented)
    return written
