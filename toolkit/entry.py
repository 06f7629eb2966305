"""What the entry point of `torch.compile(f, backend="tcdebug")` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from torch import fx

from tcdebug.compiler.backend import backend as compile_backend
from tcdebug.compiler.backend import open_log
from tcdebug.compiler.options import Options
from tcdebug.minifier.watcher import Watcher


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The embedded compiler; with TCDEBUG_REPRO=1 a failure leaves a repro script.

    See `tcdebug.compiler.backend.backend` for options and errors.
    """
    chosen = Options.from_env().updated(mode, options)
    if not chosen.repro:
        return compile_backend(module, inputs, mode=mode, options=options)

    def inner(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return compile_backend(graph, examples, mode=mode, options=options)

    inner.compiler_name = "tcdebug"  # type: ignore[attr-defined] # what torch names a backend by
    compiled: Callable[..., Any] = _watcher(chosen).wrap(inner)(module, inputs)
    return compiled


@lru_cache(maxsize=4)
def _watcher(options: Options) -> Watcher:
    """One watcher a process and run folder."""
    log = open_log(options)
    assert log.folder is not None
    return Watcher(log.folder, log)
