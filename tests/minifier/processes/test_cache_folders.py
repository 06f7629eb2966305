"""Runs of whole scripts get the latest kernels, and what tries vector instructions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tcdebug.minifier.processes import cache_folders
from tcdebug.minifier.processes.cache_folders import link_kernels


def test_of_older_kernels_only_the_libraries_that_try_vector_instructions_are_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folders, "LATEST", 1)
    known, folder = tmp_path / "known", tmp_path / "folder"
    files = {
        "aa/kernel.cpp": 2000, "aa/kernel.so": 10, "aa/vector.cpp": 100, "aa/vector.so": 10,
        "bb/kernel.cpp": 2000, "bb/kernel.so": 10, "bb/kernel.lock": 0,
        "headers/all.pch": 10, "fxgraph/graph": 10,
    }  # fmt: skip
    for name, size in files.items():
        path = known / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    os.utime(known / "aa", (1, 1))
    folder.mkdir()
    link_kernels(known, folder)
    linked = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert linked == {
        "aa/vector.cpp", "aa/vector.so", "bb/kernel.cpp", "bb/kernel.so", "headers/all.pch",
    }  # fmt: skip
    assert (folder / "bb/kernel.so").samefile(known / "bb/kernel.so")
    only_headers = tmp_path / "only_headers"
    only_headers.mkdir()
    link_kernels(known, only_headers, headers_only=True)
    assert [p.name for p in only_headers.iterdir()] == ["headers"]
    link_kernels(tmp_path / "absent", folder)
