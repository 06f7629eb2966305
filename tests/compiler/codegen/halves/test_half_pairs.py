"""codegen.pairs: neighbouring bfloat16 numbers are loaded and stored two at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import built, kernels, kernels_as_eager, scalar_loops
from half_programs import every_number, rounds_often, updates_what_it_read
from torch.nn import functional as F

from tcdebug.compiler import seams

HALF = torch.bfloat16
X, Y = torch.randn(30, 130).to(HALF), torch.randn(30, 130).to(HALF)
ROW, COLUMN = torch.randn(130).to(HALF), torch.randn(30, 1).to(HALF)
INDEX = torch.arange(30).flip(0)

PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], bool]] = {
    # the function, its inputs, and whether its points are computed in pairs
    "chain": (lambda x, y: (x * 0.3 + 1) * y, [X, Y], True),
    "function": (lambda x: F.gelu(x, approximate="tanh") * x, [X], True),
    "row and column": (lambda x, y, z: (x + y) * z, [X, ROW, COLUMN], True),
    "two results": (lambda x, y: (x + y, (x + y) * 2.5), [X, Y], True),
    "part of a row from an odd place": (lambda x: x[:, 3:129] * 0.7, [X], True),
    "sum": (lambda x, y: (x - y).sum(1), [X, Y], True),
    "sums of rows and all": (lambda x: (x * 3).square().sum(), [X], True),
    "centred": (lambda x: x * 0.3 - (x * 0.3).mean(1, keepdim=True), [X], True),
    "rows from anywhere": (lambda x, i: x[i] * 0.3, [X, INDEX], True),
    "choice": (lambda x, y: torch.where(x > y, x * 0.3, y), [X, Y], True),
    "softmax": (lambda x: (x * 0.3).softmax(1), [X], True),
    "RMS norm": (lambda x, w: F.rms_norm(x, (130,), w), [X, ROW], True),
    "sum of columns": (lambda x, y: (x - y).sum(0), [X, Y], True),
    "softmax of columns": (lambda x: (x * 0.3).softmax(0), [X], True),
    "columns that are centred": (lambda x: x - x.mean(0), [X], True),
    "float32 mean of columns": (lambda x: torch.var_mean((x * 0.3).float(), 0), [X], True),
    "greatest in each column": (lambda x: (x * 0.3).max(0), [X], True),
    "odd length": (lambda x: x[:, 1:] * 0.3, [X], False),
    "every second": (lambda x: x[:, ::2] * 0.3, [X], False),
    "float32 beside it": (lambda x, y: x * y, [X, Y.float()], False),
    "a mask": (lambda x, m: x * 0.3 * m, [X, Y > 0], False),
    "a float32 result": (lambda x: x.float() * 0.3, [X], False),
    "nothing but a copy": (lambda x: x[:, :64].contiguous(), [X], False),
    "transposed": (lambda x, y: x * y.t(), [X[:, :30], Y[:, :30]], False),
    "a maximum": (lambda x: (x * 0.3).amax(1), [X], True),
    "a scan": (lambda x: (x * 0.3).cumsum(1), [X], False),
    "padding": (lambda x: F.pad(x * 0.3, (2, 2)), [X], False),
    "short rows": (lambda x: x[:, :62] * 0.3, [X], False),
    "float16": (lambda x: x * 0.3, [X.half()], False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_neighbours_in_bfloat16_are_one_integer(name: str, tmp_path: Path) -> None:
    function, inputs, is_paired = PROGRAMS[name]
    torch._dynamo.reset()
    text = kernels_as_eager(function, inputs)
    assert ("load_pair" in text) == is_paired
    if is_paired:
        loops = scalar_loops(text, tmp_path)
        assert [line for line in loops if "lanes" not in line] == []
        assert len(loops) < 3  # sums of columns that are only copied are a memcpy


def test_all_numbers_are_those_without_pairs() -> None:
    torch._dynamo.reset()
    assert "load_pair" in kernels_as_eager(rounds_often, every_number(HALF), exact=True)


def test_an_update_in_place_reads_what_it_overwrites_first() -> None:
    torch._dynamo.reset()
    text = kernels_as_eager(updates_what_it_read, [X.clone(), Y], exact=True)
    assert "store_pair" in text


def test_equal_layers_share_a_kernel_with_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "has_onednn", lambda dtype: True)  # products stay in bfloat16

    def layers(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x @ (x * 0.3).exp().softmax(1).t() @ x
        return x

    torch._dynamo.reset()
    assert kernels(layers, X[:, :64].contiguous()).count('extern "C"') == 2


def test_pairs_need_no_vectors_of_16_bits(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * 0.3

    def widening(off: tuple[str, ...]) -> int:
        torch._dynamo.reset()
        built(kernels(function, X, Y, off=off), tmp_path, "-S", "-march=x86-64-v3")
        return (tmp_path / "kernel.so").read_text().count("vpmovzxwd")

    assert widening(()) == 0
    assert widening(("codegen.pairs",)) > 0


def test_threads_share_as_many_points_as_without_pairs() -> None:
    def is_shared(function: Callable[..., Any], *size: int) -> bool:
        torch._dynamo.reset()
        return "#pragma omp parallel" in kernels(function, torch.rand(size).to(HALF))

    assert is_shared(lambda x: x * 0.3, 200, 200)
    assert not is_shared(lambda x: x * 0.3, 100, 200)
    assert is_shared(lambda x: x.float() * torch.arange(3), 16000, 3)
