"""Finds the nodes and lines of the kernels and library calls of inductor's generated code.

Inductor writes a number above each call of a wrapper, and traces the nodes and the stack traces of
each number, if `trace.provenance_tracking_level` is set. Nodes and stack traces of other graphs may
be among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tcdebug.compiler.events.schema import GraphStep, KernelWritten
from tcdebug.minifier.cases.user_frames import innermost_line
from tcdebug.minifier.trace.inductor_code import generated_events

HANDLE = re.compile(r"^ *(?:#|//) \[Provenance debug handles\] (.+)$", re.MULTILINE)
COMMENT = re.compile(r" *# (?:Annotation: .*?\} )?(?:File: (.+?):(\d+) in |No stacktrace)")
NODE = re.compile(r" +(\w+)(?:: .+?)? = ")
LIBRARIES: Mapping[str, str] = {"extern_kernels.": "aten::", "torch.ops.": ""}
"""The prefixes of library calls, and of their names in a profile."""
LIBRARIES_OF_C = "aoti_torch_"
"""The prefix of library calls in the C++ of AOTInductor, which have the same names in a profile."""


def inductor_steps(
    code: str,
    graph: str,
    nodes: Mapping[str, Sequence[str]],
    traces: Mapping[str, Sequence[str]],
) -> Iterator[GraphStep]:
    """Yield every call of a wrapper in order.

    `graph` is the text of the graph. `nodes` and `traces` have the nodes and the stack traces of
    each numbered call, such as extern_kernels.mm:3.
    """
    places = lines_of_nodes(graph)
    moved = {e.name: e.moved for e in generated_events(code, "") if isinstance(e, KernelWritten)}
    for position, match in enumerate(HANDLE.finditer(code)):
        handles = [handle.strip() for handle in match[1].split(",")]
        called = handles[0].rpartition(":")[0]
        name, generated = _profiled_name(called)
        found = [line for h in handles for t in traces.get(h, ()) if (line := innermost_line(t))]
        computed = dict.fromkeys(node for h in handles for node in nodes.get(h, ()))
        node_lines, lines = [places.get(node, "") for node in computed], [*dict.fromkeys(found)]
        bytes_moved = moved.get(called, 0)
        yield GraphStep(position, name, generated, [*computed], node_lines, lines, bytes_moved)


def lines_of_nodes(graph: str) -> dict[str, str]:
    """Return the lines, as FILE:N, that the comments of a graph's text give its nodes."""
    found, current = {}, ""
    for line in graph.splitlines():
        if place := COMMENT.match(line):
            current = f"{place[1]}:{place[2]}" if place[1] else ""
        elif (node := NODE.match(line)) and current:
            found[node[1]] = current
    return found


def _profiled_name(called: str) -> tuple[str, bool]:
    """Return the name of a call in a profile, and whether it is a generated kernel."""
    for prefix, namespace in LIBRARIES.items():
        if called.startswith(prefix):
            rest = called.removeprefix(prefix)
            if namespace:
                return f"{namespace}{rest}", False
            library, _, operator = rest.partition(".")
            return f"{library}::{operator.partition('.')[0]}", False
    return called, not called.startswith(LIBRARIES_OF_C)
