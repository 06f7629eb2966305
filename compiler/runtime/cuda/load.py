"""Makes Triton kernels callable. A variant is compiled with the graph or when first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.triton.written import TritonKernel
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.errors.exceptions import KernelError
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import KernelLoaded
from tcdebug.compiler.runtime.cuda.compile import (
    ALIGNED,
    DIVISIBLE,
    WIDE,
    Binary,
    compile_all,
    compile_kernel,
    import_source,
)
from tcdebug.compiler.runtime.cuda.launch import (
    MISSING,
    KernelTable,
    Launcher,
    Variant,
    launcher_of,
)


class CudaKernel:
    """One kernel, with a table of its variants, which is filled on demand."""

    def __init__(
        self,
        kernel: TritonKernel,
        function: Any,
        launcher: Launcher,
        log: EventLog,
    ) -> None:
        call = kernel.call
        self.kernel = kernel
        self.tile = tile = kernel.tile
        self._function = function
        self._launcher = launcher
        self._log = log
        blocks = {g.name: g.block for g in tile.groups}
        self.table = KernelTable(
            xblock=blocks["x"],
            yblock=blocks.get("y", 1),
            pointers=len(call.loads) + len(call.stores),
            sizes=len(call.symbols),
            numbers=len(call.parameters),
            device=call.kernel.device.index,
        )
        self.run: Callable[..., int] = launcher.function(self.table)

    def add(self, variant: int, binary: Binary) -> None:
        """Load a compiled variant."""
        loaded = self._launcher.load(binary.cubin, binary.name, binary.shared, self.table.device)
        self.table.variants[variant] = Variant(loaded.function, binary.threads, binary.shared)
        blocks = {g.name: g.block for g in self.tile.groups}
        name, warps = self.kernel.call.kernel.name, self.tile.warps
        registers, spilled = loaded.registers, loaded.spilled
        event = KernelLoaded(name, blocks, warps, registers, spilled, binary.shared)
        self._log.emit(event)

    def mend(self, status: int, stream: int, wide: int, *given: Any) -> None:
        """Handle a failed launch: compile a missing variant and retry. Raises KernelError."""
        if status == MISSING:
            variant = self._launcher.variant(self.table, wide, given[3:])
            capability = seams.cuda_capability()
            self.add(
                variant,
                compile_kernel(self._function, self.kernel, variant, capability),
            )
            status = self.run(stream, wide, *given)
        if status:
            name = self.kernel.call.kernel.name
            raise KernelError(f"{name} was not launched: {self._launcher.error(status)}")


def load_kernels(
    text: str, kernels: Mapping[str, TritonKernel], options: Options, log: EventLog
) -> dict[str, CudaKernel]:
    """Load the kernels of a graph, with the variants that its first call most likely needs.

    `text` is the source of their module.
    """
    launcher = launcher_of(options.compiler, options.cache_dir)
    module: ModuleType = import_source(text, options.cache_dir)
    written = {name: kernel for name, kernel in kernels.items() if not kernel.call.shares}
    loaded = {
        name: CudaKernel(kernel, getattr(module, name), launcher, log)
        for name, kernel in written.items()
    }
    futures: dict[tuple[str, int], Future[Binary]] = {}
    for name, kernel in written.items():
        wide = WIDE if kernel.call.before[1] == "1" else 0
        first = (wide | ALIGNED | DIVISIBLE,)
        futures |= compile_all(module, {name: kernel}, first, seams.cuda_capability())
    for (name, variant), future in futures.items():
        loaded[name].add(variant, future.result())
    return {name: loaded[kernel.call.code] for name, kernel in kernels.items()}
