"""Regions of a graph that run in another state of torch: no_grad, autocast, a level of vmap.

Dynamo emits a call at the start of a region and one at its end. Only their order and their effect
connect the two. A graph with only one of them would change the state of torch for good, so
reductions keep or drop both.
"""

from __future__ import annotations

import re

from torch import fx

STATE = re.compile(
    r"set_grad_enabled|set_fwd_grad_enabled|_enter_|_exit_|_nesting$|lazy_load|requires_grad"
    r"|hooks_(en|dis)able$|assert"
)
STARTS = re.compile(r"_enter_|_increment_nesting$|hooks_disable$")
HOOKS = re.compile(r"^_saved_tensors_hooks_(en|dis)able$")
ENDS = re.compile(r"_exit_|_decrement_nesting$|hooks_enable$")


def changes_state(node: fx.Node) -> bool:
    """Return whether a call only affects the state in which its surroundings are computed."""
    return STATE.search(function_name(node)) is not None


def regions(graph: fx.Graph) -> list[tuple[fx.Node, fx.Node]]:
    """Return the first and last call of each region, inner regions before outer ones."""
    found: list[tuple[fx.Node, fx.Node]] = []
    open_: list[fx.Node] = []
    repeated = repeated_calls(graph)
    grad: fx.Node | None = None
    for node in graph.nodes:
        name = function_name(node)
        if "set_grad_enabled" in name:
            if grad is not None and grad.args != node.args:
                found.append((grad, node))
                grad = None
            else:
                grad = node
        elif node in repeated:
            continue
        elif STARTS.search(name):
            open_.append(node)
        elif ENDS.search(name) and open_:
            found.append((open_.pop(), node))
    return found


def repeated_calls(graph: fx.Graph) -> list[fx.Node]:
    """Return the calls that disable hooks of saved tensors that are disabled. They change nothing.

    A transform inside another one has such a call at its start, and another one at its end.
    """
    found: list[fx.Node] = []
    disabled = False
    for node in graph.nodes:
        if call := HOOKS.search(function_name(node)):
            disables = call[1] == "dis"
            if disabled and disables:
                found.append(node)
            disabled = disables
    return found


def in_regions(graph: fx.Graph) -> set[str]:
    """Return the names of the calls at which regions start and end."""
    return {node.name for region in regions(graph) for node in region}


def function_name(node: fx.Node) -> str:
    """Return the name of a function that belongs to torch; empty for anything else."""
    if node.op != "call_function":
        return ""
    module = getattr(node.target, "__module__", None) or ""
    private = module.partition(".")[0] == "torch" and module != "torch._ops"
    return str(getattr(node.target, "__name__", "")) if private else ""
