"""In-place writes: to inputs, to intermediates, through views, and to shared memory."""

from __future__ import annotations

from functools import partial

import torch

from tcdebug.strategies.row import Draw, Row
from tcdebug.strategies.scope import Scope, ScopeValue, Want, fills_memory, layout, share_memory


def _writable(scope: Scope, tensor: torch.Tensor) -> bool:
    """Return whether a tensor may be written to.

    It must not require a gradient, backward must not read its old values, and no two indices may
    lead to the same element. The last also holds for all inputs that share its memory, since
    AOTAutograd writes back whole inputs.
    """
    place = tensor.untyped_storage().data_ptr()
    whole = [v.tensor for v in scope.values if v.tensor.untyped_storage().data_ptr() == place]
    writable = not tensor.requires_grad and place not in scope.saved
    return writable and all(_dense(t) for t in (tensor, *whole))


def _dense(tensor: torch.Tensor) -> bool:
    """Return whether no two indices lead to the same element."""
    steps = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    end = 0
    for stride, size in steps:  # each step leads past what the smaller ones reach
        if size > 1 and stride <= end:
            break
        end += (size - 1) * stride
    else:
        return True
    places = torch.zeros(tensor.shape, dtype=torch.int64)
    for dim, stride in enumerate(tensor.stride()):
        shape = [1] * tensor.dim()
        shape[dim] = tensor.shape[dim]
        places = places + torch.arange(tensor.shape[dim]).reshape(shape) * stride
    return len(set(places.flatten().tolist())) == tensor.numel()


def _shareable(scope: Scope, tensor: torch.Tensor) -> bool:
    """Return whether torch supports two different inputs that share this memory.

    AOTAutograd replaces such inputs by one tensor over the whole memory. That fails with symbolic
    sizes, if the inputs do not reach the end of the memory, and beside inputs with gradients.
    """
    return scope.stretched is None and not scope.gradients and fills_memory(tensor)


def _target(scope: Scope, kinds: str) -> ScopeValue:
    """Return the tensor to write to. Sometimes another input is that tensor or a view of it."""
    x = scope.operand(Want(kinds, accept=partial(_writable, scope)))
    if x.tensor.requires_grad or not _writable(scope, x.tensor):
        text = f"{x}.detach().clone()"
        return _made(scope, x, text)
    if x.name.startswith("a") and scope.integer(0, 3) == 3:
        part = x.tensor.dim() > 0 and _shareable(scope, x.tensor) and scope.flag()
        scope.operands.append(scope.alias(x, f"{x}[:1]" if part else f"{x}"))
    return x


def _made(scope: Scope, x: ScopeValue, text: str) -> ScopeValue:
    """Add a line whose result can be written to, and return that result."""
    scope.add("clone", text, exact=True)
    made = scope.values[-1]
    scope.operands.append(made)
    return made


def _of_one(template: str, kinds: str) -> Draw:
    return lambda scope: template.format(x=_target(scope, kinds))


def _with_number(name: str) -> Draw:
    def draw(scope: Scope) -> str:
        return f"{_target(scope, 'fhi')}.{name}({scope.choose((2, 1, 3))})"

    return draw


def _with_tensor(name: str) -> Draw:
    """Return a line that writes with a second operand of the same sizes.

    If no other value has these sizes, the tensor itself is the operand. An operand that overlaps
    the tensor in part is copied first.
    """

    def draw(scope: Scope) -> str:
        x = _target(scope, "fh")
        y = scope.alike(x)
        part = share_memory(x, y) and layout(x.tensor) != layout(y.tensor)
        return f"{x}.{name}({y}.detach(){'.clone()' if part else ''})"

    return draw


def _first_row(scope: Scope) -> str:
    want = Want("fhib", 1, nonempty=True, accept=partial(_writable, scope))
    x = scope.operand(want)
    if not want.fits(x.tensor):
        x = _made(scope, x, f"{x}.detach().clone()")
    return f"{x}.select({scope.dim(x)}, 0).fill_(1)"


def _index_put(scope: Scope) -> str:
    want = Want("fi", 1, nonempty=True, accept=partial(_writable, scope))
    x = scope.operand(want)
    if not want.fits(x.tensor):
        x = _made(scope, x, f"{x}.detach().clone()")
    index = scope.indices((scope.choose((2, 1, 5)),), x.tensor.shape[0])
    value = f"torch.tensor(1, dtype={x.tensor.dtype})"
    return f"{x}.index_put_(({index},), {value}, accumulate=True)"


MUTATION = (
    *(Row(n, _with_number(n)) for n in ("add_", "mul_")),
    *(Row(f"{n}tensor", _with_tensor(n)) for n in ("add_", "mul_", "copy_", "sub_")),
    Row("relu_", _of_one("{x}.relu_()", "fh"), exact=True),
    Row("zero_", _of_one("{x}.zero_()", "fhib"), exact=True),
    Row("fill_", _of_one("{x}.fill_(1)", "fhib"), exact=True),
    Row("first_row", _first_row, exact=True),
    Row("index_put_", _index_put),
)
