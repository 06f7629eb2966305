"""codegen.unroll on GPUs: each function of a stack is computed once, and stored with its others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.codegen.triton.source import TritonSource
from tcdebug.compiler.runtime.cuda.compile import WIDE, compile_all, import_source

half = torch.bfloat16
Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: tuple[Function, ...] = (torch.tanh, torch.exp, torch.sin, torch.cos)


def stacked(*functions: Function) -> TritonSource:
    """The kernels of functions that are stacked along a new last axis."""
    return triton_of(
        lambda: (lambda x: torch.stack([f(x) for f in functions], -1), (cuda(300, 51, dtype=half),))
    )


@pytest.mark.parametrize(
    ("functions", "stores"),
    [((torch.tanh, torch.exp), 1), ((torch.tanh, torch.exp, torch.sin, torch.cos), 1)],
)
def test_stacked_functions_are_computed_once_and_stored_together(
    functions: tuple[Callable[[torch.Tensor], torch.Tensor], ...], stores: int, tmp_path: Path
) -> None:
    source = stacked(*functions)
    assert source.text.count("tl.load(") == 1
    assert "tl.where(" not in source.text
    assert source.text.count("tl.store(") == 1
    assert f"library.joined{len(functions)}(" in source.text
    (built,) = compile_all(
        import_source(source.text, tmp_path), source.kernels, (WIDE,), 80
    ).values()
    assert built.result().cubin.startswith(b"\x7fELF")


def test_three_functions_which_no_store_joins_are_chosen_from() -> None:
    source = stacked(torch.neg, torch.exp, torch.abs)
    assert source.text.count("tl.where(") == 2
    assert source.text.count("tl.store(") == 1


def test_a_short_axis_that_decides_nothing_is_not_unrolled() -> None:
    source = triton_of(lambda: (lambda x, y: x * y, (cuda(300, 51, 2), cuda(2))))
    assert "library.joined" not in source.text


def test_numbers_that_are_rotated_in_pairs_are_loaded_once() -> None:
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)

    sizes = ((4, 8, 512, 64), (512, 32), (512, 32))
    text = triton_of(lambda: (rotate, tuple(cuda(*size, dtype=half) for size in sizes))).text
    assert text.count("tl.load(") == 4
    assert text.count("library.joined2(") == 1
