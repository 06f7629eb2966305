"""Kernels compile to machine code for an A100 and an H100 on a machine without a GPU."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.codegen.triton.source import TritonSource
from tcdebug.compiler.runtime.cuda.compile import (
    ALIGNED,
    DIVISIBLE,
    WIDE,
    Binary,
    compile_all,
    import_source,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)

half = torch.bfloat16
SPEEDY, ANYHOW = ALIGNED | DIVISIBLE, WIDE


def several(x: torch.Tensor, y: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """One graph with kernels of every kind."""
    return (
        F.gelu(x) + y.t(),
        torch.softmax(x, -1),
        y.argmax(0),
        x.sum(0),
        x.cumsum(-1),
        y.cummax(-1),
        y.logcumsumexp(-1),  # ptxas takes half a minute for a long row of it
        x.index_add(0, places, torch.ops.aten.slice.Tensor(y.t(), 0, 0, 5)),
        F.embedding(places, x) * 2,
        torch.var_mean(x.to(half), -1)[0],
    )


@pytest.mark.parametrize("capability", [80, pytest.param(90, marks=pytest.mark.slow)])
def test_kernels_of_every_kind_compile(tmp_path: Path, capability: int) -> None:
    source = triton_of(
        lambda: (
            several,
            (cuda(300, 20_000), cuda(20_000, 300), cuda(5, dtype=torch.int64)),
        )
    )
    variants = (ANYHOW,) if capability == 80 else (SPEEDY,)
    module = import_source(source.text, tmp_path)
    binaries = compile_all(module, source.kernels, variants, capability)
    assert len(source.kernels) >= 4  # some kernels share code
    assert len(binaries) == len(source.kernels) * len(variants)
    for (name, _), built in binaries.items():
        binary = built.result()
        assert binary.cubin.startswith(b"\x7fELF")
        assert binary.name == name
        assert binary.threads == 32 * source.kernels[name].tile.warps
        assert binary.shared < 100 * 1024  # what both devices can give to a program


def compiled(source: TritonSource, folder: Path) -> list[Binary]:
    """Machine code of the kernels for an H100."""
    module = import_source(source.text, folder)
    written = {name: k for name, k in source.kernels.items() if not k.call.shares}
    return [b.result() for b in compile_all(module, written, (SPEEDY,), 90).values()]


SOFTMAXES: dict[str, tuple[int, int, Callable[..., torch.Tensor]]] = {
    "columns in whole vectors": (4096, 32_768, lambda x: x.softmax(0)),
    "columns without vectors": (4096, 31_877, lambda x: x.softmax(0)),
    "many columns": (4096, 132_768, lambda x: x.softmax(0)),
    "rows in whole vectors": (704, 50_304, lambda x: x.softmax(1)),
    "rows in pairs": (704, 50_258, lambda x: x.softmax(1)),
    "rows without vectors": (704, 50_257, lambda x: x.softmax(1)),
    "rows of another type": (704, 50_304, lambda x: x.softmax(1, dtype=torch.float32)),
    "reversed rows": (704, 50_304, lambda x: x.flip(1).softmax(1)),
    "rows between others": (704, 50_304, lambda x: F.pad(x, (1, 1)).softmax(1)),
    "logsumexp of rows": (704, 50_257, lambda x: x.logsumexp(1)),
    "logsumexp of columns": (4096, 31_877, lambda x: x.logsumexp(0)),
    "rows with others": (704, 50_304, lambda x: (x + x.float().flip(1)).softmax(1).to(half)),
}


VARIANCES: dict[str, tuple[int, int, Callable[..., torch.Tensor]]] = {
    "columns in whole vectors": (4096, 32_768, lambda x: x.var(0)),
    "columns without vectors": (4096, 31_877, lambda x: x.var(0)),
    "columns whose last step is not whole": (4099, 32_768, lambda x: x.var(0)),
    "rows in whole vectors": (704, 50_304, lambda x: x.var(1)),
    "rows without vectors": (704, 50_257, lambda x: x.var(1)),
    "pieces of rows": (3, 50_000_017, lambda x: x.var(1)),
}


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """The loops of the first kernel of a function, as an H100 runs them."""
    triton = pytest.importorskip("triton")
    texts: list[str] = []
    usual = triton.compile

    def compile_one(*given: Any, **options: Any) -> Any:
        found = usual(*given, **options)
        texts.append(found.asm["ptx"])
        return found

    def loops_of_first(program: tuple[int, int, Any], dtype: torch.dtype, *off: str) -> list[str]:
        rows, columns, function = program
        made = triton_of(lambda: (function, (cuda(rows, columns, dtype=dtype),)), off=list(off))
        compiled(made, tmp_path)
        entry = f".entry {next(iter(made.kernels))}("
        return next(loops_of(text) for text in texts if entry in text)

    monkeypatch.setattr(triton, "compile", compile_one)
    return loops_of_first


@pytest.mark.parametrize("dtype", [torch.float32, half], ids=str)
@pytest.mark.parametrize("name", SOFTMAXES)
def test_threads_of_a_softmax_do_not_wait_for_each_other_within_the_loop_of_its_sum(
    name: str, dtype: torch.dtype, loops: Callable[..., list[str]]
) -> None:
    total, *quotients = loops(SOFTMAXES[name], dtype, "fuse.split_reduction")
    assert len(quotients) == (0 if "logsumexp" in name else 1)
    assert "ex2" in total
    assert "shfl" not in total
    # Triton 3.6 exchanges elements of one of two operands whose vectors have different lengths
    assert "bar.sync" not in total or name == "rows with others"


@pytest.mark.parametrize("dtype", [torch.float32, half], ids=str)
@pytest.mark.parametrize("name", VARIANCES)
def test_one_loop_without_waiting_reads_what_a_variance_is_of(
    name: str, dtype: torch.dtype, loops: Callable[..., list[str]]
) -> None:
    off = () if name == "pieces of rows" else ("fuse.split_reduction",)
    (only,) = loops(VARIANCES[name], dtype, *off)
    assert "div" in only
    assert "shfl" not in only
    assert "bar.sync" not in only


def loops_of(ptx: str) -> list[str]:
    """The text from each label to the last branch back to it."""
    lines, places, found = ptx.splitlines(), dict[str, int](), list[str]()
    for place, line in enumerate(lines):
        if line.startswith("$L"):
            places[line.partition(":")[0]] = place
        elif "bra" in line and (label := line.split()[-1].rstrip(";")) in places:
            found.append("\n".join(lines[places[label] : place]))
    return found


def test_square_roots_of_doubles_compile(tmp_path: Path) -> None:
    source = triton_of(lambda: (lambda x: (x.sqrt(), x.std(0), torch.i0(x)), (doubles(50, 9),)))
    assert len(compiled(source, tmp_path)) >= 1


def running(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Scans that share a kernel with reductions and other scans."""
    total = x.cumsum(-1)
    return total.softmax(-1), total.cummax(-1).values, x.softmax(-1).cumsum(-1).mean()


@pytest.mark.parametrize("length", [129, 5000])
def test_scans_in_the_kernels_of_reductions_compile(length: int, tmp_path: Path) -> None:
    source = triton_of(lambda: (running, (cuda(600, length),)))
    assert any("amax" in name for name in source.kernels if "scan" in name)
    assert len(compiled(source, tmp_path)) >= 1


def test_quotients_of_halves_and_places_in_long_rows_compile(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        quotients = [a / a.abs().amax(-1, keepdim=True) for a in (x, y)]
        return *quotients, x.argmax(-1), y.argmin(-1)

    source = triton_of(
        lambda: (function, (cuda(300, 20_000, dtype=half), cuda(300, 129, dtype=torch.float16)))
    )
    assert "float16_quotient" in source.text
    assert "next_argmax" in source.text
    assert len(compiled(source, tmp_path)) >= 1


def doubles(*size: int) -> torch.Tensor:
    return cuda(*size, dtype=torch.float64)


@pytest.mark.parametrize("size", [(5, 0), (0, 5), (0, 0), (70_000, 0)])
def test_reductions_of_empty_tensors_compile(size: tuple[int, int], tmp_path: Path) -> None:
    def reduced(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), x.sum(1), x.any(0), x.softmax(-1).sum(0), y + 1

    source = triton_of(lambda: (reduced, (cuda(*size), cuda(5))))
    assert len(compiled(source, tmp_path)) >= 1


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_sums_may_wrap_around_beside_indices_that_are_checked(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    def indexed(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.index.Tensor(x, [i])
        return found * 3

    inputs = lambda: (cuda(50, dtype=dtype), cuda(9, dtype=torch.int64))  # noqa: E731
    source = triton_of(lambda: (indexed, inputs()))
    (kernel,) = source.kernels.values()
    assert kernel.checked
    (binary,) = compiled(source, tmp_path)
    assert b"out of" in binary.cubin
    assert b"overflow detected" not in binary.cubin


def test_a_compile_that_another_thread_disturbed_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 fails like this occasionally when several threads parse."""
    source = triton_of(lambda: (lambda x: x.sin() + 3, (cuda(77),)))
    module = import_source(source.text, tmp_path)
    (name,) = source.kernels
    function = getattr(module, name)
    parse, calls = function.parse, []

    def disturbed() -> ast.AST:
        calls.append(name)
        if len(calls) == 1:
            raise SystemError("AST constructor recursion depth mismatch (before=36, after=31)")
        tree: ast.AST = parse()
        return tree

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(function, "parse", disturbed)
    (built,) = compile_all(module, source.kernels, (SPEEDY,), 90).values()
    assert built.result().name == name
    assert len(calls) > 1
