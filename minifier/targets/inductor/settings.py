"""Settings of inductor as units: those that change generated code, and those the script changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch._inductor import config

from tcdebug.compiler.gate import Gate

LOWERING: Mapping[str, Any] = {
    "comprehensive_padding": False,
    "constant_and_index_propagation": False,
    "emulate_precision_casts": True,
    "pick_loop_orders": False,
    "split_reductions": False,
}
"""Setting -> its careful value; asked when a graph begins to be lowered."""

CODEGEN: Mapping[str, Any] = {
    "allow_buffer_reuse": False,
    "cpp.threads": 1,
    "inplace_buffers": False,
    "loop_ordering_after_fusion": False,
    "reorder_for_peak_memory": False,
}
"""The same, asked when its kernels begin to be written."""

NOT_CODE = (
    "cache", "trace.", "debug", "verbose", "dump", "compile_threads", "worker", "log",
    "benchmark_harness",
)  # fmt: skip
"""Parts of names of settings that do not change what is compiled."""

NO_UNIT = ("fallback_random", "custom", "TESTING_ONLY")
"""Random numbers are eager's, or all that is drawn looks wrong; custom passes are asked when they
run; bugs that a test of torch's has switched on are what is looked for."""


def asked(gate: Gate, table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a table that the gate holds back, with their careful values."""
    return {
        name: careful
        for name, careful in table.items()
        if _value(name) != careful and not gate.allows(f"config.{name}", name)
    }


def changed() -> dict[str, Any]:
    """The settings that a script or its environment has changed: name -> torch's default."""
    return {
        name: entry.default
        for name, entry in vars(config)["_config"].items()
        if entry.alias is None
        and not any(part in name for part in NOT_CODE)
        and _value(name) != entry.default
    }


def units() -> dict[str, Any]:
    """Those of the changed settings that can be switched off: name -> torch's default."""
    return {n: v for n, v in changed().items() if not any(part in n for part in NO_UNIT)}


def options() -> dict[str, Any]:
    """The changed settings as options of torch.compile, where a script can write them down."""
    values = {name: _value(name) for name in changed()}
    return {name: value for name, value in values.items() if _is_literal(value)}


def _is_literal(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(_is_literal(part) for part in value)
    if isinstance(value, dict):
        return all(_is_literal(part) for pair in value.items() for part in pair)
    return value is None or isinstance(value, bool | int | float | str)


def _value(name: str) -> Any:
    """The value of a setting by its dotted name, None where this torch has no such setting."""
    found: Any = config
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
