"""The reference interpreter of the loop IR: computes every node in plain torch.

It is simple rather than fast. The tests compare the result of every stage with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import torch

from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, Quotient, Remainder, Symbol
from tcdebug.compiler.ir.arithmetic.order import Extremum
from tcdebug.compiler.ir.expr import (
    Call,
    Constant,
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    Parameter,
)
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    LoopNode,
    Reduction,
    Ref,
    Scan,
    Scatter,
    map_arguments,
    written,
)
from tcdebug.compiler.ir.operations import POLYNOMIALS, gives_place
from tcdebug.compiler.operators.philox import philox

Value = Any
"""A tensor, a number, or the result of an extern call."""


def _trunc_div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _floor_div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="floor")


MEANING: dict[str, Callable[..., torch.Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "neg", "abs", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
            "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
            "atanh", "erf", "erfc", "lgamma", "floor", "ceil", "trunc", "round", "add", "sub",
            "mul", "maximum", "minimum", "remainder", "pow", "atan2", "fmod", "hypot", "copysign",
            "fmax", "fmin", "nextafter", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
            "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "signbit", "where",
        )
    },
    "philox": philox,
    "zeta": torch.special.zeta,
    "igamma": torch.igamma,
    "igammac": torch.igammac,
    **{
        name: getattr(torch.special, "_polynomial_".join(name.rsplit("_", 1)))
        for name in POLYNOMIALS
    },
    "div": torch.true_divide,
    "approximate_div": torch.true_divide,
    "floor_div": _floor_div,
    "trunc_div": _trunc_div,
    "trunc_mod": torch.fmod,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    # torch.sign(nan) is 0 in some builds and nan in others; here it is 0
    "sign": lambda a: (a > 0).to(a.dtype) - (a < 0).to(a.dtype),
}  # fmt: skip


def run(graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Run a graph on inputs, which are tensors and numbers in the order of the graph's inputs."""
    values: dict[str, Value] = dict(graph.constants)
    symbols: dict[Symbol, int] = {}
    for spec, value in zip(graph.inputs, inputs, strict=True):
        values[spec.name] = value
        if spec.symbol is not None:
            symbols[spec.symbol] = int(value)
        elif spec.buffer is not None:
            bind_sizes(spec.buffer, value, symbols)
    for node in graph.nodes:
        if isinstance(node, Extern):
            values[node.name] = run_extern(node, values, symbols)
        else:
            run_loop(node, values, symbols)

    def resolve(output: Value) -> Value:
        if isinstance(output, Ref):
            return values[output.name]
        return evaluate_index(output, symbols) if isinstance(output, Index) else output

    return tuple(resolve(o) for o in graph.outputs)


def bind_sizes(buffer: Buffer, value: torch.Tensor, symbols: dict[Symbol, int]) -> None:
    """Add to `symbols` those that are by themselves a size or stride of an input."""
    for index, actual in zip(
        (*buffer.size, *buffer.stride), (*value.size(), *value.stride()), strict=True
    ):
        atoms = index.direct_atoms
        if len(atoms) == 1 and isinstance(atoms[0], Symbol) and index == Index({(atoms[0],): 1}):
            symbols.setdefault(atoms[0], int(actual))


def run_extern(node: Extern, values: Mapping[str, Value], symbols: dict[Symbol, int]) -> Value:
    """Return the result of an extern call. Adds the sizes that it binds to `symbols`."""

    def resolve(leaf: Value) -> Value:
        if isinstance(leaf, Ref):
            return values[leaf.name]
        return evaluate_index(leaf, symbols) if isinstance(leaf, Index) else leaf

    args, kwargs = map_arguments((node.args, dict(node.kwargs)), resolve)
    result = node.target(*args, **kwargs)
    for symbol, path in node.binds.items():
        symbols[symbol] = int(follow(result, path))
    return result


def follow(result: Value, path: Sequence[tuple[str, Any]]) -> Value:
    """Apply the steps of `Extern.binds` to a result."""
    for step, argument in path:
        if step == "call":
            result = getattr(result, argument)()
        elif step == "item":
            result = result[argument]
        else:
            result = result // argument
    return result


def run_loop(node: LoopNode, values: dict[str, Value], symbols: Mapping[Symbol, int]) -> None:
    """Fill the buffer of a node. Allocates the buffer if it does not exist."""
    size = [evaluate_index(s, symbols) for s in node.out.size]
    stride = [evaluate_index(s, symbols) for s in node.out.stride]
    for shared in written(node):
        values[node.name] = values[shared].view(size)
    if node.name not in values:
        values[node.name] = torch.empty_strided(size, stride, dtype=node.out.dtype)
    out = values[node.name]
    if isinstance(node, Scatter):
        _run_scatter(node, out, values, symbols)
        return
    grid = _Grid((*node.axes, *node.over), symbols, values)
    result = grid.evaluate(node.body)
    result = result.expand(grid.shape)
    if isinstance(node, Reduction):
        result = reduce(node.kind, result, grid.shape[: len(node.axes)])
    if isinstance(node, Scan):
        result = scan(node.kind, result, grid.shape[: len(node.axes)])
    target = _Grid(node.filled, symbols, values)
    where = tuple(target.index(i).expand(target.shape) for i in node.index)
    if isinstance(node, Scan) and not node.fills_exactly:
        ends = zip(where, size, strict=True)
        exists = torch.stack([place < end for place, end in ends]).all(0)
        where, result = tuple(place[exists] for place in where), result[exists]
    if where:
        out[where] = result.to(out.dtype)
    else:
        out.copy_(result.reshape(()))


def _run_scatter(
    node: Scatter, out: torch.Tensor, values: dict[str, Value], symbols: Mapping[Symbol, int]
) -> None:
    """Run a scatter one point at a time."""
    grid = _Grid((), symbols, values)
    for point in product(*(range(evaluate_index(a.size, symbols)) for a in node.axes)):
        grid.points = dict(zip(node.axes, map(torch.tensor, point), strict=True))
        where = tuple(grid.index(i) for i in node.index)
        out[where] = grid.evaluate(node.body).to(out.dtype)


def reduce(kind: str, values: torch.Tensor, kept: Sequence[int]) -> torch.Tensor:
    """Combine all dimensions after the kept ones. Raises ValueError for an unknown kind."""
    rows = values.reshape(*kept, values.numel() // prod(kept) if prod(kept) else 0)
    match kind:
        case "sum":
            return rows.sum(-1, dtype=values.dtype)
        case "prod":
            return rows.prod(-1, dtype=values.dtype)
        case "max":
            return rows.amax(-1)
        case "min":
            return rows.amin(-1)
        case "argmax":
            return rows.argmax(-1)
        case "argmin":
            return rows.argmin(-1)
    raise ValueError(f"no such reduction: {kind}")


def scan(kind: str, values: torch.Tensor, kept: Sequence[int]) -> torch.Tensor:
    """Accumulate over all dimensions after the kept ones, row by row."""
    if not values.numel():
        return values
    rows = values.reshape(*kept, -1)
    running: torch.Tensor
    match kind:
        case "cumsum" | "cumprod":
            running = getattr(rows, kind)(-1, dtype=values.dtype)
        case "logcumsumexp":
            running = rows.logcumsumexp(-1)
        case "argsort" | "argsort_down":
            running = rows.argsort(dim=-1, descending=kind == "argsort_down", stable=True)
        case _:
            pair = rows.cummax(-1) if kind.endswith("max") else rows.cummin(-1)
            running = pair.indices if gives_place(kind) else pair.values
    return running.reshape(values.shape)


def evaluate_index(index: Index, symbols: Mapping[Symbol, int]) -> int:
    """Return the value of an index that depends on size symbols only."""
    return int(_Grid((), symbols, {}).index(index))


class _Grid:
    """All points of some axes at once. The values of axis k lie along dimension k."""

    def __init__(
        self, axes: Sequence[Axis], symbols: Mapping[Symbol, int], values: Mapping[str, Value]
    ) -> None:
        self.symbols = symbols
        self.values = values
        self.points: dict[Axis, torch.Tensor] = {}
        self.shape: list[int] = []
        for position, axis in enumerate(axes):
            size = int(self.index(axis.size))
            self.shape.append(size)
            dims = [1] * len(axes)
            dims[position] = size
            self.points[axis] = torch.arange(size).reshape(dims)

    def index(self, index: Index, *, clamp: bool = False) -> torch.Tensor:
        """Return the values of an index at all points."""
        total = torch.zeros((), dtype=torch.int64)
        for monomial, coefficient in index.terms.items():
            term = torch.tensor(coefficient)
            for atom in monomial:
                term = term * self._atom(atom, clamp)
            total = total + term
        return total

    def _atom(self, atom: Atom, clamp: bool) -> torch.Tensor | int:
        match atom:
            case Axis():
                return self.points[atom]
            case Symbol():
                return self.symbols[atom]
            case Quotient():
                return _floor_div(
                    self.index(atom.numerator, clamp=clamp), self.index(atom.denominator)
                )
            case Remainder():
                return torch.remainder(
                    self.index(atom.numerator, clamp=clamp), self.index(atom.denominator)
                )
            case Extremum():
                pick = torch.maximum if atom.kind == "max" else torch.minimum
                return pick(self.index(atom.left), self.index(atom.right))
            case Indirect():
                return self._indirect(atom, clamp)
        raise TypeError(f"no such atom: {atom!r}")

    def _indirect(self, atom: Indirect, clamp: bool) -> torch.Tensor:
        value = self.evaluate(atom.expr, clamp=clamp).to(torch.int64)
        size = self.index(atom.size)
        if atom.checked:
            value = torch.where(value < 0, value + size, value)
            if not clamp and bool(((value < 0) | (value >= size)).any()):
                raise IndexError(f"index out of range for dimension of size {int(size)}")
        return value

    def evaluate(self, expr: Expr, *, clamp: bool = False) -> torch.Tensor:
        """Return the values of an expression at all points.

        `clamp` keeps loads inside their buffers.
        """
        memo: dict[str, torch.Tensor] = {}

        def value(node: Expr) -> torch.Tensor:
            if node.key not in memo:
                memo[node.key] = self._evaluate(node, value, clamp)
            return memo[node.key]

        return value(expr)

    def _evaluate(
        self, node: Expr, value: Callable[[Expr], torch.Tensor], clamp: bool
    ) -> torch.Tensor:
        match node:
            case Constant():
                return torch.tensor(node.value, dtype=node.dtype)
            case Parameter():
                return torch.as_tensor(self.values[node.name]).to(node.dtype)
            case IndexValue():
                return self.index(node.index, clamp=clamp).to(node.dtype)
            case Load():
                return self._load(node, clamp)
            case Guarded():
                # both branches are evaluated everywhere, with their loads clamped
                body = self.evaluate(node.body, clamp=True)
                other = self.evaluate(node.other, clamp=True)
                return torch.where(value(node.condition), body, other)
            case Call(name="cast"):
                return value(node.args[0]).to(node.dtype)
            case Call():
                return MEANING[node.name](*(value(a) for a in node.args))
        raise TypeError(f"no such expression: {node!r}")

    def _load(self, node: Load, clamp: bool) -> torch.Tensor:
        buffer: torch.Tensor = self.values[node.buffer]
        if not node.index:
            return buffer.reshape(())
        places = [self.index(i, clamp=clamp) for i in node.index]
        shape = torch.broadcast_shapes(*(p.shape for p in places))  # type: ignore[no-untyped-call] # torch's is
        where = tuple(p.expand(shape) for p in places)
        if clamp:
            if buffer.numel() == 0:
                return torch.zeros_like(where[0], dtype=buffer.dtype)
            where = tuple(w.clamp(0, n - 1) for w, n in zip(where, buffer.size(), strict=True))
        for w, n in zip(where, buffer.size(), strict=True):
            if w.numel() and (int(w.min()) < 0 or int(w.max()) >= n):
                raise IndexError(f"{node.buffer}[{w.min()}..{w.max()}] of {n}")
        return buffer[where]
