"""codegen.template: uses Triton for matrix products where it was measured faster than ATen.

For each product, a few templates and the ATen call are timed together with the kernels around them,
on memory of the real layout. The times are cached by the computation, the sizes and the device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path

import torch

from tcdebug.compiler.codegen.triton.product import templates
from tcdebug.compiler.codegen.triton.source import alone, canonical
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.measured_events import ProductChosen
from tcdebug.compiler.events.schema import Remark
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.graph import Buffer, Extern, extern_refs
from tcdebug.compiler.runtime.cuda.timing import Bench, Measured, Step, Ways
from tcdebug.compiler.schedule.kernel import Schedule
from tcdebug.compiler.schedule.products.matrix_product import NotFused
from tcdebug.compiler.schedule.products.product_fusion import FusedProduct, ProductFusion, products
from tcdebug.compiler.stages.stage import Stages

UNIT = "codegen.template"
EXTERN = "extern"
"""The name of the ATen call among the measured ways."""
GAIN = 0.98
"""A template is chosen if it takes at most this share of the time of the ATen call."""

Measure = Callable[[Ways], Measured]


def with_templates(
    schedule: Schedule,
    stages: Stages,
    options: Options,
    sizes: Mapping[str, int],
    measure: Measure | None = None,
) -> Schedule:
    """Return the schedule with a template for each product for which one was faster.

    `sizes` gives the values of symbols when the graph was captured. `measure` replaces the
    measurement on the GPU.
    """
    found_products = products(schedule)
    if not found_products or stages.gate.toggles.rules_out(UNIT):
        return schedule
    buffers = schedule.graph.buffers()
    measure = measure or Bench(buffers, sizes, options).measured
    fusion = ProductFusion(schedule)
    for extern in found_products:
        said = _Remarks(stages.log, extern)
        try:
            forms = fusion.forms(extern)
        except NotFused as problem:
            said.missed(f"no template for {extern.name}: {problem}")
            continue
        if reason := fusion.why_no_epilogue(forms[0]):
            said.missed(f"nothing fused into {extern.name}: {reason}")
        ways, fused = _ways(forms, sizes)
        path = _path(ways, buffers, sizes, options)
        found = _kept(path, ways)
        known = found is not None
        if found is None:
            found = measure(ways)
            if EXTERN in found.milliseconds:  # not if memory was short, which may pass
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(asdict(found)))
        chosen = fastest(found)
        taken = {name: round(time, 6) for name, time in found.milliseconds.items()}
        event = ProductChosen(extern.name, extern.origin.op, chosen, taken, found.failed, known)
        said.log.emit(event, unit=UNIT)
        if chosen == EXTERN:
            said.missed(f"no template for {extern.name}: none was faster than the call")
        elif stages.gate.allows(UNIT, extern.name):
            fusion.take(fused[chosen])
    return fusion.schedule()


class _Remarks:
    """Emits remarks about one product, with the user's line."""

    def __init__(self, log: EventLog, extern: Extern) -> None:
        location = extern.origin.location
        where = asdict(location) if location else {}
        self.log = log.bind(stage="products", user_loc=where)
        self._name = extern.name
        self._moved = 2 * bytes_of(extern.out) if extern.out is not None else 0

    def missed(self, text: str) -> None:
        """Emit a remark that something was not done."""
        self.log.emit(Remark("missed", text, [self._name], self._moved))


def fastest(measured: Measured) -> str:
    """The way to choose: a template only if it is faster than the call by more than noise."""
    times = dict(measured.milliseconds)
    limit = times.pop(EXTERN, math.inf) * GAIN
    best = min(times, key=times.__getitem__, default=EXTERN)
    return best if times.get(best, math.inf) <= limit else EXTERN


def _ways(
    forms: Sequence[FusedProduct], sizes: Mapping[str, int]
) -> tuple[Ways, dict[str, FusedProduct]]:
    """Return the call with the kernels around it, and each form with each template."""
    steps = forms[-1].replaces
    ways: dict[str, Sequence[Step]] = {EXTERN: steps}
    fused: dict[str, FusedProduct] = {}
    for position, form in enumerate(forms):
        out = form.extern.out
        assert out is not None
        gone = {s.name for s in form.replaces}
        for template in templates(form.kernel, out.dtype, sizes):
            name = template.label + (" prologue" if position else "")
            kernel = replace(form.kernel, template=template)
            fused[name] = replace(form, kernel=kernel)
            ways[name] = [*(s for s in steps if s.name not in gone), kernel]
    return ways, fused


def _path(
    ways: Ways, buffers: Mapping[str, Buffer], sizes: Mapping[str, int], options: Options
) -> Path:
    """Return the cache file of the times, named by the computation, the layouts and the device."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    parts = [device, torch.__version__, *ways]
    forms = {tuple(step.name for step in steps): steps for steps in ways.values()}
    for steps in forms.values():  # templates of one form differ in their names
        for step in steps:
            if isinstance(step, Extern):
                parts += [step.origin.op, str(sorted(step.kwargs.items()))]
                parts += [_layout(buffers[n], sizes) for n in (*extern_refs(step), step.name)]
            else:
                kernel = alone(step, buffers)
                parts.append(canonical(kernel))
                parts += sorted(_layout(buffer, sizes) for buffer in kernel.memory)
    key = blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    return options.cache_dir / "products" / f"{key}.json"


def _layout(buffer: Buffer, sizes: Mapping[str, int]) -> str:
    dimensions = zip(buffer.size, buffer.stride, strict=True)
    return f"{buffer.dtype} {[(estimate(n, sizes), estimate(s, sizes)) for n, s in dimensions]}"


def _kept(path: Path, ways: Ways) -> Measured | None:
    """Return the cached times; None if there are none for exactly these ways."""
    try:
        known = json.loads(path.read_text())
        measured = Measured(known["milliseconds"], known["failed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return measured if {*measured.milliseconds, *measured.failed} == set(ways) else None
