"""From what codegen wrote to a callable: build the kernels, now or in the background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tcdebug.compiler.codegen.source import CppSource, prelude
from tcdebug.compiler.codegen.wrapper import WrapperSource
from tcdebug.compiler.errors import CompileError
from tcdebug.compiler.events import CacheUsed, Fallback
from tcdebug.compiler.gate import Gate
from tcdebug.compiler.options import Options
from tcdebug.compiler.runtime.background import Background, Compiled
from tcdebug.compiler.runtime.build import BuildError, Built, build, is_built
from tcdebug.compiler.runtime.launch import load_wrapper
from tcdebug.compiler.runtime.toolchain import Toolchain, find
from tcdebug.compiler.stage import Stages


def load(
    stages: Stages,
    source: CppSource,
    wrapper: WrapperSource,
    eager: Callable[..., Sequence[Any]],
    options: Options,
) -> Compiled:
    """Build the kernels, if there are any, and make the wrapper callable."""
    if not source.calls:
        return load_wrapper(wrapper, None, source.calls, stages.name)
    toolchain = find(options.compiler)
    if not toolchain.vector_math:
        stages.log.emit(Fallback("scalar exp, log, sin", "the C library has no vector math"))

    def finish() -> Compiled:
        built = _built(source, toolchain, stages.gate, options)
        stages.log.emit(CacheUsed(built.verdict, built.key, round(built.seconds, 6)))
        return load_wrapper(wrapper, built.library, source.calls, stages.name)

    def failed(error: Exception) -> None:
        stages.log.emit(Fallback("eager in place of kernels", str(error)[:4000]))

    if options.background and not is_built(source.text, toolchain, options.cache_dir):
        return Background(eager, finish, failed if options.on_error == "fallback" else None)
    return finish()


def _built(source: CppSource, toolchain: Toolchain, gate: Gate, options: Options) -> Built:
    """The kernels as a shared object. Raises CompileError, which blames those at fault."""
    cache = options.cache_dir
    try:
        return build(source.text, toolchain, cache)
    except BuildError as error:
        if options.on_error != "fallback":
            raise
        guilty: set[str] = set()
        for call in source.calls.values():
            try:
                build(prelude() + call.source, toolchain, cache)
            except BuildError:
                guilty |= {node.origin.node for node in call.kernel.nodes}
        sites = {
            decision.site
            for decision in gate.decisions
            if decision.unit.startswith("lower.") and decision.subject in guilty
        }
        raise CompileError("runtime", str(error), sites=frozenset(sites)) from error
