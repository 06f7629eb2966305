"""Tests tcdebug run --profile on an NVIDIA GPU. Skipped without one.

pytest tests/device
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SIDE = 4096
BYTES = 2 * SIDE * SIDE * 4
MODEL = f"""
import torch
def f(x, w):
    y = x.sigmoid().exp().tanh()
    return y @ w
compiled = torch.compile(f, OPTIONS)
x, w = torch.ones({SIDE}, {SIDE}, device="cuda"), torch.ones({SIDE}, 8, device="cuda")
for _ in range(6):
    compiled(x, w)
"""
POINTWISE, PRODUCT = 4, 5


def profile(folder: Path, options: str) -> Any:
    (folder / "script.py").write_text(MODEL.replace("OPTIONS", options))
    command = [sys.executable, "-m", "tcdebug", "run", "--profile", "--json", "script.py"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("options", ["backend='inductor'", "backend='tcdebug'"])
def test_a_kernel_of_triton_has_its_line_device_time_bytes_and_registers(
    tmp_path: Path, options: str
) -> None:
    found = profile(tmp_path, options)
    assert found["steps"] == 5
    assert found["copy_speeds"]["cuda"] > 1e10
    kernel = next(c for c in found["kernels"] if c["kind"] == "generated")
    assert kernel["name"].startswith("triton_")
    assert (kernel["device"], kernel["calls"], kernel["moved"]) == ("cuda", 5, BYTES)
    assert [*kernel["lines"]] == [f"{tmp_path / 'script.py'}:{POINTWISE}"]
    assert kernel["registers"] > 0
    assert kernel["spilled"] == 0
    assert kernel["of_copy"] > 0
    product = next(c for c in found["kernels"] if c["kind"] == "library" and c["device"] == "cuda")
    assert [*product["lines"]] == [f"{tmp_path / 'script.py'}:{PRODUCT}"]
    assert product["device_kernels"]
    trace = json.loads(Path(tmp_path, found["trace"]).read_text())["traceEvents"]
    launched = [e for e in trace if e.get("cat") == "kernel" and e["name"] == kernel["name"]]
    assert len(launched) >= 5
    assert all(
        e["args"]["lines"] == [f"{tmp_path / 'script.py'}:{POINTWISE}"] for e in launched[-5:]
    )


@pytest.mark.parametrize(
    "options",
    ["backend='inductor', mode='reduce-overhead'", "backend='tcdebug', mode='reduce-overhead'"],
)
def test_kernels_that_a_cuda_graph_replays_have_their_lines(tmp_path: Path, options: str) -> None:
    found = profile(tmp_path, options)
    kernel = next(c for c in found["kernels"] if c["name"].startswith("triton_"))
    assert (kernel["device"], [*kernel["lines"]]) == (
        "cuda",
        [f"{tmp_path / 'script.py'}:{POINTWISE}"],
    )
