"""A case: one graph that torch.compile captured, and the inputs it was called with.

The graph is the one that Dynamo hands to a backend: torch functions and methods, parameters as
inputs. A case replays through `torch.compile` on its own source text, so what is minimised is what
the repro script will contain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.gate.fingerprint import graph_id
from tcdebug.minifier.cases.lineage import Change, lineage


@dataclass(frozen=True)
class Recipe:
    """How an input can be made without stored data: `kind` is randn, randint, ones, zeros, arange.

    `low` and `high` bound integers, high excluded: arange begins again there.
    """

    kind: str
    seed: int = 0
    low: int = 0
    high: int = 2


@dataclass(frozen=True)
class CaseInput:
    """An argument of the graph. `dynamic` are the dimensions of symbolic size."""

    name: str
    value: Any
    dynamic: tuple[int, ...] = ()
    recipe: Recipe | None = None
    device: str = ""
    """The device on which it belongs, where it is kept on the CPU; see `placement`."""

    @cached_property
    def key(self) -> str:
        """Equal inputs have equal keys: layout, contents, and what is said of them here."""
        if isinstance(self.value, torch.Tensor):
            flags = (self.value.requires_grad, self.dynamic, *filter(None, [self.device]))
            return f"{tensor_key(self.value)} {flags}"
        return f"{type(self.value).__name__} {self.value!r} {self.dynamic}"


@dataclass(frozen=True)
class Case:
    """A graph and its inputs. Edits make new cases; nothing here is changed in place."""

    module: fx.GraphModule
    inputs: tuple[CaseInput, ...]

    @property
    def graph(self) -> fx.Graph:
        """The graph of the module."""
        return self.module.graph

    @cached_property
    def calls(self) -> list[fx.Node]:
        """The nodes that compute something, in order."""
        return [n for n in self.graph.nodes if n.op.startswith("call")]

    @property
    def size(self) -> int:
        """How many nodes compute something, in graphs inside the graph too."""
        return _size(self.module, self.graph)

    @cached_property
    def key(self) -> str:
        """Equal cases have equal keys, in every process: graph, layouts and contents of inputs.

        The layouts say which inputs are views of one another, or lie in one memory.
        """
        parts = [_graph_key(self.module, self.graph), *(i.key for i in self.inputs)]
        parts += lineage(self.values()).text()
        return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()

    def attributes(self) -> dict[str, Any]:
        """What the graph reads from its module: constants and sub-modules by name."""
        return attributes(self.module, self.graph)

    def values(self) -> list[Any]:
        """The arguments themselves."""
        return [i.value for i in self.inputs]

    def with_graph(self, graph: fx.Graph, inputs: Sequence[CaseInput] | None = None) -> Case:
        """Another graph over the same module, its unused inputs dropped."""
        graph.lint()
        kept: list[CaseInput] = []
        given = {i.name: i for i in (self.inputs if inputs is None else inputs)}
        for node in list(graph.nodes):
            if node.op == "placeholder":
                if node.users:
                    kept.append(given[str(node.target)])
                else:
                    graph.erase_node(node)
        return Case(fx.GraphModule(self.module, graph), tuple(kept))

    def with_inputs(self, values: Mapping[str, Any]) -> Case:
        """The same graph with some inputs replaced: name -> Input."""
        inputs = tuple(values.get(i.name, i) for i in self.inputs)
        return Case(self.module, inputs)


def attributes(module: fx.GraphModule, graph: fx.Graph) -> dict[str, Any]:
    """What a graph reads from a module, by name."""
    found: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op in ("get_attr", "call_module"):
            value: Any = module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            found[str(node.target)] = value
    return found


def _size(module: fx.GraphModule, graph: fx.Graph) -> int:
    inner = (v for v in attributes(module, graph).values() if isinstance(v, fx.GraphModule))
    own = sum(1 for n in graph.nodes if n.op.startswith("call"))
    return own + sum(_size(m, m.graph) for m in inner)


def _graph_key(module: fx.GraphModule, graph: fx.Graph) -> str:
    """A graph, with what it reads from its module and without what is known of its values.

    The inputs say what the values are; what Dynamo knew of them need not hold after an edit.
    """
    bare = fx.Graph()
    bare.output(bare.graph_copy(graph, {}))
    for node in bare.nodes:
        node.meta = {}
    read = [_value_key(v) for v in attributes(module, graph).values()]
    return "\0".join([graph_id(bare), *read])


def _value_key(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return tensor_key(value)
    if isinstance(value, fx.GraphModule):
        return _graph_key(value, value.graph)
    return type(value).__name__


def tensor_key(value: torch.Tensor) -> str:
    """Layout and a digest of the contents."""
    strided = value.layout == torch.strided and not value.is_quantized
    layout = f"{value.dtype} {tuple(value.shape)} {value.stride() if strided else value.layout}"
    return f"{layout} {_digest(value)}"


def _digest(value: torch.Tensor) -> str:
    try:
        plain = value.detach().cpu().contiguous().view(-1)
        raw = bytearray(plain.numel() * plain.element_size())
        if raw:
            torch.frombuffer(raw, dtype=torch.uint8).copy_(plain.view(torch.uint8))
        return blake2b(raw, digest_size=8).hexdigest()
    except (RuntimeError, TypeError, NotImplementedError):
        return "opaque"


def clone_values(values: Sequence[Any], change: Change | None = None) -> list[Any]:
    """Fresh copies of arguments: same layout, and the same views, leaves and memory in common.

    One tensor given twice is one tensor again. `change` makes other contents of the memory that
    tensors lie in, such as those of a wider dtype. Raises SharedDtypes where it cannot.
    """
    family = lineage(values)
    made = family.built(change)
    copies: dict[int, torch.Tensor] = {}
    for value, place in zip(values, family.places, strict=True):
        if isinstance(value, torch.Tensor) and id(value) not in copies:
            copies[id(value)] = _clone(value, change) if place is None else made[place]
    return [copies[id(v)] if isinstance(v, torch.Tensor) else v for v in values]


def _clone(value: torch.Tensor, change: Change | None) -> torch.Tensor:
    """A copy of a tensor that is more than its memory: a subclass, sparse, quantised."""
    copy = value.detach().clone()
    return (change(copy) if change else copy).requires_grad_(value.requires_grad)


def overlaps(value: torch.Tensor) -> bool:
    """Whether several indices share an element: expanded tensors."""
    return any(n > 1 and s == 0 for n, s in zip(value.shape, value.stride(), strict=True))


def copy_graph(original: fx.Graph) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """A copy of a graph, and its nodes by the original ones; what is known of them is kept."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.output(graph.graph_copy(original, copies))
    copies[original.output_node()] = output
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
    return graph, copies


def from_captured(module: fx.GraphModule, values: Sequence[Any]) -> Case:
    """The case of a graph that Dynamo captured, called with `values`.

    Sizes that Dynamo passes as arguments of their own become reads of a tensor's size, so that
    the graph can be captured again.
    """
    graph, copies = copy_graph(module.graph)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    inputs: list[CaseInput] = []
    for node, value in zip(placeholders, values, strict=True):
        example = node.meta.get("example_value")
        plain = int(value) if isinstance(value, torch.SymInt) else value
        inputs.append(CaseInput(str(node.target), plain, _dynamic_dims(example)))
    _read_sizes_from_tensors(graph, placeholders, copies)
    return Case(module, tuple(inputs)).with_graph(graph)


def _dynamic_dims(example: Any) -> tuple[int, ...]:
    if not isinstance(example, torch.Tensor):
        return ()
    return tuple(k for k, s in enumerate(example.shape) if isinstance(s, torch.SymInt))


def _read_sizes_from_tensors(
    graph: fx.Graph, placeholders: Sequence[fx.Node], copies: Mapping[fx.Node, fx.Node]
) -> None:
    first = next((n for n in graph.nodes if n.op != "placeholder"), None)
    for node in placeholders:
        example = node.meta.get("example_value")
        if not isinstance(example, torch.SymInt) or not copies[node].users or first is None:
            continue
        found = _dimension_of(str(example), placeholders)
        if found is not None:
            tensor, dim = found
            with graph.inserting_before(first):
                size = graph.call_method("size", (copies[tensor], dim))
            size.meta["example_value"] = example
            copies[node].replace_all_uses_with(size)


def _dimension_of(symbol: str, placeholders: Sequence[fx.Node]) -> tuple[fx.Node, int] | None:
    for node in placeholders:
        example = node.meta.get("example_value")
        if isinstance(example, torch.Tensor):
            for dim, size in enumerate(example.shape):
                if isinstance(size, torch.SymInt) and str(size) == symbol:
                    return node, dim
    return None


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a nested structure, in order."""
    return (leaf for leaf in flatten(value) if isinstance(leaf, torch.Tensor))


def flatten(value: Any) -> list[Any]:
    """The leaves of a nested structure of tuples, lists and dicts."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in flatten(part)]
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in flatten(part)]
    return [value]
