"""Registers lowerings, decompositions, passes and devices that a program adds to the compiler.

A lowering, decomposition or pass becomes a unit of its stage. It is logged, switched off and
bisected like the compiler's own units. Registering an entry again replaces it. Entries apply to
the whole process; register them at the top of a script, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tcdebug.compiler.devices.protocol import Codegen
from tcdebug.compiler.lower.interface.site import Lowering
from tcdebug.compiler.registry import REGISTRY, Pass

Decomposition = TypeVar("Decomposition", bound=Callable[..., Any])


class BadRegistration(TypeError):
    """Something cannot be registered. The message says what is accepted."""


def register_lowering(operator: torch._ops.OpOverload) -> Callable[[Lowering], Lowering]:
    """Return a decorator for a function that lowers an operator to loops; unit lower.<operator>.

    docs/writing-a-lowering.md describes its argument and result. Raises BadRegistration.
    """
    check_operator(operator)

    def register(function: Lowering) -> Lowering:
        REGISTRY.lowerings[operator] = function
        return function

    return register


def register_decomposition(
    operator: torch._ops.OpOverload,
) -> Callable[[Decomposition], Decomposition]:
    """Return a decorator for a decomposition of an operator; unit decompose.<operator>.

    The function takes and returns tensors as the operator does. It may return NotImplemented to
    leave the operator as it is. Raises BadRegistration.
    """
    check_operator(operator)

    def register(function: Decomposition) -> Decomposition:
        REGISTRY.decompositions[operator] = function
        return function

    return register


def register_pass(stage: str = "passes") -> Callable[[Pass], Pass]:
    """Return a decorator for a graph pass; unit <stage>.<name of the function>.

    `stage` is "passes" (ATen operators) or "pregrad" (torch functions, before autograd). The pass
    runs after the existing ones. docs/writing-a-pass.md describes the contract. Raises
    BadRegistration.
    """
    tables = {"passes": REGISTRY.aten_passes, "pregrad": REGISTRY.pregrad_passes}
    if stage not in tables:
        raise BadRegistration(f"passes run in {' and '.join(tables)}, not in {stage!r}")

    def register(function: Pass) -> Pass:
        tables[stage][f"{stage}.{function.__name__}"] = function
        return function

    return register


def register_device(name: str, codegen: Codegen) -> None:
    """Use `codegen` to write and build the kernels of a type of device, such as npu.

    docs/vendor-backends.md describes its methods. Raises BadRegistration.
    """
    missing = [m for m in ("refuses", "write", "is_built", "build") if not hasattr(codegen, m)]
    if missing:
        raise BadRegistration(f"a codegen must have {', '.join(missing)}")
    REGISTRY.devices[name] = codegen


def check_operator(operator: object) -> None:
    """Raise BadRegistration unless `operator` is an operator overload."""
    if not isinstance(operator, torch._ops.OpOverload):
        raise BadRegistration(
            f"expected an operator overload such as torch.ops.aten.sin.default, not {operator!r}"
        )
