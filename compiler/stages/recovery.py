"""Implements `on_error="fallback"`: retries a failing compile without the step that failed.

Each retry emits a `fallback` event. Without the option, a failing compile raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import fx

from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.toggles import Toggles

T = TypeVar("T")

SUSPECTS = {
    "pregrad": ("pregrad",),
    "decompose": ("decompose",),
    "passes": ("passes",),
    "lower": ("lower",),
    "inline": ("fuse.inline", "lower"),
    "schedule": ("fuse", "lower"),
    "products": ("codegen.template",),
    "codegen": ("codegen", "lower"),
    "runtime": ("lower",),
}
"""Stage -> the units to switch off when it fails and no unit is blamed, the smallest first."""


def recovering(attempt: Callable[[Toggles], T], toggles: Toggles, log: EventLog) -> T:
    """Call `attempt` with more and more switched off until it succeeds.

    Raises the last CompileError when nothing is left to switch off.
    """
    while True:
        try:
            return attempt(toggles)
        except CompileError as error:
            fewer = _without(error, toggles)
            if fewer == toggles:
                raise
            less = sorted(set(fewer.texts()) - set(toggles.texts()))
            log.emit(Fallback(f"compiled without {', '.join(less)}", str(error)[:4000]))
            toggles = fewer


def _without(error: CompileError, toggles: Toggles) -> Toggles:
    """Return the toggles with the first suspect of an error switched off that is still on."""
    if not error.sites <= toggles.sites:
        return toggles.without(sites=error.sites)
    for unit in (error.unit, *SUSPECTS.get(error.stage, ())):
        if unit and unit not in toggles.off:
            return toggles.without(off=[unit])
    return toggles


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph that shares its parameters.

    A failing attempt may change its graph.
    """
    graph = fx.Graph()
    result = graph.graph_copy(module.graph, {})
    graph.output(result)
    graph.output_node().meta = dict(module.graph.output_node().meta)
    copy = fx.GraphModule(module, graph, type(module).__name__)
    copy.meta = module.meta
    return copy
