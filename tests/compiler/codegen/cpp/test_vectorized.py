"""Loops that g++ should vectorize: whether it does, and whether the results are right."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from judge import compiled

from tcdebug.compiler.codegen.cpp.source import prelude
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.runtime.toolchain import find

KERNEL = """
extern "C" void kernel(const float* __restrict__ in, float* __restrict__ out) {{
#pragma omp simd
  for (long i = 0; i < 1024; ++i) out[i] = {0}({0}({0}(in[i], in[i + 1]), in[i + 2]), in[i + 3]);
}}
"""


JOINED = """
extern "C" void joined(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out) {{
#pragma omp simd
  for (int64_t i = 0; i < {rows}; ++i) {{
    const bool first = i < {of_first};
    {values}
    {stores}
  }}
}}
"""


def built(source_text: str, tmp_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    toolchain = find(Options().compiler)
    source = tmp_path / "kernel.cpp"
    source.write_text(prelude() + source_text)
    command = [*toolchain.command(source, tmp_path / "kernel.so"), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("columns", [2, 3, 5])
@pytest.mark.parametrize(("rows", "of_first"), [(4, 2), (6, 3), (12, 5), (100, 70)])
def test_rows_of_two_joined_tensors_are_read_correctly(
    tmp_path: Path, rows: int, of_first: int, columns: int
) -> None:
    """For some sizes, g++ 12 masks out the loads of the second tensor, knowing the range of i."""
    values = [
        f"float t{k}; if (first) {{ t{k} = x[i * {columns} + {k}]; }}"
        f" else {{ t{k} = y[i * {columns} + {k - of_first * columns}]; }}"
        for k in range(columns)
    ]
    stores = [f"out[i * {columns} + {k}] = t{k};" for k in range(columns)]
    text = JOINED.format(
        rows=rows, of_first=of_first, values="\n".join(values), stores="\n".join(stores)
    )
    built(text, tmp_path)
    x, y = torch.arange(1.0, 1000.0), -torch.arange(1.0, 1000.0)
    out = torch.zeros(rows, columns)
    kernel = ctypes.CDLL(str(tmp_path / "kernel.so")).joined
    kernel(*(ctypes.c_void_p(t.data_ptr()) for t in (x, y, out)))
    first = x[: of_first * columns].view(-1, columns)
    second = y[: (rows - of_first) * columns].view(-1, columns)
    assert torch.equal(out, torch.cat([first, second]))


@pytest.mark.parametrize("off", [["fuse"], ["fuse", "codegen.vectorize"], ["codegen"]])
def test_statistics_of_joined_tensors_are_those_of_eager(off: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.neg(x)
        return F.batch_norm(torch.cat((y, y)), None, None, training=True)

    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(function, options={"off": off})(x), function(x))


@pytest.mark.parametrize("name", ["maximum_", "minimum_", "fmax_", "fmin_"])
def test_the_maximum_of_several_numbers_is_vectorized(tmp_path: Path, name: str) -> None:
    done = built(KERNEL.format(name), tmp_path, "-fopt-info-vec-optimized")
    assert "loop vectorized" in done.stderr
