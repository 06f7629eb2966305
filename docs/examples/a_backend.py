"""A complete out-of-tree device: "npy", with NumPy memory and kernels in Python.

It is a small version of a vendor's plug-in: a PrivateUse1 device, a few operators for it, and a
code generator that tcdebug asks for kernels.
"""
# ruff: noqa: T201

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from torch.utils.weak import WeakTensorKeyDictionary

import tcdebug
from tcdebug.compiler.codegen.kernels.call import KernelCall, describe
from tcdebug.compiler.codegen.kernels.flatten import flatten
from tcdebug.compiler.codegen.wrapper.launches import Launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import product
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.expr import Call, Constant, Expr, IndexValue, Load
from tcdebug.compiler.ir.graph import Buffer, LoopNode, Pointwise
from tcdebug.compiler.schedule.kernel import Kernel
from tcdebug.compiler.stages.stage import Stages

# -- the device -----------------------------------------------------------------------------------

MEMORY = WeakTensorKeyDictionary()
"""The elements of each tensor on npy, as a flat array."""


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """Allocate a tensor; all tensors are contiguous here."""
    tensor = torch._C._acc.create_empty_tensor(list(size), dtype or torch.float32)
    MEMORY[tensor] = np.zeros(int(np.prod(size)), dtype=str(tensor.dtype).removeprefix("torch."))
    return tensor


def copy_from(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """Copy from and to the CPU."""
    if source.device.type == "cpu":
        MEMORY[target][:] = source.contiguous().numpy().reshape(-1)
    else:
        target.copy_(torch.from_numpy(MEMORY[source].reshape(source.shape)))
    return target


def set_up() -> torch.library.Library:
    """Register the device with the operators that it needs; keep the result."""
    _setup_privateuseone_for_python_backend("npy")
    library = torch.library.Library("aten", "IMPL")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    library.impl(
        "empty.memory_format",
        lambda size, dtype=None, **_: empty_strided(size, (), dtype=dtype),
        "PrivateUse1",
    )
    library.impl("_copy_from", copy_from, "PrivateUse1")
    return library


# -- its kernels ----------------------------------------------------------------------------------

PYTHON = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
NUMPY = {"exp": "np.exp", "sin": "np.sin", "sqrt": "np.sqrt", "maximum": "np.maximum"}


@dataclass(frozen=True)
class NumpySource:
    """Kernels as Python functions of arrays."""

    text: str
    calls: Mapping[str, KernelCall]
    language: str = "numpy"
    suffix: str = "py"


class NumpyCodegen:
    """Writes pointwise kernels. Everything else is left to ATen."""

    def prepare(self, options: Options) -> None:
        """Do nothing: there is nothing to initialise."""

    def refuses(self, node: LoopNode) -> str:
        """The reason why a node cannot be written."""
        if not isinstance(node, Pointwise):
            return "only pointwise kernels on npy"
        return _unknown(node.body)

    def write(
        self, kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate
    ) -> NumpySource:
        """One function per kernel; it computes all elements at once."""
        calls: dict[str, KernelCall] = {}
        for kernel in kernels:
            flat = flatten(kernel, buffers, collapse=True)
            call = replace(describe(kernel, flat, buffers), addresses=False)
            axes = (*flat.outer, *flat.inner)
            names = [*(f"{n}_in" for n in call.loads), *(f"{n}_out" for n in call.stores)]
            lines = [f"def {kernel.name}({', '.join([*names, *call.symbols])}):"]
            # each axis as an array that broadcasts against the others
            sizes = ", ".join(f"({render(a.size)})" for a in axes)
            grid = ", ".join(a.name for a in axes)
            if axes:
                lines.append(f"    {grid}, = np.ogrid[tuple(slice(n) for n in ({sizes},))]")
            for node in flat.nodes:
                lines.append(f"    {node.name} = {_text(node.body)}")
                if node.name in flat.stored:
                    lines.append(f"    {node.name}_out[{render(node.address)}] = {node.name}")
            points = render(product(a.size for a in axes))
            lines.append(f"    return 0  # {points} points")
            calls[kernel.name] = replace(call, source="\n".join(lines))
        return NumpySource("\n\n".join(c.source for c in calls.values()), calls)

    def is_built(self, source: NumpySource, options: Options) -> bool:
        """There is nothing to build."""
        return True

    def build(
        self, source: NumpySource, launches: Sequence[Launch], stages: Stages, options: Options
    ) -> Mapping[str, Any]:
        """The functions. They get tensors and pass on their arrays."""
        namespace: dict[str, Any] = {"np": np}
        exec(source.text, namespace)

        def runner(function: Any) -> Any:
            def run(*given: Any) -> int:
                arrays = [MEMORY[g] if isinstance(g, torch.Tensor) else g for g in given]
                status: int = function(*arrays)
                return status

            return run

        return {f"run_{name}": runner(namespace[name]) for name in source.calls}


def _unknown(expr: Expr) -> str:
    known = isinstance(expr, Load | Constant | IndexValue) or (
        isinstance(expr, Call) and (expr.name in PYTHON or expr.name in NUMPY)
    )
    if not known:
        return f"{getattr(expr, 'name', type(expr).__name__)} on npy"
    return next((reason for o in expr.operands if (reason := _unknown(o))), "")


def _text(expr: Expr) -> str:
    match expr:
        case Constant():
            return repr(expr.value)
        case Load(index=()):
            return expr.buffer
        case Load():
            return f"{expr.buffer}_in[{render(expr.index[0])}]"
        case IndexValue():
            return f"({render(expr.index)})"
        case Call():
            operands = [_text(o) for o in expr.operands]
            if expr.name in PYTHON:
                return f"({f' {PYTHON[expr.name]} '.join(operands)})"
            return f"{NUMPY[expr.name]}({', '.join(operands)})"
    raise TypeError(expr)


def main() -> None:
    """Compile a function and run it on npy."""
    os.environ.setdefault("TCDEBUG_LOG", "0")
    library = set_up()
    codegen = NumpyCodegen()
    tcdebug.register_device("npy", codegen)
    backend = tcdebug.get_backend(tcdebug.CompilerConfig(mode="default"))

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).sin() * 2 - x

    x, y = torch.randn(4, 5), torch.randn(5)
    compiled = torch.compile(function, backend=backend)
    result = compiled(x.to("npy"), y.to("npy"))
    torch.testing.assert_close(result.cpu(), function(x, y))
    print("npy computes what the CPU computes")
    del library


if __name__ == "__main__":
    main()
