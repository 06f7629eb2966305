"""Computes nodes of a graph from given values, in eager and in float64."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import clone_values, depends_on_dtype, flatten
from tcdebug.minifier.judging.reference.draws import draws_nothing
from tcdebug.minifier.judging.reference.widened_dtypes import WIDER

STEPS = frozenset(
    (
        *("argmax", "argmin", "argsort", "bucketize", "ceil", "eq", "floor", "floor_divide"),
        *("fmod", "ge", "gt", "isin", "le", "lt", "max", "min", "mode", "ne", "remainder"),
        *("round", "searchsorted", "sgn", "sign", "signbit", "sort", "topk", "trunc"),
        *("logical_not", "logical_and", "logical_or", "nonzero", "frac", "fix", "heaviside"),
        *("_low_memory_max_pool_with_offsets", "max_pool2d_with_indices", "cummax", "cummin"),
        *("kthvalue", "median", "unique", "index_put_", "nan_to_num"),
    )
)
"""Operators whose result jumps where their operands change a little."""
HALF = (torch.bfloat16, torch.float16)
DRAWS = 8
"""How often roundings are drawn. One draw of few elements may have them cancel each other."""
NUMBERS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
UNINITIALISED = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "empty_permuted"))


class Unjudged(Exception):
    """A value cannot be compared. The message says why."""


@dataclass(frozen=True)
class Computed:
    """The values of a node from the same operands in two precisions.

    `exact` is None if the region cannot be run in float64.
    """

    eager: Any
    exact: Any
    jumps: bool
    """Whether rounding can change the result by more than rounding, as in a comparison."""
    nodes: tuple[fx.Node, ...]
    """The nodes that were computed."""
    finite: bool = True
    """Whether all values that they were computed from are finite."""
    noise: Callable[[], float] | None = None
    """How far the value moves where half types are rounded on the way to a wider one.

    None if nothing is rounded there.
    """


@dataclass(frozen=True)
class SharedValues:
    """Values of nodes that were computed from the same known values, so that none is run twice."""

    eager: dict[fx.Node, Any] = field(default_factory=dict)
    exact: dict[fx.Node, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReferenceGraph:
    """A functional graph, whose nodes can be computed from the values of others."""

    module: fx.GraphModule
    nodes: Mapping[str, fx.Node] = field(init=False)
    updates: Mapping[fx.Node, tuple[fx.Node, ...]] = field(init=False)
    """Memory that the graph updates in place -> the nodes that do so."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", {n.name: n for n in self.module.graph.nodes})
        found: dict[fx.Node, tuple[fx.Node, ...]] = {}
        for node in self.module.graph.nodes:
            if updates_memory(node) and node.args and isinstance(node.args[0], fx.Node):
                base = _base(node.args[0])
                found[base] = (*found.get(base, ()), node)
        object.__setattr__(self, "updates", found)

    def updated_inputs(self) -> dict[str, str]:
        """Return the inputs that the graph updates, and the node with the new value if known."""
        return {
            base.name: nodes[0].name if len(nodes) == 1 and nodes[0].args[0] is base else ""
            for base, nodes in self.updates.items()
            if base.op == "placeholder"
        }

    def _check_versions(
        self, region: Sequence[fx.Node], known: Mapping[str, Any], written: Set[str]
    ) -> None:
        """Raise Unjudged if a region reads another version of updated memory than is known.

        `written` names the known values that have been updated.
        """
        if not self.updates:
            return
        order = {node: place for place, node in enumerate(self.module.graph.nodes)}
        for node in region:
            for operand in node.all_input_nodes:
                base = _base(operand)
                updates = [n for n in self.updates.get(base, ()) if n is not node]
                if not updates or (operand is not base and operand.name in known):
                    continue
                before = [order[n] < order[node] for n in updates]
                if any(before) != (base.name in written) or any(before) != all(before):
                    raise Unjudged("memory that the graph updates in place")

    def region(self, targets: Iterable[str], known: Mapping[str, Any]) -> list[fx.Node]:
        """Return the nodes between the known values and the targets, in order."""
        wanted: set[fx.Node] = set()
        stack = [self.nodes[name] for name in targets]
        while stack:
            node = stack.pop()
            if node in wanted:
                continue
            wanted.add(node)
            stack += [n for n in node.all_input_nodes if n.name not in known]
        return [node for node in self.module.graph.nodes if node in wanted]

    def compute(
        self,
        target: str,
        known: Mapping[str, Any],
        written: Set[str] = frozenset(),
        shared: SharedValues | None = None,
    ) -> Computed:
        """Compute a node from known values in eager and in float64. Raises Unjudged.

        `written` names the known values that the graph has updated in place.
        """
        if target in known:
            value = known[target]
            return Computed(value, _wider(value, WIDER), False, ())
        shared = shared or SharedValues()
        nodes = self._computable(target, known, written)
        eager = self._eager(nodes, known, shared)
        exact = None
        if not any(map(depends_on_dtype, nodes)):
            with contextlib.suppress(Exception):  # an operator without a float64 kernel
                exact = self._run(nodes, _widened(known), WIDER, values=shared.exact)
        computed = tuple(n for n in nodes if n.op not in ("placeholder", "get_attr"))
        read = {n.name for node in nodes for n in node.all_input_nodes} & known.keys()
        finite = all(is_finite(known[name]) for name in read)
        noise = None
        if exact is not None and _rounds_on_the_way(computed):
            noise = partial(self._noise, nodes, known, exact)
        return Computed(eager, exact, any(map(_jumps, computed)), computed, finite, noise)

    def value(self, target: str, known: Mapping[str, Any], shared: SharedValues) -> Any:
        """Compute a node from known values in eager alone. Raises Unjudged."""
        if target in known:
            return known[target]
        return self._eager(self._computable(target, known, frozenset()), known, shared)

    def _computable(
        self, target: str, known: Mapping[str, Any], written: Set[str]
    ) -> list[fx.Node]:
        """Return the nodes between the known values and a target. Raises Unjudged."""
        nodes = self.region([target], known)
        for node in nodes:
            _check(node)
        self._check_versions(nodes, known, written)
        return nodes

    def _eager(
        self, nodes: Sequence[fx.Node], known: Mapping[str, Any], shared: SharedValues
    ) -> Any:
        try:
            return self._run(nodes, known, {}, values=shared.eager)
        except Exception as problem:
            raise Unjudged(f"eager raises {type(problem).__name__}: {problem}") from problem

    def _noise(self, nodes: Sequence[fx.Node], known: Mapping[str, Any], exact: Any) -> float:
        """Return how far a value moves if each rounding to a half type is off by a unit."""
        generator = torch.Generator().manual_seed(0)

        def off(node: fx.Node, value: Any) -> Any:
            half = node.meta.get("val")
            if not isinstance(half, torch.Tensor) or half.dtype not in HALF:
                return value
            signs = torch.rand(value.shape, generator=generator).to(value.device) < 0.5
            unit = torch.finfo(half.dtype).eps
            return value * torch.where(signs, 1 - unit, 1 + unit)

        moved = 0.0
        for _ in range(DRAWS):
            value = self._run(nodes, _widened(known), WIDER, off)
            distance = (value - exact).abs()
            moved = max(moved, float(distance.nan_to_num(0.0, 0.0, 0.0).max()))
        return moved

    def _run(
        self,
        nodes: Sequence[fx.Node],
        known: Mapping[str, Any],
        dtypes: Mapping[torch.dtype, torch.dtype],
        changed: Callable[[fx.Node, Any], Any] = lambda _, value: value,
        values: dict[fx.Node, Any] | None = None,
    ) -> Any:
        """Run nodes in order, with dtypes in their arguments replaced. Return the last value.

        `changed` returns what takes the place of a node's value. Nodes in `values` are not run
        again, and the values of the others are added.
        """
        values = {} if values is None else values

        def operand(node: fx.Node) -> Any:
            return values[node] if node in values else known[node.name]

        def argument(value: Any) -> Any:
            if isinstance(value, fx.Node):
                return operand(value)
            return dtypes.get(value, value) if isinstance(value, torch.dtype) else value

        with torch.no_grad():
            for node in nodes:
                if node in values:
                    continue
                if node.op == "get_attr":
                    values[node] = _wider(
                        operator.attrgetter(str(node.target))(self.module), dtypes
                    )
                    continue
                if node.op == "output":
                    values[node] = fx.node.map_arg(node.args[0], operand)
                    continue
                args = fx.node.map_aggregate(node.args, argument)
                kwargs = fx.node.map_aggregate(node.kwargs, argument)
                if updates_memory(node):
                    args = tuple(clone_values(args))
                values[node] = changed(node, _function(node)(*args, **kwargs))
        return values[nodes[-1]]


def _check(node: fx.Node) -> None:
    """Raise Unjudged for a node that cannot be computed again."""
    if node.op == "placeholder":
        raise Unjudged(f"the value of {node.name} is not known")
    if node.op not in ("call_function", "get_attr", "output"):
        raise Unjudged(f"{node.op} nodes are not computed again")
    name = operator_name(node.target)
    if name in UNINITIALISED:
        raise Unjudged("memory that nothing has written")
    if name.startswith("inductor_") or _draws(node):
        raise Unjudged("random numbers")


def _draws(node: fx.Node) -> bool:
    """Return whether a node may draw random numbers.

    Attention without dropout draws none. On a GPU it returns the state of a generator too.
    """
    target = node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return True
    made = (v for v in flatten(node.meta.get("val")) if isinstance(v, torch.Tensor))
    on_cpu = all(value.device.type == "cpu" for value in made)
    return not (on_cpu and draws_nothing(target, node.args, node.kwargs))


def is_view(node: fx.Node) -> bool:
    """Return whether a node makes a view of its operand, or has no operand."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return node.op != "call_module"
    return any(r.alias_info is not None for r in schema.returns) and not schema.is_mutable


def operator_name(target: Any) -> str:
    """Return the name of an operator without its namespace and overload."""
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.rpartition("::")[2]
    return str(getattr(target, "__name__", target))


def _jumps(node: fx.Node) -> bool:
    operands = [n.meta.get("val") for n in node.all_input_nodes]
    if not any(isinstance(o, torch.Tensor) and _floats(o) for o in operands):
        return False
    value = node.meta.get("val")
    whole = isinstance(value, torch.Tensor) and not _floats(value)
    return whole or operator_name(node.target) in STEPS


def _rounds_on_the_way(nodes: Sequence[fx.Node]) -> bool:
    """Return whether nodes compute values of a half type, and from them one of a wider type."""
    made = [n.meta.get("val") for n in nodes]
    dtypes = [value.dtype for value in made if isinstance(value, torch.Tensor)]
    wide = bool(dtypes) and dtypes[-1] in NUMBERS and dtypes[-1] not in HALF
    return wide and any(dtype in HALF for dtype in dtypes)


def _floats(value: torch.Tensor) -> bool:
    return value.dtype.is_floating_point or value.dtype.is_complex


def is_finite(value: Any) -> bool:
    """Return whether a tensor of floats has neither infinities nor NaN."""
    floats = isinstance(value, torch.Tensor) and value.dtype in NUMBERS
    return not floats or bool(torch.isfinite(value).all())


def updates_memory(node: fx.Node) -> bool:
    """Return whether a node writes to its operands."""
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def _base(node: fx.Node) -> fx.Node:
    """Return the node whose memory a node views, which may be itself."""
    while node.all_input_nodes and node.op == "call_function" and is_view(node):
        node = node.all_input_nodes[0]
    return node


def _function(node: fx.Node) -> Callable[..., Any]:
    assert callable(node.target)
    return node.target


def _widened(known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _wider(value, WIDER) for name, value in known.items()}


def _wider(value: Any, dtypes: Mapping[torch.dtype, torch.dtype]) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in dtypes:
        return value.detach().to(dtypes[value.dtype])
    return value
