"""Sessions that are forked from a process that has imported torch."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import pytest

from tcdebug.minifier.processes.job import Job, start, started_marker
from tcdebug.minifier.processes.prctl import ADOPT_ORPHANS
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.processes.warm.sessions import WarmSessions

SCRIPT = """
import os, random, sys, time
import numpy
print(os.environ["TCDEBUG_OFF"], os.getcwd(), sys.argv[1:], __name__)
print(random.random(), numpy.random.random())
if sys.argv[1] == "hang":
    time.sleep(100)
if sys.argv[1] == "crash":
    os.kill(os.getpid(), 11)
exit(3)
"""
IMPORTS = ("tcdebug.minifier.sessions.modes", "numpy.random")
PARENT_ADOPTS = 37
"""PR_GET_CHILD_SUBREAPER"""


@pytest.fixture
def sessions(request: pytest.FixtureRequest, warm: None) -> WarmSessions:
    sessions = WarmSessions(dict(os.environ), IMPORTS)
    sessions.start()
    request.addfinalizer(sessions.end)
    return sessions


def test_sessions_end_like_fresh_ones_and_are_children_of_their_starter(
    sessions: WarmSessions, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    job = Job("compiled", str(tmp_path / "script.py"), [], str(tmp_path))
    texts = []
    for argument, seconds, expected in (
        ("exit", 100.0, (3, 0, False)),
        ("crash", 100.0, (None, signal.SIGSEGV, False)),
        ("hang", 1.5, (None, 0, True)),
    ):
        output = tmp_path / argument
        own = Job("compiled", job.script, [argument], job.run_dir)
        child = start(own, output, {"TCDEBUG_OFF": "fuse"}, Limits(seconds, None), sessions)
        assert child.popen is None, "it is not a fork"
        assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid
        ended = finished(child)
        assert (ended.status, ended.signal, ended.timed_out) == expected
        assert started_marker(job, ended.pid).exists()
        texts.append(output.read_text().splitlines())
    assert texts[0][0] == f"fuse {Path.cwd()} ['exit'] __main__"
    assert len({tuple(drawn.split()) for _, drawn in texts}) == 3, "they draw the same numbers"
    adopts = ctypes.c_int(1)
    ctypes.CDLL(None).prctl(PARENT_ADOPTS, ctypes.byref(adopts), 0, 0, 0)
    assert (adopts.value, ADOPT_ORPHANS) == (0, 36)


@pytest.mark.usefixtures("warm")
def test_a_session_is_a_fresh_process_if_none_can_be_forked(tmp_path: Path) -> None:
    sessions = WarmSessions(dict(os.environ), ("no.such.module",))
    sessions.start()
    (tmp_path / "script.py").write_text("exit(3)")
    job = Job("compiled", str(tmp_path / "script.py"), [], str(tmp_path))
    child = start(job, tmp_path / "printed", {}, Limits(100.0, None), sessions)
    assert child.popen is not None
    assert finished(child).returncode == 3
    sessions.end()


def test_a_process_that_cannot_be_forked_for_us_is_replaced_by_a_fresh_one(
    sessions: WarmSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text("exit(3)")
    job = Job("compiled", str(tmp_path / "script.py"), [], str(tmp_path))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getpid", lambda: 1)  # not an ancestor that adopts orphans
        assert sessions.begin([], {}, tmp_path / "none", None) is None
    child = start(job, tmp_path / "output", {}, Limits(100.0, None), sessions)
    assert child.popen is not None
    assert finished(child).status == 3
