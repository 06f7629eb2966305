"""The embedded compiler as a backend of torch.compile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from tcdebug.compiler.event_log import EventLog, process_log
from tcdebug.compiler.options import Options
from tcdebug.compiler.pipeline import compile_captured


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    counts: dict[str, int] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo captured: torch.compile(f, backend="tcdebug").

    Options come from TCDEBUG_* variables and from the call; see `Options`. Compiles that share
    `counts` number their decisions as one. Raises BadOption for options that do not exist,
    CompileError when the compiler fails.
    """
    chosen = Options.from_env().updated(mode, options)
    return compile_captured(module, inputs, chosen, open_log(chosen), counts)


def compile(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a bare FX graph for inputs such as these: without Dynamo, so without guards.

    The result takes inputs of the same shapes, strides and dtypes, and gives what the graph
    returns, gradients too. Raises TypeError where the inputs are not those of the graph, BadOption
    and CompileError as `backend` does.
    """
    if not isinstance(module, fx.GraphModule):
        raise TypeError(f"an fx.GraphModule is needed, not {type(module).__name__}")
    wanted = [node.name for node in module.graph.find_nodes(op="placeholder")]
    if len(wanted) != len(inputs):
        names = ", ".join(wanted)
        raise TypeError(f"the graph takes {len(wanted)} inputs ({names}): {len(inputs)} given")
    return backend(module, inputs, mode=mode, options=options)


def open_log(options: Options) -> EventLog:
    """The log that the options ask for."""
    if not options.log:
        return EventLog(None)
    return process_log(options.run_dir, options.artifacts, os.getpid())
