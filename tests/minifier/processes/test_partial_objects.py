"""Half-written shared objects are distinguished from complete ones, and removed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tcdebug.minifier.processes.partial_objects import is_whole, remove_torn


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a shared object as the compiler writes it."""
    folder = tmp_path_factory.mktemp("built")
    source, path = folder / "one.cpp", folder / "one.so"
    source.write_text('extern "C" int one() { return 1; }')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", path, source], check=True)
    return path.read_bytes()


def test_an_object_without_its_end_marker_is_incomplete(tmp_path: Path, built: bytes) -> None:
    path = tmp_path / "kernel.so"
    for length in (0, 10, 63, 64, 1000, len(built) // 2, len(built) - 1):
        path.write_bytes(built[:length])
        assert not is_whole(path), length
    path.write_bytes(built)
    assert is_whole(path)
    path.write_bytes(bytes(len(built)))
    assert not is_whole(path)


def test_incomplete_objects_are_removed_and_the_rest_is_kept(tmp_path: Path, built: bytes) -> None:
    folder = tmp_path / "ab"
    folder.mkdir()
    (folder / "whole.so").write_bytes(built)
    (folder / "torn.so").write_bytes(built[:500])
    (folder / "torn.cpp").write_text("")
    assert remove_torn(tmp_path) == [folder / "torn.so"]
    assert sorted(p.name for p in folder.iterdir()) == ["torn.cpp", "whole.so"]
    assert remove_torn(tmp_path) == []
    assert remove_torn(tmp_path / "none") == []


def test_objects_that_are_being_written_are_left_alone(tmp_path: Path, built: bytes) -> None:
    with (tmp_path / "kernel.so").open("wb") as file:
        file.write(built[:500])
        file.flush()
        assert remove_torn(tmp_path) == []
    assert remove_torn(tmp_path) == [tmp_path / "kernel.so"]
