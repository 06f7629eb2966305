"""The units of stock inductor, and of every backend that is built on AOTAutograd or on inductor.

Inductor asks nobody whether a pass may run or two loops may be fused. For as long as `switched`
lasts, the places where it decides ask a gate, in the order of its pipeline. One file is one group
of places; what is private to torch stands in them and in docs/private-torch.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from torch._functorch import config as functorch_config
from torch._inductor import config

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.events import DecisionTaken
from tcdebug.compiler.gate import Decision, Gate, Toggles
from tcdebug.minifier.targets.inductor.autograd import decompositions_and_partition
from tcdebug.minifier.targets.inductor.codegen import kernels
from tcdebug.minifier.targets.inductor.fusion import fusions
from tcdebug.minifier.targets.inductor.lowering import lowerings
from tcdebug.minifier.targets.inductor.passes import passes
from tcdebug.minifier.targets.inductor.settings import options, units
from tcdebug.minifier.targets.inductor.warm import warm_up

__all__ = ["options", "switched", "warm_up"]

UNCACHED = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "compile_threads": 1}
"""Keys of caches of graphs do not know what a script has patched or a gate holds back.

Kernels are kept by their source, which does.
"""

Seam = Callable[[Gate], AbstractContextManager[None]]

SEAMS: tuple[Seam, ...] = (passes, decompositions_and_partition, lowerings, fusions, kernels)


@contextlib.contextmanager
def switched(toggles: Toggles, log: EventLog) -> Iterator[Gate]:
    """Let compiles in this block ask a gate, and write its decisions to the log."""

    def record(decision: Decision) -> None:
        event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
        log.emit(event, unit=decision.unit, site=decision.site, direction=gate.scope)

    gate = Gate(toggles, record=record)
    with contextlib.ExitStack() as stack:
        defaults = units()
        held_back = [n for n in defaults if not gate.allows(f"config.{n}", n)]
        stack.enter_context(config.patch({n: defaults[n] for n in held_back} | UNCACHED))
        stack.enter_context(functorch_config.patch(enable_autograd_cache=False))
        for seam in SEAMS:
            stack.enter_context(seam(gate))
        yield gate
