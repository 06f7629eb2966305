"""The lower stage: turns an ATen graph into loop IR, node by node."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.devices import DEVICES
from tcdebug.compiler.effects import (
    as_tuple,
    has_effect,
    is_number,
    may_share_memory,
    written_operands,
)
from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Index, Symbol, to_index
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Input,
    Location,
    Node,
    Origin,
    Path,
    Ref,
    without_dead_nodes,
)
from tcdebug.compiler.ir.operations import STORABLE, UnsupportedOperands
from tcdebug.compiler.ir.user_lines import innermost_line
from tcdebug.compiler.lower.interface.site import Lowering, Memory, Site
from tcdebug.compiler.lower.interface.sizes import Sizes, Unrepresentable
from tcdebug.compiler.lower.interface.tensor import NotLowered, Tensor, from_buffer
from tcdebug.compiler.lower.tables import LATE, LOWERINGS, VIEWS


@dataclass
class Lowered:
    """The loop IR of a graph, and the operators left to ATen, as (node, operator, reason)."""

    graph: Graph
    externs: list[tuple[str, str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """ATen node -> the name of its value at run time."""


def location(node: fx.Node) -> Location | None:
    """Return the line of the user's program that a node comes from, if it is known."""
    found = innermost_line(node.meta.get("stack_trace") or "")
    return found[0] if found else None


def op_name(target: Any) -> str:
    """Return the name of an operator in units: aten.add.Tensor."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", None) or str(target)


def lower_graph(module: fx.GraphModule, gate: Gate) -> Lowered:
    """Lower an ATen graph, whose nodes have fake values in meta["val"].

    A lowering that raises something other than NotLowered becomes a CompileError.
    """
    return _Lowerer(module, gate).run()


def _blamed(node: fx.Node, error: Exception) -> CompileError:
    """Return a CompileError that names the unit of a failing lowering and its node."""
    message = f"{type(error).__name__}: {error}"
    return CompileError("lower", message, unit=f"lower.{op_name(node.target)}", node=node.name)


class _Lowerer:
    def __init__(self, module: fx.GraphModule, gate: Gate) -> None:
        self.module = module
        self.gate = gate
        self.sizes = Sizes()
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, Any] = {}
        self.externs: list[tuple[str, str, str]] = []
        self.known: set[Symbol] = set()  # sizes known from inputs or earlier results
        self.values: dict[fx.Node, Any] = {}  # Tensor, Index, Ref, or a tuple of them
        self.names: dict[fx.Node, str] = {}  # the name of the runtime value of a node
        self.memory = Memory(frozenset(node.name for node in module.graph.nodes))

    def run(self) -> Lowered:
        outputs: tuple[Any, ...] = ()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self._input(node)
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "output":
                outputs = tuple(self._argument(a) for a in as_tuple(node.args[0]))
            else:
                self._call(node)
        graph = Graph(tuple(self.inputs), tuple(self.nodes), outputs, self.constants)
        names = {node.name: name for node, name in self.names.items()}
        return Lowered(without_dead_nodes(graph), self.externs, names)

    # -- inputs -----------------------------------------------------------------------------

    def _input(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        self.names[node] = node.name
        if isinstance(value, torch.SymInt):
            symbol = self.sizes.symbol(value)
            self.inputs.append(Input(node.name, symbol=symbol))
            self.known |= {symbol} if symbol else set()
            self.values[node] = self._size_value(node, value)
        elif isinstance(value, torch.Tensor) and (buffer := self._buffer(node.name, value)):
            self.inputs.append(Input(node.name, buffer=buffer))
            self.memory.inputs[node.name] = buffer
            for index in (*buffer.size, *buffer.stride):
                self.known |= index.symbols
            self.values[node] = from_buffer(buffer)
        else:
            self.inputs.append(Input(node.name))
            self.values[node] = Ref(node.name)

    def _constant(self, node: fx.Node) -> None:
        value = operator.attrgetter(str(node.target))(self.module)
        self.constants[node.name] = value
        self.names[node] = node.name
        self.values[node] = Ref(node.name)
        if isinstance(value, torch.Tensor) and (buffer := self._buffer(node.name, value)):
            self._constant_buffer(buffer)
            self.values[node] = from_buffer(buffer)

    def _constant_buffer(self, buffer: Buffer) -> None:
        """Make a constant tensor a buffer: an alias of the attribute."""
        name = f"{buffer.name}_constant"
        self.constants[name] = self.constants.pop(buffer.name)
        origin = Origin(buffer.name, "get_attr")
        self.nodes.append(
            Extern(buffer.name, _identity, (Ref(name),), {}, buffer, origin, alias_of=name)
        )

    def _buffer(self, name: str, value: torch.Tensor) -> Buffer | None:
        """Return the buffer of a fake tensor; None if kernels cannot read it."""
        if not seams.is_strided(value) or value.is_conj() or value.is_neg():
            return None
        try:
            size = self.sizes.indices(value.shape)
            stride = self.sizes.indices(value.stride())
        except Unrepresentable:
            return None
        return Buffer(name, value.dtype, size, stride, value.device)

    def _size_value(self, node: fx.Node, value: torch.SymInt) -> Index | Ref:
        try:
            return self.sizes.index(value)
        except Unrepresentable:
            return Ref(node.name)

    # -- calls ------------------------------------------------------------------------------

    def _call(self, node: fx.Node) -> None:
        target = node.target
        if target is operator.getitem and isinstance(self.values[_operand(node)], tuple):
            self._item(node)
        elif not isinstance(target, torch._ops.OpOverload):
            self._extern(node, "" if is_number(node) else "not an ATen operator")
        elif target in VIEWS:
            self._view(node, VIEWS[target])
        elif lowering := LOWERINGS.get(target) or LATE.get(op_name(target)):
            self._loops(node, lowering)
        else:
            self._extern(node, "no lowering")

    def _item(self, node: fx.Node) -> None:
        source, position = _operand(node), node.args[1]
        chosen = self.values[source][position]
        self.values[node] = chosen
        if isinstance(chosen, Tensor) and chosen.buffer is not None:
            self.names[node] = chosen.buffer
            return
        # one result of a view that has several: shares its memory
        buffer = self._buffer(node.name, node.meta["val"])
        base = self.names[source]
        self._emit(node, operator.getitem, (Ref(base), position), {}, buffer, alias_of=base)

    def _lowered(self, node: fx.Node, lowering: Lowering) -> tuple[Site, Any]:
        """Call a lowering if the gate allows it. Raises NotLowered if the node stays ATen's."""
        self._check_operands(node)
        site = self._site(node)
        if not self.gate.allows(f"lower.{op_name(node.target)}", node.name):
            raise NotLowered("switched off")
        kwargs = {k: self._operands(v) for k, v in node.kwargs.items()}
        return site, lowering(site, *self._operands(node.args), **kwargs)

    def _view(self, node: fx.Node, lowering: Lowering) -> None:
        try:
            _, value = self._lowered(node, lowering)
        except (NotLowered, Unrepresentable) as reason:
            self._extern(node, str(reason))
            return
        except Exception as error:
            raise _blamed(node, error) from error
        base = self.names[_operand(node)]
        self._extern(node, "", alias_of=base)
        self.values[node] = value

    def _loops(self, node: fx.Node, lowering: Lowering) -> None:
        try:
            site, result = self._lowered(node, lowering)
            stored = () if result is None else self._stored(site, node, result)
            for loop in site.emitted:
                if reason := DEVICES[loop.out.device.type].refuses(loop):
                    raise NotLowered(reason)
        except (NotLowered, Unrepresentable, UnsupportedOperands, OverflowError) as reason:
            self._extern(node, str(reason))
            return
        except Exception as error:
            raise _blamed(node, error) from error
        self.nodes.extend(site.emitted)
        self.memory.computed.update(loop.name for loop in site.emitted)
        if result is None:  # an update whose result is unused
            return
        self.values[node] = stored if isinstance(result, tuple) else stored[0]
        if not isinstance(result, tuple):
            self.names[node] = stored[0].buffer or node.name

    def _stored(self, site: Site, node: fx.Node, result: Any) -> tuple[Tensor, ...]:
        """Return the results, in buffers with eager's strides."""
        stored: list[Tensor] = []
        several = isinstance(result, tuple)
        for position, tensor in enumerate(result if several else (result,)):
            layout = site.result(position)
            if tensor.buffer in {n.name for n in site.emitted} and self._has_layout(
                site, tensor, layout
            ):
                stored.append(tensor)
            else:
                stored.append(site.store(tensor, layout, f"_{position}" if several else ""))
        return tuple(stored)

    def _has_layout(self, site: Site, tensor: Tensor, layout: torch.Tensor) -> bool:
        made = {n.name: n.out for n in site.emitted}[tensor.buffer or ""]
        return (
            made.dtype == layout.dtype
            and made.size == self.sizes.indices(layout.shape)
            and made.stride == site.strides(layout)
        )

    def _site(self, node: fx.Node) -> Site:
        return Site(node, self.sizes, self._origin(node), self.memory)

    def _origin(self, node: fx.Node) -> Origin:
        return Origin(node.name, op_name(node.target), location(node))

    def _check_operands(self, node: fx.Node) -> None:
        """Raise NotLowered unless kernels can read all operands and write all results."""
        tensors = [v for v in as_tuple(node.meta["val"]) if isinstance(v, torch.Tensor)]
        operands = [operand.meta.get("val") for operand in node.all_input_nodes]
        tensors += [v for v in operands if isinstance(v, torch.Tensor)]
        for value in tensors:
            self._check_tensor(value)
        devices = sorted({str(v.device) for v in tensors})
        if len(devices) > 1:
            raise NotLowered(f"operands on {' and '.join(devices)}")

    @staticmethod
    def _check_tensor(value: torch.Tensor) -> None:
        if value.dtype not in STORABLE:
            raise NotLowered(f"dtype {value.dtype}")
        if not seams.is_strided(value) or value.device.type not in DEVICES:
            raise NotLowered(f"{value.layout} on {value.device}")

    def _operands(self, value: Any) -> Any:
        """An argument in the form that lowerings take: Tensor, Index, Ref or plain Python."""

        def convert(node: fx.Node) -> Any:
            operand = self.values[node]
            if isinstance(operand, Ref) and isinstance(node.meta.get("val"), torch.Tensor):
                raise NotLowered(f"kernels cannot read the tensor {node.name}")
            return operand

        return fx.node.map_arg(value, convert)

    # -- extern calls -----------------------------------------------------------------------

    def _extern(self, node: fx.Node, reason: str, alias_of: str | None = None) -> None:
        if reason:
            self.externs.append((node.name, op_name(node.target), reason))
        value = node.meta.get("val")
        buffer = self._buffer(node.name, value) if isinstance(value, torch.Tensor) else None
        args = tuple(self._argument(a) for a in node.args)
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()}
        if alias_of is None:
            alias_of = self._shared_memory(node)
        self._emit(node, node.target, args, kwargs, buffer, alias_of)
        if isinstance(value, torch.SymInt):
            self.values[node] = self._size_value(node, value)
        elif buffer is not None:
            self.values[node] = from_buffer(buffer)
        else:
            self.values[node] = Ref(node.name)

    def _emit(
        self,
        node: fx.Node,
        target: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        buffer: Buffer | None,
        alias_of: str | None = None,
    ) -> None:
        self.names[node] = node.name
        mutates = tuple(self.names[operand] for operand in written_operands(node))
        shape_env = _shape_env(node.meta.get("val"))
        binds = {
            self.sizes.named(symbol, shape_env): steps
            for symbol, steps in seams.unbacked_bindings(node).items()
        }
        binds.update(self._new_sizes(buffer, set(binds)))
        binds.update(self._new_number(node.meta.get("val")))
        effect = bool(mutates) or has_effect(node)
        call = Extern(
            node.name,
            target,
            tuple(args),
            kwargs,
            buffer,
            self._origin(node),
            alias_of=alias_of,
            mutates=mutates,
            effect=effect,
            binds=binds,
        )
        self.nodes.append(call)
        if alias_of is not None:
            self.memory.owner[node.name] = self.memory.owner.get(alias_of, alias_of)

    def _new_sizes(self, buffer: Buffer | None, bound: set[Symbol]) -> dict[Symbol, Path]:
        """Return the sizes that appear first in a result, with paths to read them from it."""
        new: dict[Symbol, Path] = {}
        for dim, size in enumerate(buffer.size if buffer else ()):
            for symbol in size.symbols - self.known - bound - set(new):
                if size == to_index(symbol):
                    new[symbol] = (("call", "size"), ("item", dim))
        self.known |= bound | set(new)
        return new

    def _new_number(self, value: Any) -> dict[Symbol, Path]:
        """Return the symbol of a result that is a number, if it appears here first."""
        symbol = self.sizes.symbol(value) if isinstance(value, torch.SymInt) else None
        if symbol is None or symbol in self.known:
            return {}
        self.known.add(symbol)
        return {symbol: ()}

    def _argument(self, value: Any) -> Any:
        """Return an argument in the form that the wrapper passes: Ref, Index or plain Python."""

        def convert(node: fx.Node) -> Any:
            operand = self.values[node]
            return operand if isinstance(operand, Index) else Ref(self.names[node])

        return fx.node.map_arg(value, convert)

    def _shared_memory(self, node: fx.Node) -> str | None:
        """Return the value whose memory the result of an extern call may share."""
        operands = [n for n in node.all_input_nodes if n in self.names]
        return self.names[operands[0]] if operands and may_share_memory(node) else None


def _operand(node: fx.Node) -> fx.Node:
    """Return the first argument of a node, which is a node."""
    operand = node.args[0]
    assert isinstance(operand, fx.Node)
    return operand


def _identity(value: Any) -> Any:
    return value


def _shape_env(value: Any) -> object:
    for part in as_tuple(value):
        if isinstance(part, torch.SymInt | torch.SymFloat | torch.SymBool):
            return part.node.shape_env
        if isinstance(part, torch.Tensor):
            for size in part.shape:
                if isinstance(size, torch.SymInt):
                    return size.node.shape_env
    return None
