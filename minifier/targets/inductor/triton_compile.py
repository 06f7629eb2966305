"""Decisions about how Triton compiles a kernel: configurations and optimisations.

Optimisations are switched off by options of a compile, and by environment variables that Triton
reads in each compile. Both are part of its cache keys.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

AUTOTUNER = "torch._inductor.runtime.triton_heuristics:CachingAutotuner"
CONFIGURATIONS = Patch(
    AUTOTUNER,
    "__init__",
    "codegen.autotune and codegen.block_size cannot be switched off",
    takes=("configs", "inductor_meta"),
)
DESCENT = Patch(
    AUTOTUNER,
    "coordinate_descent_tuning",
    "codegen.coordinate_descent cannot be switched off",
    takes=("launcher",),
)
OPTIONS = Patch(AUTOTUNER, "_create_compile_options", "triton.multiply_add cannot be switched off")
COMPILE = Patch(
    AUTOTUNER, "_precompile_config", "triton.llvm and triton.ptxas cannot be switched off"
)
PATCHES = (CONFIGURATIONS, DESCENT, OPTIONS, COMPILE)

COMPILES = {
    "codegen.block_size": "use blocks and warps by inductor's rules instead of blocks of 32 "
    "elements and one warp, kernel by kernel",
    "codegen.autotune": "time several configurations of a Triton kernel instead of taking the "
    "first",
    "codegen.coordinate_descent": "improve the configuration of a Triton kernel step by step",
    "triton.multiply_add": "contract a product and a sum into one instruction that rounds once, "
    "kernel by kernel",
    "triton.llvm": "let LLVM optimise in Triton, kernel by kernel",
    "triton.ptxas": "let ptxas optimise machine code, kernel by kernel",
}
"""Units of the compile of a Triton kernel."""

VARIABLES = {"triton.llvm": "DISABLE_LLVM_OPT", "triton.ptxas": "DISABLE_PTXAS_OPT"}
"""The variables with which Triton skips optimisations."""
BLOCKS = frozenset(("XBLOCK", "YBLOCK", "ZBLOCK", "R0_BLOCK", "R1_BLOCK"))
SMALL_BLOCK = 32
"""Elements of a small block. Blocks of y and z stay, because grids have few of them."""

Function = Callable[..., Any]


@contextlib.contextmanager
def triton_compile(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let each kernel ask the gate about its configurations and about each optimisation."""
    answers: dict[tuple[int, str], bool] = {}

    def allows(unit: str, tuner: Any) -> bool:
        key = (id(tuner), unit)
        if key not in answers:
            answers[key] = gate.allows(unit, _name(tuner.inductor_meta))
        return answers[key]

    with (
        patched(CONFIGURATIONS, functools.partial(_configured, gate), log),
        patched(DESCENT, functools.partial(_descending, allows), log),
        patched(OPTIONS, functools.partial(_optional, allows), log),
        patched(COMPILE, functools.partial(_compiling, allows), log),
    ):
        yield


def ask_about_compile(gate: Gate, tuner: Any) -> None:
    """Ask the gate about a kernel what its compile asks, without compiling it."""
    for unit in (*VARIABLES, "triton.multiply_add"):
        gate.allows(unit, _name(tuner.inductor_meta))


Allows = Callable[[str, Any], bool]
"""Whether the gate allows a unit for an autotuner's kernel."""


def _configured(gate: Gate, original: Function) -> Function:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        configs = list(kwargs.get("configs", ()))
        known = kwargs.get("inductor_meta") or {}
        # first, because small blocks leave less to choose from: a fault of the choice is then
        # the last decision that a failure needs
        if _can_shrink(configs, known) and not gate.allows("codegen.block_size", _name(known)):
            configs = _distinct([_small(config) for config in configs])
        if len(configs) > 1 and not gate.allows("codegen.autotune", _name(known)):
            configs = configs[:1]
        original(self, *args, **{**kwargs, "configs": configs} if configs else kwargs)

    return init


def _descending(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def coordinate_descent_tuning(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        if not allows("codegen.coordinate_descent", self):
            return launcher
        return original(self, launcher, *args, **kwargs)

    return coordinate_descent_tuning


def _optional(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def create_compile_options(self: Any, *args: Any, **kwargs: Any) -> Any:
        options = original(self, *args, **kwargs)
        fused = options.get("enable_fp_fusion", True)
        if fused and not allows("triton.multiply_add", self):
            options["enable_fp_fusion"] = False
        return options

    return create_compile_options


def _compiling(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def precompile_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        off = [name for unit, name in VARIABLES.items() if not allows(unit, self)]
        with _set(off):
            return original(self, *args, **kwargs)

    return precompile_config


def _name(known: Any) -> str:
    """Return the name of a kernel without its number, which changes with each decision."""
    return str((known or {}).get("kernel_name", "")).rstrip("_0123456789")


def _can_shrink(configs: Any, known: Any) -> bool:
    """Return whether a kernel computes the same with smaller blocks."""
    if not configs or known.get("tma_min_block_sizes") or known.get("combo_grid_meta"):
        return False
    return all(c.kwargs and BLOCKS.issuperset(c.kwargs) for c in configs) and any(
        _parts(_small(c)) != _parts(c) for c in configs
    )


def _parts(config: Any) -> tuple[object, ...]:
    """Return what distinguishes configurations."""
    return tuple(sorted(config.kwargs.items())), config.num_warps, config.num_stages


def _distinct(configs: list[Any]) -> list[Any]:
    """Return configurations without repetitions."""
    return list({_parts(config): config for config in configs}.values())


def _small(config: Any) -> Any:
    """Return a configuration with one warp, and with small blocks of x and of reductions."""
    small = copy.copy(config)
    small.num_warps = small.num_stages = 1
    shrunk = {name for name in config.kwargs if name.startswith("R")}
    if "YBLOCK" not in config.kwargs:
        shrunk.add("XBLOCK")
    small.kwargs = {
        name: min(size, SMALL_BLOCK) if name in shrunk else size
        for name, size in config.kwargs.items()
    }
    return small


@contextlib.contextmanager
def _set(names: list[str]) -> Iterator[None]:
    """Set environment variables while the block runs."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
