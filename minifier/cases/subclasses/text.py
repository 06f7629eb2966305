"""Writes tensor subclasses as Python: a call that rebuilds one from its parts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from tcdebug.minifier.cases.subclasses.apart import SubclassTensor

NESTED = "torch.nested.nested_tensor_from_jagged"
PLACED = "torch.distributed.tensor"
MESH = "torch.distributed.device_mesh.DeviceMesh"
LENGTHS = {"_min_seqlen_tensor": "min_seqlen", "_max_seqlen_tensor": "max_seqlen"}
"""The parts of a nested tensor whose size is the length of a row, and the arguments for these."""
SINGLE = (type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout)


class NoText(TypeError):
    """A tensor subclass keeps something that has no text; the message names it."""


def is_distributed(kind: type) -> bool:
    """Return whether a class is DTensor, whose tensors need a process group."""
    return kind.__name__ == "DTensor" and kind.__module__.startswith(PLACED)


def distributed(values: Sequence[int | SubclassTensor]) -> bool:
    """Return whether any of several values is made of a DTensor."""
    return any(
        is_distributed(v.kind) or distributed(v.parts)
        for v in values
        if isinstance(v, SubclassTensor)
    )


def imports(values: Sequence[int | SubclassTensor]) -> list[str]:
    """Return lines that import what the texts of values need besides torch."""
    found: list[str] = []
    for value in values:
        if isinstance(value, SubclassTensor):
            name = value.kind.__module__
            found += imports(value.parts)
            if is_distributed(value.kind):
                found.append(f"import {PLACED}")
            elif name != "__main__" and value.kind.__qualname__ != "NestedTensor":
                found.append(f"import {name}")
    return list(dict.fromkeys(found))


def rebuilt(value: SubclassTensor, parts: Mapping[int, str], objects: Sequence[Any]) -> str:
    """Return an expression for a tensor. `parts` and `objects` are its parts, by name and value.

    Raises NoText.
    """
    texts = {
        name: rebuilt(part, parts, objects)
        if isinstance(part, SubclassTensor)
        else parts.get(part, "")
        for name, part in zip(value.names, value.parts, strict=True)
    }
    if value.kind.__qualname__ == "NestedTensor" and isinstance(value.context, dict):
        text = _nested(value, texts, objects)
    elif is_distributed(value.kind):
        text = _placed(value, texts, objects)
    else:
        if any(
            not isinstance(p, SubclassTensor) and not _is_tensor(objects[p]) for p in value.parts
        ):
            raise NoText(f"{value.kind.__name__} consists not only of tensors")
        inner = ", ".join(f"{name!r}: {text}" for name, text in texts.items())
        where = f"{tuple(value.size)}, {tuple(value.stride)}"
        given = f"{{{inner}}}, {literal(value.context)}, {where}"
        text = f"{_class(value.kind)}.__tensor_unflatten__({given})"
    if value.parameter:
        return f"torch.nn.Parameter({text}, {value.requires_grad})"
    if value.requires_grad:
        text = f"{text}.detach().requires_grad_()"
        return text if value.leaf else f"{text}.clone()"
    return text


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _class(kind: type) -> str:
    """Return an expression for a class. One of the script is found where the script has run."""
    name = kind.__qualname__
    if "<locals>" in name:
        raise NoText(f"the class {name} is defined in a function")
    if kind.__module__ == "__main__":
        return f"sys.modules['__main__'].{name}"
    found: Any = sys.modules.get(kind.__module__)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not kind:
        raise NoText(f"the class {name} cannot be imported from {kind.__module__}")
    return f"{kind.__module__}.{name}"


def _nested(value: SubclassTensor, texts: dict[str, str], objects: Sequence[Any]) -> str:
    given = [texts["_values"], texts["_offsets"]]
    if "_lengths" in texts:
        given.append(texts["_lengths"])
    given.append(f"jagged_dim={value.context['ragged_idx']}")
    for name, place in zip(value.names, value.parts, strict=True):
        if name in LENGTHS:
            assert isinstance(place, int)
            given.append(f"{LENGTHS[name]}={objects[place].size(0)}")
    return f"{NESTED}({', '.join(given)})"


def _placed(value: SubclassTensor, texts: dict[str, str], objects: Sequence[Any]) -> str:
    """Return an expression for a DTensor, which torch before 2.13 takes apart in another way."""
    if "device_mesh" in value.names:
        place = value.parts[value.names.index("device_mesh")]
        assert isinstance(place, int)
        mesh, placements = objects[place], value.context[0]
    else:
        mesh, placements = value.context[0].mesh, value.context[0].placements
    made = mesh_text(mesh)
    how = "".join(f"{placement_text(p)}, " for p in placements)
    layout = f"shape=torch.Size({tuple(value.size)}), stride={tuple(value.stride)}"
    local = texts["_local_tensor"]
    return f"{PLACED}.DTensor.from_local({local}, {made}, ({how}), run_check=False, {layout})"


def is_placement(value: object) -> bool:
    """Return whether a value says how the ranks of a mesh share a tensor."""
    return type(value).__module__.startswith(PLACED) and hasattr(value, "is_replicate")


def is_mesh(value: object) -> bool:
    """Return whether a value is the mesh of ranks of distributed tensors."""
    return type(value).__name__ == "DeviceMesh" and hasattr(value, "mesh_dim_names")


def mesh_text(mesh: Any) -> str:
    """Return an expression for a mesh of ranks."""
    named = f", mesh_dim_names={mesh.mesh_dim_names!r}" if mesh.mesh_dim_names else ""
    return f"{MESH}({mesh.device_type!r}, {mesh.mesh.tolist()}{named})"


def placement_text(placement: Any) -> str:
    """Return an expression for how ranks share a tensor. Raises NoText."""
    match type(placement).__name__:
        case "Shard":
            return f"{PLACED}.Shard({placement.dim})"
        case "Replicate":
            return f"{PLACED}.Replicate()"
        case "Partial":
            return f"{PLACED}.Partial({placement.reduce_op!r})"
    raise NoText(f"no text for the placement {placement!r}")


def literal(value: Any) -> str:
    """Return Python for what a tensor subclass says about itself. Raises NoText."""
    if isinstance(value, type):
        return _class(value)
    if type(value) in SINGLE:
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        return repr(value) if value == value else "float('nan')"
    if type(value) in (tuple, list, torch.Size):
        inner = "".join(f"{part}, " for part in _literals(value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if type(value) is dict:
        keys, values = _literals(value), _literals(value.values())
        return "{" + ", ".join(f"{k}: {v}" for k, v in zip(keys, values, strict=True)) + "}"
    raise NoText(f"no text for {type(value).__name__}, which the tensor subclass keeps")


def _literals(values: Any) -> Iterator[str]:
    return (literal(value) for value in values)
