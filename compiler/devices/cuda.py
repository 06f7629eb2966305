"""Writes and compiles kernels for NVIDIA GPUs, in Triton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tcdebug.compiler.codegen.triton.source import TritonSource, unwritable, write_triton
from tcdebug.compiler.codegen.wrapper.launches import Launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import Buffer, LoopNode
from tcdebug.compiler.runtime import prewarm
from tcdebug.compiler.runtime.cuda.autotune import tuned
from tcdebug.compiler.runtime.cuda.compile import prepare
from tcdebug.compiler.runtime.cuda.launch import Launcher
from tcdebug.compiler.runtime.cuda.load import load_kernels
from tcdebug.compiler.schedule.kernel import Kernel
from tcdebug.compiler.stages.stage import Stages


class TritonCodegen:
    """Writes Triton kernels, which a launcher in C launches."""

    def prepare(self, options: Options) -> None:
        """Load Triton and build the launcher in the background, which takes about a second."""
        prewarm.begin(prepare)
        prewarm.begin(Launcher, options.compiler, options.cache_dir)

    def refuses(self, node: LoopNode) -> str:
        """Return why a node cannot be written in Triton; empty if it can."""
        return unwritable(node)

    def write(
        self, kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate
    ) -> TritonSource:
        """Return the kernels as one Python module."""
        return write_triton(kernels, buffers, gate)

    def is_built(self, source: TritonSource, options: Options) -> bool:
        """Always false: only compiling a kernel shows whether Triton's cache has it."""
        return False

    def build(
        self, source: TritonSource, launches: Sequence[Launch], stages: Stages, options: Options
    ) -> Mapping[str, Any]:
        """Return the kernels, each compiled for the most likely properties of its arguments."""
        if options.autotune:
            source = tuned(source, options, stages.log)
        loaded = load_kernels(source.text, source.kernels, options, stages.log)
        names: dict[str, Any] = {f"run_{name}": kernel.run for name, kernel in loaded.items()}
        return names | {f"mend_{name}": kernel.mend for name, kernel in loaded.items()}
