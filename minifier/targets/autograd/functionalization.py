"""Functionalisation by operator: each operator that updates a tensor in place.

With an operator switched off, its update becomes an operator that creates a new tensor, and a copy
into the old one. The functionalisation of views cannot be switched off, because torch refuses to
update an `as_strided` of another view.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

UNIT = "autograd.functionalization"

DISPATCH = Patch(
    "torch._subclasses.functional_tensor:FunctionalTensorMode",
    "__torch_dispatch__",
    f"{UNIT}.* cannot be switched off",
    takes=("func", "types", "args", "kwargs"),
)
PATCHES = (DISPATCH,)

UNFIT = frozenset({torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded})
"""Tags of operators that change more than elements, or that draw random numbers."""

Function = Callable[..., Any]


@contextlib.contextmanager
def functionalization(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let each operator that updates a tensor in place ask when it is first functionalised."""
    answers: dict[Any, bool] = {}

    def allowed(operator: Any) -> bool:
        if operator not in answers:
            answers[operator] = gate.allows(f"{UNIT}.{operator}", str(operator))
        return answers[operator]

    def asking(original: Function) -> Function:
        @functools.wraps(original)
        def dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            functional = _functional(func, args)
            if functional is None or allowed(func):
                return original(mode, func, types, args, kwargs)
            with mode:
                torch.ops.aten.copy_.default(args[0], functional(*args, **(kwargs or {})))
                return args[0]

        return dispatch

    with patched(DISPATCH, asking, log):
        yield


def _functional(func: Any, args: Any) -> OpOverload | None:
    """Return the operator that computes as a new tensor what `func` writes to its argument."""
    if not isinstance(func, OpOverload) or func._opname == "copy_" or not args:
        return None
    if not isinstance(args[0], FunctionalTensor) or args[0].layout != torch.strided:
        return None
    name = func._opname
    written = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
    if not name.endswith("_") or written != [func._schema.arguments[0].name]:
        return None
    if UNFIT.intersection(func.tags):
        return None
    packet = getattr(getattr(torch.ops, func.namespace), name[:-1], None)
    found = getattr(packet, func._overloadname, None)
    return found if isinstance(found, OpOverload) else None
