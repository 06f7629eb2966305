"""Every choice a user of the compiler can make. Built at the edge, passed down, never changed."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

from tcdebug.compiler.errors.exceptions import Coded
from tcdebug.compiler.gate.toggles import Toggles

MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "autotune": True, "templates": True},
    "max-autotune-no-cudagraphs": {"autotune": True, "templates": True},
}
"""Those of torch.compile, as options. On a CPU there is nothing to capture or to tune."""

ON_ERROR = ("raise", "fallback")
SWITCHES = ("log", "artifacts", "repro", "background", "cudagraphs", "autotune", "templates")


class BadOption(Coded, ValueError):
    """An option that does not exist or has a value it cannot have; says which are near."""

    code = "TCD105"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `torch.compile(f, backend="tcdebug", options={...})` and of TCDEBUG_*."""

    toggles: Toggles = field(default_factory=Toggles)
    """`off`: units and decisions that are switched off (TCDEBUG_OFF, comma separated)."""

    log: bool = True
    """Write events and IR to a run folder (TCDEBUG_LOG=0: no)."""

    artifacts: bool = True
    """Keep IR and sources beside the events (TCDEBUG_ARTIFACTS=0: events only)."""

    run_dir: Path | None = None
    """The run folder; made under ./.tcdebug when not given (TCDEBUG_RUN_DIR)."""

    cache_dir: Path = field(default_factory=lambda: Path(platformdirs.user_cache_dir("tcdebug")))
    """Where shared objects are kept (TCDEBUG_CACHE_DIR)."""

    compiler: str = "g++"
    """The C++ compiler (TCDEBUG_CXX)."""

    on_error: str = "raise"
    """`fallback`: compile again without the unit, decision or kernel that failed, down to calling
    ATen for everything; each time an event says so (TCDEBUG_ON_ERROR)."""

    background: bool = False
    """Build kernels in a thread, and run the graph in eager until they are there
    (TCDEBUG_BACKGROUND=1)."""

    memory_budget: float = 1.0
    """How much forward may keep for backward, as a share of what it would keep by itself; the rest
    is computed again (TCDEBUG_MEMORY_BUDGET, 0 to 1)."""

    fallback_random: bool = True
    """Random numbers are eager's, bit for bit, drawn by ATen. Without it kernels draw them, from a
    seed that torch's generator gives at each call (TCDEBUG_FALLBACK_RANDOM=0)."""

    cudagraphs: bool = False
    """Capture what runs on a GPU in CUDA graphs and replay those (TCDEBUG_CUDAGRAPHS=1)."""

    dim_gears: tuple[int, ...] = ()
    """With `cudagraphs` and sizes that change: the sizes to capture; calls with others run without
    a CUDA graph (TCDEBUG_DIM_GEARS, comma separated)."""

    autotune: bool = False
    """Measure several tiles of each Triton kernel on the GPU and keep the fastest
    (TCDEBUG_AUTOTUNE=1)."""

    templates: bool = False
    """Measure products of matrices written in Triton, with the work around them in one kernel, and
    take them where they are faster than ATen's (TCDEBUG_TEMPLATES=1)."""

    repro: bool = False
    """Write a repro when a compile fails (TCDEBUG_REPRO=1)."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Options:
        """The options that the environment gives. Raises BadOption, BadToggle."""
        env = os.environ if environ is None else environ
        given: dict[str, Any] = {}
        if off := env.get("TCDEBUG_OFF"):
            given["toggles"] = Toggles.parse(t for t in off.split(",") if t)
        for name in SWITCHES:
            if (switch := env.get(f"TCDEBUG_{name.upper()}")) is not None:
                given[name] = switch not in ("", "0")
        for name, variable in (("run_dir", "TCDEBUG_RUN_DIR"), ("cache_dir", "TCDEBUG_CACHE_DIR")):
            if path := env.get(variable):
                given[name] = Path(path)
        if (switch := env.get("TCDEBUG_FALLBACK_RANDOM")) is not None:
            given["fallback_random"] = switch not in ("", "0")
        if compiler := env.get("TCDEBUG_CXX"):
            given["compiler"] = compiler
        if on_error := env.get("TCDEBUG_ON_ERROR"):
            given["on_error"] = _value("on_error", on_error)
        if budget := env.get("TCDEBUG_MEMORY_BUDGET"):
            given["memory_budget"] = _value("memory_budget", _number(budget))
        if gears := env.get("TCDEBUG_DIM_GEARS"):
            given["dim_gears"] = _value("dim_gears", [_number(g) for g in gears.split(",")])
        return cls(**given)

    def updated(self, mode: str | None, options: Mapping[str, Any] | None) -> Options:
        """These options with those of a torch.compile call. Raises BadOption."""
        if mode is not None and mode not in MODES:
            raise BadOption(f"mode {mode!r} is not one of {', '.join(MODES)}")
        result = replace(self, **MODES[mode or "default"])
        for name, value in (options or {}).items():
            result = replace(result, **{_field(name): _value(name, value)})
        return result


def _names() -> list[str]:
    return ["off" if f.name == "toggles" else f.name for f in fields(Options)]


def _field(name: str) -> str:
    if name not in _names():
        near = difflib.get_close_matches(name, _names(), n=3) or _names()
        raise BadOption(f"no option {name!r}; there is {', '.join(near)}")
    return "toggles" if name == "off" else name


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _value(name: str, value: Any) -> Any:
    if name == "off":
        return value if isinstance(value, Toggles) else Toggles.parse(value)
    if name in ("run_dir", "cache_dir"):
        return None if value is None else Path(value)
    if name == "on_error" and value not in ON_ERROR:
        raise BadOption(f"option 'on_error' is one of {', '.join(ON_ERROR)}, not {value!r}")
    if name == "memory_budget":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise BadOption(f"option 'memory_budget' is a number from 0 to 1, not {value!r}")
        return float(value)
    if name == "dim_gears":
        sizes = tuple(int(g) if isinstance(g, float) and g.is_integer() else g for g in value)
        if not all(isinstance(g, int) and g > 0 for g in sizes):
            raise BadOption(f"option 'dim_gears' is a list of sizes, not {value!r}")
        return sizes
    expected = str if name in ("compiler", "on_error") else bool
    if not isinstance(value, expected):
        raise BadOption(f"option {name!r} takes {expected.__name__}, not {value!r}")
    return value
