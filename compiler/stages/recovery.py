"""What `on_error="fallback"` does: a compile that fails is made again without what failed.

Each step back is an event. Without that option nothing here is used: a failing compile raises.
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

INSTEAD = {
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
"""Stage -> what to do without when it fails and no unit is to blame, the least first."""


def recovering(attempt: Callable[[Toggles], T], toggles: Toggles, log: EventLog) -> T:
    """What an attempt gives, under ever fewer steps. Raises CompileError when none are left."""
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
    """Toggles with the first thing off that the error blames and that is still on."""
    if not error.sites <= toggles.sites:
        return toggles.without(sites=error.sites)
    for unit in (error.unit, *INSTEAD.get(error.stage, ())):
        if unit and unit not in toggles.off:
            return toggles.without(off=[unit])
    return toggles


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A graph of its own over the same parameters: an attempt that fails may have changed it."""
    graph = fx.Graph()
    result = graph.graph_copy(module.graph, {})
    graph.output(result)
    graph.output_node().meta = dict(module.graph.output_node().meta)
    copy = fx.GraphModule(module, graph, type(module).__name__)
    copy.meta = module.meta
    return copy
