"""The entry points of the embedded compiler: backends for torch.compile, and `compile`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.configuration.overrides import GraphCompiler, Overrides
from tcdebug.compiler.events.log import EventLog, process_log
from tcdebug.compiler.pipeline import compile_captured
from tcdebug.compiler.registration import check_operator


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    counts: dict[str, int] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured, for torch.compile(f, backend="tcdebug").

    Options come from TCDEBUG_* variables and from the call; see `Options`. Compiles that share
    `counts` number their decisions in one sequence. Raises BadOption for unknown options and bad
    values, CompileError if a stage fails.
    """
    chosen = Options.from_env().updated(mode, options)
    return compile_captured(module, inputs, chosen, open_log(chosen), counts)


class CompilerConfig:
    """A checked mode and options of torch.compile. Raises BadOption."""

    def __init__(self, mode: str | None = None, **options: Any) -> None:
        self.options = Options.from_env().updated(mode, options)


def get_backend(
    compiler_config: CompilerConfig | None = None,
    *,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    fw_compiler: GraphCompiler | None = None,
    bw_compiler: GraphCompiler | None = None,
    inference_compiler: GraphCompiler | None = None,
    partition_fn: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return a backend for torch.compile(f, backend=...) with parts of the compiler replaced.

    `custom_decompositions` (overload -> function) are added to the compiler's own, as units
    decompose.<operator>. A given compiler receives the ATen graphs of its direction and fake
    inputs, and returns a callable. `partition_fn` splits the joint graph as AOTAutograd's
    `partition_fn` does. docs/vendor-backends.md describes the contract. Raises BadRegistration for
    a decomposition of something other than an operator overload.
    """
    config = compiler_config or CompilerConfig()
    for operator in custom_decompositions or ():
        check_operator(operator)
    overrides = Overrides(
        dict(custom_decompositions or {}),
        fw_compiler,
        bw_compiler,
        inference_compiler,
        partition_fn,
    )

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        options = config.options
        return compile_captured(module, inputs, options, open_log(options), overrides=overrides)

    backend.compiler_name = "tcdebug"  # type: ignore[attr-defined] # what torch names a backend by
    return backend


def compile(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile an FX graph for inputs like the given ones, without Dynamo and without guards.

    The returned callable takes inputs of the same shapes, strides and dtypes. It supports
    gradients. Raises TypeError if `module` is not an fx.GraphModule or the number of inputs is
    wrong, BadOption and CompileError as `backend` does.
    """
    if not isinstance(module, fx.GraphModule):
        raise TypeError(f"expected an fx.GraphModule, not {type(module).__name__}")
    wanted = [node.name for node in module.graph.find_nodes(op="placeholder")]
    if len(wanted) != len(inputs):
        names = ", ".join(wanted)
        raise TypeError(f"the graph takes {len(wanted)} inputs ({names}), not {len(inputs)}")
    return backend(module, inputs, mode=mode, options=options)


def open_log(options: Options) -> EventLog:
    """Return the log that the options ask for."""
    if not options.log:
        return EventLog(None)
    return process_log(options.run_dir, options.artifacts, os.getpid())
