"""ScriptReplays continue where a process was divided, and answer for one candidate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.devices import replays
from tcdebug.minifier.processes.devices.replays import (
    ScriptReplay,
    ScriptReplays,
    divided_for_replays,
)
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Ended, Limits, finished

GRAPH = (3, 1)


def in_process(work: Callable[[Parent], bytes]) -> bytes:
    """Return what work returns in a process that adopts orphans, as the script's does."""
    answer = finished(fork(work, Limits(60.0))).answer
    assert answer is not None
    return answer


def ended(started: ScriptReplays, candidate: bytes, seconds: float = 30.0) -> Ended:
    return finished(started.start(candidate, GRAPH, Limits(seconds), 1))


def test_each_candidate_gets_a_process_that_was_warmed_up_and_then_divided(tmp_path: Path) -> None:
    def work(parent: Parent) -> bytes:
        os.environ["PHASE"] = "cold"
        divided = divided_for_replays(lambda: os.environ.update(PHASE="warm"), tmp_path / "output")
        if isinstance(divided, ScriptReplay):
            candidate = divided.candidate().decode()
            known = f"{divided.ordinal} {divided.call} {os.environ['PHASE']}"
            divided.answer(f"{candidate} {known}".encode())
        found = [ended(divided, name) for name in (b"one", b"two")]
        divided.end()
        assert len({one.pid for one in found}) == 2
        return repr((os.environ["PHASE"], *(one.answer for one in found))).encode()

    assert in_process(work) == repr(("cold", b"one 3 1 warm", b"two 3 1 warm")).encode()


@pytest.mark.parametrize("status", [0, 5])
def test_a_replay_that_does_not_reach_its_graph_ends_without_a_phase_or_an_answer(
    status: int, tmp_path: Path
) -> None:
    def work(parent: Parent) -> bytes:
        divided = divided_for_replays(lambda: None, tmp_path / "output")
        if isinstance(divided, ScriptReplay):
            os._exit(status)
        found = ended(divided, b"one")
        return repr((found.answer, found.phase, found.status, found.timed_out)).encode()

    assert in_process(work) == repr((None, "", status, False)).encode()


def test_a_replay_that_does_not_reach_its_graph_in_time_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "LEAST_SECONDS", 0.3)

    def work(parent: Parent) -> bytes:
        divided = divided_for_replays(lambda: None, tmp_path / "output")
        if isinstance(divided, ScriptReplay):
            os.system("sleep 60")
        found = ended(divided, b"one")
        return repr((found.answer, found.phase, found.timed_out)).encode()

    assert in_process(work) == repr((None, "", True)).encode()


def test_the_time_of_the_script_does_not_count_against_the_limit_of_a_candidate(
    tmp_path: Path,
) -> None:
    def work(parent: Parent) -> bytes:
        divided = divided_for_replays(lambda: None, tmp_path / "output")
        if isinstance(divided, ScriptReplay):
            os.system("sleep 1")
            if divided.candidate() == b"endless":
                os.system("sleep 60")
            divided.answer(b"done")
        done, endless = (ended(divided, name, 0.5) for name in (b"short", b"endless"))
        return repr((done.answer, done.timed_out, endless.answer, endless.timed_out)).encode()

    assert in_process(work) == repr((b"done", False, None, True)).encode()


def test_replays_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    def work(parent: Parent) -> bytes:
        divided = divided_for_replays(lambda: None, tmp_path / "output")
        if isinstance(divided, ScriptReplay):
            (tmp_path / str(os.getpid())).touch()
            divided.answer(divided.candidate())
        ended(divided, b"one")
        return b""

    in_process(work)
    left = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    assert left
    end = time.monotonic() + 10.0
    while left and time.monotonic() < end:
        left = [pid for pid in left if psutil.pid_exists(pid)]
    assert not left
