"""Stores tensors on disk: their storages as bytes in a safetensors file, with a table of layouts.

Storing storages rather than tensors preserves shared memory, gaps, unusual strides, and dtypes that
safetensors does not know. Nothing is pickled.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

Layout = list[object]
"""[storage, dtype, size, stride, offset, lazy]; `lazy` lists lazy functions: conj, _neg_view."""


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors to a file, with their layouts in its metadata."""
    plain = [value.detach().cpu() for value in tensors.values()]
    layouts, storages = _layouts(plain)
    data = {name: memory.clone() for name, memory in storages.items()}
    table = json.dumps(dict(zip(tensors, layouts, strict=True)))
    save_file(data, str(path), metadata={"layouts": table})


def _layouts(tensors: Sequence[torch.Tensor]) -> tuple[list[Layout], dict[str, torch.Tensor]]:
    """Return the layout of each tensor, and the storages behind them as bytes."""
    names: dict[int, str] = {}
    storages: dict[str, torch.Tensor] = {}
    layouts: list[Layout] = []
    for value in tensors:
        key = value.untyped_storage().data_ptr() or -id(value)
        if key not in names:
            names[key] = f"storage{len(names)}"
            raw = torch.tensor([], dtype=torch.uint8)
            storages[names[key]] = raw.set_(value.untyped_storage())
        dtype = str(value.dtype).removeprefix("torch.")
        layout: Layout = [names[key], dtype, list(value.shape), list(value.stride())]
        lazy = ["conj"] * value.is_conj() + ["_neg_view"] * value.is_neg()
        layouts.append([*layout, value.storage_offset(), lazy])
    return layouts, storages


class LiveTensors:
    """The leading tensors of a stored file, updated in place.

    The file is mapped into shared memory, so writes survive when the process is killed. A tensor
    is not written again if it is the same object with the same version.
    """

    def __init__(self, path: Path, tensors: Sequence[torch.Tensor]) -> None:
        self._layouts, _ = _layouts([value.detach().cpu() for value in tensors])
        self._places = _mapped(path)
        self._written = [_Contents.of(value) for value in tensors]

    def follow(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Write the values of other tensors. Return False and write nothing if they do not fit."""
        same = [w.is_of(value) for w, value in zip(self._written, tensors, strict=False)]
        if all(same) and len(same) == len(self._written) == len(tensors):
            return True
        plain = [value.detach().cpu() for value in tensors]
        layouts, storages = _layouts(plain)
        if layouts != self._layouts or any(
            memory.numel() != self._places[name].numel() for name, memory in storages.items()
        ):
            return False
        changed = {str(k[0]) for k, unchanged in zip(layouts, same, strict=True) if not unchanged}
        for name in changed:
            self._places[name].copy_(storages[name])
        self._written = [_Contents.of(value) for value in tensors]
        return True


@dataclass(frozen=True)
class _Contents:
    """A snapshot of a tensor: the object and its version."""

    tensor: weakref.ref[torch.Tensor]
    version: int

    @classmethod
    def of(cls, value: torch.Tensor) -> _Contents:
        """Return a snapshot of a tensor."""
        return cls(weakref.ref(value), -1 if value.is_inference() else value._version)

    def is_of(self, value: torch.Tensor) -> bool:
        """Return whether a tensor is unchanged. False for inference tensors: none has a version."""
        return (
            self.tensor() is value and not value.is_inference() and self.version == value._version
        )


def _mapped(path: Path) -> dict[str, torch.Tensor]:
    """Return the storages of a file as bytes that are mapped to it."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    size = path.stat().st_size
    whole = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
    start = 8 + length
    return {
        name: whole[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]]
        for name, entry in header.items()
        if name != "__metadata__"
    }
