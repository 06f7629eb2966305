"""Writes and builds kernels for CPUs, in C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tcdebug.compiler.codegen.cpp.source import CppSource, TranslationUnit, prelude, write_cpp
from tcdebug.compiler.codegen.wrapper.launches import Launch, launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.events.schema import CacheUsed, Fallback, KernelsBuilt
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import Buffer, LoopNode
from tcdebug.compiler.runtime.binding import binding_of
from tcdebug.compiler.runtime.build import BuildError, Built, build, is_built
from tcdebug.compiler.runtime.measured_choices import tuned
from tcdebug.compiler.runtime.toolchain import Toolchain, find
from tcdebug.compiler.schedule.kernel import Kernel
from tcdebug.compiler.stages.stage import Stages

MOST_COMPILERS = 4
"""The most compilers that run at the same time for a graph, if the program has so many threads."""


class CppCodegen:
    """Writes the kernels of a graph in C++, and builds them as one shared object."""

    def prepare(self, options: Options) -> None:
        """Does nothing: no part of a build can be done before the kernels are written."""

    def refuses(self, node: LoopNode) -> str:
        """Always empty: every node can be written in C++."""
        return ""

    def write(
        self, kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate
    ) -> CppSource:
        """Return the kernels as one translation unit."""
        return write_cpp(kernels, buffers, gate)

    def is_built(self, source: CppSource, options: Options) -> bool:
        """Return whether the shared object is in the cache. With `autotune`, that is not known."""
        known = not options.autotune
        return known and is_built(source.text, find(options.compiler), options.cache_dir)

    def build(
        self, source: CppSource, launches: Sequence[Launch], stages: Stages, options: Options
    ) -> Mapping[str, Any]:
        """Return the functions of the shared object, which is built unless it is in the cache."""
        toolchain = find(options.compiler)
        if not toolchain.vector_math:
            stages.log.emit(Fallback("scalar exp, log, sin", "the C library has no vector math"))
        if options.autotune:
            source = tuned(source, stages.gate, options, stages.log)
        units = source.units(min(MOST_COMPILERS, torch.get_num_threads()))
        built = _built(source, units, toolchain, stages.gate, options)
        for unit, compiled in zip(units, built.compiled, strict=False):  # none for a hit
            stages.log.emit(KernelsBuilt(list(unit.kernels), round(compiled.seconds, 6)))
            if compiled.crash:
                what = f"vectors in {', '.join(unit.kernels)}"
                stages.log.emit(Fallback(what, compiled.crash[:4000]))
        stages.log.emit(CacheUsed(built.verdict, built.key, round(built.seconds, 6)))
        binding = binding_of(toolchain, options.cache_dir)
        alone = [launch(f"run_{name}", [call]) for name, call in source.calls.items()]
        return {one.name: binding.function(built.library, one) for one in (*alone, *launches)}


def _built(
    source: CppSource,
    units: Sequence[TranslationUnit],
    toolchain: Toolchain,
    gate: Gate,
    options: Options,
) -> Built:
    """Build the kernels as a shared object.

    Raises BuildError, or with `on_error="fallback"` CompileError, which names the lowerings of the
    kernels that do not build.
    """
    cache = options.cache_dir
    try:
        return build(source.text, toolchain, cache, [unit.text for unit in units])
    except BuildError as error:
        if options.on_error != "fallback":
            raise
        broken = {n for n, c in source.calls.items() if not _builds(c.source, toolchain, cache)}
        failing = {
            node.origin.node
            for call in source.calls.values()
            if call.code in broken
            for node in call.kernel.nodes
        }
        sites = {
            decision.site
            for decision in gate.decisions
            if decision.unit.startswith("lower.") and decision.subject in failing
        }
        raise CompileError("runtime", str(error), sites=frozenset(sites)) from error


def _builds(text: str, toolchain: Toolchain, cache: Path) -> bool:
    try:
        build(prelude() + text, toolchain, cache)
    except BuildError:
        return False
    return True
