"""Settings of inductor as units: those that change code, and those that a script has changed.

A setting that an environment variable gives has been changed, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch._inductor import config

from tcdebug.compiler.gate.gate import Gate
from tcdebug.minifier.cases import settings
from tcdebug.minifier.cases.settings import value

CONFIG = "torch._inductor.config"

UNCACHED = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "compile_threads": 1}
"""Keys of caches of graphs do not know what a script has patched or a gate holds back.

Kernels are kept by their source, which does.
"""

LOWERING: Mapping[str, Any] = {
    "comprehensive_padding": False,
    "constant_and_index_propagation": False,
    "emulate_precision_casts": True,
    "inplace_padding": False,
    "max_pointwise_cat_inputs": 0,
    "pick_loop_orders": False,
    "split_reductions": False,
    "unroll_reductions_threshold": 0,
}
"""Setting -> its careful value; asked when a graph begins to be lowered."""

CODEGEN: Mapping[str, Any] = {
    "allow_buffer_reuse": False,
    "cpp.enable_loop_tail_vec": False,
    "cpp.no_redundant_loops": False,
    "cpp.threads": 1,
    "inplace_buffers": False,
    "loop_index_inversion_in_fusion": False,
    "loop_ordering_after_fusion": False,
    "reorder_for_peak_memory": False,
}
"""The same, asked when its kernels begin to be written."""

GPU: Mapping[str, Any] = {
    "dynamic_scale_rblock": False,
    "graph_partition": False,
    "triton.coalesce_tiling_analysis": False,
    "triton.divisible_by_16": False,
    "triton.mix_order_reduction": False,
    "triton.persistent_reductions": False,
}
"""The same, asked where a graph computes on a GPU."""

NO_UNIT = ("fallback_random", "custom", "TESTING_ONLY")
"""Random numbers are eager's, or all that is drawn looks wrong; custom passes are asked when they
run; bugs that a test of torch's has switched on are what is looked for."""


def asked(gate: Gate, table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a table that the gate holds back, with their careful values.

    A setting that this torch does not have is not asked.
    """
    return {
        name: careful
        for name, careful in table.items()
        if value(config, name) not in (None, careful)
        and not gate.allows(f"config.{name}", name)
    }


def changed() -> dict[str, Any]:
    """The settings that a script or its environment has changed: name -> torch's default."""
    return settings.changed(CONFIG)


def units() -> dict[str, Any]:
    """Those of the changed settings that can be switched off: name -> torch's default."""
    return {n: v for n, v in changed().items() if not any(part in n for part in NO_UNIT)}
