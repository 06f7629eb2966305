"""Kernels of a GPU store into inputs after the whole program has read what they overwrite."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from planted_times import Planted, templates_win
from traced_on_cuda import triton_of

from tcdebug.compiler.codegen.triton.source import TritonSource
from tcdebug.compiler.runtime.cuda import products
from tcdebug.compiler.runtime.cuda.compile import (
    ALIGNED,
    DIVISIBLE,
    compile_all,
    import_source,
)
from tcdebug.compiler.schedule import combo_kernels
from tcdebug.compiler.schedule.products import product_fusion

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

half = torch.bfloat16
BARRIER = "tl.debug_barrier()"
Update = Callable[..., object]


def steps(source: TritonSource) -> list[str]:
    """The loads, barriers and stores of the only kernel: load of x_out, barrier, store to x_out."""
    (kernel,) = (k for k in source.kernels.values() if not k.combines)
    found: list[str] = []
    for line in map(str.strip, kernel.call.source.splitlines()):
        if line == BARRIER:
            found.append("barrier")
        for action in ("load", "store"):
            if f"tl.{action}(" in line:
                found.append(f"{action} {line.partition(f'tl.{action}(')[2].partition(' ')[0]}")
    return found


def written(
    function: Update, *inputs: tuple[int, ...], dtype: torch.dtype = torch.float32, **options: Any
) -> TritonSource:
    return triton_of(
        lambda: (function, tuple(torch.empty(*size, dtype=dtype) for size in inputs)),
        device="cpu",
        **options,
    )


def updated(function: Update, *inputs: tuple[int, ...], dtype: torch.dtype = torch.float32) -> str:
    return ", ".join(steps(written(function, *inputs, dtype=dtype)))


def test_a_barrier_separates_the_loads_of_an_input_from_the_store_over_it() -> None:
    found = updated(lambda x, y: x.add_(y), (70, 9), (70, 9))
    assert found == "load copy__out, load arg1_1_in, barrier, store copy__out"


def test_an_input_that_is_not_read_is_overwritten_without_a_barrier() -> None:
    assert updated(lambda x, y: x.copy_(y * 2), (64,), (64,)) == "load arg1_1_in, store copy__out"


def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    old = x + y
    y.mul_(x)
    x.sub_(1)
    return old.sin()


def test_several_stores_over_inputs_wait_for_one_barrier_and_come_last() -> None:
    found = updated(both, (40, 50), (40, 50))
    loads = "load copy__1_out, load copy__out, store sin_out"
    assert found == f"{loads}, barrier, store copy__out, store copy__1_out"


def test_a_store_over_rows_waits_in_the_loop_that_reads_them() -> None:
    found = updated(lambda x: x.sub_(x.mean(-1, keepdim=True)), (30, 100_000))
    assert found == "load copy__out, load copy__out, barrier, store copy__out"


def test_halves_are_read_and_stored_in_place() -> None:
    found = updated(lambda x, y: x.mul_(y).add_(1), (33, 7), (33, 7), dtype=half)
    assert found == "load copy__out, load arg1_1_in, barrier, store copy__out"


@pytest.mark.usefixtures("templates_for_cpu")
def test_a_product_that_is_added_to_an_input_is_stored_over_it(tmp_path: Path) -> None:
    source = written(
        lambda w, x, y: w.add_(x @ y), (64, 64), (64, 64), (64, 64),
        dtype=half, templates=True, cache_dir=tmp_path,
    )  # fmt: skip
    operands = "load arg1_1_in, load arg2_1_in"
    assert steps(source) == f"{operands}, load copy__out, barrier, store copy__out".split(", ")


@pytest.fixture
def templates_for_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products on a CPU are fused as on a GPU, and each template was measured to be faster."""
    monkeypatch.setattr(products, "Bench", Planted(templates_win))
    monkeypatch.setattr(product_fusion, "DEVICES", ("cpu",))


def descent(*given: torch.Tensor) -> None:
    """A step of gradient descent with momentum over a list of tensors."""
    count = len(given) // 3
    parameters, gradients, momenta = (list(given[k * count : (k + 1) * count]) for k in range(3))
    torch._foreach_mul_(momenta, 0.9)
    torch._foreach_add_(momenta, gradients)
    torch._foreach_add_(parameters, momenta, alpha=-0.1)


def test_a_step_of_an_optimizer_is_one_launch_that_overwrites_its_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(combo_kernels, "DEVICES", ("cpu",))
    source = written(descent, *((64, 64), (64,), (3, 5), (1,)) * 3)
    (combo,) = source.kernels.values()
    assert len(combo.combines) == 4
    parts = [part.call.source for part in source.parts.values() if part.call.source]
    assert [text.count(BARRIER) for text in parts] == [1] * len(parts)
    module = import_source(source.text, tmp_path)
    for built in compile_all(module, source.kernels, (ALIGNED | DIVISIBLE,), 90).values():
        assert built.result().cubin.startswith(b"\x7fELF")
