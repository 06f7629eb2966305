"""Functions for which Dynamo reuses a graph that is no longer right.

Each takes a replacement for torch.compile and returns the results of all calls. A comment `stale`
marks the line whose value Dynamo does not guard.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import torch

Compile = Callable[[Any], Any]
Scenario = Callable[[Compile], list[Any]]

X = torch.arange(4.0)


def closure_rebound(compiled: Compile) -> list[Any]:
    """A closure variable becomes another method of tensors."""

    def make(op: Any) -> Any:
        def fn(x: Any) -> Any:
            y = x + 1
            z = op(y, x)  # stale
            return z.neg()

        return fn

    return [compiled(make(op))(X) for op in (torch.Tensor.add, torch.Tensor.mul)]


def argument_exchanged(compiled: Compile) -> list[Any]:
    """An argument becomes another method of tensors."""

    def fn(x: Any, op: Any) -> Any:
        y = x + 1
        return op(y, x)  # stale

    once = compiled(fn)
    return [once(X, op) for op in (torch.Tensor.add, torch.Tensor.__mul__, torch.Tensor.sub)]


def attribute_exchanged(compiled: Compile) -> list[Any]:
    """An attribute becomes another method of tensors."""
    holder = type("Holder", (), {})()

    def fn(x: Any) -> Any:
        y = x * 2
        z = holder.op(y, x)  # stale
        return z + 1

    once, results = compiled(fn), []
    for holder.op in (torch.Tensor.add, torch.Tensor.mul):
        results.append(once(X))
    return results


def dict_value_exchanged(compiled: Compile) -> list[Any]:
    """A value of a dict becomes another method of tensors."""
    operations = {"op": torch.Tensor.add}

    def fn(x: Any) -> Any:
        y = x * 2
        z = operations["op"](y, x)  # stale
        return z + 1

    once = compiled(fn)
    first = once(X)
    operations["op"] = torch.Tensor.mul
    return [first, once(X)]


def default_exchanged(compiled: Compile) -> list[Any]:
    """A default of a parameter becomes another method of tensors."""

    def fn(x: Any, op: Any = torch.Tensor.add) -> Any:
        y = x * 2
        return op(y, x)  # stale

    once = compiled(fn)
    first = once(X)
    fn.__defaults__ = (torch.Tensor.mul,)
    return [first, once(X)]


def partial_exchanged(compiled: Compile) -> list[Any]:
    """A functools.partial wraps another method of tensors."""
    holder = type("Holder", (), {})()
    holder.op = functools.partial(torch.Tensor.add, other=torch.ones(4))

    def fn(x: Any) -> Any:
        y = x * 2
        z = holder.op(y)  # stale
        return z + 1

    once = compiled(fn)
    first = once(X)
    holder.op = functools.partial(torch.Tensor.mul, other=torch.ones(4))
    return [first, once(X)]


def attribute_shadowed(compiled: Compile) -> list[Any]:
    """A value that __getattr__ returned becomes an instance attribute."""

    class Holder:
        def __getattr__(self, name: str) -> float:
            return 3.0

    holder = Holder()

    def fn(x: Any) -> Any:
        y = x + 1
        z = y * holder.scale  # stale
        return z.neg()

    once = compiled(fn)
    first = once(X)
    holder.scale = 9.0
    return [first, once(X)]


def hook_added(compiled: Compile) -> list[Any]:
    """A nested module gets a forward hook."""
    module = torch.nn.Sequential(torch.nn.ReLU())

    def fn(x: Any) -> Any:
        y = x + 1
        z = module(y)  # stale
        return z.neg()

    once = compiled(fn)
    first = once(X)
    module[0].register_forward_hook(lambda module, given, result: result * 3)
    return [first, once(X)]


def chained_mapping_written(compiled: Compile) -> list[Any]:
    """A ChainMap gets another value for a key."""
    scales = collections.ChainMap[str, float]({}, {"a": 1.0})

    def fn(x: Any) -> Any:
        y = x + 1
        z = y * scales["a"]  # stale
        return z.neg()

    once = compiled(fn)
    first = once(X)
    scales["a"] = 3.0
    return [first, once(X)]


def order_changed(compiled: Compile) -> list[Any]:
    """The keys of an OrderedDict are reordered."""
    terms = collections.OrderedDict(a=1.0, b=2.0)

    def fn(x: Any) -> Any:
        y = x + 1
        for term in terms.values():  # stale
            y = y * 2 + term
        return y.neg()

    once = compiled(fn)
    first = once(X)
    terms.move_to_end("a")
    return [first, once(X)]


def same_list_twice(compiled: Compile) -> list[Any]:
    """Two lists become one."""

    def fn(x: Any, first: list[int], second: list[int]) -> Any:
        y = x + 1
        first.append(1)
        z = y * len(second)  # stale
        return z.neg()

    once, same = compiled(fn), [1]
    return [once(X, [1], [1]), once(X, same, same)]


STALE: tuple[Scenario, ...] = (
    closure_rebound, argument_exchanged, attribute_exchanged, dict_value_exchanged,
    default_exchanged, partial_exchanged, attribute_shadowed, hook_added,
    chained_mapping_written, order_changed, same_list_twice,
)  # fmt: skip
"""Wrong in torch 2.13 and 2.15."""
