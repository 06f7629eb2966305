"""tcdebug cache: what it shows, what it removes, and what it keeps."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tcdebug.commands import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an old kernel, a new one that is being built, and a lock."""
    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path))
    for name, size in (("so/aa/old.so", 3), ("so/aa/old.lock", 1), ("inductor/bb/new.cpp", 5)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    os.utime(tmp_path / "so/aa/old.so", (1e9, 1e9))
    building = tmp_path / "so/aa/.build-1"
    building.mkdir()
    (building / "kernels.so").write_bytes(b"half")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_what_the_cache_holds_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache.run(clear=False, older_than=0.0, as_json=True) == 0
    found = printed(capsys)
    assert found["folder"] == str(folder)
    parts = [{k: p[k] for k in ("name", "files", "bytes")} for p in found["parts"]]  # type: ignore[attr-defined, index] # of JSON
    assert parts == [
        {"name": "inductor", "files": 1, "bytes": 5},
        {"name": "so", "files": 1, "bytes": 3},
    ]


def test_only_what_is_old_enough_is_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.run(clear=True, older_than=30.0, as_json=True)
    found = printed(capsys)
    assert (found["removed_files"], found["removed_bytes"]) == (1, 3)
    assert not (folder / "so/aa/old.so").exists()
    assert (folder / "inductor/bb/new.cpp").exists()


def test_a_build_in_progress_is_left_alone(folder: Path) -> None:
    cache.run(clear=True, older_than=0.0, as_json=False)
    assert (folder / "so/aa/old.lock").exists()
    assert (folder / "so/aa/.build-1/kernels.so").read_bytes() == b"half"
    assert not (folder / "inductor/bb/new.cpp").exists()


def test_no_cache_is_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path / "none"))
    assert cache.run(clear=True, older_than=0.0, as_json=True) == 0
    assert printed(capsys)["parts"] == []
