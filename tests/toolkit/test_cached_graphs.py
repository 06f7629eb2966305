"""The note on a user's caches of graphs, which no run of a search reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_versions import needs_torch

from tcdebug.supervision.environment import cache_folder, unused_caches

Command = Callable[..., Any]


def test_the_folder_of_the_caches_is_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: PLC0415 # slow

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    for user in ("someone", "domain/some:one"):
        monkeypatch.setenv("LOGNAME", user)
        assert str(cache_folder()) == default_cache_dir()


@needs_torch("2.13", "torch has no folder for a user without a name")
def test_the_folder_of_a_user_without_a_name_is_that_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: PLC0415 # slow

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")

    def no_entry(number: int) -> Any:
        raise KeyError(number)

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", no_entry)
    assert cache_folder().name == f"torchinductor_uid_{os.getuid()}"
    assert str(cache_folder()) == default_cache_dir()


def test_kernels_alone_are_no_cached_graphs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "kernel.so").touch()
    (tmp_path / "fxgraph").mkdir()
    assert unused_caches() == []


def test_a_healthy_script_may_fail_with_the_graphs_in_the_caches_of_its_user(
    tcdebug: Command, tmp_path: Path
) -> None:
    (tmp_path / "caches" / "fxgraph" / "ab").mkdir(parents=True)
    (tmp_path / "script.py").write_text(
        "import torch\ntorch.compile(torch.tanh, backend='eager')(torch.ones(3))\n"
    )
    done = tcdebug(
        "bisect", "--json", "script.py", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "caches")
    )
    (note,) = done.json["notes"]
    assert done.status == 4
    assert note.startswith(f"no run used the graphs cached in {tmp_path / 'caches'}: ")
