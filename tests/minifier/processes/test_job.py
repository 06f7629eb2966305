"""How a session ends: because of the script, or because of an error in tcdebug."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from tcdebug.minifier.processes.job import (
    FAULT,
    Job,
    SessionError,
    check_session,
    start,
    started_marker,
)
from tcdebug.minifier.processes.process import Ended, Limits, finished
from tcdebug.minifier.processes.spawn import spawn

TEXT = "output\nTraceback (most recent call last):\nImportError: no module\n"


def ended(status: int | None, signal: int = 0) -> Ended:
    return Ended(
        None, "", status, signal, timed_out=False, over_memory=False, pid=7, seconds=1.0,
        cpu_seconds=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("status", "signal"), [(1, 0), (71, 0), (None, 11)])
def test_a_session_that_fails_before_the_script_begins_is_a_fault_of_tcdebug(
    status: int | None, signal: int, tmp_path: Path
) -> None:
    job = Job("eager", "script.py", [], str(tmp_path))
    output = tmp_path / "eager.log"
    output.write_text(TEXT)
    with pytest.raises(SessionError) as fault:
        check_session(job, ended(status, signal), output)
    assert str(fault.value) == "Traceback (most recent call last):\nImportError: no module\n"
    started_marker(job, 7).touch()
    check_session(job, ended(status, signal), output)


def test_a_fault_of_tcdebug_while_the_script_runs_is_not_a_failure_of_the_script(
    tmp_path: Path,
) -> None:
    job = Job("search", "script.py", [], str(tmp_path))
    output = tmp_path / "search.log"
    output.write_text(TEXT)
    started_marker(job, 7).touch()
    with pytest.raises(SessionError):
        check_session(job, ended(FAULT), output)


def test_a_starting_session_does_not_change_the_file_that_another_reads(tmp_path: Path) -> None:
    job = Job("eager", "script.py", [], str(tmp_path))
    first = start(job, tmp_path / "1.log", {}, Limits(60.0))
    with (tmp_path / "job-eager.json").open("rb") as read_by_first:
        second = start(job, tmp_path / "2.log", {}, Limits(60.0))
        assert os.fstat(read_by_first.fileno()).st_nlink == 0
        assert msgspec.json.decode(read_by_first.read(), type=Job) == job
    first.end()
    second.end()


def test_a_session_that_cannot_import_tcdebug_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bug: a module on the user's path that torch imports cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('planted')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path[:0]]))
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit(1)\n")
    job = Job("eager", str(script), [], str(tmp_path))
    output = tmp_path / "eager.log"
    end = finished(start(job, output, {}, Limits(60.0)))
    assert end.returncode == 1
    with pytest.raises(SessionError, match="planted"):
        check_session(job, end, output)


def test_each_process_reads_a_file_given_as_input_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("one\ntwo\n")
    ours = os.dup(0)
    entered = os.open(tmp_path / "given", os.O_RDONLY)
    os.dup2(entered, 0)
    try:
        os.read(0, 4)
        command = [sys.executable, "-c", "print(input())"]
        for name in ("first", "second"):
            output = tmp_path / name
            assert finished(spawn(command, os.environ, output=output)).returncode == 0
            assert output.read_text() == "one\n"
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        os.close(entered)
