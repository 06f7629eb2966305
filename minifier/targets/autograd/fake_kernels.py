"""Fake kernels of operators, which describe results without computing them.

Dynamo, AOTAutograd and backends trace with fake tensors: an operator's fake kernel says which size,
strides and dtype its result has. A backend allocates memory and computes addresses accordingly. If
a fake kernel is wrong, every graph is still right when it runs in plain torch, so the backend seems
to be at fault.

With the fake kernel of an operator switched off, its real kernel runs on tensors of zeros, and the
fake result gets the size, strides and dtype of the real one. Only operators whose fake kernel is
wrong are decisions. Only toggles that name this unit consult them, because each operator of the
trace is then run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from tcdebug.compiler import seams
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles, belongs
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases.layer_names import FAKE_KERNELS
from tcdebug.minifier.targets.autograd.functionalization import UNFIT

DISPATCH = Patch(
    "torch._subclasses.fake_tensor:FakeTensorMode",
    "dispatch",
    f"{FAKE_KERNELS}.* cannot be switched off",
    takes=("func", "types", "args", "kwargs"),
)
PATCHES = (DISPATCH,)

LARGEST = 2**30
"""The bytes of a tensor up to which an operator is run to check its fake kernel."""

COMMUNICATING = ("c10d", "dtensor", "symm_mem")
"""Parts of the namespaces of operators that wait for other ranks."""

Function = Callable[..., Any]


def named(toggles: Toggles) -> bool:
    """Return whether toggles name fake kernels."""
    names = (*toggles.off, *toggles.first, *toggles.only)
    return any(belongs(name, FAKE_KERNELS) for name in names)


@contextlib.contextmanager
def fake_kernels(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let each operator whose fake kernel does not describe its result ask once."""
    answers: dict[Any, bool] = {}

    def allowed(operator: OpOverload, what: str) -> bool:
        if operator not in answers:
            answers[operator] = gate.allows(f"{FAKE_KERNELS}.{operator}", what)
        return answers[operator]

    def asking(original: Function) -> Function:
        @functools.wraps(original)
        def dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            fake = original(mode, func, types, args, kwargs or {})
            if not (_creates_tensors(func) and _has_known_sizes(fake)):
                return fake
            real = _result(func, args, kwargs or {})
            what = "" if real is None else next(_differences(fake, real), "")
            if not what or allowed(func, what):
                return fake
            return _described(mode, fake, real)

        return dispatch

    with patched(DISPATCH, asking, log):
        yield


def _creates_tensors(func: Any) -> bool:
    """Return whether an operator computes new tensors, and draws and sends nothing."""
    if not isinstance(func, OpOverload) or UNFIT.intersection(func.tags):
        return False
    if any(part in func.namespace for part in COMMUNICATING):
        return False
    schema = func._schema
    return not any(part.alias_info for part in (*schema.arguments, *schema.returns))


def _has_known_sizes(fake: Any) -> bool:
    """Return whether a result consists of tensors whose sizes do not depend on values."""
    flat = pytree.tree_flatten(fake)[0]
    return bool(flat) and all(x is None or (_is_plain(x) and _bytes(x) <= LARGEST) for x in flat)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a strided tensor without symbolic numbers."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return False
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return all(isinstance(number, int) for number in numbers)


def _result(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Return the result for tensors of zeros; None if it cannot be computed."""
    flat, spec = pytree.tree_flatten((args, kwargs))
    if any(isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) for x in flat):
        return None
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    if not all(_has_known_layout(x) for x in tensors):
        return None
    with seams.real_tensors():
        try:
            zeros = [_zeros(x) if isinstance(x, torch.Tensor) else x for x in flat]
            given, named = pytree.tree_unflatten(zeros, spec)
            return func(*given, **named)
        except Exception:  # zeros may not be valid: a kernel can raise anything
            return None


def _has_known_layout(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of zeros can stand for this one."""
    return (
        _is_plain(tensor)
        and tensor.device.type != "meta"
        and type(tensor) in (FakeTensor, torch.Tensor, torch.nn.Parameter)
        and _bytes(tensor) <= LARGEST
    )


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes from the first to the last element."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.element_size()


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    """Return zeros with the size, strides, dtype and device of a fake tensor."""
    elements = _bytes(tensor) // tensor.element_size()
    flat = torch.zeros(elements, dtype=tensor.dtype, device=tensor.device)
    return flat.as_strided(tensor.shape, tensor.stride())


def _described(mode: Any, fake: Any, real: Any) -> Any:
    """Return fake tensors that describe the tensors of a result."""
    wrong, spec = pytree.tree_flatten(fake)
    right, _ = pytree.tree_flatten(real)
    described = [
        mode.from_tensor(r, static_shapes=True) if isinstance(r, torch.Tensor) else w
        for w, r in zip(wrong, right, strict=True)
    ]
    return pytree.tree_unflatten(described, spec)


def _differences(fake: Any, real: Any) -> Iterator[str]:
    """Yield how the tensors of a result differ from its fake tensors."""
    pairs = zip(pytree.tree_flatten(fake)[0], pytree.tree_flatten(real)[0], strict=False)
    for said, was in pairs:
        if said is None or was is None:
            continue
        for name, one, other in (
            ("dtype", said.dtype, was.dtype),
            ("size", list(said.shape), list(was.shape)),
            ("strides", _strides(said), _strides(was)),
        ):
            if one != other:
                yield f"{name} {one} instead of {other}"
                break


def _strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides, with 1 for those of dimensions along which no step is ever taken."""
    if tensor.numel() == 0:
        return []
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride if size > 1 else 1 for size, stride in pairs]
