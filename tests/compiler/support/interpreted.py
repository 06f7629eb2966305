"""Triton kernels for CPU tensors, run by Triton's interpreter in a separate process."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from tcdebug.compiler.codegen.triton.source import TritonSource
from tcdebug.compiler.codegen.triton.written import TritonKernel
from tcdebug.compiler.codegen.wrapper.launches import Launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.devices.cuda import TritonCodegen
from tcdebug.compiler.registry import REGISTRY
from tcdebug.compiler.runtime.cuda.compile import WIDE, constants, import_source
from tcdebug.compiler.stages.stage import Stages

TYPES = {
    "fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8,
    "u8": torch.uint8, "i1": torch.bool,
}  # fmt: skip


class Libdevice:
    """Functions that the interpreter lacks, implemented in torch."""

    NAMES: ClassVar[dict[str, str]] = {
        "rint": "round",
        "fast_dividef": "divide",
        "fast_log2f": "log2",
    }

    def __getattr__(self, name: str) -> Any:
        import triton.language as tl  # noqa: PLC0415 # only here, with the interpreter on
        from triton.runtime.interpreter import TensorHandle  # noqa: PLC0415 # the same

        function = getattr(torch, self.NAMES.get(name, name))

        def run(*given: Any) -> Any:
            shape = np.broadcast_shapes(*(g.handle.data.shape for g in given))
            arrays = [torch.from_numpy(np.broadcast_to(g.handle.data, shape).copy()) for g in given]
            result = function(*arrays).numpy()
            return tl.tensor(TensorHandle(result, given[0].dtype.scalar), _type(given, shape, tl))

        return run


def _type(given: Any, shape: tuple[int, ...], language: Any) -> Any:
    scalar = given[0].dtype.scalar
    whole = any(g.type.is_block() for g in given)
    return language.block_type(scalar, list(shape)) if whole else scalar


class InterpretedCodegen(TritonCodegen):
    """Requires that TRITON_INTERPRET=1 was set before triton was imported."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.row: int | None = None
        """Elements of a row that a loop takes at a time, where not as many as on a device."""

    def build(
        self, source: TritonSource, launches: Sequence[Launch], stages: Stages, options: Options
    ) -> Mapping[str, Any]:
        from tcdebug.compiler.codegen.triton import library  # noqa: PLC0415 # as triton

        self.sources.append(source.text)
        module = import_source(source.text, options.cache_dir)
        module.libdevice = library.libdevice = Libdevice()
        kernels = source.kernels.items()
        return {f"run_{n}": _runner(k, getattr(module, k.call.code), self.row) for n, k in kernels}


def _runner(kernel: TritonKernel, function: Any, row: int | None) -> Any:
    import triton.language as tl  # noqa: PLC0415 # only here, with the interpreter on

    tile = kernel.tile
    if row is not None:
        assert not tile.persistent and not tile.group("r").exact, "as written for other sizes"
        tile = tile.resized({"r": row}, tile.warps)
    types = [t.removeprefix("*") for t in kernel.signature.values()]

    def run(stream: int, wide: int, x: int, y: int, alone: int, *given: Any) -> int:
        blocks = {g.name: g.block for g in tile.groups}
        programs = -(-x // blocks["x"]) * -(-y // blocks.get("y", 1)) * alone
        values = [
            _at(value, TYPES[name]) if name in TYPES and isinstance(value, int) else value
            for value, name in zip(given, types, strict=True)
        ]
        fixed = constants(tile, WIDE if wide else 0, tl)
        if programs:
            function[(programs,)](*values, **fixed)
        return 0

    return run


def _at(address: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor over the memory at an address. Only its start matters."""
    if address == 0:  # the address of an empty tensor
        return torch.empty(0, dtype=dtype)
    memory = (ctypes.c_char * dtype.itemsize).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


def _multiply_bfloat16() -> None:
    """The interpreter holds bfloat16 as bits and would multiply the bits."""
    import triton.language as tl  # noqa: PLC0415 # only here, with the interpreter on
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle  # noqa: PLC0415

    multiply: Any = InterpreterBuilder.create_dot

    def widened(given: Any) -> Any:
        if given.dtype.scalar != tl.bfloat16:
            return given
        wide = (given.data.astype(np.uint32) << 16).view(np.float32)
        return TensorHandle(wide, tl.float32)

    def create_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
        return multiply(self, widened(left), widened(right), *rest)

    InterpreterBuilder.create_dot = create_dot


def _combined(
    operation: Any, given: Sequence[Any], left: Sequence[Any], right: Sequence[Any]
) -> Any:
    """What the function of a reduction or scan makes of two arrays for each operand."""
    types = [g.dtype for g in given] * 2
    operands = zip((*left, *right), types, strict=True)
    found = operation.combine_fn.fn(*(operation.to_tensor(v, dtype) for v, dtype in operands))
    results = found if isinstance(found, tuple) else (found,)
    return [
        result.handle.data.astype(one.dtype).reshape(one.shape)
        for result, one in zip(results, left, strict=True)
    ]


def _reduced(operation: Any, given: Sequence[Any]) -> list[Any]:
    """A reduction along an axis, whose size is a power of two: neighbours first, as on a GPU."""
    axis = 0 if operation.axis is None else operation.axis
    state = [g.handle.data for g in given]
    if operation.axis is None:
        state = [array.reshape(-1) for array in state]
    state = [np.moveaxis(array, axis, 0) for array in state]
    while len(state[0]) > 1:
        left, right = ([array[first::2] for array in state] for first in (0, 1))
        state = _combined(operation, given, left, right)
    found = [array[0] for array in state]
    if operation.keep_dims:
        kept = axis if operation.axis is not None else tuple(range(given[0].handle.data.ndim))
        found = [np.expand_dims(array, kept) for array in found]
    return [operation.to_tensor(f, g.dtype) for f, g in zip(found, given, strict=True)]


def _scanned(operation: Any, given: Sequence[Any]) -> list[Any]:
    """A scan along an axis: what ends at an element is twice as long after each step."""
    state = [np.moveaxis(g.handle.data, operation.axis, 0) for g in given]
    length = 1
    while length < len(state[0]):
        earlier = [np.roll(array, length, 0) for array in state]  # of as many elements
        later = _combined(operation, given, earlier, state)
        state = [
            np.concatenate([a[:length], b[length:]]) for a, b in zip(state, later, strict=True)
        ]
        length *= 2
    found = [np.moveaxis(array, 0, operation.axis) for array in state]
    return [operation.to_tensor(f, g.dtype) for f, g in zip(found, given, strict=True)]


def _combine_at_once() -> None:
    """The interpreter would call the function of a reduction or scan for each pair of elements."""
    from triton.runtime.interpreter import ReduceOps, ScanOps  # noqa: PLC0415 # as above

    ReduceOps.generic_reduce = _reduced
    ScanOps.generic_scan = _scanned


def install() -> InterpretedCodegen:
    """Write CPU kernels in Triton from now on, in this process."""
    _multiply_bfloat16()
    _combine_at_once()
    target = InterpretedCodegen()
    REGISTRY.devices["cpu"] = target
    return target
