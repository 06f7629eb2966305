"""A run that leaves nothing behind ends before it changes a file or starts a program."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.subjects.harmless_runs import ended_before_changes

Change = Callable[[Path], object]


def status_after(change: Change, path: Path) -> int | None:
    """Make a change in such a child, whose own folder is `own` beside the path: its status."""

    def work(parent: object) -> bytes:
        with ended_before_changes([path.with_name("own")], EventLog(None)):
            change(path)
        os._exit(0)

    return finished(fork(work, Limits(seconds=30.0))).returncode


def connect(path: Path) -> None:
    socket.socket().connect(("127.0.0.1", 1))


CHANGES: dict[str, Change] = {
    "open": lambda path: path.open("w").close(),
    "create": lambda path: path.with_name("new").write_text("1"),
    "os.open": lambda path: os.open(path, os.O_WRONLY),
    "mkdir": lambda path: path.with_name("new").mkdir(),
    "unlink": lambda path: path.unlink(),
    "rename": lambda path: path.rename(path.with_name("new")),
    "symlink": lambda path: path.with_name("new").symlink_to(path),
    "rmtree": lambda path: shutil.rmtree(path.parent),
    "torch.save": lambda path: torch.save({}, path),
    "torch.save by name": lambda path: torch.save({}, f=str(path.with_name("new"))),
    "program": lambda path: subprocess.run(["touch", str(path.with_name("new"))], check=False),
    "network": connect,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_later_run_could_see_ends_the_process(change: Change, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"trained")
    assert status_after(change, path) == 75
    assert path.read_bytes() == b"trained"
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_no_other_run_sees_the_temporary_files_of_one(tmp_path: Path) -> None:
    name = tmp_path / "own" / "name"
    name.parent.mkdir()

    def change(path: Path) -> None:
        Path(tempfile.gettempdir(), "lock").write_text("1")
        name.write_text(tempfile.gettempdir())
        path.with_name("other").write_text("1")

    assert status_after(change, tmp_path / "checkpoint.pt") == 75
    assert name.read_text() != tempfile.gettempdir()
    assert not Path(name.read_text()).exists()


def test_a_file_of_any_run_in_the_usual_folder_for_temporary_files_ends_the_process(
    tmp_path: Path,
) -> None:
    lock = Path(tempfile.gettempdir(), f"{tmp_path.name}-{os.getpid()}.lock")
    assert status_after(lambda path: lock.write_text("1"), tmp_path / "checkpoint.pt") == 75
    assert not lock.exists()


def test_temporary_files_and_the_own_folder_may_be_changed(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()

    def change(path: Path) -> None:
        (path.with_name("own") / "events").write_text("1")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "below").mkdir()
            torch.save({}, f"{folder}/below/checkpoint.pt")
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"1")
        assert path.read_bytes() == b"trained"

    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"trained")
    assert status_after(change, path) == 0
