"""codegen.narrow: loops that wait for memory have vectors of 256 bits; others keep their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import built, kernels, kernels_as_eager, scalar_loops
from torch.nn import functional as F

MANY = 1 << 18
X, Y, Z = (torch.randn(MANY, generator=torch.Generator().manual_seed(k)) for k in range(3))
WAITING: list[Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = [
    lambda x, y, z: (x * y + z).clamp(-1, 2),
    lambda x, y, z: torch.where(x > y, z, -x),
    lambda x, y, z: F.leaky_relu(x + y).maximum(z),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
def test_loops_over_many_elements_of_one_width_are_narrow_and_vectorized(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    def functions(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [f(*inputs) for f in WAITING[: 3 if dtype.is_floating_point else 2]]

    given = [(t * 100).to(dtype) for t in (X, Y, Z)]
    for part in (functions, lambda x, y, z: x + y):
        torch._dynamo.reset()
        text = kernels_as_eager(part, given, exact=True)
        text = re.sub(r"#pragma omp parallel for simd.*", "#pragma omp simd", text)
        assert "#pragma omp simd" in text
        assert scalar_loops(text, tmp_path) == []
    assert "int TCD_NARROW cpp_add_0(" in text
    built(text, tmp_path, "-S")
    code = (tmp_path / "kernel.so").read_text()
    assert "%zmm" not in re.sub(r"\.pushsection.*?\.popsection", "", code, flags=re.DOTALL)


def test_little_arithmetic_on_a_row_and_a_number_is_narrow() -> None:
    matrix, row, column = X.view(512, 512), Y[:512], Z[:512, None]
    assert "TCD_NARROW" in kernels(lambda x, y, z: F.relu(x * z + y), matrix, row, column)


OTHERS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "few elements": (lambda x, y: x + y, [X[:1000], Y[:1000]]),
    "bfloat16": (lambda x, y: x + y, [X.bfloat16(), Y.bfloat16()]),
    "a mask in memory": (torch.where, [X > 0, X, Y]),
    "a function": (lambda x, y: x.exp() + y, [X, Y]),
    "much arithmetic": (lambda x, y: (((x * y + 1) * y + 2) * y + 3) * y + x * x - 4, [X, Y]),
    "a sum": (lambda x, y: (x + y).sum(-1), [X.view(512, 512), Y.view(512, 512)]),
    "a transposed operand": (lambda x, y: x + y.t(), [X.view(512, 512), Y.view(512, 512)]),
    "a padding": (lambda x, y: F.pad(x, (9, 9)) + 1, [X.view(512, 512), Y]),
    "a gather": (
        lambda x, i: x.gather(1, i),
        [X.view(512, 512), (Y.abs() * 99).long().view(512, -1)],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_keep_wide_vectors(name: str) -> None:
    function, inputs = OTHERS[name]
    assert "TCD_NARROW" not in kernels(function, *inputs)


def test_vectors_are_wide_with_the_unit_off() -> None:
    assert "TCD_NARROW" not in kernels(lambda x, y: x + y, X, Y, off=("codegen.narrow",))
