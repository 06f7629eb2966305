"""Settings of inductor as units: settings that change code, and settings that a script changed.

A setting that an environment variable provides counts as changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch._inductor import config

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.minifier.cases import settings
from tcdebug.minifier.cases.settings import set_back, value

CONFIG = "torch._inductor.config"
FUNCTORCH = "torch._functorch.config"

UNCACHED = {
    "autotune_local_cache": False,
    "compile_threads": 1,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
}
"""Cache keys of graphs do not include what a script has patched or a gate refuses.

Kernels are cached by their source, which reflects both. The choice between configurations of a
kernel is made again, or decisions would depend on earlier compiles.
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
"""Setting -> its conservative value. The gate is asked when the lowering of a graph starts."""

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
"""The same for settings that are asked about when code generation starts."""

GPU: Mapping[str, Any] = {
    "dynamic_scale_rblock": False,
    "graph_partition": False,
    "triton.coalesce_tiling_analysis": False,
    "triton.divisible_by_16": False,
    "triton.mix_order_reduction": False,
}
"""The same for graphs that compute on a GPU."""

NO_UNIT = ("fallback_random", "custom", "TESTING_ONLY")
"""Random numbers must match eager, or every result that depends on them looks wrong. Custom passes
are asked about when they run. Bugs that a test of torch switches on are what a search looks for."""


@contextlib.contextmanager
def uncached(log: EventLog) -> Iterator[None]:
    """Compile without caches of graphs in this block, even if a variable forces them on."""
    off = {"enable_autograd_cache": False}
    with set_back(CONFIG, UNCACHED, log), set_back(FUNCTORCH, off, log):
        yield


def asked(gate: Gate, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a table that the gate refuses, with their conservative values.

    Settings that this version of torch does not have are not asked about.
    """
    return {
        name: conservative
        for name, conservative in table.items()
        if value(config, name) not in (None, conservative)
        and not gate.allows(f"config.{name}", name)
    }


def changed() -> dict[str, Any]:
    """Return the settings that a script or its environment has changed, with torch's defaults."""
    return settings.changed(CONFIG)


def units() -> dict[str, Any]:
    """Return the changed settings that can be switched off, with torch's defaults."""
    return {n: v for n, v in changed().items() if not any(part in n for part in NO_UNIT)}
