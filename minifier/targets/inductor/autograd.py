"""Decompositions and the partition, wherever a backend calls AOTAutograd."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch._functorch import config as functorch_config
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._inductor import lowering

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

RECOMPUTE = "partition.recompute"
CSE = "partition.cse"
DEFAULT_TAKES = ("num_fwd_outputs", "static_lifetime_input_indices", "static_lifetime_input_nodes")
"""Arguments that the partition without recomputation knows."""

AOT = Patch(
    "torch._dynamo.backends.common",
    "aot_module_simplified",
    "decompositions, and the partition of backends that are not inductor, are no units",
    takes=("decompositions", "partition_fn"),
)
PARTITION = Patch(
    "torch._inductor.compile_fx",
    "min_cut_rematerialization_partition",
    f"{RECOMPUTE} is no unit of inductor",
)
PATCHES = (AOT, PARTITION)

Function = Callable[..., Any]


@contextlib.contextmanager
def decompositions_and_partition(gate: Gate, log: EventLog) -> Iterator[None]:
    """Every use of a decomposition asks the gate, and so does recomputation in backward."""
    fallbacks: list[Any] = []

    def recomputing(original: Function) -> Function:
        def partition(joint: Any, inputs: Any, **kwargs: Any) -> Any:
            if gate.allows(RECOMPUTE, "joint graph"):
                shares = functorch_config.cse and gate.allows(CSE, "joint graph")
                with functorch_config.patch(cse=shares):
                    return original(joint, inputs, **kwargs)
            return default_partition(
                joint, inputs, **{k: v for k, v in kwargs.items() if k in DEFAULT_TAKES}
            )

        return partition

    def gated(original: Function) -> Function:
        @functools.wraps(original)
        def trace(module: Any, args: Any, **kwargs: Any) -> Any:
            if table := kwargs.get("decompositions"):
                kwargs["decompositions"] = {
                    op: f if is_required(op) else _asking(gate, op, f, fallbacks)
                    for op, f in table.items()
                }
            given: Any = kwargs.get("partition_fn")
            if getattr(given, "func", given) is min_cut_rematerialization_partition:
                kwargs["partition_fn"] = recomputing(given)
            return original(module, args, **kwargs)

        return trace

    try:
        with patched(AOT, gated, log), patched(PARTITION, recomputing, log):
            yield
    finally:
        for op in fallbacks:
            lowering.lowerings.pop(op, None)
            lowering.fallbacks.discard(op)


def is_required(op: Any) -> bool:
    """Whether an operator writes its arguments: no graph of AOTAutograd may hold it."""
    schema = getattr(op, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _asking(gate: Gate, op: Any, decomposition: Function, fallbacks: list[Any]) -> Function:
    """A decomposition that stays one operator, with a fallback, where the gate holds it back."""

    @functools.wraps(decomposition)
    def decompose(*args: Any, **kwargs: Any) -> Any:
        if gate.allows(f"decompose.{op}", str(op)):
            return decomposition(*args, **kwargs)
        if op not in lowering.lowerings:
            register: Any = lowering.make_fallback
            register(op, warn=False, override_decomp=True)
            fallbacks.append(op)
        return NotImplemented

    return decompose
