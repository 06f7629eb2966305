"""Holds what a program adds to the compiler: one registry per process, which every stage reads.

A stage keeps its own entries in a constant table and reads them through `read_through`. A
registered entry replaces an entry with the same key; new entries follow in order of registration.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from torch import fx

Key = TypeVar("Key")
Entry = TypeVar("Entry")
Operator: TypeAlias = Any
"""An operator overload, such as torch.ops.aten.sin.default."""
Pass = Callable[[fx.Graph], bool]
"""Changes a graph and returns whether it did."""


@dataclass(frozen=True)
class Registry:
    """The tables that `registration` writes and the stages read."""

    lowerings: dict[Operator, Callable[..., Any]] = field(default_factory=dict)
    decompositions: dict[Operator, Callable[..., Any]] = field(default_factory=dict)
    pregrad_passes: dict[str, Pass] = field(default_factory=dict)
    """Unit -> pass on the graph that Dynamo captured."""
    aten_passes: dict[str, Pass] = field(default_factory=dict)
    """Unit -> pass on an ATen graph."""
    devices: dict[str, Any] = field(default_factory=dict)
    """Type of device -> the `devices.protocol.Codegen` that writes its kernels."""


REGISTRY = Registry()
"""The registry of this process. Only `registration` writes it."""


def read_through(own: dict[Key, Entry], registered: dict[Key, Entry]) -> Mapping[Key, Entry]:
    """Return a live, read-only view of a stage's own table together with the registered entries."""
    return MappingProxyType(ChainMap(registered, own))
