"""Decisions about what a Triton kernel computes, and how its loops run over memory.

Splits and kinds of reductions, tiles, pointers to blocks, combined and alternative kernels,
templates.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._inductor import config
from torch._inductor.virtualized import V

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases.settings import value
from tcdebug.minifier.targets.inductor.codegen import current_kernel
from tcdebug.minifier.targets.inductor.fusion import kernel_name

SPLITS = Patch(
    "torch._inductor.ir:Reduction", "num_splits", "codegen.split_reduction cannot be switched off"
)
TILES = Patch(
    "torch._inductor.codegen.simd:SIMDScheduling",
    "get_tiling_and_scores",
    "codegen.tiling cannot be switched off",
    takes=("node_schedule", "numel", "reduction_numel"),
)
KERNEL = "torch._inductor.codegen.triton:TritonKernel"
POINTERS = Patch(KERNEL, "__init__", "codegen.block_pointer cannot be switched off")
PERSISTENT = Patch(
    KERNEL,
    "should_use_persistent_reduction",
    "codegen.persistent_reduction cannot be switched off",
)
COOPERATIVE = Patch(
    KERNEL,
    "should_use_cooperative_reduction",
    "codegen.cooperative_reduction cannot be switched off",
)
ALTERNATIVES = Patch(
    "torch._inductor.codegen.triton:TritonScheduling",
    "add_multi_kernel_choices",
    "codegen.multi_kernel cannot be switched off",
    takes=("kernel",),
)
COMBINED = Patch(
    "torch._inductor.scheduler:Scheduler",
    "speedup_by_combo_kernel",
    "codegen.combo_kernel cannot be switched off",
    takes=("nodes",),
)
TEMPLATES = Patch(
    "torch._inductor.select_algorithm:AlgorithmSelectorCache",
    "__call__",
    "codegen.template cannot be switched off",
    takes=("name", "choices"),
)
PATCHES = (SPLITS, TILES, POINTERS, ALTERNATIVES, COMBINED, TEMPLATES, PERSISTENT, COOPERATIVE)

SHAPES = {
    "codegen.split_reduction": "reduce few long rows in two steps, node by node",
    "codegen.template": "time generated kernels for a product beside the library's, node by node",
    "codegen.tiling": "run over several dimensions in tiles instead of one, kernel by kernel",
    "codegen.multi_kernel": "write several kernels for the same work and time them",
    "codegen.combo_kernel": "run independent kernels as one, group by group",
    "codegen.block_pointer": "address memory by pointers to blocks or by tensor descriptors (TMA), "
    "kernel by kernel",
    "codegen.persistent_reduction": "load all elements of a reduction at once instead of in a "
    "loop, kernel by kernel",
    "codegen.cooperative_reduction": "let several blocks share a reduction, kernel by kernel",
}
"""Units of the shape of kernels."""

BLOCK_POINTERS = ("triton.use_block_ptr", "triton.use_tensor_descriptor")
Function = Callable[..., Any]


@contextlib.contextmanager
def kernel_shapes(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let each of these decisions ask the gate, once per kernel, node or group of a graph."""
    answers: dict[tuple[int, str, str], bool] = {}

    def allows(unit: str, subject: str) -> bool:
        key = (id(V.graph), unit, subject)
        if key not in answers:
            answers[key] = gate.allows(unit, subject)
        return answers[key]

    with (
        patched(SPLITS, functools.partial(_splits, allows), log),
        patched(TILES, functools.partial(_tiles, allows), log),
        patched(POINTERS, functools.partial(_pointers, allows), log),
        patched(ALTERNATIVES, functools.partial(_alternatives, allows), log),
        patched(COMBINED, functools.partial(_combined, allows), log),
        patched(TEMPLATES, functools.partial(_templates, allows), log),
        patched(PERSISTENT, _reducing(gate, "codegen.persistent_reduction"), log),
        patched(COOPERATIVE, _reducing(gate, "codegen.cooperative_reduction"), log),
    ):
        yield


Allows = Callable[[str, str], bool]


def _splits(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def num_splits(device: Any, *args: Any, **kwargs: Any) -> Any:
        hint, split = original(device, *args, **kwargs)
        optional = device.type != "cpu" and split not in (0, 1)
        if optional and not allows("codegen.split_reduction", _current_node()):
            split = 1
        return hint, split

    return num_splits


def _tiles(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def get_tiling_and_scores(
        cls: Any, node_schedule: Any, numel: Any, reduction_numel: Any = 1, *args: Any
    ) -> Any:
        found = original(cls, node_schedule, numel, reduction_numel, *args)
        plain = cls.create_tiling([numel], [reduction_numel])
        if dict(found[0]) == dict(plain) or config.triton.native_matmul:
            return found
        allowed = allows("codegen.tiling", _names(node_schedule))
        return found if allowed else (plain, None)

    return get_tiling_and_scores


def _pointers(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        wanted = self.allow_block_ptr and any(value(config, name) for name in BLOCK_POINTERS)
        if wanted and not allows("codegen.block_pointer", current_kernel()):
            self.allow_block_ptr = False

    return init


def _alternatives(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def add_multi_kernel_choices(self: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        kernels = original(self, kernel, *args, **kwargs)
        if len(kernels) > 1 and not allows("codegen.multi_kernel", current_kernel()):
            return [kernel]
        return kernels

    return add_multi_kernel_choices


def _combined(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def speedup_by_combo_kernel(self: Any, nodes: Any) -> bool:
        return bool(original(self, nodes) and allows("codegen.combo_kernel", _names(nodes)))

    return speedup_by_combo_kernel


def _templates(allows: Allows, original: Function) -> Function:
    @functools.wraps(original)
    def call(self: Any, name: str, choices: Any, *args: Any, **kwargs: Any) -> Any:
        library = [c for c in choices if type(c).__name__ == "ExternKernelCaller"]
        optional = 0 < len(library) < len(choices)
        if optional and not allows("codegen.template", f"{name} {_current_node()}"):
            choices = library
        return original(self, name, choices, *args, **kwargs)

    return call


def _reducing(gate: Gate, unit: str) -> Callable[[Function], Function]:
    def make(original: Function) -> Function:
        @functools.wraps(original)
        def should_use(self: Any) -> bool:
            return bool(original(self) and gate.allows(unit, current_kernel()))

        return should_use

    return make


def _current_node() -> str:
    """Return the FX node that is being lowered."""
    node = V.current_node
    return "" if node is None else str(node.name)


def _names(nodes: Sequence[Any]) -> str:
    """Return the FX nodes that loops compute. A schedule also has marks between loops."""
    return "+".join(kernel_name(node) for node in nodes if hasattr(node, "get_nodes"))
