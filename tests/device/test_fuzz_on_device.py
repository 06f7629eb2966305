"""`tcdebug fuzz run --device cuda` finds planted bugs in both backends. Skipped without a GPU.

pytest tests/device
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

PLANTED = {
    "inductor": """
from torch._inductor import lowering
import torch

def add(x, y, alpha=None):
    raise ValueError("planted")

lowering.register_lowering(torch.ops.aten.add.Tensor, type_promotion_kind=None)(add)
""",
    "tcdebug": """
import torch
from tcdebug.compiler.registry import REGISTRY

def broken(site, *args, **kwargs):
    raise ValueError("planted")

REGISTRY.lowerings[torch.ops.aten.add.Tensor] = broken
""",
}


@pytest.mark.parametrize("backend", PLANTED)
def test_a_planted_fault_is_found_and_shrunk_on_a_gpu(backend: str, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED[backend])
    done = subprocess.run(
        [
            sys.executable, "-m", "tcdebug", "fuzz", "run", "--device=cuda", f"--backend={backend}",
            "--setup=planted.py", "--examples=120", "--seed=0", "--stop-after=1", "--no-bisect",
            "-j1", "-q", "--json",
        ],
        cwd=tmp_path,
        env={**os.environ, "TCDEBUG_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    (slug,) = json.loads(done.stdout)["new"]
    finding = json.loads((tmp_path / ".tcdebug" / "findings" / slug / "finding.json").read_text())
    assert finding["program"]["device"] == "cuda"
    assert "planted" in finding["message"], finding
    assert len(finding["ops"]) == 1, finding
