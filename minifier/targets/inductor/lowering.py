"""Lowerings by node, inlining of values into their readers, and the layout of convolutions."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._inductor import config, ir, lowering
from torch._inductor.virtualized import V

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases.case import copy_module
from tcdebug.minifier.cases.layer_names import BACKEND_CONTROL
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
                    if CALLS_ATEN in node.meta or _updates_list(node) or _needs_arguments(node):
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

    copies = BACKEND_CONTROL in gate.toggles.off

    def node_run(original: Function) -> Function:
        @functools.wraps(original)
        def run_node(self: Any, n: torch.fx.Node) -> Any:
            with contextlib.ExitStack() as replaced:
                by_name = _has_own_lowering(n) or _updates_list(n) or _needs_arguments(n)
                if by_name and not gate.allows(f"lower.{n.target}", n.name):
                    replaced.enter_context(_called_as_it_is(n))
                elif _is_region(self, n) and not gate.allows(f"lower.{REGION}", n.name):
                    replaced.enter_context(_lowered_by(REGION, _inlined))
                result = original(self, n)
            if copies and (_is_new(n) or _is_only_read(n)):
                result = _copied(result)
            if _is_inlined(result, n) and not gate.allows("fuse.inline", n.name):
                result.realize()
            return result

        return run_node

    with (
        patched(SUBSYSTEM, asking, log),
        patched(RUN, graph_run, log),
        patched(RUN_NODE, node_run, log),
        patched(LAYOUT, _layout(gate), log),
    ):
        yield


def _layout(gate: Gate) -> Callable[[Function], Function]:
    """Return what lets the choice of a memory layout for convolutions ask."""

    def make(original: Function) -> Function:
        def decide_layout_opt(*args: Any, **kwargs: Any) -> bool:
            decided = original(*args, **kwargs)
            return bool(decided and gate.allows("config.layout_optimization", "convolutions"))

        return decide_layout_opt

    return make


def _is_optional(node: torch.fx.Node) -> bool:
    """Return whether a node returns tensors. Sizes and assertions have no fallback.

    Neither has a call in C++ that would change its arguments.
    """
    if V.graph.cpp_wrapper and _changes_in_cpp(node):
        return False
    value = node.meta.get("val")
    leaves = [v for v in (value if isinstance(value, tuple | list) else [value]) if v is not None]
    return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _changes_in_cpp(node: torch.fx.Node) -> bool:
    """Return whether C++ would call an operator of torch with other arguments.

    A package passes nothing for an empty list, cannot store infinity or NaN, and passes another
    dtype with torch 2.11. Many functions take a number as a double, which operators on integers
    refuse or convert.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    accepted = _arguments(node)
    given = {a.name: value for a, value in zip(accepted, node.args, strict=False)}
    values = {a.name: a.default_value for a in accepted} | given | node.kwargs
    numbers = any(isinstance(a.type, torch.NumberType) for a in accepted)
    dtype = getattr(node.meta.get("val"), "dtype", torch.bool)
    of_integers = not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)
    lost = any(
        isinstance(value, torch.dtype)
        or (isinstance(value, list | tuple) and not value)
        or (isinstance(value, float) and not math.isfinite(value))
        for value in values.values()
    )
    return (numbers and of_integers) or (V.graph.aot_mode and lost)


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


def _needs_arguments(node: torch.fx.Node) -> bool:
    """Return whether C++ cannot call an operator with the arguments that its node has.

    They are numbers in place of tensors, such as in `div.Tensor(x, 3)`, which calls in Python
    convert, or lack a number that has a default and a name.
    """
    called = node.target
    if not V.graph.cpp_wrapper or not isinstance(called, torch._ops.OpOverload):
        return False
    missing = _numbers(node) or _defaults(node)
    return called in lowering.lowerings and bool(missing) and _is_optional(node)


def _numbers(node: torch.fx.Node) -> list[int]:
    """Return the positions of numbers where the operator of a node takes tensors."""
    return [
        k
        for k, (value, argument) in enumerate(zip(node.args, _arguments(node), strict=False))
        if isinstance(argument.type, torch.TensorType)
        and not isinstance(_value(value), torch.Tensor)
        and value is not None
    ]


def _defaults(node: torch.fx.Node) -> dict[str, Any]:
    """Return the numbers that a node does not give by name, such as `alpha` of `sub.Tensor`."""
    return {
        argument.name: argument.default_value
        for argument in _arguments(node)
        if argument.kwarg_only
        and argument.name not in node.kwargs
        and isinstance(argument.default_value, int | float)
    }


def _arguments(node: torch.fx.Node) -> list[Any]:
    called: Any = node.target
    return list(called._schema.arguments)


def _value(argument: Any) -> Any:
    """Return the tensor or the number that an argument of a node stands for."""
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument


def _called_as_it_is(node: torch.fx.Node) -> contextlib.AbstractContextManager[None]:
    """Let generated code call the operator of a node in this block, as if it had no lowering.

    The result of an operator that only updates a list is that list, as with its lowering.
    """
    operator: Any = node.target
    fallback = lowering.fallback_handler(operator, False)  # type: ignore[no-untyped-call] # torch
    in_cpp = V.graph.cpp_wrapper
    numbers, defaults = (_numbers(node), _defaults(node)) if in_cpp else ([], {})

    def called(*args: Any, **kwargs: Any) -> Any:
        given = [_tensor_of(v, node, k) if k in numbers else v for k, v in enumerate(args)]
        result = fallback(*given, **defaults, **kwargs)
        return result if operator._schema.returns else args[0]

    return _lowered_by(operator, called)


def _tensor_of(number: Any, node: torch.fx.Node, position: int) -> Any:
    """Return a number as a tensor without dimensions that leaves the type of the result as it is.

    Operators on half types compute in float32, so the number is not rounded to the half type.
    """
    value = _value(node.args[position])
    tensors = [v for v in map(_value, node.args) if isinstance(v, torch.Tensor)]
    like = max(tensors, key=lambda v: (v.dim() > 0, v.dtype.is_floating_point))
    dtype = torch.result_type(like, value)
    if like.dim() and dtype.is_floating_point and dtype.itemsize == 2:
        dtype = torch.float32
    full = lowering.lowerings[torch.ops.aten.full.default]
    return full([], number, dtype=dtype, device=like.device)


@contextlib.contextmanager
def _lowered_by(operator: Any, function: Function) -> Iterator[None]:
    """Replace the lowering of an operator in this block."""
    lowered = lowering.lowerings[operator]
    lowering.lowerings[operator] = function
    try:
        yield
    finally:
        lowering.lowerings[operator] = lowered


def _is_new(node: torch.fx.Node) -> bool:
    """Return whether a node calls an operator whose results share no memory with its arguments."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    return not any(value.alias_info for value in (*schema.arguments, *schema.returns))


def _is_only_read(node: torch.fx.Node) -> bool:
    """Return whether a node is an input that no operator writes to or returns a view of."""
    return node.op == "placeholder" and all(map(_is_new, node.users))


def _copied(result: Any) -> Any:
    """Return what a kernel makes of an input or the results of a plain call: the same values."""
    if isinstance(result, tuple | list):
        return type(result)(map(_copied, result))
    if not isinstance(result, ir.TensorBox) or not isinstance(result.data, ir.StorageBox):
        return result
    if not isinstance(result.data.data, ir.ExternKernel | ir.InputBuffer):
        return result
    return lowering.lowerings[torch.ops.aten.clone.default](result)


def _is_inlined(result: Any, node: torch.fx.Node) -> bool:
    """Return whether a value is not stored yet, and a reader may recompute it."""
    if not isinstance(result, ir.TensorBox) or not isinstance(result.data, ir.StorageBox):
        return False
    unstored = isinstance(result.data.data, ir.Pointwise | ir.Reduction)
    return unstored and any(user.op != "output" for user in node.users)
