"""The options of the compiler. They are built once at the entry point and never changed."""

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
"""The modes of torch.compile, as options. All of these options concern GPUs only."""

ON_ERROR = ("raise", "fallback")
SWITCHES = (
    "log", "artifacts", "background", "cudagraphs", "autotune", "templates", "profile",
)  # fmt: skip


class BadOption(Coded, ValueError):
    """An unknown option, or a bad value of one. The message suggests similar names."""

    code = "TCD105"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `torch.compile(f, backend="tcdebug", options={...})` and of TCDEBUG_*."""

    toggles: Toggles = field(default_factory=Toggles)
    """Option `off`: the units and decisions to switch off (TCDEBUG_OFF, comma separated)."""

    log: bool = True
    """Write events and IR to a run folder (TCDEBUG_LOG=0: do not)."""

    artifacts: bool = True
    """Save IR and sources beside the events (TCDEBUG_ARTIFACTS=0: events only)."""

    run_dir: Path | None = None
    """The run folder. By default one is created under ./.tcdebug (TCDEBUG_RUN_DIR)."""

    cache_dir: Path = field(default_factory=lambda: Path(platformdirs.user_cache_dir("tcdebug")))
    """The folder of the cache of shared objects (TCDEBUG_CACHE_DIR)."""

    compiler: str = "g++"
    """The C++ compiler (TCDEBUG_CXX)."""

    on_error: str = "raise"
    """`fallback`: after a failure, compile again without the unit, decision or kernel that failed,
    in the end with ATen calls only. Each retry emits an event (TCDEBUG_ON_ERROR)."""

    background: bool = False
    """Build kernels in a thread, and run the graph in eager until they are ready
    (TCDEBUG_BACKGROUND=1)."""

    memory_budget: float = 1.0
    """How much forward may save for backward, as a share of what it saves by default. The rest is
    recomputed (TCDEBUG_MEMORY_BUDGET, 0 to 1)."""

    fallback_random: bool = True
    """ATen draws random numbers, which are bit for bit those of eager. Otherwise kernels draw them
    from a seed that torch's generator gives at each call (TCDEBUG_FALLBACK_RANDOM=0)."""

    cudagraphs: bool = False
    """Capture graphs that run on a GPU as CUDA graphs and replay them (TCDEBUG_CUDAGRAPHS=1)."""

    dim_gears: tuple[int, ...] = ()
    """With `cudagraphs` and dynamic sizes: the sizes to capture. Calls with other sizes run without
    a CUDA graph (TCDEBUG_DIM_GEARS, comma separated)."""

    autotune: bool = False
    """Measure several tiles of each Triton kernel on the GPU, or several ways to write each C++
    kernel, and keep the fastest (TCDEBUG_AUTOTUNE=1)."""

    templates: bool = False
    """Measure matrix products written in Triton, fused with the operators around them, and use
    them where they are faster than ATen's (TCDEBUG_TEMPLATES=1)."""

    profile: bool = False
    """Give torch.profiler a range for each graph and each kernel, and write `graph.step` events.
    Kernels are then launched one by one (TCDEBUG_PROFILE=1; `tcdebug run --profile` sets it)."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Options:
        """Return the options that TCDEBUG_* variables set. Raises BadOption and BadToggle."""
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
        """These options, overridden by those of a torch.compile call. Raises BadOption."""
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
        near = ", ".join(difflib.get_close_matches(name, _names(), n=3))
        hint = f"did you mean {near}?" if near else f"the options are {', '.join(_names())}"
        raise BadOption(f"no option {name!r}; {hint}")
    return "toggles" if name == "off" else name


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _value(name: str, value: Any) -> Any:
    if name == "off":
        names = value.split(",") if isinstance(value, str) else value
        return names if isinstance(names, Toggles) else Toggles.parse(names)
    if name in ("run_dir", "cache_dir"):
        return None if value is None else Path(value)
    if name == "on_error" and value not in ON_ERROR:
        raise BadOption(f"option 'on_error' must be one of {', '.join(ON_ERROR)}, not {value!r}")
    if name == "memory_budget":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise BadOption(f"option 'memory_budget' must be a number from 0 to 1, not {value!r}")
        return float(value)
    if name == "dim_gears":
        sizes = tuple(int(g) if isinstance(g, float) and g.is_integer() else g for g in value)
        if not all(isinstance(g, int) and g > 0 for g in sizes):
            raise BadOption(f"option 'dim_gears' must be positive sizes, not {value!r}")
        return sizes
    expected = str if name in ("compiler", "on_error") else bool
    if not isinstance(value, expected):
        raise BadOption(f"option {name!r} takes {expected.__name__}, not {value!r}")
    return value
