"""Lists the required passes of inductor, and names the units of passes and patterns."""

from __future__ import annotations

import functools
import inspect
from typing import Any

REQUIRED = frozenset(
    {
        "chain_random_ops_ordering",
        "decompose_auto_functionalized",
        "decompose_map_to_while_loop",
        "decompose_scan_to_while_loop",
        "decompose_triton_kernel_wrapper_functional",
        "fix_auto_functionalized_dtype_views",
        "move_constructors_to_cuda",
        "remove_assert_ops",
        "remove_profiler_ops",
        "replace_randint",
        "replace_random",
        "respecialize_current_device",
        "stable_sort",
    }
)
"""Passes that make the graph legal for later stages. They are not units.

Neither are the patterns that they apply.
"""

NAMELESS = frozenset({"", "_", "<lambda>", "NoneType", "fn", "impl", "inner", "wrapper"})
"""Names of functions that say nothing."""


def pattern_name(entry: Any) -> str:
    """Return the name of a registered pattern.

    It is torch's name for the pattern, or the name of the function that handles a match. If both
    say nothing, it is the function that registers the handler, or the function from which the
    pattern was traced, or finally the operator that the pattern matches.
    """
    handler = getattr(entry, "handler", None)
    names = (
        getattr(entry, "pattern_name", None) or "",
        function_name(handler),
        outermost_function(handler),
        function_name(_searched_function(entry)),
        outermost_function(_searched_function(entry)),
    )
    return next((name for name in names if name not in NAMELESS), _operator_name(entry.pattern))


def function_name(function: Any) -> str:
    """Return the name of a function, also inside partials; empty if the name says nothing."""
    function = _inside_partials(function)
    name = str(getattr(function, "__name__", "") or type(function).__name__)
    return "" if name in NAMELESS else name


def outermost_function(function: Any) -> str:
    """Return the module-level function that encloses a function: `f` for `f.<locals>._`."""
    name = str(getattr(_inside_partials(function), "__qualname__", ""))
    return name.partition(".")[0].lstrip("_")


def _inside_partials(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _searched_function(entry: Any) -> Any:
    """Return the function a replacement pattern was traced from, to which its check refers."""
    check = getattr(entry, "extra_check", None)
    if not inspect.isfunction(check):
        return None
    variables = inspect.getclosurevars(inspect.unwrap(check)).nonlocals
    return variables.get("search_fn") or variables.get("search_fn_new")


def _operator_name(pattern: Any) -> str:
    functions = getattr(pattern, "fns", None)
    return f"pattern_{functions[0]}" if functions else type(pattern).__name__
