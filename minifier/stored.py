"""Tensors on disk: their storages as bytes in a safetensors file, with a table of layouts.

Storages, not tensors: what shares memory, has gaps or odd strides, or a dtype that safetensors does
not know, comes back as it was. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors; each layout is [storage, dtype, size, stride, offset, lazy].

    `lazy` are the names of functions that the values still have to go through.
    """
    storages: dict[int, str] = {}
    data: dict[str, torch.Tensor] = {}
    layouts: dict[str, list[object]] = {}
    for name, value in tensors.items():
        plain = value.detach().cpu()
        key = plain.untyped_storage().data_ptr() or id(value)
        if key not in storages:
            storages[key] = f"storage{len(storages)}"
            raw = torch.tensor([], dtype=torch.uint8)
            raw.set_(plain.untyped_storage())
            data[storages[key]] = raw.clone()
        dtype = str(plain.dtype).removeprefix("torch.")
        layout = [storages[key], dtype, list(plain.shape), list(plain.stride())]
        lazy = ["conj"] * plain.is_conj() + ["_neg_view"] * plain.is_neg()
        layouts[name] = [*layout, plain.storage_offset(), lazy]
    save_file(data, str(path), metadata={"layouts": json.dumps(layouts)})
