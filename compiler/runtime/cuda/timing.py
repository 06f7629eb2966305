"""Times different ways to compute the same result on the GPU, with cold caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import ModuleType
from typing import Any

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.triton.source import alone, module_text
from tcdebug.compiler.codegen.triton.written import TritonKernel, zeros_are_valid_indices
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.errors.exceptions import KernelError
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.graph import Buffer, Extern, Ref
from tcdebug.compiler.runtime.cuda.compile import (
    ALIGNED,
    DIVISIBLE,
    WIDE,
    compile_all,
    import_source,
)
from tcdebug.compiler.runtime.cuda.launch import launcher_of
from tcdebug.compiler.runtime.cuda.load import CudaKernel
from tcdebug.compiler.schedule.kernel import Kernel

ROUNDS = 9
WARM_UP = 2
CACHE_BYTES = 1 << 28
"""More than the caches of any GPU hold. Writing it takes longer than the launches on the CPU."""

BYTES = torch.int8

Run = Callable[[], Any]
Step = Kernel | Extern
Ways = Mapping[str, Sequence[Step]]
"""Interchangeable computations: name -> steps."""


@dataclass(frozen=True)
class Measured:
    """The time of each way, in milliseconds, and the errors of ways that could not be run."""

    milliseconds: Mapping[str, float]
    failed: Mapping[str, str]


class Bench:
    """Runs steps of a schedule on memory of its own. `sizes` gives the values of symbols."""

    def __init__(
        self, buffers: Mapping[str, Buffer], sizes: Mapping[str, int], options: Options
    ) -> None:
        self._buffers = buffers
        self._sizes = sizes
        self._options = options
        self._memory: dict[str, torch.Tensor] = {}

    def measured(self, ways: Ways) -> Measured:
        """Time each way. If memory is short, all ways fail with that error."""
        device = next(iter(self._buffers[s.name].device for s in _externs(ways)))
        with seams.real_tensors(), torch.cuda.device(device):
            try:
                return self._measured(ways, torch.empty(CACHE_BYTES, dtype=BYTES, device=device))
            except torch.OutOfMemoryError as error:
                return Measured({}, dict.fromkeys(ways, str(error).splitlines()[0]))
            finally:
                self._memory.clear()

    def _measured(self, ways: Ways, flush: torch.Tensor) -> Measured:
        kernels, failed = self._built(ways)
        milliseconds: dict[str, float] = {}
        for name, steps in ways.items():
            if name in failed:
                continue
            runs = [
                self._call(step) if isinstance(step, Extern) else self._launch(kernels[name, k])
                for k, step in enumerate(steps)
            ]
            try:
                milliseconds[name] = _timed(runs, flush)
            except KernelError as error:
                failed[name] = str(error)
        return Measured(milliseconds, failed)

    def _built(self, ways: Ways) -> tuple[dict[tuple[str, int], CudaKernel], dict[str, str]]:
        """The kernels of all ways, compiled in parallel, and the errors of ways that failed."""
        written: dict[str, TritonKernel] = {}
        places: dict[tuple[str, int], str] = {}
        names: dict[tuple[str, str], str] = {}  # kernels that several ways run are built once
        for way, steps in ways.items():
            for k, step in enumerate(steps):
                if isinstance(step, Extern):
                    continue
                key = (step.name, step.template.label if step.template else "")
                if key not in names:
                    names[key] = f"{step.name}_{len(names)}"
                    written[names[key]] = alone(replace(step, name=names[key]), self._buffers)
                places[way, k] = names[key]
        options, silent = self._options, EventLog(None)
        module: ModuleType = import_source(module_text(written.values()), options.cache_dir)
        launcher = launcher_of(options.compiler, options.cache_dir)
        broken = {
            name: "it computes indices from data, which the measurement makes up"
            for name, kernel in written.items()
            if not zeros_are_valid_indices(kernel)
        }
        futures = {
            name: compile_all(
                module, {name: kernel}, (self._variant(kernel),), seams.cuda_capability()
            )
            for name, kernel in written.items()
            if name not in broken
        }
        loaded: dict[str, CudaKernel] = {}
        for name, compiled in futures.items():
            kernel = CudaKernel(written[name], getattr(module, name), launcher, silent)
            try:
                for (_, variant), future in compiled.items():
                    kernel.add(variant, future.result())
            except Exception as error:  # of Triton's compiler, of its assembler, of the driver
                broken[name] = f"{type(error).__name__}: {error}"[:400]
            loaded[name] = kernel
        failed = {way: broken[name] for (way, _), name in places.items() if name in broken}
        return {place: loaded[name] for place, name in places.items() if name in loaded}, failed

    def _variant(self, kernel: TritonKernel) -> int:
        """Return the variant for a call with these sizes. All memory here is aligned."""
        divisible = all(self._sizes.get(s, 0) % 16 == 0 for s in kernel.call.symbols)
        wide = self._extent(kernel)[0]
        return (WIDE if wide else 0) | ALIGNED | (DIVISIBLE if divisible else 0)

    def _extent(self, kernel: TritonKernel) -> list[int]:
        """Return the values of `before` of a call, without the stream."""
        return [int(eval(text, {"max": max}, dict(self._sizes))) for text in kernel.call.before[1:]]

    def _launch(self, kernel: CudaKernel) -> Run:
        written, call = kernel.kernel, kernel.kernel.call
        memory = [self._tensor(name).data_ptr() for name in (*call.loads, *call.stores)]
        numbers: list[Any] = [self._sizes[s] for s in call.symbols]
        numbers += [1.0] * len(call.parameters)
        stream = torch.cuda.current_stream().cuda_stream
        given = (stream, *self._extent(written), *memory, *numbers)

        def run() -> None:
            if status := kernel.run(*given):
                kernel.mend(status, *given)

        return run

    def _call(self, extern: Extern) -> Run:
        given = [self._tensor(a.name) if isinstance(a, Ref) else a for a in extern.args]
        out: Any = extern.target
        into, numbers = self._tensor(extern.name), dict(extern.kwargs)
        return lambda: out.overloadpacket.out(*given, **numbers, out=into)

    def _tensor(self, name: str) -> torch.Tensor:
        """Memory for a buffer: random floats, but zeros for integers, which may be indices."""
        if name not in self._memory:
            buffer = self._buffers[name]
            size, stride = (
                [estimate(i, self._sizes) for i in of] for of in (buffer.size, buffer.stride)
            )
            last = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
            flat: Any = torch.zeros(max(0, last + 1), dtype=buffer.dtype, device=buffer.device)
            if buffer.dtype.is_floating_point:
                flat.normal_(generator=torch.Generator(buffer.device).manual_seed(0))
            self._memory[name] = flat.as_strided(size, stride)
        return self._memory[name]


def _externs(ways: Ways) -> list[Extern]:
    return [s for steps in ways.values() for s in steps if isinstance(s, Extern)]


def _timed(runs: Sequence[Run], flush: Any) -> float:
    """Return the median time of consecutive runs, in milliseconds."""
    event: Any = torch.cuda.Event
    taken: list[tuple[Any, Any]] = []
    for _ in range(WARM_UP + ROUNDS):
        start, end = event(enable_timing=True), event(enable_timing=True)
        flush.zero_()
        start.record()
        for run in runs:
            run()
        end.record()
        taken.append((start, end))
    torch.cuda.synchronize()
    milliseconds: float = median(start.elapsed_time(end) for start, end in taken[WARM_UP:])
    return milliseconds
