"""The loop IR: buffers, and the nodes that fill them.

A `Pointwise` computes one element for every point of its axes. A `Reduction` combines elements
over further axes. A `Scan` keeps every intermediate state of a reduction. An `Extern` calls an
ATen operator, makes a view, or computes a number. A graph lists its nodes in an order in which
they can run. Every name is defined once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx.node import map_aggregate

from tcdebug.compiler.ir.arithmetic.index import ONE, ZERO, Atom, Axis, Index, Symbol, product
from tcdebug.compiler.ir.expr import Expr, IndexValue, Load, Parameter, loads, walk


@dataclass(frozen=True)
class Location:
    """A line of the user's program."""

    filename: str
    line: int
    name: str


@dataclass(frozen=True)
class Origin:
    """The source of a node: a node of the ATen graph, its operator, the user's line."""

    node: str
    op: str
    location: Location | None = None

    @property
    def described(self) -> str:
        """The operator and the line, for a comment in a kernel."""
        where = self.location
        return f"{self.op} at {where.filename}:{where.line}" if where else self.op


CPU = torch.device("cpu")


@dataclass(frozen=True)
class Buffer:
    """The memory of a tensor. `size` and `stride` are in elements, one entry per dimension."""

    name: str
    dtype: torch.dtype
    size: tuple[Index, ...]
    stride: tuple[Index, ...]
    device: torch.device = CPU

    @staticmethod
    def contiguous(
        name: str, dtype: torch.dtype, size: Sequence[Index], device: torch.device
    ) -> Buffer:
        """Return a buffer in row-major order."""
        return Buffer(name, dtype, tuple(size), contiguous_strides(size), device)

    def address(self, index: Sequence[Index]) -> Index:
        """Return the offset of an element in memory, in elements."""
        total = ZERO
        for where, stride in zip(index, self.stride, strict=True):
            total = total + where * stride
        return total

    @property
    def numel(self) -> Index:
        """The number of elements, as an index over the size symbols."""
        return product(self.size)

    def fills(self, memory: Buffer) -> bool:
        """Return whether the elements of this buffer are all elements of that memory.

        Both have the same layout, or neither has gaps, such as the rows of a product of matrices
        and the batches of rows that the program views them as.
        """
        if (self.dtype, self.device) != (memory.dtype, memory.device):
            return False
        if (self.size, self.stride) == (memory.size, memory.stride):
            return True
        return self.is_dense and memory.is_dense and self.numel == memory.numel

    @property
    def is_row_major(self) -> bool:
        """Whether the elements are neighbours in memory in their row-major order."""
        return self.stride == contiguous_strides(self.size)

    @property
    def is_dense(self) -> bool:
        """Whether the elements are neighbours in memory, in some order of the dimensions."""
        left = [(n, s) for n, s in zip(self.size, self.stride, strict=True) if n != 1]
        below: Index = ONE
        while left:
            found = next((pair for pair in left if pair[1] == below), None)
            if found is None:
                return False
            left.remove(found)
            below = below * found[0]
        return True


def contiguous_strides(size: Sequence[Index]) -> tuple[Index, ...]:
    """Row-major strides."""
    strides = [product(size[k + 1 :]) for k in range(len(size))]
    return tuple(strides)


@dataclass(frozen=True)
class Ref:
    """A reference to a value of the graph, as an argument of an extern call."""

    name: str


class _Loop:
    """The base class of loop nodes."""

    out: Buffer
    axes: tuple[Axis, ...]

    @property
    def name(self) -> str:
        """The name of the buffer that the node fills."""
        return self.out.name

    @property
    def over(self) -> tuple[Axis, ...]:
        """The axes that the node loops over for each point of `axes`."""
        return ()

    @property
    def filled(self) -> tuple[Axis, ...]:
        """The axes over whose points the buffer is filled."""
        return self.axes

    @property
    def fills_exactly(self) -> bool:
        """Whether there are as many points as elements."""
        return product(a.size for a in self.filled) == self.out.numel


@dataclass(frozen=True)
class Pointwise(_Loop):
    """out[index] = body for every point of the axes. `index` visits every element once.

    If `into` is set, the node overwrites that value: an input of the graph, or a dead buffer
    (`memory.in_place`). `index` may then visit only some elements; the others keep their values.
    The body may read `into` only at `index`.
    """

    out: Buffer
    axes: tuple[Axis, ...]
    index: tuple[Index, ...]
    body: Expr
    origin: Origin
    into: str = ""

    def at(self, where: Sequence[Index]) -> Expr:
        """Return the value of the element at an index, one for each dimension."""
        places = zip(self.index, where, strict=True)
        values: dict[Atom, Index] = {
            a: value for place, value in places for a in place.direct_atoms
        }
        return self.body.substitute(values)


@dataclass(frozen=True)
class Scatter(Pointwise):
    """A `Pointwise` whose index is data: it may visit an element several times, or never.

    Points run one after the other, in row-major order of the axes. The body may read `into` at
    `index`, where it sees what earlier points stored. `into` is an input, or a buffer of the graph
    that nothing else reads.
    """


@dataclass(frozen=True)
class _Accumulating(_Loop):
    """A loop node that combines the values of its body over the `reduced` axes."""

    out: Buffer
    axes: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    index: tuple[Index, ...]
    kind: str
    body: Expr
    origin: Origin

    @property
    def over(self) -> tuple[Axis, ...]:
        """The axes that the node combines over."""
        return self.reduced


@dataclass(frozen=True)
class Reduction(_Accumulating):
    """out[index] = kind over `reduced` of body, for every point of the axes."""


@dataclass(frozen=True)
class Scan(_Accumulating):
    """out[index] = kind of body over the points of `reduced` up to and including this one.

    It is accumulated in the dtype of `body`, and may be stored in another floating dtype. `index`
    visits every element once, over the points of `axes` and `reduced`. The last points may lie
    beyond the buffer; they are not stored. Only Triton kernels support that.
    """

    @property
    def filled(self) -> tuple[Axis, ...]:
        """The axes over whose points the buffer is filled, `reduced` included."""
        return self.axes + self.reduced


Path = tuple[tuple[str, Any], ...]
"""Steps into a result: ("call", method), ("item", position), ("divide", by)."""


@dataclass(frozen=True)
class Extern:
    """A call that the wrapper makes: an ATen operator, a view, item(), arithmetic on sizes.

    `out` is the buffer it defines, None if its value is not a single tensor. `alias_of` names the
    value whose memory the result shares. `mutates` names the values it writes to. `effect` marks a
    call that must keep its order among other effects (random numbers, mutation, printing). `binds`
    maps the sizes that become known here to paths into the result.
    """

    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    out: Buffer | None
    origin: Origin
    alias_of: str | None = None
    mutates: tuple[str, ...] = ()
    effect: bool = False
    binds: Mapping[Symbol, Path] = field(default_factory=dict)

    @property
    def only_views(self) -> bool:
        """Whether the call only makes a view of existing memory."""
        return self.alias_of is not None and not (self.effect or self.binds or self.mutates)


LoopNode = Pointwise | Reduction | Scan
Node = Pointwise | Reduction | Scan | Extern


@dataclass(frozen=True)
class Input:
    """An argument of the graph: a buffer, a size symbol, or something else passed through."""

    name: str
    buffer: Buffer | None = None
    symbol: Symbol | None = None


@dataclass(frozen=True)
class Graph:
    """A graph of the loop IR. Each output is a Ref, an Index, or a literal."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)

    def buffers(self) -> dict[str, Buffer]:
        """Return every buffer by name."""
        found = {i.name: i.buffer for i in self.inputs if i.buffer is not None}
        found.update({n.name: n.out for n in self.nodes if n.out is not None})
        return found


def reads(node: Node) -> set[str]:
    """Return the names of the values a node reads."""
    if isinstance(node, Extern):
        return set(extern_refs(node))
    return elements_read(node) | ({node.into} if isinstance(node, Scatter) else set())


def elements_read(node: LoopNode) -> set[str]:
    """The buffers and parameters that a loop reads in its body and, for a Scatter, its index."""
    found = body_reads(node.body)
    if isinstance(node, Scatter):
        for index in node.index:
            found |= body_reads(IndexValue(torch.int64, index))
    return found


def body_reads(body: Expr) -> set[str]:
    """Return the names of the buffers and parameters that an expression reads."""
    return {
        e.buffer if isinstance(e, Load) else e.name
        for e in walk(body)
        if isinstance(e, Load | Parameter)
    }


def extern_refs(node: Extern) -> list[str]:
    """Return the names of the values that an extern call takes, in order."""
    names: list[str] = []

    def collect(leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            names.append(leaf.name)
        return leaf

    map_arguments((node.args, dict(node.kwargs)), collect)
    return names


def loaded_addresses(node: LoopNode, buffers: Mapping[str, Buffer]) -> list[Index]:
    """Return the addresses of what a node loads, in elements of each buffer."""
    return [buffers[load.buffer].address(load.index) for load in loads(node.body)]


def written(node: Node) -> tuple[str, ...]:
    """Return the names of the values whose memory a node writes to, other than its own result."""
    if isinstance(node, Extern):
        return node.mutates
    return (node.into,) if isinstance(node, Pointwise) and node.into else ()


def memory_of(nodes: Iterable[Node]) -> dict[str, str]:
    """Value without memory of its own -> the value whose memory it shares."""
    owner: dict[str, str] = {}
    for node in nodes:
        shared = node.alias_of if isinstance(node, Extern) else "".join(written(node))
        if shared:
            owner[node.name] = owner.get(shared, shared)
    return owner


def symbols_of(node: Node) -> set[Symbol]:
    """Return the size symbols that must be known when a node runs."""
    found: set[Symbol] = set()
    for index in (*node.out.size, *node.out.stride) if node.out is not None else ():
        found |= index.symbols
    if isinstance(node, Extern):

        def collect(leaf: Any) -> Any:
            if isinstance(leaf, Index):
                found.update(leaf.symbols)
            return leaf

        map_arguments((node.args, dict(node.kwargs)), collect)
        return found - set(node.binds)
    for axis in (*node.axes, *node.over):
        found |= axis.size.symbols
    for index in node.index if isinstance(node, Scatter) else ():
        found |= index.symbols
    return found | node.body.symbols


def output_refs(graph: Graph) -> set[str]:
    """Return the names of the values that a graph returns."""
    return {o.name for o in graph.outputs if isinstance(o, Ref)}


def without_dead_nodes(graph: Graph) -> Graph:
    """Return the graph without nodes whose results are unused and that have no effect."""
    needed, inputs = output_refs(graph), {spec.name for spec in graph.inputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        acts = not inputs.isdisjoint(written(node))
        if isinstance(node, Extern):
            acts = node.effect or bool(node.binds)
        if node.name in needed or acts:
            kept.append(node)
            needed |= reads(node)
    return Graph(graph.inputs, tuple(reversed(kept)), graph.outputs, graph.constants)


def map_arguments(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a nested argument with `change` applied to its leaves."""
    return map_aggregate(value, change)


def count_kinds(graph: Graph) -> dict[str, int]:
    """Return how many nodes of each class a graph has."""
    counts = {"pointwise": 0, "reduction": 0, "scan": 0, "scatter": 0, "extern": 0}
    for node in graph.nodes:
        counts[type(node).__name__.lower()] += 1
    return counts
