"""Lowerings by node, inlining of values into their readers, and the layout of convolutions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._inductor import config, ir, lowering
from torch._inductor.virtualized import V

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases.case import copy_module
from tcdebug.minifier.targets.inductor.higher_order.attention import CALLS_ATEN
from tcdebug.minifier.targets.inductor.settings import LOWERING, asked
from tcdebug.minifier.targets.replaced import is_foreign

SUBSYSTEM = Patch(
    "torch._inductor.compiler_bisector:CompilerBisector",
    "disable_subsystem",
    "lower.* and cudagraphs cannot be switched off",
    takes=("backend", "subsystem", "debug_info"),
)
GRAPH = "torch._inductor.graph:GraphLowering"
RUN = Patch(GRAPH, "run", "settings of lowering (config.*) cannot be switched off")
RUN_NODE = Patch(GRAPH, "run_node", "fuse.inline cannot be switched off", takes=("n",))
LAYOUT = Patch(GRAPH, "decide_layout_opt", "config.layout_optimization cannot be switched off")
PATCHES = (SUBSYSTEM, RUN, RUN_NODE, LAYOUT)

REGION = torch.ops.higher_order.invoke_subgraph
"""The operator that calls a nested_compile_region."""
BUILTIN = ("aten", "prim", "prims")
"""The namespaces of torch's own operators."""

Function = Callable[..., Any]


@contextlib.contextmanager
def lowerings(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let every node that inductor would lower to loops ask the gate. If refused, it calls ATen."""

    def asking(original: Function) -> Function:
        def disable_subsystem(
            cls: Any, backend: str, subsystem: str, debug_info: Function | None = None
        ) -> bool:
            match subsystem:
                case "lowerings":
                    node = V.current_node
                    if CALLS_ATEN in node.meta or _updates_list(node):
                        return CALLS_ATEN in node.meta
                    return _is_optional(node) and not gate.allows(f"lower.{node.target}", node.name)
                case "cudagraphs":
                    return not gate.allows("cudagraphs", gate.scope)
            return False

        return disable_subsystem

    def graph_run(original: Function) -> Function:
        @functools.wraps(original)
        def run(self: Any, *args: Any) -> Any:
            gate.turn_to("backward" if self.is_backward else "forward")
            with config.patch(asked(gate, LOWERING)):
                return original(self, *args)

        return run

    def node_run(original: Function) -> Function:
        @functools.wraps(original)
        def run_node(self: Any, n: torch.fx.Node) -> Any:
            with contextlib.ExitStack() as replaced:
                by_name = _has_own_lowering(n) or _updates_list(n)
                if by_name and not gate.allows(f"lower.{n.target}", n.name):
                    replaced.enter_context(_called_as_it_is(n.target))
                elif _is_region(self, n) and not gate.allows(f"lower.{REGION}", n.name):
                    replaced.enter_context(_lowered_by(REGION, _inlined))
                result = original(self, n)
            if _is_inlined(result, n) and not gate.allows("fuse.inline", n.name):
                result.realize()
            return result

        return run_node

    def layout(original: Function) -> Function:
        def decide_layout_opt(*args: Any, **kwargs: Any) -> bool:
            decided = original(*args, **kwargs)
            return bool(decided and gate.allows("config.layout_optimization", "convolutions"))

        return decide_layout_opt

    with (
        patched(SUBSYSTEM, asking, log),
        patched(RUN, graph_run, log),
        patched(RUN_NODE, node_run, log),
        patched(LAYOUT, layout, log),
    ):
        yield


def _is_optional(node: torch.fx.Node) -> bool:
    """Return whether a node returns tensors. Sizes and assertions have no fallback."""
    value = node.meta.get("val")
    leaves = [v for v in (value if isinstance(value, tuple | list) else [value]) if v is not None]
    return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _has_own_lowering(node: torch.fx.Node) -> bool:
    """Return whether a program has registered the lowering of an operator that is not torch's.

    inductor asks only about torch's own operators; see `asking`.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace in BUILTIN:
        return False
    return is_foreign(lowering.lowerings.get(node.target)) and _is_optional(node)


def _updates_list(node: torch.fx.Node) -> bool:
    """Return whether a lowering updates a list of tensors, and its operator returns nothing.

    The graph reads the updated tensors from the result of the lowering. A plain call has none.
    """
    called = node.target
    if not isinstance(called, torch._ops.OpOverload) or called not in lowering.lowerings:
        return False
    return not called._schema.returns and _is_optional(node)


def _is_region(graph: Any, node: torch.fx.Node) -> bool:
    """Return whether a node calls a nested_compile_region that contains no other graph."""
    if node.target is not REGION:
        return False
    region = graph.env.get(node.args[0])
    inside = getattr(region, "graph_module", None)
    return inside is not None and not inside.graph.find_nodes(op="get_attr")


def _inlined(region: ir.Subgraph, identifier: str, *operands: Any) -> list[Any]:
    """Lower the nodes of a region as part of the graph that calls it."""
    graph, env = V.graph, V.graph.env
    given, results = iter(operands), []
    for node in copy_module(region.graph_module).graph.nodes:  # each call needs its own nodes
        if node.op == "placeholder":
            env[node] = next(given)
        elif node.op == "output":
            results = list(graph.fetch_args_kwargs_from_env(node)[0][0])
        else:
            env[node] = graph.run_node(node)
    return results


def _called_as_it_is(operator: Any) -> contextlib.AbstractContextManager[None]:
    """Let generated code call an operator in this block, as if it had no lowering.

    The result of an operator that only updates a list is that list, as with its lowering.
    """
    fallback = lowering.fallback_handler(operator, False)  # type: ignore[no-untyped-call] # torch
    if operator._schema.returns:
        return _lowered_by(operator, fallback)

    def updating(updated: Any, *args: Any, **kwargs: Any) -> Any:
        fallback(updated, *args, **kwargs)
        return updated

    return _lowered_by(operator, updating)


@contextlib.contextmanager
def _lowered_by(operator: Any, function: Function) -> Iterator[None]:
    """Replace the lowering of an operator in this block."""
    lowered = lowering.lowerings[operator]
    lowering.lowerings[operator] = function
    try:
        yield
    finally:
        lowering.lowerings[operator] = lowered


def _is_inlined(result: Any, node: torch.fx.Node) -> bool:
    """Return whether a value is not stored yet, and a reader may recompute it."""
    if not isinstance(result, ir.TensorBox) or not isinstance(result.data, ir.StorageBox):
        return False
    unstored = isinstance(result.data.data, ir.Pointwise | ir.Reduction)
    return unstored and any(user.op != "output" for user in node.users)
