"""What a program may add to the compiler: lowerings, decompositions and passes of its own.

Each becomes a unit of its stage, so it is logged, switched off and bisected like the units of the
compiler. Registering an entry a second time replaces it. `registry.REGISTRY` holds the entries for
the whole process; register at the top of a script, before anything is compiled.
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
    """Something that cannot be registered; the message says what can."""


def register_lowering(operator: torch._ops.OpOverload) -> Callable[[Lowering], Lowering]:
    """A decorator: the function makes loops of an operator, under the unit lower.<operator>.

    docs/writing-a-lowering.md says what it is given and returns. Raises BadRegistration.
    """
    check_operator(operator)

    def register(function: Lowering) -> Lowering:
        REGISTRY.lowerings[operator] = function
        return function

    return register


def register_decomposition(
    operator: torch._ops.OpOverload,
) -> Callable[[Decomposition], Decomposition]:
    """A decorator: the function writes an operator in others, under decompose.<operator>.

    It takes and returns tensors as the operator does; where it returns NotImplemented the operator
    stays whole. Raises BadRegistration.
    """
    check_operator(operator)

    def register(function: Decomposition) -> Decomposition:
        REGISTRY.decompositions[operator] = function
        return function

    return register


def register_pass(stage: str = "passes") -> Callable[[Pass], Pass]:
    """A decorator: the function changes the graph of a stage, under the unit <stage>.<its name>.

    `stage` is passes (ATen operators) or pregrad (torch functions, before autograd). It runs after
    those that are there. docs/writing-a-pass.md has the contract. Raises BadRegistration.
    """
    tables = {"passes": REGISTRY.aten_passes, "pregrad": REGISTRY.pregrad_passes}
    if stage not in tables:
        raise BadRegistration(f"passes run in {' and '.join(tables)}, not in {stage!r}")

    def register(function: Pass) -> Pass:
        tables[stage][f"{stage}.{function.__name__}"] = function
        return function

    return register


def register_device(name: str, codegen: Codegen) -> None:
    """Write the kernels for a type of device, such as npu, with `codegen` from now on.

    docs/vendor-backends.md says what it is asked. Raises BadRegistration.
    """
    missing = [m for m in ("refuses", "write", "is_built", "build") if not hasattr(codegen, m)]
    if missing:
        raise BadRegistration(f"what writes kernels has to have {', '.join(missing)}")
    REGISTRY.devices[name] = codegen


def check_operator(operator: object) -> None:
    if not isinstance(operator, torch._ops.OpOverload):
        raise BadRegistration(
            f"an operator with its overload is needed, such as torch.ops.aten.sin.default, "
            f"not {operator!r}"
        )
