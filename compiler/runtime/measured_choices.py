"""Finds the fastest way to write a CPU kernel by measuring, with buffers of the real layout.

A choice of code generation, such as `codegen.column`, is a decision of the gate. The search is a
coordinate descent: it starts from the kernel that the cost model chose, leaves out one choice at a
time, and keeps the fastest kernel as long as that gains something. What it found is cached by the
kernel's source, the processor and the number of threads.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.cpp.source import CppSource, joined, write_kernel
from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.kernels.sharing import numbered_text
from tcdebug.compiler.codegen.wrapper.launches import arguments, launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.measured_events import ChoicesMeasured
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.runtime.binding import binding_of
from tcdebug.compiler.runtime.build import BuildError, build
from tcdebug.compiler.runtime.measured_memory import has_known_layout, zeros
from tcdebug.compiler.runtime.toolchain import Toolchain, find

KEPT = frozenset(("codegen.half_values", "codegen.share", "codegen.vectorize"))
"""Choices that are not left out, because nothing is faster without them."""
ROUNDS = 7
TURN = 3e-4
"""The seconds of calls that are timed together."""
GAIN = 0.95
"""A kernel is better if it takes at most this share of the time."""
MOST_LEFT_OUT = 3
LONGEST = 1.0
"""The seconds after which no further round of measuring begins."""

Measure = Callable[[Sequence[KernelCall]], Sequence[float]]
"""Kernels -> seconds of a call of each. None at all if the first one reports an error."""


def tuned(source: CppSource, gate: Gate, options: Options, log: EventLog) -> CppSource:
    """Return the source with the fastest version of each kernel whose sizes are known.

    Nothing is measured if `gate` allows only the first decisions of a unit, because other versions
    of a kernel ask for fewer. A kernel keeps its choices if a version of it does not build.
    """
    if gate.toggles.first:
        return source
    toolchain = find(options.compiler)
    calls: dict[str, KernelCall] = {}
    for name, call in source.calls.items():
        calls[name] = call
        memory = (source.buffers[buffer] for buffer in (*call.loads, *call.stores))
        if call.shares or call.symbols or not has_known_layout(memory):
            continue
        path = _path(call, toolchain, options.cache_dir)
        left_out = _known(path)
        seconds: Mapping[str, float] = {}
        if left_out is None:
            measure = _measure(source.buffers, toolchain, options)
            try:
                with seams.real_tensors():
                    left_out, seconds = descend(call, source.buffers, gate, measure)
            except BuildError as error:
                log.emit(Fallback(f"the choices of the cost model for {name}", str(error)[:4000]))
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(sorted(left_out)))
        if left_out:
            calls[name] = write_kernel(call.kernel, source.buffers, _without(gate, left_out))
        microseconds = {label: round(1e6 * taken, 3) for label, taken in seconds.items()}
        log.emit(ChoicesMeasured(name, sorted(left_out), microseconds))
    return replace(source, text=joined(calls.values()), calls=calls)


def descend(
    call: KernelCall, buffers: Mapping[str, Buffer], gate: Gate, measure: Measure
) -> tuple[frozenset[str], Mapping[str, float]]:
    """Return the choices without which a kernel is fastest, and the seconds of all versions.

    A version is named by the choices that it leaves out, joined by commas.
    """
    best = frozenset[str]()
    seconds: dict[str, float] = {}
    while len(best) < MOST_LEFT_OUT:
        versions = _versions(call, buffers, gate, best)
        taken = measure([*versions.values()]) if len(versions) > 1 else ()
        if not taken:
            break
        found = dict(zip(versions, taken, strict=True))
        seconds |= {",".join(sorted(left_out)): s for left_out, s in found.items()}
        fastest = min(found, key=found.__getitem__)
        if found[fastest] > GAIN * found[best]:
            break
        best = fastest
    return best, seconds


def _versions(
    call: KernelCall, buffers: Mapping[str, Buffer], gate: Gate, base: frozenset[str]
) -> dict[frozenset[str], KernelCall]:
    """Return the version without the choices of `base`, and those without one more.

    Versions with equal code or other arguments do not count.
    """
    asked = _without(gate, base)
    first = write_kernel(call.kernel, buffers, asked)
    found = {base: first}
    texts = {numbered_text(first, "//")}
    for unit in dict.fromkeys(d.unit for d in asked.decisions if d.allowed and d.unit not in KEPT):
        left_out = base | {unit}
        version = write_kernel(call.kernel, buffers, _without(gate, left_out))
        text = numbered_text(version, "//")
        if text not in texts and arguments(version) == arguments(call):
            texts.add(text)
            found[left_out] = version
    return found


def _without(gate: Gate, left_out: frozenset[str]) -> Gate:
    """Return a gate that makes the same decisions without some units, and records them nowhere."""
    return Gate(gate.toggles.without(off=left_out), gate.graph_id, scope=gate.scope)


def _measure(buffers: Mapping[str, Buffer], toolchain: Toolchain, options: Options) -> Measure:
    """Return a function that builds kernels together and times them on zeros, in turns."""

    def seconds(calls: Sequence[KernelCall]) -> Sequence[float]:
        named = [_renamed(call, f"{call.kernel.name}_{k}") for k, call in enumerate(calls)]
        library = build(joined(named), toolchain, options.cache_dir).library
        binding = binding_of(toolchain, options.cache_dir)
        memory = [zeros(buffers[name]) for name in (*calls[0].loads, *calls[0].stores)]
        given = (*memory, *(0.0 for _ in calls[0].parameters), torch.get_num_threads())
        runs = [binding.function(library, launch(call.kernel.name, [call])) for call in named]
        if any(run(*given) for run in runs):
            return ()
        best = [float("inf")] * len(runs)
        start = time.perf_counter()
        for _ in range(ROUNDS):
            for place, run in enumerate(runs):
                best[place] = min(best[place], _timed(run, given))
            if time.perf_counter() - start > LONGEST:
                break
        return best

    return seconds


def _timed(run: Callable[..., int], given: Sequence[object]) -> float:
    """Return the seconds of a call. The first one, with a cold cache, does not count."""
    run(*given)
    count, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < TURN or not count:
        run(*given)
        count += 1
    return taken / count


def _renamed(call: KernelCall, name: str) -> KernelCall:
    """Return a kernel under another name, so that a library can hold several versions of it."""
    old = re.escape(call.kernel.name)
    source = re.sub(rf"\b{old}(?=(_packed|_part)?\()", name, call.source)
    return replace(call, kernel=replace(call.kernel, name=name), source=source)


def _path(call: KernelCall, toolchain: Toolchain, cache_dir: Path) -> Path:
    parts = (toolchain.key(numbered_text(call, "//")), str(torch.get_num_threads()))
    key = blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    return cache_dir / "choices" / f"{key}.json"


def _known(path: Path) -> frozenset[str] | None:
    """Return what an earlier search found, if there was one."""
    try:
        return frozenset(json.loads(path.read_text()))
    except (OSError, ValueError):
        return None
