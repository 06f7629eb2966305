"""Compares a compiled function with eager: values, dtypes, strides, mutated inputs, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tcdebug.compiler.backend import backend

TOLERANCE = {
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (2e-3, 2e-3),
    torch.float64: (1e-9, 1e-11),
}


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function compiled by the whole compiler."""
    return torch.compile(function, backend=backend, **options)


def copies(inputs: Sequence[Any]) -> list[Any]:
    """A copy with the same values and layout."""

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        twin = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
        if 0 in value.stride() or value.storage_offset():
            room = value.untyped_storage().nbytes() // value.element_size()
            base = torch.empty(room, dtype=value.dtype)
            twin = base.as_strided(value.size(), value.stride(), value.storage_offset())
            twin.untyped_storage().copy_(value.untyped_storage())
        else:
            twin.copy_(value.detach())
        return twin.requires_grad_(value.requires_grad)

    return [pytree.tree_map(copy, value) for value in inputs]


def assert_same(actual: Any, expected: Any, *, exact: bool = False, strides: bool = True) -> None:
    """Compare within the tolerance of the dtype, or bit for bit if `exact`, with signs of zeros."""
    left, right = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(left) == len(right)
    for a, e in zip(left, right, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e and type(a) is type(e)
            continue
        assert a.dtype == e.dtype
        assert a.size() == e.size()
        if strides:
            assert a.stride() == e.stride(), f"strides {a.stride()}, eager has {e.stride()}"
        rtol, atol = (0, 0) if exact else TOLERANCE.get(e.dtype, (1e-4, 1e-5))
        torch.testing.assert_close(a, e, rtol=rtol, atol=atol, equal_nan=True)
        if exact and e.dtype.is_floating_point:
            known = ~torch.isnan(e)
            assert torch.equal(a.signbit()[known], e.signbit()[known]), "the sign of a zero"


@contextmanager
def about(**given: Any) -> Iterator[None]:
    """Say in a failure what it is about, where one compile serves many inputs."""
    try:
        yield
    except BaseException as failure:  # also what pytest itself raises
        failure.add_note(", ".join(f"{name} = {value!r}" for name, value in given.items()))
        raise


def assert_as_eager(
    compiled: Callable[..., Any],
    eager: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    exact: bool = False,
) -> None:
    """Check that the compiled function returns what eager returns and writes what eager writes."""
    mine, theirs = copies(inputs), copies(inputs)
    expected = eager(*theirs)
    actual = compiled(*mine)
    assert_same(actual, expected, exact=exact)
    assert_same(mine, theirs, exact=exact)


def gradients(function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """The outputs, and the gradients of a weighted sum of them for all inputs that require one."""
    outputs = function(*inputs)
    leaves = [o for o in pytree.tree_leaves(outputs) if isinstance(o, torch.Tensor)]
    total = sum(
        (o * torch.linspace(0.5, 1.5, o.numel(), dtype=o.dtype).reshape(o.shape)).sum()
        for o in leaves
        if o.requires_grad
    )
    total.backward()
    wanted = [i for i in inputs if isinstance(i, torch.Tensor) and i.requires_grad]
    return [*(o.detach() for o in leaves), *(i.grad for i in wanted)]
