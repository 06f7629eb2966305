"""Makes inductor's kernels visible to a profiler, and traceable to nodes and lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch._inductor import config

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched

NODES = Patch(
    "torch._inductor.debug",
    "dump_inductor_provenance_info",
    "profiled kernels of a backward have lines but no nodes",
)
KEY = Patch(
    "torch._inductor.codecache:FxGraphHashDetails",
    "__init__",
    "a profiled graph may come from a cache, with the lines of an equal graph elsewhere",
    takes=("gm",),
)

PATCHES = (NODES, KEY)

SETTINGS = {"cpp.enable_kernel_profile": True, "trace.provenance_tracking_level": 1}


@contextlib.contextmanager
def kernels_traceable(log: EventLog) -> Iterator[None]:
    """While the block runs, C++ kernels are events of the profiler, and all have known lines.

    torch keeps the lines of a graph in its caches, whose keys do not contain them. Here they do.
    """
    with config.patch(SETTINGS), patched(NODES, _with_nodes, log), patched(KEY, _with_lines, log):
        yield


def _with_nodes(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch lists the nodes of kernels only while it compiles the graph that Dynamo captured."""

    def dump() -> Any:
        from torch._inductor import debug  # noqa: PLC0415 - the patch has imported it

        known = debug._inductor_triton_kernel_to_post_grad_node_info
        return {"cppCodeToPost": {name: [*nodes] for name, nodes in known.items()}, **original()}

    return dump


def _with_lines(original: Callable[..., Any]) -> Callable[..., Any]:
    def initialise(details: Any, gm: Any, *args: Any, **kwargs: Any) -> None:
        original(details, gm, *args, **kwargs)
        details.lines_of_nodes = [str(n.meta.get("stack_trace") or "") for n in gm.graph.nodes]

    return initialise
