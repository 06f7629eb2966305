"""Conditions, loops and scans, run by torch's own operators in place of generated code.

With the unit of such an operator off, generated code calls a function that runs the operator in
eager, with its branches and bodies.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.virtualized import V

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import patched
from tcdebug.minifier.targets.inductor.higher_order.attention import POST_GRAD

CONTROL_FLOW: dict[Any, str] = {
    getattr(torch.ops.higher_order, name): summary
    for name, summary in (
        ("cond", "generate code for both branches"),
        ("while_loop", "generate code for a loop"),
        ("while_loop_stack_output", "generate code for a loop that keeps each state"),
        ("scan", "make a loop of a scan, and generate its code"),
        ("map_impl", "make a loop of a map, and generate its code"),
    )
}
"""Operator -> what inductor does with it."""
NAMESPACE = "tcdebug_control_flow"


@contextlib.contextmanager
def control_flow(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let every condition, loop and scan ask the gate before inductor's last passes.

    These make loops of scans. A package calls the operator in Python too, but only in the process
    that compiled it. Code for `cpp_wrapper` cannot call it.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def post_grad(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            if V.aot_compilation or not config.cpp_wrapper:
                for node in [n for n in gm.graph.nodes if n.target in CONTROL_FLOW]:
                    unit = f"lower.{node.target}"
                    if _is_callable(node) and not gate.allows(unit, node.name):
                        _replace(gm, node)
            return original(gm, *args, **kwargs)

        return post_grad

    with patched(POST_GRAD, make, log):
        yield


def _is_callable(node: fx.Node) -> bool:
    """Return whether the operator takes tensors and sizes only, and returns tensors only."""
    results = node.meta.get("val")
    return (
        isinstance(results, tuple | list)
        and all(isinstance(value, torch.Tensor) for value in results)
        and all(
            isinstance(n.meta.get("val"), torch.Tensor | torch.SymInt | int) for n in _read(node)
        )
    )


def _read(node: fx.Node) -> list[fx.Node]:
    """Return the values that an operator reads; branches and bodies are attributes."""
    return [n for n in node.all_input_nodes if n.op != "get_attr"]


def _replace(gm: fx.GraphModule, node: fx.Node) -> None:
    """Replace an operator by the call of a function that runs it in eager."""
    operator: Any = node.target
    read, given = _read(node), (node.args, node.kwargs)
    tensors = [n for n in read if isinstance(n.meta["val"], torch.Tensor)]
    sizes = [n for n in read if n not in tensors]
    graphs = {n: attrgetter(str(n.target))(gm) for n in node.all_input_nodes if n not in read}
    results = [_dense(value) for value in node.meta["val"]]

    def run(values: Sequence[Any], *numbers: Any) -> list[torch.Tensor]:
        known = graphs | dict(zip([*tensors, *sizes], [*values, *numbers], strict=True))
        args, kwargs = fx.map_arg(given, known.__getitem__)
        computed = zip(operator(*args, **kwargs), results, strict=True)
        return [_stored_as(result, like) for result, like in computed]

    def fake(values: Sequence[Any], *numbers: Any) -> list[torch.Tensor]:
        return [torch.empty_like(result) for result in results]

    with gm.graph.inserting_before(node):
        called = _registered(node.name, len(sizes), run, fake)
        call = gm.graph.call_function(called, (tensors, *sizes))
    call.meta |= {**node.meta, "val": results}
    node.replace_all_uses_with(call)
    gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()


def _registered(name: str, sizes: int, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Return a new operator. It lasts as long as the process, like code that calls it.

    Each size is an argument of its own, since a package passes no empty list of sizes.
    """
    library: Any = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    operators = getattr(torch.ops, NAMESPACE)
    free = next(n for n in itertools.count() if not hasattr(operators, f"{name}_{n}"))
    arguments = ["Tensor[] tensors", *(f"SymInt size_{k}" for k in range(sizes))]
    library.define(f"{name}_{free}({', '.join(arguments)}) -> Tensor[]")
    library.impl(f"{name}_{free}", run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}_{free}", fake, lib=library)
    operator = getattr(operators, f"{name}_{free}").default
    operator.tcdebug_library = library  # it is removed with its library
    return operator


def _dense(value: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor with memory of its own, contiguous if its strides are not known."""
    known = all(isinstance(step, int) for step in value.stride())
    form = torch.preserve_format if known else torch.contiguous_format
    return torch.empty_like(value, memory_format=form)


def _stored_as(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Copy a result to new memory, with the strides of a fake tensor if these are known."""
    if all(isinstance(step, int) for step in like.stride()):
        return torch.empty_strided(
            result.size(), like.stride(), dtype=result.dtype, device=result.device
        ).copy_(result)
    return result.clone(memory_format=torch.contiguous_format)
