"""Decompositions and the partition of every backend that calls AOTAutograd."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch._functorch import config as functorch_config
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._inductor import lowering
from torch._inductor.decomposition import select_decomp_table

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

RECOMPUTE = "partition.recompute"
CSE = "partition.cse"
DONATE = "partition.donate"
DEFAULT_TAKES = ("num_fwd_outputs", "static_lifetime_input_indices", "static_lifetime_input_nodes")
"""Arguments of the partition that does not recompute."""

AOT = Patch(
    "torch._dynamo.backends.common",
    "aot_module_simplified",
    "decompositions, and the partition of other backends than inductor, cannot be switched off",
    takes=("decompositions", "partition_fn"),
)
PARTITION = Patch(
    "torch._inductor.compile_fx",
    "min_cut_rematerialization_partition",
    f"{RECOMPUTE} cannot be switched off in inductor",
)
DONATED = Patch(
    "torch._functorch._aot_autograd.graph_compile",
    "collect_bw_donated_buffer_idxs",
    f"{DONATE} cannot be switched off",
)
IN_TEMPLATE = tuple(
    Patch(
        "torch._higher_order_ops.flex_attention",
        name,
        "flex_attention does not compile if a decomposition in its score or mask function is off",
    )
    for name in ("trace_flex_attention", "trace_flex_attention_backward")
)
"""Functions that trace code into the template of an attention kernel."""
TO_LOOPS = tuple(
    Patch(
        "torch._inductor.fx_passes.post_grad",
        name,
        "decompositions inside map and scan cannot be switched off",
    )
    for name in ("decompose_map_to_while_loop", "decompose_scan_to_while_loop")
)
"""Passes that retrace the bodies of map and scan, decompositions included."""
RETRACE = Patch(
    "torch._inductor.pattern_matcher",
    "fwd_only",
    "decompositions inside map and scan cannot be switched off",
    takes=("get_decomp_fn",),
)
PATCHES = (AOT, PARTITION, DONATED, *IN_TEMPLATE, *TO_LOOPS, RETRACE)

Function = Callable[..., Any]


@contextlib.contextmanager
def decompositions_and_partition(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let every use of a decomposition, and the partition of forward and backward, ask the gate."""
    uses = _Uses(gate)

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

    def donating(original: Function) -> Function:
        @functools.wraps(original)
        def collect(*args: Any, **kwargs: Any) -> Any:
            donated = original(*args, **kwargs)
            subject = f"saved tensors, {len(donated)}"
            return donated if not donated or gate.allows(DONATE, subject) else []

        return collect

    def gated(original: Function) -> Function:
        @functools.wraps(original)
        def trace(module: Any, args: Any, **kwargs: Any) -> Any:
            if table := kwargs.get("decompositions"):
                kwargs["decompositions"] = uses.of_table(table)
            given: Any = kwargs.get("partition_fn")
            if getattr(given, "func", given) is min_cut_rematerialization_partition:
                kwargs["partition_fn"] = recomputing(given)
            return original(module, args, **kwargs)

        return trace

    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(patched(AOT, gated, log))
            stack.enter_context(patched(PARTITION, recomputing, log))
            stack.enter_context(patched(DONATED, donating, log))
            for patch in IN_TEMPLATE:
                stack.enter_context(patched(patch, uses.in_template, log))
            for patch in TO_LOOPS:
                stack.enter_context(patched(patch, uses.to_loops, log))
            stack.enter_context(patched(RETRACE, uses.traced_again, log))
            yield
    finally:
        for op in uses.fallbacks:
            lowering.lowerings.pop(op, None)
            lowering.fallbacks.discard(op)


def is_required(op: Any) -> bool:
    """Return whether an operator writes its arguments. AOTAutograd's graphs must not have one."""
    schema = getattr(op, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


@dataclass
class _Uses:
    """The uses of decompositions in the compiles of a block."""

    gate: Gate
    fallbacks: list[Any] = field(default_factory=list)
    """Operators that got a fallback because their decomposition was refused."""
    templates: int = 0
    """The nesting depth of functions that are being traced into a template."""

    loops: int = 0
    """The nesting depth of passes that turn map and scan into loops."""

    def of_table(self, table: Mapping[Any, Function]) -> dict[Any, Function]:
        """Return a table whose decompositions ask the gate, except the required ones."""
        return {op: f if is_required(op) else self.asking(op, f) for op, f in table.items()}

    def asking(self, op: Any, decomposition: Function) -> Function:
        """Return a decomposition that asks. If refused, the operator stays, with a fallback."""

        @functools.wraps(decomposition)
        def decompose(*args: Any, **kwargs: Any) -> Any:
            if self._is_needed(op) or self.gate.allows(f"decompose.{op}", str(op)):
                return decomposition(*args, **kwargs)
            if op not in lowering.lowerings:
                register: Any = lowering.make_fallback
                register(op, warn=False, override_decomp=True)
                self.fallbacks.append(op)
            return NotImplemented

        return decompose

    def in_template(self, original: Function) -> Function:
        """Wrap a function of torch that traces code into a template."""

        @functools.wraps(original)
        def trace(*args: Any, **kwargs: Any) -> Any:
            self.templates += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.templates -= 1

        return trace

    def to_loops(self, original: Function) -> Function:
        """Wrap a pass that turns map and scan into loops."""

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.loops += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.loops -= 1

        return run

    def traced_again(self, original: Function) -> Function:
        """Wrap the function with which passes trace what they insert into a graph."""

        @functools.wraps(original)
        def trace(*args: Any, **kwargs: Any) -> Any:
            if self.loops:
                kwargs["get_decomp_fn"] = lambda: self.of_table(select_decomp_table())
            return original(*args, **kwargs)

        return trace

    def _is_needed(self, op: Any) -> bool:
        """Return whether an operator must be decomposed: a template cannot call ATen kernels."""
        has_loops = op in lowering.lowerings and op not in self.fallbacks
        return bool(self.templates) and not has_loops
