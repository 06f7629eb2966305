"""A script that runs in a session's process."""

from __future__ import annotations

import multiprocessing
import zipapp
from pathlib import Path

import pytest

from tcdebug.minifier.sessions.execution import leave, run_script

LATE = """
import multiprocessing, sys, threading, time

def work():
    time.sleep(0.2)
    open(sys.argv[1], "w").close()

multiprocessing = multiprocessing.get_context("fork")
{start}
sys.exit(3)
"""


def session(script: str, args: list[str]) -> None:
    leave(run_script(script, args))


@pytest.mark.parametrize(
    ("start", "made"),
    [
        ("threading.Thread(target=work).start()", True),
        ("multiprocessing.Process(target=work).start()", True),
        ("threading.Thread(target=work, daemon=True).start()", False),
    ],
)
def test_a_session_waits_for_what_the_script_has_started(
    tmp_path: Path, start: str, made: bool
) -> None:
    script, file = tmp_path / "starts.py", tmp_path / "made"
    script.write_text(LATE.format(start=start))
    arguments = (str(script), [str(file)])
    process = multiprocessing.get_context("fork").Process(target=session, args=arguments)
    process.start()
    process.join()
    assert (process.exitcode, file.exists()) == (3, made)


def test_an_exception_is_read_from_a_script_that_has_replaced_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "quiet.py"
    script.write_text("import io, sys\nsys.stderr = io.StringIO()\nraise ValueError('size 3')\n")
    process = multiprocessing.get_context("fork").Process(target=session, args=(str(script), []))
    process.start()
    process.join()
    assert "ValueError: size 3" in capfd.readouterr().err


FACTS = """
import inspect, os, sys

def twice(x):
    return x * 2

data = os.path.join(os.path.dirname(__file__), "data")
os.chdir(sys.argv[1])
assert open(data).read() == "5"
assert inspect.getsource(twice).startswith("def twice")
assert sys.modules["__main__"].twice is twice
assert sys.argv[0] == "moves.py" and __spec__ is None and __name__ == "__main__"
sys.exit(3)
"""


def test_a_script_that_changes_its_folder_finds_its_own_files_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moves.py").write_text(FACTS)
    (tmp_path / "data").write_text("5")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    arguments = ("moves.py", [str(tmp_path / "elsewhere")])
    process = multiprocessing.get_context("fork").Process(target=session, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 3


def test_a_folder_and_an_archive_with_a_main_module_are_scripts(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__main__.py").write_text("import sys\nsys.exit(3)\n")
    archive = tmp_path / "app.pyz"
    zipapp.create_archive(folder, archive)
    for script in (folder, archive):
        process = multiprocessing.get_context("fork").Process(
            target=session, args=(str(script), [])
        )
        process.start()
        process.join()
        assert process.exitcode == 3


AT_EXIT = """
import atexit, sys

@atexit.register
def last():
    print("last")

def dropped():
    print("dropped")

atexit.register(dropped)
atexit.register(lambda: 1 / 0)
atexit.register(print, "first", file=sys.stdout)
atexit.unregister(dropped)
sys.exit(3)
"""


def test_a_session_calls_what_the_script_has_registered_for_its_exit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "registers.py"
    script.write_text(AT_EXIT)
    process = multiprocessing.get_context("fork").Process(target=session, args=(str(script), []))
    process.start()
    process.join()
    output = capfd.readouterr()
    assert (process.exitcode, output.out) == (3, "first\nlast\n")
    assert "ZeroDivisionError" in output.err


LOCK = """
import atexit, os, sys, weakref

try:
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))
except FileExistsError:
    sys.exit("another training is running")
{removed}
"""


@pytest.mark.parametrize(
    "removed",
    [
        "atexit.register(os.unlink, sys.argv[1])",
        "weakref.finalize(sys.modules['__main__'], os.unlink, sys.argv[1])",
    ],
)
def test_a_lock_that_a_script_removes_at_its_exit_is_free_for_the_next_run(
    tmp_path: Path, removed: str
) -> None:
    script, lock = tmp_path / "locks.py", tmp_path / "lock"
    script.write_text(LOCK.format(removed=removed))
    for _ in range(2):
        target = (str(script), [str(lock)])
        process = multiprocessing.get_context("fork").Process(target=session, args=target)
        process.start()
        process.join()
        assert (process.exitcode, lock.exists()) == (0, False)
