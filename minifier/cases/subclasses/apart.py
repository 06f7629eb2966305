"""Takes tensor subclasses apart into plain tensors, and puts them together again.

A case keeps such a tensor as its parts and what rebuilds it. Parts that several tensors share, such
as the offsets of nested tensors, are shared again afterwards: nested tensors with other offsets
cannot be added, though the numbers are equal.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tcdebug.minifier.cases.subclasses.parts import finished, is_awaited, is_wrapper, parts_of

ADDRESS = re.compile(r"0x[0-9a-f]+|\bj\d+\b")
"""What differs between processes: addresses, and torch's numbers of ragged sizes."""
PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class SubclassTensor:
    """A tensor that is made of others: its class, what it says about itself, and its parts.

    `parts` are places in a list of values, or wrappers themselves.
    """

    kind: type
    names: tuple[str, ...]
    parts: tuple[int | SubclassTensor, ...]
    context: Any
    size: Any
    stride: Any
    requires_grad: bool
    leaf: bool
    parameter: bool

    def built(self, values: Sequence[Any]) -> Any:
        """Return a new tensor with these values as its parts."""
        inner = {n: _built(p, values) for n, p in zip(self.names, self.parts, strict=True)}
        rebuild: Any = self.kind.__tensor_unflatten__  # type: ignore[attr-defined] # the protocol
        made = rebuild(inner, self.context, self.size, self.stride)
        made = made.detach() if made.requires_grad else made
        if self.parameter:
            made = torch.nn.Parameter(made, requires_grad=self.requires_grad)
        if not self.requires_grad:
            return made
        made.requires_grad_()
        with torch.enable_grad():
            return made if self.leaf else made.clone()

    def text(self) -> str:
        """Describe everything except the contents of the parts."""
        inner = [p.text() if isinstance(p, SubclassTensor) else str(p) for p in self.parts]
        flags = (self.requires_grad, self.leaf, self.parameter)
        said = repr(self.context), f"{tuple(self.size)} {tuple(self.stride)}"
        context, size = (ADDRESS.sub("", part) for part in said)
        name = f"{self.kind.__module__}.{self.kind.__qualname__}"
        return f"{name} {dict(zip(self.names, inner, strict=True))} {context} {size} {flags}"


def _built(part: int | SubclassTensor, values: Sequence[Any]) -> Any:
    return part.built(values) if isinstance(part, SubclassTensor) else values[part]


@dataclass(frozen=True)
class Apart:
    """Values as their plain parts, and how each value consists of them."""

    parts: tuple[Any, ...]
    values: tuple[int | SubclassTensor, ...]

    def together(self, parts: Sequence[Any]) -> list[Any]:
        """Return values that consist of other parts. A tensor that occurs twice is built once."""
        made: dict[int | SubclassTensor, Any] = {}
        for value in self.values:
            if id(value) not in made:
                made[id(value)] = _built(value, parts)
        return [made[id(value)] for value in self.values]

    def places(self, value: int | SubclassTensor) -> list[int]:
        """Return the places of the parts of one of the values."""
        if isinstance(value, SubclassTensor):
            return [place for part in value.parts for place in self.places(part)]
        return [value]

    def wrappers(self) -> list[str]:
        """Describe the values that are made of others."""
        return [v.text() for v in self.values if isinstance(v, SubclassTensor)]


def taken_apart(values: Sequence[Any]) -> Apart:
    """Take values apart. Equal parts have the same place."""
    parts: list[Any] = []
    places: dict[int, int] = {}
    seen: dict[int, SubclassTensor] = {}

    def taken(value: Any) -> int | SubclassTensor:
        if is_wrapper(value):
            if id(value) not in seen:
                seen[id(value)] = wrapped(value)
            return seen[id(value)]
        if not isinstance(value, torch.Tensor) or id(value) not in places:
            parts.append(value)
            if not isinstance(value, torch.Tensor):
                return len(parts) - 1
            places[id(value)] = len(parts) - 1
        return places[id(value)]

    def wrapped(value: Any) -> SubclassTensor:
        names, inner = parts_of(value)
        return SubclassTensor(
            type(value), tuple(names), tuple(map(taken, inner)), value.__tensor_flatten__()[1],
            *_layout(value), value.requires_grad, value.is_leaf,
            isinstance(value, torch.nn.Parameter),
        )  # fmt: skip

    made = tuple(map(taken, values))
    return Apart(tuple(parts), made)


def _layout(value: torch.Tensor) -> tuple[Any, Any]:
    """Return size and strides; those of a ragged tensor follow from its parts."""
    return ((), ()) if value.layout == torch.jagged else (value.size(), value.stride())


def without_torch_function(values: Sequence[Any]) -> list[Any]:
    """Return values with plain tensors for those of classes that only override functions.

    So are results of collectives, for which it waits.

    Dynamo has captured what such a class does: its graph computes with the plain tensors.
    """
    made = {id(v): _plain(v) for v in values if only_overrides_functions(v) or is_awaited(v)}
    return [made.get(id(value), value) for value in values]


def only_overrides_functions(value: object) -> bool:
    """Return whether a tensor is a plain one but for its class, which overrides functions."""
    return (
        isinstance(value, torch.Tensor)
        and type(value) not in PLAIN
        and type(value).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
        and not is_wrapper(value)
    )


def calling_once(values: Sequence[Any]) -> contextlib.AbstractContextManager[object]:
    """Return a context in which a captured graph runs on values of such classes.

    They do not override its functions, because they have done so when the graph was captured.
    """
    once: contextlib.AbstractContextManager[object] = torch._C.DisableTorchFunctionSubclass()
    return once if any(map(only_overrides_functions, values)) else contextlib.nullcontext()


def _plain(value: torch.Tensor) -> torch.Tensor:
    """Return a plain tensor with the same memory."""
    if is_awaited(value):
        waited: torch.Tensor = finished(value).detach()
        return waited.requires_grad_(value.requires_grad)
    with torch._C.DisableTorchFunctionSubclass():
        if value.requires_grad and not value.is_leaf:
            return value.as_subclass(torch.Tensor)
        made = value.detach().as_subclass(torch.Tensor)
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(made, requires_grad=value.requires_grad)
        return made.requires_grad_(value.requires_grad)
