"""The entry point of `torch.compile(f, backend="tcdebug")`."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from typing import Any

from torch import fx

from tcdebug.compiler.backend import open_log
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.pipeline import compile_captured
from tcdebug.display.report import announce_repros
from tcdebug.minifier.capture.watcher import Watcher
from tcdebug.minifier.repros.script_setup import Script
from tcdebug.minifier.targets.interception import backward_watched


def backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The embedded compiler. With TCDEBUG_REPRO=1, a failure leaves a repro script.

    See `tcdebug.compiler.backend.backend` for options and errors.
    """
    chosen = Options.from_env().updated(mode, options)

    def inner(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return compile_captured(graph, examples, chosen, open_log(chosen))

    if not chosen.repro:
        return inner(module, inputs)
    inner.compiler_name = "tcdebug"  # type: ignore[attr-defined] # what torch names a backend by
    log = open_log(replace(chosen, log=True))
    compiled: Callable[..., Any] = _watcher(log).wrap(inner)(module, inputs)
    return compiled


@lru_cache(maxsize=4)
def _watcher(log: EventLog) -> Watcher:
    """One watcher per process and run folder. Its repros are announced when the process ends."""
    assert log.folder is not None
    watcher = Watcher(log.folder, log, Script.running())
    watching = ExitStack()
    watching.enter_context(backward_watched(watcher.backward_failed, log))
    info = run_folder.read_info(log.folder)
    if info is not None:
        watcher.journal.pid = info.pid  # other processes may write to the same folder

    def announce() -> None:
        announce_repros(watcher.repros, run=not watcher.interrupted)

    atexit.register(announce)
    atexit.register(watching.close)  # and not earlier
    return watcher
