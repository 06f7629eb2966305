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


def open_log(options: Options) -> EventLog:
    """The log that the options ask for."""
    if not options.log:
        return EventLog(None)
    return process_log(options.run_dir, options.artifacts, os.getpid())
