"""Reads the text of `printer.print_graph` back. The text is Python that calls the names here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from tcdebug.compiler.ir.arithmetic.index import Axis, Index, IndexLike, Symbol, to_index
from tcdebug.compiler.ir.arithmetic.order import extremum
from tcdebug.compiler.ir.build import call
from tcdebug.compiler.ir.expr import (
    Call,
    Constant,
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
    Input,
    Location,
    Node,
    Origin,
    Pointwise,
    Reduction,
    Ref,
    Scan,
    Scatter,
)
from tcdebug.compiler.ir.operations import OPERATIONS, SCANS
from tcdebug.compiler.ir.printer import DTYPE_NAMES

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}


def _indices(values: Sequence[IndexLike]) -> tuple[Index, ...]:
    return tuple(to_index(v) for v in values)


def _extremum(kind: str) -> Callable[[IndexLike, IndexLike], Index]:
    def build(left: IndexLike, right: IndexLike) -> Index:
        return extremum(kind, to_index(left), to_index(right))

    return build


EXPRESSIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(call, name) for name in OPERATIONS if name != "cast"},
    "load": lambda dtype, name, *where: Load(dtype, name, _indices(where)),
    "constant": lambda dtype, value: Constant(dtype, value),
    "parameter": lambda dtype, name: Parameter(dtype, name),
    "index_value": lambda dtype, value: IndexValue(dtype, to_index(value)),
    "guarded": lambda condition, body, other: Guarded(body.dtype, condition, body, other),
    "cast": lambda value, dtype: Call(dtype, "cast", (value,)),
    "at": lambda value, size, checked=False: to_index(
        Indirect(value, to_index(size), checked=checked)
    ),
    "max": _extremum("max"),
    "min": _extremum("min"),
}


@dataclass
class _Reader:
    """Collects the nodes that the text constructs."""

    constants: Mapping[str, Any]
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: tuple[Any, ...] = ()
    used: dict[str, Any] = field(default_factory=dict)

    def buffer(
        self,
        name: str,
        dtype: torch.dtype,
        size: Sequence[IndexLike],
        stride: Sequence[IndexLike],
        device: str = "cpu",
    ) -> Buffer:
        return Buffer(name, dtype, _indices(size), _indices(stride), torch.device(device))

    def input_buffer(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.inputs.append(Input(name, buffer=self.buffer(name, *args, **kwargs)))

    def input_size(self, name: str, symbol: Index) -> None:
        self.inputs.append(Input(name, symbol=_symbol(symbol)))

    def input_other(self, name: str) -> None:
        self.inputs.append(Input(name))

    def constant_value(self, name: str) -> None:
        self.used[name] = self.constants[name]

    def loop(
        self,
        name: str,
        dtype: torch.dtype,
        *,
        axes: Mapping[str, IndexLike],
        origin: Sequence[Any],
        over: Mapping[str, IndexLike] | None = None,
        kind: str = "",
        index: Callable[..., Sequence[IndexLike]] | None = None,
        into: str = "",
        **layout: Any,
    ) -> Callable[[Callable[..., Any]], None]:
        out = self.buffer(name, dtype, **layout)
        outer = tuple(Axis(n, to_index(s)) for n, s in axes.items())
        inner = tuple(Axis(n, to_index(s)) for n, s in (over or {}).items())
        where = tuple(map(to_index, (*outer, *inner)))
        filled = where if kind in SCANS else where[: len(outer)]
        target = _indices(index(*filled)) if index else filled

        def define(body: Callable[..., Any]) -> None:
            expr = body(*where)
            source = _origin(origin)
            if isinstance(expr, tuple):
                places, expr = expr
                self.nodes.append(Scatter(out, outer, _indices(places), expr, source, into))
            elif over is None:
                self.nodes.append(Pointwise(out, outer, target, expr, source, into))
            elif kind in SCANS:
                self.nodes.append(Scan(out, outer, inner, target, kind, expr, source))
            else:
                self.nodes.append(Reduction(out, outer, inner, target, kind, expr, source))

        return define

    def extern(
        self,
        name: str,
        target: Callable[..., Any],
        *,
        args: Sequence[Any],
        origin: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        out: Buffer | None = None,
        **flags: Any,
    ) -> None:
        binds = {_symbol(s): tuple(p) for s, p in flags.pop("binds", {}).items()}
        node = Extern(
            name, target, tuple(args), kwargs or {}, out, _origin(origin), binds=binds, **flags
        )
        self.nodes.append(node)

    def output(self, *values: Any) -> None:
        self.outputs = values


def _symbol(value: Index) -> Symbol:
    atom = value.direct_atoms[0]
    assert isinstance(atom, Symbol)
    return atom


def _origin(parts: Sequence[Any]) -> Origin:
    node, op, *where = parts
    return Origin(node, op, Location(*where) if where else None)


def parse_graph(text: str, constants: Mapping[str, Any] | None = None) -> Graph:
    """Parse the text of `print_graph`.

    `constants` holds the tensors and modules that the text names. The text is executed, so parse
    only text that you trust.
    """
    reader = _Reader(constants or {})
    exec(compile(text, "<loop IR>", "exec"), _namespace(reader))
    return Graph(tuple(reader.inputs), tuple(reader.nodes), reader.outputs, reader.used)


def _namespace(reader: _Reader) -> dict[str, Any]:
    """Return the values of the names in a text, which are those in `printer.CONSTRUCTORS`."""
    return {
        **DTYPES,
        **EXPRESSIONS,
        "torch": torch,
        "operator": operator,
        "symbol": lambda name, lower: to_index(Symbol(name, lower)),
        "ref": Ref,
        "size": to_index,
        "device": torch.device,
        "buffer": reader.buffer,
        "input_buffer": reader.input_buffer,
        "input_size": reader.input_size,
        "input_other": reader.input_other,
        "constant_value": reader.constant_value,
        "pointwise": reader.loop,
        "scan": reader.loop,
        "scatter": reader.loop,
        "reduction": lambda *a, **k: reader.loop(*a, **{"over": {}, **k}),
        "extern": reader.extern,
        "output": reader.output,
    }
