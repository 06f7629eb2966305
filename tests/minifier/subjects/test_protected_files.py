"""A version of a script cannot change the user's files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.subjects.protected_files import files_protected

Change = Callable[[Path], object]


def changed(change: Change, path: Path, allowed: Path) -> str:
    """Make a change in a child whose files are protected: the name of the exception, or "done"."""

    def work(parent: object) -> bytes:
        try:
            with files_protected([allowed], EventLog(None)):
                change(path)
        except Exception as error:
            return type(error).__name__.encode()
        return b"done"

    answer = finished(fork(work, Limits(seconds=30.0))).answer
    assert answer is not None
    return answer.decode()


CHANGES: dict[str, Change] = {
    "open": lambda path: path.open("w").close(),
    "append": lambda path: path.open("ab").close(),
    "os.open": lambda path: os.open(path, os.O_WRONLY),
    "truncate": lambda path: os.truncate(path, 1),
    "unlink": lambda path: path.unlink(),
    "replace": lambda path: os.replace(shutil.copy(__file__, path.with_name("new")), path),
    "move": lambda path: shutil.move(path, path.with_name("elsewhere")),
    "torch.save": lambda path: torch.save({}, path),
    "torch.save by name": lambda path: torch.save({}, f=str(path)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_exists_is_not_changed(change: Change, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"trained")
    assert changed(change, path, tmp_path / "candidate") == "FileProtected"
    assert path.read_bytes() == b"trained"


@pytest.mark.parametrize("name", ["open", "append", "truncate", "unlink", "torch.save"])
def test_files_of_the_candidate_may_be_changed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "candidate" / "file"
    path.parent.mkdir()
    path.write_bytes(b"caches")
    assert changed(CHANGES[name], path, tmp_path / "candidate") == "done"
    assert not path.exists() or path.read_bytes() != b"caches" or name == "append"


def test_files_may_be_read_and_new_ones_written(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"data")

    def use(path: Path) -> None:
        path.with_name("new").write_bytes(path.read_bytes())
        path.with_name("new").write_bytes(b"again")
        path.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "data").write_bytes(b"")
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"")

    assert changed(use, path, tmp_path / "candidate") == "done"
    assert (tmp_path / "new").read_bytes() == b"again"
    assert path.read_bytes() == b"data"
