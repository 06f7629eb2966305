"""A script that runs in a session's process."""

from __future__ import annotations

import multiprocessing
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
