"""Decompositions and the partition, wherever a backend calls AOTAutograd."""

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
IN_TEMPLATE = tuple(
    Patch(
        "torch._higher_order_ops.flex_attention",
        name,
        "flex_attention does not compile with decompositions of its score and mask functions off",
    )
    for name in ("trace_flex_attention", "trace_flex_attention_backward")
)
"""Functions that trace what inductor writes into the template of an attention kernel."""
TO_LOOPS = tuple(
    Patch(
        "torch._inductor.fx_passes.post_grad",
        name,
        "decompositions inside of map and scan cannot be switched off",
    )
    for name in ("decompose_map_to_while_loop", "decompose_scan_to_while_loop")
)
"""Passes that trace the bodies of map and scan once more, decompositions included."""
RETRACE = Patch(
    "torch._inductor.pattern_matcher",
    "fwd_only",
    "decompositions inside of map and scan cannot be switched off",
    takes=("get_decomp_fn",),
)
PATCHES = (AOT, PARTITION, *IN_TEMPLATE, *TO_LOOPS, RETRACE)

Function = Callable[..., Any]


@contextlib.contextmanager
def decompositions_and_partition(gate: Gate, log: EventLog) -> Iterator[None]:
    """Every use of a decomposition asks the gate, and so does recomputation in backward."""
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
    """Whether an operator writes its arguments: no graph of AOTAutograd may hold it."""
    schema = getattr(op, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


@dataclass
class _Uses:
    """The uses of decompositions in the compiles of a block."""

    gate: Gate
    fallbacks: list[Any] = field(default_factory=list)
    """Operators that have a fallback because their decomposition was held back."""
    templates: int = 0
    """How many functions are being traced that become part of a template, one inside another."""

    loops: int = 0
    """How many passes are at work that make loops of map and scan."""

    def of_table(self, table: Mapping[Any, Function]) -> dict[Any, Function]:
        """A table of decompositions that ask, but for those that no graph can do without."""
        return {op: f if is_required(op) else self.asking(op, f) for op, f in table.items()}

    def asking(self, op: Any, decomposition: Function) -> Function:
        """A decomposition that stays one operator, with a fallback, where the gate refuses it."""

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
        """A function of torch's that traces what becomes part of a template."""

        @functools.wraps(original)
        def trace(*args: Any, **kwargs: Any) -> Any:
            self.templates += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.templates -= 1

        return trace

    def to_loops(self, original: Function) -> Function:
        """A pass that makes loops of map and scan."""

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.loops += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.loops -= 1

        return run

    def traced_again(self, original: Function) -> Function:
        """The function by which passes trace what they put into a graph."""

        @functools.wraps(original)
        def trace(*args: Any, **kwargs: Any) -> Any:
            if self.loops:
                kwargs["get_decomp_fn"] = lambda: self.of_table(select_decomp_table())
            return original(*args, **kwargs)

        return trace

    def _is_needed(self, op: Any) -> bool:
        """Whether an operator has to be decomposed: a template calls no kernel of ATen."""
        has_loops = op in lowering.lowerings and op not in self.fallbacks
        return bool(self.templates) and not has_loops
