"""Decisions of code generation: vectorisation by kernel, memory, views, threads."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import sympy  # type: ignore[import-untyped] # it ships no types
import torch
from torch._inductor import config, ir
from torch._inductor.virtualized import V

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.targets.inductor.fusion import kernel_name
from tcdebug.minifier.targets.inductor.settings import CODEGEN, GPU, asked

TILING = Patch(
    "torch._inductor.codegen.cpp:TilingSelect",
    "select_tiling",
    "codegen.vectorize cannot be switched off",
)
VECTOR_DTYPES = Patch(
    "torch._inductor.codegen.cpp",
    "VECTORIZABLE_DTYPES",
    "codegen.vectorize cannot be switched off for a kernel whose choice of tiles raises",
)
REUSE = Patch(
    "torch._inductor.codegen.wrapper:AllocateLine",
    "should_reuse_buffer",
    "memory.reuse cannot be switched off",
    takes=("free_line",),
)
CALL = Patch(
    "torch._inductor.ir:FallbackKernel", "codegen", "memory.zero_tensor cannot be switched off"
)
VALUE = Patch(
    "torch._inductor.codegen.common:CSE",
    "generate",
    "codegen.wide_integers cannot be switched off",
    takes=("buffer", "expr", "dtype"),
)
ALLOCATION = Patch(
    "torch._inductor.codegen.wrapper:PythonWrapperCodegen",
    "make_allocation",
    "memory.allocation cannot be switched off",
    takes=("name", "device", "dtype", "shape", "stride"),
)
VIEW_ARGUMENT = Patch(
    "torch._inductor.ir:ExternKernel",
    "realize_input",
    "memory.view cannot be switched off for arguments of an operator",
    takes=("x",),
)
VIEW_TEXT = Patch(
    "torch._inductor.ir:ReinterpretView",
    "codegen_reference",
    "memory.view cannot be switched off for results of a graph",
)
CODE, CODE_IN_CPP = (
    Patch(
        "torch._inductor.graph:GraphLowering",
        name,
        "settings of code generation (config.*) cannot be switched off",
    )
    for name in ("codegen", "codegen_with_cpp_wrapper")
)
PATCHES = (
    TILING, VECTOR_DTYPES, REUSE, CALL, VALUE, ALLOCATION, VIEW_ARGUMENT, VIEW_TEXT,
    CODE, CODE_IN_CPP,
)  # fmt: skip


NARROW = {
    torch.uint8: "uint8_t",
    torch.int8: "int8_t",
    torch.uint16: "uint16_t",
    torch.int16: "int16_t",
}
"""The types of integers that C++ computes with as if they were `int`."""
CONVERTED = re.compile(r"(?:decltype\(|static_cast<|c10::)|\w+(?:\[.*\])?$")
"""Begins an expression in C++ that has the type of its value: conversions, names, loads."""
ZERO_TENSOR, ZEROS = torch.ops.aten._efficientzerotensor.default, torch.ops.aten.zeros.default
"""The operator whose result has no memory, and the one with the same arguments whose result has."""
NOT_COPIED = ("_c10d_functional", "_dtensor", "symm_mem")
"""Operators of these namespaces wait for, or write to, the memory of an argument."""
THREADS = "cpp.threads"
"""Not asked if a graph has attention. Its template allocates memory for a fixed number of threads,
and runs on as many as torch has."""
ATTENTION = (torch.ops.higher_order.flex_attention, torch.ops.higher_order.flex_attention_backward)


@contextlib.contextmanager
def kernels(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let vectorised kernels, reused buffers, zeros, and each setting once per graph, ask.

    A kernel and a buffer ask too if the choice of tiles, or the check whether it fits, raises.
    """

    def vectorizing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def select_tiling(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                factors, indices, *rest = original(self, *args, **kwargs)
            except Exception:
                if gate.allows("codegen.vectorize", current_kernel()):
                    raise
                with patched(VECTOR_DTYPES, lambda dtypes: (), log):
                    return original(self, *args, **kwargs)
            if factors and not gate.allows("codegen.vectorize", current_kernel()):
                factors, indices = [], []
            return (factors, indices, *rest)

        return select_tiling

    def reusing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def should_reuse_buffer(self: Any, free_line: Any, *args: Any, **kwargs: Any) -> bool:
            names = f"{free_line.node.get_name()} for {self.node.get_name()}"
            try:
                wanted = bool(original(self, free_line, *args, **kwargs))
            except Exception:
                if gate.allows("memory.reuse", names):
                    raise
                return False
            return wanted and gate.allows("memory.reuse", names)

        return should_reuse_buffer

    def configured(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def codegen(self: Any, *args: Any, **kwargs: Any) -> Any:
            on_gpu = any(device != "cpu" for device in self.device_types)
            settings = {**CODEGEN, **(GPU if on_gpu else {})}
            if _has_attention(self.graph):
                del settings[THREADS]
            with config.patch(asked(gate, settings)):
                return original(self, *args, **kwargs)

        return codegen

    with (
        patched(TILING, vectorizing, log),
        patched(REUSE, reusing, log),
        patched(CALL, _calling(gate), log),
        patched(VALUE, _valued(gate), log),
        patched(ALLOCATION, _allocating(gate), log),
        patched(VIEW_ARGUMENT, _copying_views(gate), log),
        patched(VIEW_TEXT, _writing_views(gate), log),
        patched(CODE, configured, log),
        patched(CODE_IN_CPP, configured, log),
    ):
        yield


def _calling(gate: Gate) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what lets each call that makes zeros without memory ask; refused, they have memory."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def codegen(self: Any, *args: Any, **kwargs: Any) -> Any:
            zeros = self.op_overload is ZERO_TENSOR and not V.graph.cpp_wrapper
            if zeros and not gate.allows("memory.zero_tensor", self.get_name()):
                self.op_overload, self.python_kernel_name = ZEROS, f"torch.ops.{ZEROS}"
            return original(self, *args, **kwargs)

        return codegen

    return make


def _valued(gate: Gate) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what lets each value ask that C++ may compute wider than its type."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def generate(self: Any, buffer: Any, expr: Any, **given: Any) -> Any:
            dtype = given.get("dtype")  # of several results, a list
            name = NARROW.get(dtype) if isinstance(dtype, torch.dtype) else None
            if name is None or not isinstance(expr, str) or CONVERTED.match(expr):
                return original(self, buffer, expr, **given)
            narrow = f"static_cast<{name}>({expr})"
            if type(V.kernel).__name__ != "CppKernel" or self.try_get(expr):
                return original(self, buffer, expr, **given)
            subject = f"{expr.partition('(')[0]} in {current_kernel()}"
            if self.try_get(narrow) or not gate.allows("codegen.wide_integers", subject):
                return original(self, buffer, narrow, **given)
            return original(self, buffer, expr, **given)

        return generate

    return make


def _allocating(gate: Gate) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what lets each buffer ask; refused, `torch.empty_strided` allocates it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make_allocation(
            self: Any, name: Any, device: Any, dtype: Any, shape: Any, stride: Any,
            *args: Any, **kwargs: Any,
        ) -> Any:  # fmt: skip
            rest = [part for part in (*args, *kwargs.values()) if part]
            plain = rest in ([], [tuple(shape)])  # its memory is not larger, nor pinned
            if not plain or V.graph.fx_wrapper or gate.allows("memory.allocation", str(name)):
                return original(self, name, device, dtype, shape, stride, *args, **kwargs)
            size, strides = map(self.codegen_python_shape_tuple, (shape, stride))
            where = f"dtype={dtype}, device='{device.type}'"
            return f"{name} = torch.empty_strided({size}, {strides}, {where})"

        return make_allocation

    return make


def _copying_views(gate: Gate) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what lets each view ask that an operator of ATen or the caller of a graph is given.

    Refused, the operator gets a copy, and the view for the caller is laid out anew.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def realize_input(cls: Any, x: Any) -> Any:
            given = original(cls, x)
            node = V.current_node
            if not isinstance(given, ir.ReinterpretView):
                return given
            if _is_output(node) and isinstance(x, ir.TensorBox):
                allowed = gate.allows("memory.view", f"{given.get_name()} as a result")
                return given if allowed else _laid_out(x.data, given)
            if not _only_reads(node):
                return given
            if gate.allows("memory.view", f"{given.get_name()} for {node.name}"):
                return given
            return cls.copy_input(x)

        return realize_input

    return make


def _is_output(node: Any) -> bool:
    """Return whether a node is the results of a graph."""
    return isinstance(node, torch.fx.Node) and node.op == "output"


def _laid_out(view: Any, converted: Any) -> Any:
    """Return a converted view with the offset and strides of where it reads single elements."""
    size, index = view.get_size(), view.make_indexer()
    first, one = [sympy.Integer(0)] * len(size), sympy.Integer(1)
    offset = index(first)
    strides = [
        stride if size[axis] == 1 else index([*first[:axis], one, *first[axis + 1 :]]) - offset
        for axis, stride in enumerate(converted.get_stride())
    ]
    layout = ir.FixedLayout(view.get_device(), view.get_dtype(), size, strides, offset)
    return ir.ReinterpretView(data=converted.data, layout=layout)


def _only_reads(node: Any) -> bool:
    """Return whether a node calls an operator that writes to none of its arguments.

    Outside the lowering of a node, inductor has a stand-in for it.
    """
    called = node.target if isinstance(node, torch.fx.Node) else None
    if not isinstance(called, torch._ops.OpOverload) or called.namespace in NOT_COPIED:
        return False
    return not called._schema.is_mutable


def _writing_views(gate: Gate) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what lets each view in the code of a wrapper ask.

    Refused, `torch.as_strided` makes it. `data` gives it a version of its own, as inductor's views
    have, so that an update of another view of the buffer does not invalidate it for backward.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def codegen_reference(self: Any, *args: Any, **kwargs: Any) -> Any:
            wrapper, layout, name = V.graph.wrapper_code, self.layout, self.get_name()
            in_python = not (V.graph.cpp_wrapper or V.graph.fx_wrapper)
            if not in_python or gate.allows("memory.view", f"{name} at {layout.offset}"):
                return original(self, *args, **kwargs)
            size, stride = map(wrapper.codegen_python_shape_tuple, (layout.size, layout.stride))
            offset = f"{name}.storage_offset() + {wrapper.codegen_sizevar(layout.offset)}"
            view = f"torch.as_strided({name}, {size}, {stride}, {offset}).data"
            return f"{view}.view({layout.dtype})"

        return codegen_reference

    return make


def _has_attention(graph: torch.fx.Graph) -> bool:
    """Return whether a graph calls the attention template."""
    return any(node.target in ATTENTION for node in graph.nodes)


def current_kernel() -> str:
    """Return the FX nodes that the current kernel computes."""
    node = getattr(V.graph.scheduler, "current_node", None)
    return "" if node is None else kernel_name(node)
