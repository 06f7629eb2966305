"""The scripts of docs/findings fail with the versions of torch that findings.toml names."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "docs" / "findings"
KNOWN = tomllib.loads((FOLDER / "findings.toml").read_text())
VERSION = ".".join(torch.__version__.split(".")[:2])
MOST_LINES = 15
SCRIPTS = {str(p.relative_to(FOLDER)): p for k in ("", "python/") for p in FOLDER.glob(f"{k}*.py")}


def test_each_script_has_a_row_and_a_description_and_is_short() -> None:
    pages = (FOLDER / "inductor.md").read_text() + (FOLDER / "python.md").read_text()
    assert KNOWN.keys() == SCRIPTS.keys()
    for path in SCRIPTS.values():
        assert f"`{path.name}`" in pages
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(lines) <= MOST_LINES, path.name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_script_fails_with_the_versions_that_its_row_names(name: str, tmp_path: Path) -> None:
    if VERSION not in ("2.13", "2.15"):
        pytest.skip("the scripts were run with 2.13 and 2.15")
    command = [sys.executable, str(SCRIPTS[name])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (VERSION in KNOWN[name]["fails"]), done.stderr
