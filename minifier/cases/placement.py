"""Cases of a device, kept on the CPU by a process that must not initialise the device.

The inputs of such a case are CPU tensors, and each says on which device it belongs. A child that
may use the device moves them there with `placed`.
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
    """A case holds a tensor that cannot be moved as it is; the message names it."""


def devices(case: Case) -> tuple[str, ...]:
    """The devices that a case needs besides the CPU, by its inputs and by what its graph names."""
    found = {spec.device for spec in case.inputs if spec.device}
    found |= {str(t.device) for t in tensors_of(case.values()) if t.device.type != HOST}
    found |= set(_named(case.module, case.graph))
    return tuple(sorted(found))


def _named(module: fx.GraphModule, graph: fx.Graph) -> Iterator[str]:
    """The devices among the arguments of calls, in graphs inside the graph too."""
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
    """The device that an argument names, None where it names none or the CPU."""
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return value
    if isinstance(value, torch.device) and value.type == "cuda":
        return str(value)
    return None


def hosted(case: Case) -> tuple[Lineage, tuple[CaseInput, ...]]:
    """The tensors of a case as they are on the CPU, and its inputs without them.

    Raises NotMovable for tensors on a device that are more than their memory, and for constants
    of the graph that lie on a device.
    """
    for name, value in _constants(case.module, case.graph):
        if value.device.type != HOST:
            raise NotMovable(f"the graph holds a tensor on {value.device} itself: {name}")
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
    """Inputs with their tensors, built anew from a lineage."""
    made = family.built()
    return tuple(
        spec if place is None else replace(spec, value=made[place])
        for spec, place in zip(inputs, family.places, strict=True)
    )


def placed(case: Case) -> Case:
    """The case with every input on the device where it belongs."""
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
    """The lineage with its memories on other devices, by place and the device so far."""
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


def _constants(module: fx.GraphModule, graph: fx.Graph) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in attributes(module, graph).items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, fx.GraphModule):
            yield from _constants(value, value.graph)


class OnHost(TorchFunctionMode):
    """Calls in this block that name a device go to the CPU: their tensors are there."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return torch.Tensor.cpu(args[0])
        args, named = fx.node.map_aggregate((args, kwargs or {}), _on_host)
        return func(*args, **named)


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device(HOST)
    return HOST if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


def evaluated(case: Case) -> AbstractContextManager[object]:
    """A block in which the graph of a case can run on its CPU tensors."""
    return OnHost() if devices(case) else contextlib.nullcontext()
