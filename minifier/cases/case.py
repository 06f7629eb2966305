"""A case: one graph that torch.compile captured, and the inputs it was called with.

Dynamo hands this graph to a backend: it holds torch functions and methods, and parameters are
inputs. A case replays through `torch.compile` on its own source text, so the graph that is
minimised is the graph that the repro script contains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.gate.fingerprint import graph_id
from tcdebug.minifier.cases.lineage import Change, lineage
from tcdebug.minifier.cases.operators.data import restore_assignments
from tcdebug.minifier.cases.operators.distributed_calls import with_distributed_calls
from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.cases.operators.triton_launches import is_launch, with_launches
from tcdebug.minifier.cases.subclasses.apart import taken_apart, without_torch_function
from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.cases.user_frames import frames, innermost, outside_torch


@dataclass(frozen=True)
class Recipe:
    """How to create an input without stored data: `kind` is randn, randint, ones, zeros, arange.

    `low` and `high` bound integers; `high` is excluded. arange wraps around at `high`.
    """

    kind: str
    seed: int = 0
    low: int = 0
    high: int = 2


@dataclass(frozen=True)
class CaseInput:
    """An argument of the graph. `dynamic` lists the dimensions of symbolic size."""

    name: str
    value: Any
    dynamic: tuple[int, ...] = ()
    recipe: Recipe | None = None
    device: str = ""
    """The device on which the input belongs if it is kept on the CPU; see `placement`."""
    fixed: bool = False
    """Whether it is a buffer of a module, whose address torch.compile takes for fixed."""

    @cached_property
    def key(self) -> str:
        """A key over layout, contents and the fields above. Equal inputs have equal keys."""
        if isinstance(self.value, torch.Tensor):
            more = filter(None, [self.device, "fixed" * self.fixed])
            flags = (self.value.requires_grad, self.dynamic, *more)
            return f"{tensor_key(self.value)} {flags}"
        return f"{type(self.value).__name__} {self.value!r} {self.dynamic}"


@dataclass(frozen=True)
class Case:
    """A graph and its inputs. It is immutable: every edit returns a new case."""

    module: fx.GraphModule
    inputs: tuple[CaseInput, ...]

    @property
    def graph(self) -> fx.Graph:
        """The FX graph of the module."""
        return self.module.graph

    @cached_property
    def calls(self) -> list[fx.Node]:
        """The nodes that compute something, in graph order."""
        return [n for n in self.graph.nodes if n.op.startswith("call")]

    @property
    def size(self) -> int:
        """The number of nodes that compute something, nested graphs included."""
        return _size(self.module, self.graph)

    @cached_property
    def key(self) -> str:
        """A key over the graph and the layouts and contents of its inputs, stable across processes.

        The layouts include which inputs are views of one another or share memory.
        """
        parts = [_graph_key(self.module, self.graph), *(i.key for i in self.inputs)]
        parts += relations(self.values())
        return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()

    def attributes(self) -> dict[str, Any]:
        """Return what the graph reads from its module: constants and submodules by name."""
        return attributes(self.module, self.graph)

    def values(self) -> list[Any]:
        """Return the values of the inputs."""
        return [i.value for i in self.inputs]

    def devices(self) -> list[str]:
        """Return the devices on which the tensors among the inputs belong."""
        tensors = [i for i in self.inputs if isinstance(i.value, torch.Tensor)]
        return [i.device or str(i.value.device) for i in tensors]

    def user_lines(self) -> list[str]:
        """Return the innermost user line of each node that computes."""
        return user_lines(self.calls)

    def with_graph(self, graph: fx.Graph, inputs: Sequence[CaseInput] | None = None) -> Case:
        """Return a case with another graph over the same module, without unused inputs."""
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
        """Return the same graph with some inputs replaced. `values` maps names to CaseInputs."""
        inputs = tuple(values.get(i.name, i) for i in self.inputs)
        return Case(self.module, inputs)


def user_lines(nodes: Iterable[fx.Node]) -> list[str]:
    """Return each node's innermost user line, without duplicates: "file:3 in f: code".

    Lines of torch, of nodes that no line of the user led to, count only if there are no others.
    """
    stacks = (frames(node.meta.get("stack_trace") or "") for node in nodes)
    inner = (innermost([frame for frame in stack if frame.code]) for stack in stacks)
    found = [frame for frame in inner if frame is not None]
    return list(dict.fromkeys(str(frame) for frame in outside_torch(found) or found))


def is_number(value: object) -> bool:
    """Return whether a value is a symbolic integer, but not the size of a ragged dimension."""
    return isinstance(value, torch.SymInt) and not value.node.is_nested_int()


def size_at_capture(value: Any) -> Any:
    """Return the value that a symbolic size had when its graph was captured; others as they are.

    The size of a ragged dimension is no number. One that depends on data had no value.
    """
    if not is_number(value):
        return value
    hint: Any = value.node.hint  # torch 2.15 types it as a number of any kind
    return value if hint is None else int(hint)


def needs_own_dtypes(module: torch.nn.Module) -> bool:
    """Whether a graph computes something else in float64, not only something more precise.

    The code of a Triton kernel may depend on the dtypes of its arguments.
    """
    parts = [part for part in module.modules() if isinstance(part, fx.GraphModule)]
    nodes = [node for part in parts for node in part.graph.nodes]
    return any(depends_on_dtype(node) or is_launch(node) for node in nodes)


def depends_on_dtype(node: fx.Node) -> bool:
    """Whether a node takes a step between neighbouring numbers, or reads the bits of numbers."""
    name = str(getattr(node.target, "__name__", node.target)).partition(".")[0]
    given = (*node.args, *node.kwargs.values())
    viewed = name.startswith("view") and any(isinstance(g, torch.dtype) for g in given)
    return viewed or name.rstrip("_") == "nextafter"


def attributes(module: fx.GraphModule, graph: fx.Graph) -> dict[str, Any]:
    """Return what a graph reads from a module, by name."""
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
    """Return a key of a graph and its module attributes, without the metadata of its nodes.

    The inputs define the values. Metadata from Dynamo need not hold after an edit.
    """
    bare = fx.Graph()
    bare.output(bare.graph_copy(graph, {}))
    for node in bare.nodes:
        node.meta = {}
    read = [value_key(v) for v in attributes(module, graph).values()]
    return "\0".join([graph_id(bare), *read])


def value_key(value: Any) -> str:
    """Return a key of a tensor or a nested graph; of another object, its type."""
    if isinstance(value, torch.Tensor):
        return tensor_key(value)
    if isinstance(value, fx.GraphModule):
        return _graph_key(value, value.graph)
    return type(value).__name__


def tensor_key(value: torch.Tensor) -> str:
    """Return the layout of a tensor and a digest of its contents."""
    if is_wrapper(value):
        apart = taken_apart([value])
        return " ".join([*apart.wrappers(), *map(value_key, apart.parts)])
    strided = value.layout == torch.strided and not value.is_quantized
    layout = f"{value.dtype} {tuple(value.shape)} {value.stride() if strided else value.layout}"
    return f"{layout} {contents_key(value)}"


def contents_key(value: torch.Tensor) -> str:
    """Return a hash of the elements of a tensor in logical order; "opaque" if it has no bytes."""
    try:
        plain = value.detach().cpu().contiguous().view(-1)
        raw = bytearray(plain.numel() * plain.element_size())
        if raw:
            torch.frombuffer(raw, dtype=torch.uint8).copy_(plain.view(torch.uint8))
        return blake2b(raw, digest_size=8).hexdigest()
    except (RuntimeError, TypeError, NotImplementedError):
        return "opaque"


def clone_values(values: Sequence[Any], change: Change | None = None) -> list[Any]:
    """Copy arguments. The copies have the same layouts, views, leaves and shared memory.

    A tensor that is passed twice is copied once. `change` replaces the contents of each piece of
    memory, for example by a wider dtype. Raises SharedDtypes if tensors of several dtypes share
    that memory.
    """
    if change is None and any(map(is_wrapper, values)):
        apart = taken_apart(values)
        return apart.together(clone_values(apart.parts))
    family = lineage(values)
    made = family.build(change)
    copies: dict[int, torch.Tensor] = {}
    for value, place in zip(values, family.places, strict=True):
        if isinstance(value, torch.Tensor) and id(value) not in copies:
            copies[id(value)] = _clone(value, change) if place is None else made[place]
    return [copies[id(v)] if isinstance(v, torch.Tensor) else v for v in values]


def relations(values: Sequence[Any]) -> list[str]:
    """Describe how values are made and related, without their contents."""
    apart = taken_apart(values)
    return [*apart.wrappers(), *lineage(apart.parts).text()]


def _clone(value: torch.Tensor, change: Change | None) -> torch.Tensor:
    """Copy a tensor that is not a plain strided one: a subclass, sparse or quantised."""
    copy = value.detach().clone()
    return (change(copy) if change else copy).requires_grad_(value.requires_grad)


def copy_module(module: fx.GraphModule) -> fx.GraphModule:
    """Copy a module's graph with its metadata, over the same attributes."""
    return fx.GraphModule(module, copy_graph(module.graph)[0])


def from_captured(module: fx.GraphModule, values: Sequence[Any]) -> Case:
    """Make the case of a graph that was captured, and that was called with `values`.

    Dynamo passes symbolic sizes as separate arguments. They become reads of a tensor's size, so
    that the graph can be captured again. So do other symbolic integers, of tensors without
    elements: an integer itself would be a constant of the new graph. It passes a float that may
    change as a tensor and reads that, which it would not capture again either. The float itself
    becomes the argument. A tensor of a class that only overrides functions becomes a plain one.
    Launches of Triton kernels hold the texts of these. Calls of distributed tensors are those of
    the program.
    """
    module, values = with_distributed_calls(with_launches(module), without_torch_function(values))
    graph, copies = copy_graph(module.graph)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    inputs: list[CaseInput] = []
    for node, value in zip(placeholders, values, strict=True):
        example = recorded_value(node)
        plain = int(value) if is_number(value) else value
        if (read := _float_read(node)) is not None:
            plain, example = float(value), None
            copies[node].type, copies[node].meta["example_value"] = None, recorded_value(read)
            copies[read].replace_all_uses_with(copies[node])
            graph.erase_node(copies[read])
        dims, fixed = _dynamic_dims(example), has_fixed_address(value)
        inputs.append(CaseInput(str(node.target), plain, dims, fixed=fixed))
    restore_assignments(graph)
    _read_sizes_from_tensors(graph, placeholders, copies)
    inputs = [_with_size(i, copies[n]) for n, i in zip(placeholders, inputs, strict=True)]
    return Case(module, tuple(inputs)).with_graph(graph)


def has_fixed_address(value: Any) -> bool:
    """Return whether Dynamo takes the address of a tensor that is no parameter for fixed."""
    known = getattr(value, "_dynamo_static_input_type", None)
    return known is not None and not isinstance(value, torch.nn.Parameter)


def _with_size(given: CaseInput, placeholder: fx.Node) -> CaseInput:
    """Return a tensor of as many rows as a symbolic integer says, and make a graph read that.

    Other inputs are returned as they are, and so are 0, 1 and numbers that are no size.
    """
    symbol = recorded_value(placeholder)
    if not isinstance(symbol, torch.SymInt) or not placeholder.users:
        return given
    if isinstance(given.value, torch.SymInt) or given.value < 2:
        return given
    placeholder.type, placeholder.meta["example_value"] = None, None
    graph = placeholder.graph
    with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
        size = graph.call_method("size", (placeholder, 0))
    size.meta["example_value"] = symbol
    placeholder.replace_all_uses_with(size, delete_user_cb=lambda user: user is not size)
    return replace(given, value=torch.empty((given.value, 0)), dynamic=(0,))


def recorded_value(node: fx.Node) -> Any:
    """Return the value that a node had in its trace, by Dynamo or by another tracer."""
    return node.meta.get("example_value", node.meta.get("val"))


def _float_read(placeholder: fx.Node) -> fx.Node | None:
    """Return the node that reads a float of the program from the tensor that Dynamo passes.

    If Dynamo captures what the program itself reads from tensors, it captures this again too.
    """
    if torch._dynamo.config.capture_scalar_outputs:
        return None
    match list(placeholder.users):
        case [fx.Node(op="call_method", target="item") as read]:
            return read if isinstance(recorded_value(read), torch.SymFloat) else None
    return None


def _dynamic_dims(example: Any) -> tuple[int, ...]:
    if not isinstance(example, torch.Tensor):
        return ()
    if example.layout == torch.jagged:
        return ()  # torch itself makes ragged sizes symbolic
    return tuple(k for k, s in enumerate(example.shape) if isinstance(s, torch.SymInt))


def _read_sizes_from_tensors(
    graph: fx.Graph, placeholders: Sequence[fx.Node], copies: Mapping[fx.Node, fx.Node]
) -> None:
    first = next((n for n in graph.nodes if n.op != "placeholder"), None)
    for node in placeholders:
        example = recorded_value(node)
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
        example = recorded_value(node)
        if isinstance(example, torch.Tensor):
            for dim, size in enumerate(example.shape):
                if isinstance(size, torch.SymInt) and str(size) == symbol:
                    return node, dim
    return None


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a nested structure, in order."""
    return (leaf for leaf in flatten(value) if isinstance(leaf, torch.Tensor))


def flatten(value: Any) -> list[Any]:
    """Return the leaves of a nested structure of tuples, lists and dicts."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in flatten(part)]
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in flatten(part)]
    return [value]
