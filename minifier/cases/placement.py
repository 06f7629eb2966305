"""Cases on a device, held on the CPU by a process that must not initialise the device.

The inputs of such a case are CPU tensors, and each names the device on which it belongs. A child
process that may use the device moves them there with `placed`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from tcdebug.compiler.seams import storage_id
from tcdebug.minifier.cases.case import Case, CaseInput, attributes, size_at_capture, tensors_of
from tcdebug.minifier.cases.lineage import Lineage, lineage
from tcdebug.minifier.cases.subclasses.apart import Apart, SubclassTensor, taken_apart

HOST = "cpu"


class NotMovable(TypeError):
    """A case holds a tensor that cannot be moved; the message names it."""


@dataclass(frozen=True)
class ExampleTensor:
    """What is kept of the fake tensor that was recorded for a node at its capture."""

    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    bytes: int | None
    """The size of its elements together; None if their number was not known at capture."""
    memory: int | None
    """A number that the tensors of a graph share if they shared memory; None if not strided."""


def example_tensor(recorded: object) -> ExampleTensor | None:
    """Return the facts of what was recorded for a node; None if that is not one tensor.

    A graph that was handed to another process has the facts only.
    """
    if isinstance(recorded, ExampleTensor):
        return recorded
    if not isinstance(recorded, torch.Tensor):
        return None
    count = size_at_capture(recorded.numel())
    known = count * recorded.element_size() if isinstance(count, int) else None
    memory = storage_id(recorded) if recorded.layout == torch.strided else None
    return ExampleTensor(recorded.dtype, recorded.device, recorded.requires_grad, known, memory)


def devices(case: Case) -> tuple[str, ...]:
    """Return the devices other than the CPU that the inputs and the graph of a case use."""
    found = {spec.device for spec in case.inputs if spec.device}
    found |= {str(t.device) for t in tensors_of(case.values()) if t.device.type != HOST}
    found |= set(_named(case.module, case.graph))
    return tuple(sorted(found))


def _named(module: fx.GraphModule, graph: fx.Graph) -> Iterator[str]:
    """Yield the devices among the arguments of calls, nested graphs included."""
    for node in graph.nodes:
        for value in _leaves([node.args, dict(node.kwargs)]):
            if (device := _device(value)) is not None:
                yield device
        if node.op == "call_method" and node.target == "cuda":
            yield "cuda"
    for value in attributes(module, graph).values():
        if isinstance(value, fx.GraphModule):
            yield from _named(value, value.graph)


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    fx.node.map_aggregate(value, found.append)
    return found


def _device(value: object) -> str | None:
    """Return the device that an argument names; None for the CPU and for other arguments."""
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return value
    if isinstance(value, torch.device) and value.type == "cuda":
        return str(value)
    return None


@dataclass(frozen=True)
class HostedInputs:
    """The inputs of a case as data, with all tensors on the CPU."""

    family: Lineage
    others: tuple[Any, ...]
    """What is not in the family, by place; None where it is."""
    values: tuple[int | SubclassTensor, ...]
    """How the inputs consist of these parts."""
    inputs: tuple[CaseInput, ...]
    """The inputs without their values."""

    def joined(self) -> tuple[CaseInput, ...]:
        """Return the inputs with new values."""
        parts = _built(self.family, self.others)
        values = Apart(tuple(parts), self.values).together(parts)
        pairs = zip(self.inputs, values, strict=True)
        return tuple(replace(spec, value=value) for spec, value in pairs)


def hosted(case: Case) -> HostedInputs:
    """Return the inputs of a case with their tensors as CPU tensors.

    Raises NotMovable for device tensors that consist of other than plain strided ones, or belong to
    a process group, and for constants of the graph that are on a device.
    """
    for name, value in held_tensors(case.module, case.graph):
        if value.device.type != HOST:
            raise NotMovable(f"the graph itself holds a tensor on {value.device}: {name}")
    apart = taken_apart(case.values())
    family = lineage(apart.parts)
    inputs: list[CaseInput] = []
    for spec, made_of in zip(case.inputs, apart.values, strict=True):
        value = spec.value
        device = str(value.device) if isinstance(value, torch.Tensor) else HOST
        plain = all(family.places[place] is not None for place in apart.places(made_of))
        if device != HOST and not plain:
            raise NotMovable(
                f"{spec.name} is a {type(value).__name__}, {value.layout}, on {device}"
            )
        inputs.append(replace(spec, value=None, device=spec.device if device == HOST else device))
    others = zip(apart.parts, family.places, strict=True)
    return HostedInputs(
        _moved(family, lambda place, device: HOST),
        tuple(part if place is None else None for part, place in others),
        apart.values,
        tuple(inputs),
    )


def _built(family: Lineage, others: Sequence[Any]) -> list[Any]:
    """Return new tensors in the places of a lineage, and what is not in it in the other places."""
    made = family.build()
    pairs = zip(others, family.places, strict=True)
    return [other if place is None else made[place] for other, place in pairs]


def placed(case: Case) -> Case:
    """Return the case with every input on the device where it belongs."""
    if not any(spec.device for spec in case.inputs):
        return case
    apart = taken_apart(case.values())
    family = lineage(apart.parts)
    wanted: Mapping[int, str] = {
        family.root(place): spec.device
        for spec, made_of in zip(case.inputs, apart.values, strict=True)
        for part in apart.places(made_of)
        if (place := family.places[part]) is not None and spec.device
    }
    there = _moved(family, lambda place, device: wanted.get(family.root(place), device))
    bare = tuple(replace(spec, device="") for spec in case.inputs)
    return Case(case.module, HostedInputs(there, apart.parts, apart.values, bare).joined())


def _moved(family: Lineage, device_of: Callable[[int, str], str]) -> Lineage:
    """Move the memories of a lineage. `device_of` takes a place and its current device."""
    members = tuple(
        replace(m, device=device_of(place, m.device)) for place, m in enumerate(family.members)
    )
    memories: list[torch.Tensor | None] = []
    for member, memory in zip(members, family.memories, strict=True):
        if memory is not None:
            with torch.inference_mode(memory.is_inference()):
                memory = memory.to(member.device)
        memories.append(memory)
    return replace(family, members=members, memories=tuple(memories))


def held_tensors(module: fx.GraphModule, graph: fx.Graph) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a graph reads as attributes, with their names; of subgraphs too."""
    for name, value in attributes(module, graph).items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, fx.GraphModule):
            yield from held_tensors(value, value.graph)


class OnHost(TorchFunctionMode):
    """Redirects calls in this block that name a device to the CPU, where their tensors are."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return torch.Tensor.cpu(args[0])
        args, named = fx.node.map_aggregate((args, kwargs or {}), _to_host)
        return func(*args, **named)


def _to_host(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device(HOST)
    return HOST if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


def evaluated(case: Case) -> AbstractContextManager[object]:
    """Return a context in which the graph of a case can run on its tensors.

    They are CPU tensors, unless this process uses the devices.
    """
    hosted_here = devices(case) and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # not annotated
    return OnHost() if hosted_here else contextlib.nullcontext()
