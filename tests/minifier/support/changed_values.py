"""Functions that are called again after something that they read has changed.

Dynamo guards all of it. Compiled without guards, each of them returns a stale result.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from tests.minifier.support.stale_reuse import Compile, X

SCALE = 2.0


def global_assigned(compiled: Compile) -> None:
    """A global number."""

    def fn(x: Any) -> Any:
        return x * SCALE

    once = compiled(fn)
    for globals()["SCALE"] in (2.0, 3.0):
        once(X)


def property_changed(compiled: Compile) -> None:
    """The value that a property computes."""

    class Holder:
        inner = 1.0

        @property
        def scale(self) -> float:
            return self.inner * 2

    holder = Holder()

    def fn(x: Any) -> Any:
        return x * holder.scale

    once = compiled(fn)
    for holder.inner in (1.0, 4.0):
        once(X)


def default_mutated(compiled: Compile) -> None:
    """An object that is the default of a parameter."""
    scales = [1.0]

    def fn(x: Any, given: list[float] = scales) -> Any:
        return x * given[0]

    once = compiled(fn)
    for scales[0] in (1.0, 4.0):
        once(X)


def dict_extended(compiled: Compile) -> None:
    """The contents of a dict."""
    scales = {"a": 2.0}

    def fn(x: Any) -> Any:
        for scale in scales.values():
            x = x * scale
        return x

    once = compiled(fn)
    once(X)
    scales["b"] = 5.0
    once(X)


def list_appended(compiled: Compile) -> None:
    """The length of a list."""
    values = [1.0]

    def fn(x: Any) -> Any:
        return x * len(values)

    once = compiled(fn)
    once(X)
    values.append(2.0)
    once(X)


def module_attribute(compiled: Compile) -> None:
    """A number that a module keeps."""

    class Scaled(torch.nn.Module):
        scale = 2.0

        def forward(self, x: Any) -> Any:
            return x * self.scale

    module = Scaled()
    once = compiled(module)
    once(X)
    module.scale = 3.0
    once(X)


def class_exchanged(compiled: Compile) -> None:
    """The class of an object."""

    class Plain:
        pass

    class Special(Plain):
        pass

    holder = Plain()

    def fn(x: Any) -> Any:
        return x * 10 if isinstance(holder, Special) else x + 1

    once = compiled(fn)
    once(X)
    holder.__class__ = Special
    once(X)


def partial_keyword(compiled: Compile) -> None:
    """A keyword that functools.partial fills in."""

    def scaled(x: Any, scale: float) -> Any:
        return x * scale

    part = functools.partial(scaled, scale=2.0)

    def fn(x: Any) -> Any:
        return part(x)

    once = compiled(fn)
    once(X)
    part.keywords["scale"] = 6.0
    once(X)


def counter_written(compiled: Compile) -> None:
    """An attribute that the call itself counts up."""
    holder = type("Holder", (), {"count": 0})()

    def fn(x: Any) -> Any:
        holder.count += 1
        return x + 1

    once = compiled(fn)
    once(X)
    holder.count = 10
    once(X)


CHANGED = (
    (global_assigned, "function global SCALE: float 2.0 -> float 3.0"),
    (property_changed, "function.holder.inner: float 1.0 -> float 4.0"),
    (default_mutated, "function.__defaults__[0][0]: float 1.0 -> float 4.0"),
    (dict_extended, "function.scales['b']: nothing -> float 5.0"),
    (list_appended, "function.values[1]: nothing -> float 2.0"),
    (module_attribute, "self.scale: nothing -> float 3.0"),
    (class_exchanged, "function.holder.__class__: type tests.minifier.support.changed_values."),
    (partial_keyword, "function.part.keywords['scale']: float 2.0 -> float 6.0"),
    (counter_written, "function.holder.count: nothing -> int 10"),
)
"""Each function, with what a finding must say about it."""
