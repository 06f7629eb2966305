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

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import DecisionTaken
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.settings import described, set_back
from tcdebug.minifier.targets.inductor.autograd import decompositions_and_partition
from tcdebug.minifier.targets.inductor.codegen import kernels
from tcdebug.minifier.targets.inductor.fusion import fusions
from tcdebug.minifier.targets.inductor.lowering import lowerings
from tcdebug.minifier.targets.inductor.options import given_options, held_back
from tcdebug.minifier.targets.inductor.passes import passes
from tcdebug.minifier.targets.inductor.settings import CONFIG, UNCACHED, units
from tcdebug.minifier.targets.inductor.texts import texts_kept
from tcdebug.minifier.targets.inductor.warm import register, warm_up

__all__ = ["held_back", "register", "switched", "warm_up"]

Seam = Callable[[Gate], AbstractContextManager[None]]

SEAMS: tuple[Seam, ...] = (
    given_options, passes, decompositions_and_partition, lowerings, fusions, kernels,
)  # fmt: skip


@contextlib.contextmanager
def switched(toggles: Toggles, log: EventLog) -> Iterator[Gate]:
    """Let compiles in this block ask a gate, and write its decisions to the log.

    A log that keeps artifacts gets the texts of their stages too.
    """

    def record(decision: Decision, scope: str) -> None:
        event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
        log.emit(event, unit=decision.unit, site=decision.site, direction=scope)

    gate = Gate(toggles, record=record)
    with contextlib.ExitStack() as stack:
        defaults = units()
        off = [n for n in defaults if not gate.allows(f"config.{n}", described(CONFIG, n))]
        stack.enter_context(set_back(CONFIG, {n: defaults[n] for n in off}))
        stack.enter_context(config.patch(UNCACHED))
        stack.enter_context(functorch_config.patch(enable_autograd_cache=False))
        for seam in SEAMS:
            stack.enter_context(seam(gate))
        if log.artifacts:
            stack.enter_context(texts_kept(log))
        yield gate
