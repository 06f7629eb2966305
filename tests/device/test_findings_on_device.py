"""Bugs of inductor that fuzzing found on GPUs still fail with the same torch. Skipped without one.

pytest tests/device
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

PAGE = Path(__file__).parents[2] / "docs" / "findings" / "gpu.md"
FOUND_WITH = "2.11.0"


@pytest.mark.parametrize(
    "path", sorted((PAGE.parent / "gpu").glob("*.py")), ids=lambda path: path.stem
)
def test_a_finding_still_differs_from_eager_on_a_gpu(path: Path, tmp_path: Path) -> None:
    assert f"`gpu/{path.name}`" in PAGE.read_text()
    if torch.__version__.partition("+")[0] != FOUND_WITH:
        pytest.skip(f"found with torch {FOUND_WITH}")
    command = [sys.executable, str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "Error: " in done.stderr
