"""Chains that g++ has been seen to turn into branches come out as vector code."""

from __future__ import annotations

import subprocess
from importlib import resources
from pathlib import Path

import pytest

from tcdebug.compiler.options import Options
from tcdebug.compiler.runtime.toolchain import find

KERNEL = """
extern "C" void kernel(const float* __restrict__ in, float* __restrict__ out) {{
#pragma omp simd
  for (long i = 0; i < 1024; ++i) out[i] = {0}({0}({0}(in[i], in[i + 1]), in[i + 2]), in[i + 3]);
}}
"""


@pytest.mark.parametrize("name", ["maximum_", "minimum_", "fmax_", "fmin_"])
def test_an_extreme_of_several_numbers_is_computed_in_vectors(tmp_path: Path, name: str) -> None:
    toolchain = find(Options().compiler)
    prelude = resources.files("tcdebug.compiler.codegen").joinpath("prelude.hpp").read_text()
    source = tmp_path / "kernel.cpp"
    source.write_text(prelude + KERNEL.format(name))
    command = toolchain.command(source, tmp_path / "kernel.so")
    done = subprocess.run(
        [*command, "-fopt-info-vec-optimized"], capture_output=True, text=True, check=True
    )
    assert "loop vectorized" in done.stderr
