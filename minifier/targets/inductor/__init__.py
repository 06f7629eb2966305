"""The units of stock inductor, and of every backend that is built on AOTAutograd or on inductor.

Inductor itself has no gate for passes or fusions. While `switched` is in force, the places where it
decides ask a gate, in the order of its pipeline. Each file covers one group of places. The private
names of torch that it uses are listed in docs/private-torch.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.patching import Patch
from tcdebug.minifier.cases.settings import described, set_back
from tcdebug.minifier.targets.inductor import (
    autograd,
    codegen,
    fusion,
    kernel_shapes,
    lowering,
    objects,
    options,
    parallel_builds,
    passes,
    settings,
    triton_compile,
    vector_instructions,
)
from tcdebug.minifier.targets.inductor.higher_order import attention, control_flow
from tcdebug.minifier.targets.inductor.options import allowed_options
from tcdebug.minifier.targets.inductor.settings import (
    CONFIG,
    uncached,
)
from tcdebug.minifier.targets.inductor.texts import texts_kept
from tcdebug.minifier.targets.inductor.warm import register, warm_up, warm_up_for_devices
from tcdebug.minifier.targets.program_passes import logging_gate

__all__ = ["PATCHES", "allowed_options", "register", "switched", "warm_up", "warm_up_for_devices"]

Seam = Callable[[Gate, EventLog], AbstractContextManager[None]]

SEAMS: tuple[Seam, ...] = (
    options.given_options,
    passes.passes,
    autograd.decompositions_and_partition,
    attention.attention,
    control_flow.control_flow,
    lowering.lowerings,
    fusion.fusions,
    codegen.kernels,
    kernel_shapes.kernel_shapes,
    triton_compile.triton_compile,
    objects.shared_objects,
)

PATCHES: tuple[Patch, ...] = (
    *options.PATCHES,
    *vector_instructions.PATCHES,
    *passes.PATCHES,
    *autograd.PATCHES,
    *attention.PATCHES,
    *lowering.PATCHES,
    *fusion.PATCHES,
    *codegen.PATCHES,
    *kernel_shapes.PATCHES,
    *triton_compile.PATCHES,
    *parallel_builds.PATCHES,
    *objects.PATCHES,
)
"""Every patch of inductor and AOTAutograd, in the order of the pipeline."""


@contextlib.contextmanager
def switched(
    toggles: Toggles, log: EventLog, counts: dict[str, int] | None = None
) -> Iterator[Gate]:
    """Let compiles in this block ask a gate, and log its decisions.

    Gates that share `counts` number their decisions in one sequence. A log that keeps artifacts
    gets the texts of the stages too. A patch that does not fit this version of torch is logged as a
    `fallback` event, and its units are not asked about.
    """
    gate = logging_gate(toggles, log, counts)
    with contextlib.ExitStack() as stack:
        defaults = settings.units()
        off = [n for n in defaults if not gate.allows(f"config.{n}", described(CONFIG, n))]
        stack.enter_context(set_back(CONFIG, {n: defaults[n] for n in off}, log))
        stack.enter_context(uncached(log))
        for seam in SEAMS:
            stack.enter_context(seam(gate, log))
        if log.artifacts:
            stack.enter_context(texts_kept(log))
        yield gate
