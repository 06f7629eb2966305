"""tcdebug: bisect, minimise, fuzz and read torch.compile.

    torch.compile(f, backend="tcdebug")        the embedded compiler; no import is needed
    with tcdebug.watch(): ...                  each compiled graph that fails leaves a repro
    tcdebug.recorded()                         the newest run, shown as its report in a notebook
    tcdebug.save_repro(f, x)                   the graphs of a call as repro scripts
    with tcdebug.switched_off("fuse"): ...     compile without some units, inductor's too
    tcdebug.compile(graph, inputs)             compile a bare FX graph with the embedded compiler
    @tcdebug.register_pass()                   add a pass to it; also _lowering, _decomposition
    @tcdebug.gated("fuse_norm")                make a pass of your own compiler a unit
    $ tcdebug bisect script.py                 find the compiler step at fault, with a repro

Names are imported when they are used. `import tcdebug.compiler` loads nothing of the toolkit.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

EXPORTS = {
    "watch": "tcdebug.api.watching",
    "recorded": "tcdebug.api.notebook",
    "bisect": "tcdebug.api.searching",
    "explain": "tcdebug.api.searching",
    "save_repro": "tcdebug.api.saving",
    "switched_off": "tcdebug.api.switching",
    "NotSaved": "tcdebug.api.saving",
    "UnknownBackend": "tcdebug.minifier.processes.job",
    "compile": "tcdebug.compiler.backend",
    "CompilerConfig": "tcdebug.compiler.backend",
    "get_backend": "tcdebug.compiler.backend",
    "register_device": "tcdebug.compiler.registration",
    "set_dim_gears": "tcdebug.compiler.configuration.dim_gears",
    "register_decomposition": "tcdebug.compiler.registration",
    "register_lowering": "tcdebug.compiler.registration",
    "gated": "tcdebug.compiler.gate.gated",
    "BadGate": "tcdebug.compiler.gate.gated",
    "register_pass": "tcdebug.compiler.registration",
    "BadOption": "tcdebug.compiler.configuration.options",
    "BadRegistration": "tcdebug.compiler.registration",
    "BadToggle": "tcdebug.compiler.gate.toggles",
    "Options": "tcdebug.compiler.configuration.options",
    "Toggles": "tcdebug.compiler.gate.gate",
    "CompileError": "tcdebug.compiler.errors.exceptions",
}
"""The module of each public name."""

__all__ = [
    "BadGate",
    "BadOption",
    "BadRegistration",
    "BadToggle",
    "CompileError",
    "CompilerConfig",
    "NotSaved",
    "Options",
    "Toggles",
    "UnknownBackend",
    "__version__",
    "bisect",
    "compile",
    "explain",
    "gated",
    "get_backend",
    "recorded",
    "register_decomposition",
    "register_device",
    "register_lowering",
    "register_pass",
    "save_repro",
    "set_dim_gears",
    "switched_off",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in EXPORTS:
        raise AttributeError(f"module 'tcdebug' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
