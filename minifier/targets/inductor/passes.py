"""Passes over FX graphs: those that are called as a whole, and each application of a pattern."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch._inductor.pattern_matcher import (
    GraphPatternEntry,
    LoweringPatternEntry,
    PatternMatcherPass,
    ReplacementPatternEntry,
)
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

from tcdebug.compiler.gate.gate import Gate
from tcdebug.minifier.targets.patching import patched

FAMILIES = {
    "pre_grad_passes": "pregrad",
    "joint_graph_passes": "joint",
    "post_grad_passes": "postgrad",
}
"""What torch calls a subsystem -> what its units begin with."""

REQUIRED = {
    "chain_random_ops_ordering",
    "decompose_auto_functionalized",
    "decompose_map_to_while_loop",
    "decompose_scan_to_while_loop",
    "decompose_triton_kernel_wrapper_functional",
    "fix_auto_functionalized_dtype_views",
    "move_constructors_to_cuda",
    "remove_assert_ops",
    "remove_profiler_ops",
    "stable_sort",
}
"""Passes without which the result is no legal graph for what comes after them: no units."""

ENTRIES = (GraphPatternEntry, LoweringPatternEntry, ReplacementPatternEntry)


@contextlib.contextmanager
def passes(gate: Gate) -> Iterator[None]:
    """Every optional pass, and every place where a pattern matched, asks the gate."""
    family = ["pass"]

    def whole(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def apply(self: Any, pass_fn: Callable[..., Any]) -> Any:
            named = FAMILIES.get(self.subsystem, "pass")
            asks_by_itself = isinstance(getattr(pass_fn, "__self__", None), PatternMatcherPass)
            if asks_by_itself or self.passname in REQUIRED:
                return original(self, pass_fn)
            unit = f"{named}.{self.passname}"
            if not gate.allows(unit, _function_name(pass_fn) or self.passname):
                return None
            return original(self, pass_fn)

        return apply

    def pattern_pass(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
            family.append(FAMILIES.get(self.subsystem, "pass"))
            try:
                return original(self, *args, **kwargs)
            finally:
                family.pop()

        return apply

    def application(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def apply(self: Any, match: Any, graph: Any, node: Any) -> None:
            if gate.allows(f"{family[-1]}.{_pattern_name(self)}", node.name):
                original(self, match, graph, node)

        return apply

    with contextlib.ExitStack() as stack:
        for name in ("apply_graph_pass", "apply_gm_pass"):
            stack.enter_context(patched(GraphTransformObserver, name, whole))
        stack.enter_context(patched(PatternMatcherPass, "apply", pattern_pass))
        for entry in ENTRIES:
            stack.enter_context(patched(entry, "apply", application))
        yield


def _pattern_name(entry: Any) -> str:
    """The function that a pattern calls, or else the operator that it looks for."""
    named = getattr(entry, "pattern_name", None) or _function_name(getattr(entry, "handler", None))
    if named and named != "<lambda>":
        return str(named)
    functions = getattr(entry.pattern, "fns", None)
    return f"pattern_{functions[0]}" if functions else type(entry.pattern).__name__


def _function_name(function: Any) -> str:
    """The name of a function, also inside of partials and bound methods."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", "") or type(function).__name__
    return "" if name in ("<lambda>", "NoneType") else str(name)
