"""Handwritten runs of the events in `support`, with known results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdebug.compiler.events import run_folder
from tcdebug.reading.run_dir import Run, find

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

Make = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a run with these events: make(line(...), ...)."""

    def write(*lines: dict[str, Any], name: str = "run") -> Run:
        folder = tmp_path / name
        folder.mkdir()
        run_folder.write_info(folder, "run")
        texts = [json.dumps({**entry, "seq": k}) for k, entry in enumerate(lines)]
        (folder / "events.jsonl").write_text("\n".join(texts) + "\n")
        return find(str(folder))

    return write
