"""Hands a captured graph to another process that was forked from the same script.

The other process has the functions and classes that the script defined before the fork; they are
passed by name. Device tensors are passed as CPU tensors. The file holds a pickle, and is read once,
by a process on the same machine. A candidate is handed to a replay of the script in the same way
(see `processes.devices.replays`); it may use what the script has defined since.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, attributes
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.operators.numpy_calls import recorded_again, recorded_call
from tcdebug.minifier.cases.operators.triton_launches import is_operator, launched
from tcdebug.minifier.cases.placement import HostedInputs, NotMovable, example_tensor, hosted
from tcdebug.minifier.targets.backends import INDUCTOR, Backend


class NotTransferable(TypeError):
    """A graph cannot be handed to another process; the message says why."""


@dataclass(frozen=True)
class Asked:
    """What is asked about a candidate that is handed to a replay."""

    work: str
    """What the replay does with it, a word of `subjects.graph`."""
    toggles: Sequence[str]
    """The toggles that it is compiled under, as texts."""
    kept: Path | None
    """The folder for the texts of its stages, if they are wanted."""
    wanted: Criteria
    setup: str
    """The set-up of the scripts that the user's command judges."""


@dataclass(frozen=True)
class Handover:
    """A graph of a script, which the process that runs the script hands to the searching one.

    A candidate that the searching process hands to a replay is `asked` about.
    """

    case: Case
    backend: Backend
    ambient: Ambient
    ordinal: int
    call: int
    asked: Asked | None = None


def write_handover(handover: Handover, path: Path) -> None:
    """Write a handover to a file. Raises NotTransferable."""
    if handover.backend.name == INDUCTOR:
        handover = replace(handover, backend=replace(handover.backend, backend=INDUCTOR))
    try:
        with path.open("wb") as file:
            _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(handover)
    except NotMovable as problem:
        raise NotTransferable(str(problem)) from None
    except Exception as problem:  # the pickling code of an object may raise anything
        raise NotTransferable(f"{type(problem).__name__}: {problem}") from problem


def read_handover(path: Path) -> Handover:
    """Read a handover, with its tensors on the CPU. Raises NotTransferable."""
    try:
        handover: Handover = pickle.loads(path.read_bytes())
    except Exception as problem:  # the script may use what it defined after the fork
        raise NotTransferable(f"{type(problem).__name__}: {problem}") from problem
    return handover


@dataclass(frozen=True)
class _Reference:
    """A reference to another node among the arguments of a node."""

    name: str


@dataclass(frozen=True)
class _Record:
    """A node: the arguments of `fx.Graph.create_node`, and the metadata that is kept."""

    op: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    stack_trace: str
    example: Any


class _Pickler(pickle.Pickler):
    """Writes tensors of a case as memories, and the nodes of its graph as records."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Case):
            return _case, (value.module, hosted(value))
        if isinstance(value, fx.GraphModule):
            return _module, (_records(value.graph), attributes(value, value.graph))
        if isinstance(value, OpOverload):
            return _overload, (value._schema.name, value._overloadname)
        if isinstance(value, OpOverloadPacket):
            return _packet, (value._qualified_op_name,)
        if isinstance(value, HigherOrderOperator):
            return _higher_order, (value._name,)
        if call := recorded_call(value):
            return recorded_again, (call,)
        return NotImplemented


def _records(graph: fx.Graph) -> list[_Record]:
    def reference(part: Any) -> Any:
        return _Reference(part.name) if isinstance(part, fx.Node) else part

    def referred(value: Any) -> Any:
        return fx.node.map_aggregate(value, reference)

    for node in filter(is_operator, graph.nodes):
        launched(node)  # raises why its kernel has no text
    return [
        _Record(
            node.op, node.name, node.target,
            referred(tuple(node.args)), dict(referred(dict(node.kwargs))),
            node.meta.get("stack_trace") or "",
            _bare(node.meta.get("example_value")),
        )
        for node in graph.nodes
    ]  # fmt: skip


def _bare(example: Any) -> Any:
    """Return what Dynamo recorded for a node, with facts in place of fake tensors."""

    def part(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return example_tensor(value)
        if isinstance(value, torch.SymInt | torch.SymBool):
            return 1
        if isinstance(value, torch.SymFloat):
            return 1.0
        return value if isinstance(value, int | float | bool) else None

    return fx.node.map_aggregate(example, part)


def _case(module: fx.GraphModule, inputs: HostedInputs) -> Case:
    return Case(module, inputs.joined())


def _module(records: Sequence[_Record], read: Mapping[str, Any]) -> fx.GraphModule:
    """Create a graph module from records and the attributes that its graph reads."""
    graph, made = fx.Graph(), dict[str, fx.Node]()
    for record in records:
        args, kwargs = _resolved(record.args, made), _resolved(dict(record.kwargs), made)
        node = graph.create_node(record.op, record.target, args, kwargs, record.name)
        node.meta = {"example_value": record.example}
        if record.stack_trace:
            node.meta["stack_trace"] = record.stack_trace
        made[record.name] = node
    return fx.GraphModule(dict(read), graph)


def _resolved(value: Any, made: Mapping[str, fx.Node]) -> Any:
    def one(part: Any) -> Any:
        return made[part.name] if isinstance(part, _Reference) else part

    return fx.node.map_aggregate(value, one)


def _higher_order(name: str) -> Any:
    return getattr(torch.ops.higher_order, name)


def _overload(name: str, overload: str) -> Any:
    return getattr(_packet(name), overload)


def _packet(name: str) -> Any:
    namespace, _, operator = name.partition("::")
    return getattr(getattr(torch.ops, namespace), operator)
