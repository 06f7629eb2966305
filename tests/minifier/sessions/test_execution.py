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
