"""Tensors on disk are restored: values, layouts, and shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from tcdebug.minifier.cases.stored import save_tensors
from tcdebug.minifier.repros.inputs_text import _STORED

VALUES = {
    "plain": torch.arange(6.0).view(2, 3),
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "gaps": torch.arange(20.0)[3::2],
    "expanded": torch.tensor([[1.0], [2.0]]).expand(2, 3),
    "channels last": torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "scalar": torch.tensor(3.5),
    "empty": torch.empty(0, 3),
    "bf16": torch.tensor([1.0, -2.5]).to(torch.bfloat16),
    "fp8": torch.tensor([1.0, -2.0]).to(torch.float8_e5m2),
    "complex": torch.tensor([1 + 2j, 3 - 4j]),
    "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negated": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "bool": torch.tensor([True, False, True]),
    "int8": torch.tensor([-128, 127], dtype=torch.int8),
    "uint16": torch.tensor([0, 65535], dtype=torch.uint16),
    "special": torch.tensor([float("nan"), float("inf"), -0.0]),
}


def round_trip(tensors: Mapping[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    """Return what the reader of a repro script finds in a file that `save_tensors` wrote."""
    save_tensors(tensors, folder / "repro.safetensors")
    namespace = {"__file__": str(folder / "repro.py")}
    exec("import os, torch\n" + _STORED, namespace)
    found: dict[str, torch.Tensor] = namespace["stored"]()  # type: ignore[operator] # a function
    return found


@pytest.mark.parametrize("name", VALUES)
def test_a_tensor_is_restored_unchanged(name: str, tmp_path: Path) -> None:
    value = VALUES[name]
    (found,) = round_trip({"x": value}, tmp_path).values()
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert found.stride() == value.stride()
    assert found.storage_offset() == value.storage_offset()
    assert bits(found) == bits(value)


def bits(value: torch.Tensor) -> bytes:
    plain = value.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    return bytes(plain.view(torch.uint8).tolist()) if value.numel() else b""


def test_all_tensors_are_in_one_file(tmp_path: Path) -> None:
    found = round_trip(VALUES, tmp_path)
    assert list(found) == list(VALUES)
    assert all(bits(found[n]) == bits(VALUES[n]) for n in VALUES)


def test_tensors_that_share_memory_share_it_again(tmp_path: Path) -> None:
    base = torch.arange(10.0)
    found = round_trip({"all": base, "tail": base[4:], "other": torch.ones(3)}, tmp_path)
    found["all"][5] = 100.0
    assert found["tail"][1] == 100.0
    assert found["other"].tolist() == [1.0, 1.0, 1.0]
    assert base[5] == 5.0


def test_shared_memory_is_stored_once(tmp_path: Path) -> None:
    base = torch.zeros(100_000)
    save_tensors({"a": base, "b": base[1:]}, tmp_path / "x.safetensors")
    assert (tmp_path / "x.safetensors").stat().st_size < 410_000


def test_two_dtypes_over_one_memory_share_it(tmp_path: Path) -> None:
    base = torch.zeros(4)
    found = round_trip({"number": base, "bits": base.view(torch.int32)}, tmp_path)
    found["number"].fill_(1.0)
    assert found["bits"].tolist() == [0x3F800000] * 4


def test_parameters_are_stored_by_value(tmp_path: Path) -> None:
    found = round_trip({"w": torch.nn.Parameter(torch.tensor([1.0, 2.0]))}, tmp_path)
    assert found["w"].tolist() == [1.0, 2.0]
    assert not found["w"].requires_grad
