"""An exported program as a graph whose first inputs are its weights, and its calls on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from tcdebug.minifier.values.reference import ReferenceGraph

WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
"""The inputs of an exported graph that its program holds."""


@dataclass
class PackagedProgram:
    """An exported program as a graph whose first inputs are its weights."""

    module: torch.fx.GraphModule
    weights: Sequence[torch.Tensor]
    example_leaves: Sequence[Any]
    structure: pytree.TreeSpec
    """How its arguments are nested."""
    named: Sequence[str]
    """The order of its keyword arguments."""
    updates: bool
    """Whether it updates a buffer or an input. Its graph then returns more than the program."""

    def examples(self) -> list[Any]:
        """Return the inputs of its graph, with the examples of the program."""
        return [*self.weights, *map(_detached, self.example_leaves)]

    def leaves_of(self, args: Any, kwargs: dict[str, Any]) -> list[Any] | None:
        """Return the inputs of its graph for a call; None if its arguments are nested otherwise."""
        named = {name: kwargs[name] for name in self.named if name in kwargs}
        leaves, structure = pytree.tree_flatten((args, named))
        if structure != self.structure or len(named) != len(kwargs):
            return None
        return [*self.weights, *leaves]

    def as_graph(self, loaded: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any]]:
        """Return a loaded package as a function of the graph's inputs, with flat results.

        The list gets the nesting of the results of each call.
        """
        nestings: list[Any] = []

        def call(*values: Any) -> tuple[Any, ...]:
            inputs = [*values[len(self.weights) :]]
            args, kwargs = pytree.tree_unflatten(inputs, self.structure)
            found, nesting = pytree.tree_flatten(loaded(*args, **kwargs))
            nestings.append(nesting)
            return tuple(found)

        return call, nestings


def program_of(exported: ExportedProgram) -> PackagedProgram:
    """Return an exported program. Raises ValueError if it has inputs that a graph cannot state."""
    specs = exported.graph_signature.input_specs
    kinds = {spec.kind for spec in specs}
    if others := kinds - {*WEIGHTS, InputKind.USER_INPUT}:
        raise ValueError(f"it has inputs of the kind {min(kind.name for kind in others)}")
    held = {**exported.constants, **exported.state_dict}
    weights = [_detached(held[str(s.target)]) for s in specs if s.kind in WEIGHTS]
    args, kwargs = exported.example_inputs or ((), {})
    leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if len(weights) + len(leaves) != len(specs):
        raise ValueError("it has no example inputs")
    signature = exported.graph_signature
    declared = signature.buffers_to_mutate or signature.user_inputs_to_mutate
    updates = bool(declared or ReferenceGraph(exported.graph_module).updated_inputs())
    return PackagedProgram(exported.graph_module, weights, leaves, structure, [*kwargs], updates)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
