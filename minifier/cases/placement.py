"""Cases on a device, held on the CPU by a process that must not initialise the device.

The inputs of such a case are CPU tensors, and each names the device on which it belongs. A child
process that may use the device moves them there with `placed`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from tcdebug.minifier.cases.case import Case, CaseInput, attributes, tensors_of
from tcdebug.minifier.cases.lineage import Lineage, lineage

HOST = "cpu"


class NotMovable(TypeError):
    """A case holds a tensor that cannot be moved; the message names it."""


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


def hosted(case: Case) -> tuple[Lineage, tuple[CaseInput, ...]]:
    """Return the tensors of a case as CPU tensors, and its inputs without their tensors.

    Raises NotMovable for device tensors that are not plain strided ones, and for constants of the
    graph that are on a device.
    """
    for name, value in held_tensors(case.module, case.graph):
        if value.device.type != HOST:
            raise NotMovable(f"the graph itself holds a tensor on {value.device}: {name}")
    family = lineage(case.values())
    inputs: list[CaseInput] = []
    for spec, place in zip(case.inputs, family.places, strict=True):
        value = spec.value
        device = str(value.device) if isinstance(value, torch.Tensor) else HOST
        if place is None and device != HOST:
            raise NotMovable(
                f"{spec.name} is a {type(value).__name__}, {value.layout}, on {device}"
            )
        kept = value if place is None else None
        inputs.append(replace(spec, value=kept, device="" if device == HOST else device))
    return _moved(family, lambda place, device: HOST), tuple(inputs)


def joined(family: Lineage, inputs: Sequence[CaseInput]) -> tuple[CaseInput, ...]:
    """Return inputs with tensors that are created from a lineage."""
    made = family.build()
    return tuple(
        spec if place is None else replace(spec, value=made[place])
        for spec, place in zip(inputs, family.places, strict=True)
    )


def placed(case: Case) -> Case:
    """Return the case with every input on the device where it belongs."""
    if not any(spec.device for spec in case.inputs):
        return case
    family = lineage(case.values())
    wanted: Mapping[int, str] = {
        family.root(place): spec.device
        for spec, place in zip(case.inputs, family.places, strict=True)
        if place is not None and spec.device
    }
    there = _moved(family, lambda place, device: wanted.get(family.root(place), device))
    bare = [replace(spec, device="") for spec in case.inputs]
    return Case(case.module, joined(there, bare))


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
    """Return a context in which the graph of a case can run on its CPU tensors."""
    return OnHost() if devices(case) else contextlib.nullcontext()
