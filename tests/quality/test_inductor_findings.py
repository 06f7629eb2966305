"""The fuzzer's findings in inductor still fail on the version of torch they were found with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "docs" / "findings"
FOUND_WITH = "2.13.0"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_finding_still_differs_from_eager(path: Path, tmp_path: Path) -> None:
    if torch.__version__.partition("+")[0] != FOUND_WITH:
        pytest.skip(f"found with torch {FOUND_WITH}")
    command = [sys.executable, str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr
    assert f"`{path.name}`" in (FOLDER / "inductor.md").read_text()
