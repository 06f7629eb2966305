"""Children that misbehave: the parent learns how each ended, and nothing keeps running."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Child, Ended, Limits, finished, wait
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.minifier.processes.tree import process

SECONDS = 0.5
LIMITS = Limits(SECONDS, 200 << 20)
PATIENT = Limits(60.0, 200 << 20)
TIMED_OUT = (None, "forward", None, 0, True, False)
OVER_MEMORY = (None, "forward", None, 0, False, True)


def fields(ended: Ended) -> tuple[Any, ...]:
    """Return the fields with predictable values."""
    return (
        ended.answer, ended.phase, ended.status, ended.signal, ended.timed_out, ended.over_memory
    )  # fmt: skip


def running(pid: int) -> bool:
    """Return whether a process keeps running for more than two seconds; a zombie does not count."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            return False
        time.sleep(0.02)
    return True


def exited(child: Child) -> None:
    """Wait until a child has exited, and leave its status to others."""
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that no child of this process and no descriptor is left behind."""
    before, files = set(psutil.Process().children(recursive=True)), psutil.Process().num_fds()
    yield
    assert set(psutil.Process().children(recursive=True)) <= before
    assert psutil.Process().num_fds() == files


def stop() -> None:
    """Stop this process as Ctrl-Z does."""
    os.kill(os.getpid(), signal.SIGSTOP)


def ignore_sigterm() -> None:
    """Hang, and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1000)


def close_everything() -> None:
    """Behave like a daemon: close all files, the channel too, and keep running."""
    os.closerange(3, 1000)
    time.sleep(1000)


def eat_memory() -> None:
    """Fill 400 MB in blocks."""
    blocks = []
    while len(blocks) < 100:
        blocks.append(b"x" * (4 << 20))
    time.sleep(1000)


def crash_late() -> None:
    """Segfault after the work has run for a while."""
    time.sleep(0.3)
    ctypes.string_at(0)


def exit_with_three() -> None:
    """Exit without an answer."""
    os._exit(3)


def close_and_return() -> None:
    """Close the channel, so that the answer cannot be sent."""
    os.closerange(3, 1000)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (stop, TIMED_OUT),
        (ignore_sigterm, TIMED_OUT),
        (close_everything, TIMED_OUT),
        (eat_memory, OVER_MEMORY),
        (crash_late, (None, "forward", None, 11, False, False)),
        (exit_with_three, (None, "forward", 3, 0, False, False)),
        (close_and_return, (None, "forward", 1, 0, False, False)),
    ],
)
def test_how_a_forked_child_ended(fault: Callable[[], None], expected: tuple[Any, ...]) -> None:
    def work(parent: Parent) -> bytes:
        parent("forward")
        fault()
        return b"done"

    limits = LIMITS if expected[4] else PATIENT
    assert fields(finished(fork(work, limits))) == expected


FREED_MEMORY = """
import time
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Limits, finished

large = bytearray(30 << 20)
del large  # later blocks come from the heap
blocks = [b"x" * (4 << 20) for _ in range(100)]
last = bytearray(5 << 20)  # keeps the heap from shrinking
del blocks

def work(parent):
    parent("forward")
    kept = [b"x" * (4 << 20) for _ in range(100)]
    time.sleep(1000)

print(finished(fork(work, Limits(20.0, 200 << 20))).over_memory)
"""


def test_memory_counts_that_the_parent_has_freed_and_a_child_takes_again() -> None:
    """The bug: the pages of the parent's heap were the child's already, so it held no more."""
    command = [sys.executable, "-c", FREED_MEMORY]
    assert subprocess.run(command, capture_output=True, check=False).stdout == b"True\n"


def half_a_message(parent: Parent) -> bytes:
    """Announce a megabyte, send part of it, and stop."""
    parent("forward")
    os.write(parent._end.fileno(), struct.pack("!i", 1 << 20) + b"P" * 1000)
    stop()
    return b""


def half_a_header(parent: Parent) -> bytes:
    """Send two of the four bytes of a message's length, and stop."""
    parent("forward")
    os.write(parent._end.fileno(), b"\0\0")
    stop()
    return b""


def garbage(parent: Parent) -> bytes:
    """Announce an exabyte, as a stray write would."""
    parent("forward")
    os.write(parent._end.fileno(), struct.pack("!iQ", -1, 1 << 60) + b"x" * 1000)
    stop()
    return b""


def more_than_fits(parent: Parent) -> bytes:
    """Be stopped in the middle of a message that the parent has not read yet."""
    parent("forward")
    threading.Timer(0.1, stop).start()
    parent("x" * (64 << 20))
    return b""


def test_children_that_stop_within_a_message_do_not_block_others_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tcdebug.minifier.processes.channel.PATIENCE", 0.3)

    works = (half_a_message, half_a_header, garbage, more_than_fits)
    stuck = {fork(work, Limits(1.5)): work.__name__ for work in works}
    other = fork(lambda parent: b"well", Limits(30.0))
    for child in stuck:
        while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
    exited(other)
    ((child, ended),) = wait([*stuck, other])
    assert (child, ended.answer) == (other, b"well")
    started = time.monotonic()
    found: dict[str, tuple[Any, ...]] = {}
    while stuck:
        found |= {stuck.pop(child): fields(ended) for child, ended in wait(list(stuck))}
    assert found == dict.fromkeys((work.__name__ for work in works), TIMED_OUT)
    assert time.monotonic() - started < 12.0


def test_a_child_that_sends_without_end_is_still_watched() -> None:
    def talk(parent: Parent) -> bytes:
        blocks = []
        while True:
            parent("forward")
            blocks.append(b"x" * 10_000)

    assert fields(finished(fork(talk, PATIENT))) == OVER_MEMORY
    assert fields(finished(fork(talk, Limits(0.3, None)))) == TIMED_OUT


def test_a_child_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    def write(parent: Parent) -> bytes:
        parent("forward")
        while True:
            os.write(1, b"line\n")

    assert fields(finished(fork(write, LIMITS, tmp_path / "out.log"))) == TIMED_OUT


def leave_behind(note: Path, *, twice: bool, told: bool = True) -> None:
    """Start a process that leaves the group and the session, and write its pid to a file."""
    ready, go = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if not twice or os.fork() == 0:
            note.with_suffix(".new").write_text(str(os.getpid()))
            note.with_suffix(".new").rename(note)
            os.write(go, b"x")
            time.sleep(1000)
        os._exit(0)
    os.read(ready, 1)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (lambda: None, (b"done", "forward", 0, 0, False, False)),
        (lambda: time.sleep(1000), TIMED_OUT),
        (crash_late, (None, "forward", None, 11, False, False)),
    ],
)
def test_processes_that_left_the_group_end_with_the_child(
    then: Callable[[], None], expected: tuple[Any, ...], twice: bool, tmp_path: Path
) -> None:
    note = tmp_path / "pid"

    def work(parent: Parent) -> bytes:
        parent("forward")
        leave_behind(note, twice=twice)
        then()
        return b"done"

    limits = LIMITS if expected[4] else PATIENT
    ended = finished(fork(work, limits))
    assert fields(ended) == expected
    assert ended.seconds < 20.0
    assert not running(int(note.read_text()))


def serve(parent: Parent) -> bytes:
    """Reply to requests with their content, or do what they ask for."""
    while request := parent.request():
        parent("forward")
        if request == b"crash":
            ctypes.string_at(0)
        if request == b"stop":
            stop()
        parent.reply(request)
    return b"no more"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [(b"crash", (None, "forward", None, 11, False, False)), (b"stop", TIMED_OUT)],
)
def test_a_serving_child_may_end_within_a_request(
    request_: bytes, expected: tuple[Any, ...]
) -> None:
    child = fork(serve, LIMITS)
    assert child.ask(b"one") == b"one"
    ended = child.ask(request_)
    assert isinstance(ended, Ended)
    assert fields(ended) == expected
    assert child.ask(b"another") == ended


@pytest.mark.parametrize("request_", [b"small", b"x" * (4 << 20)])
def test_the_next_request_reports_a_child_that_died_while_idle(request_: bytes) -> None:
    child = fork(serve, LIMITS)
    assert child.ask(b"one") == b"one"
    os.kill(child.pid, signal.SIGKILL)
    exited(child)
    ended = child.ask(request_)
    assert isinstance(ended, Ended)
    assert fields(ended) == (None, "", None, 9, False, False)


def test_a_child_that_was_stopped_while_idle_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdebug.minifier.processes.channel.PATIENCE", 0.3)
    child = fork(serve, LIMITS)
    assert child.ask(b"one") == b"one"
    os.kill(child.pid, signal.SIGSTOP)
    ended = child.ask(b"x" * (4 << 20))
    assert isinstance(ended, Ended)
    assert fields(ended) == (None, "", None, 0, True, False)


def test_a_child_that_was_reaped_elsewhere_has_ended() -> None:
    child = fork(lambda parent: b"answer", PATIENT)
    os.waitpid(child.pid, 0)
    assert fields(finished(child)) == (b"answer", "", None, 0, False, False)


def python(text: str, limits: Limits | None = LIMITS, **options: Any) -> Child:
    """Start a child that runs Python code."""
    return spawn([sys.executable, "-c", text], dict(os.environ), limits=limits, **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise SystemExit(7)", (None, "", 7, 0, False, False)),
        ("import os; os.abort()", (None, "", None, 6, False, False)),
        ("import time; time.sleep(1000)", (None, "", None, 0, True, False)),
        (
            "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(1000)",
            (None, "", None, 0, True, False),
        ),
        (
            "import time; x = b'x' * (400 << 20); time.sleep(1000)",
            (None, "", None, 0, False, True),
        ),
    ],
)
def test_how_a_spawned_child_ended(text: str, expected: tuple[Any, ...]) -> None:
    ended = finished(python(text, LIMITS if expected[4] else PATIENT))
    assert fields(ended) == expected
    assert ended.returncode == (-expected[3] if expected[3] else expected[2])


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""
"""Exits once its second file exists. Its daemon writes the first."""


def test_a_daemon_of_a_spawned_child_ends_with_it(tmp_path: Path) -> None:
    """One child exceeds its time, the other exits by itself, both once the daemons are seen."""
    notes: dict[Child, Path] = {}
    for name in ("late", "exits"):
        note = tmp_path / name
        command = [sys.executable, "-IS", "-c", DAEMON, str(note), str(tmp_path / f"{name}.now")]
        notes[spawn(command, dict(os.environ), limits=Limits(60.0, None))] = note
    late, exits = notes
    while not all(knows_daemon(child, note) for child, note in notes.items()):
        assert wait(notes, 0.05) == []
    late.restart_time(Limits(0.0, None))
    (tmp_path / "exits.now").touch()
    ended: dict[Child, Ended] = {}
    while len(ended) < len(notes):
        ended |= wait([child for child in notes if child not in ended])
    assert (ended[late].timed_out, ended[exits].timed_out) == (True, False)
    assert not any(running(int(note.read_text())) for note in notes.values())


def knows_daemon(child: Child, note: Path) -> bool:
    """Return whether the watcher of a child has seen the daemon that wrote the note."""
    return note.exists() and int(note.read_text()) in {one.pid for one in child._known}


LARGE_GRANDCHILD = """
import os, sys, time
if os.fork() == 0:
    memory = bytearray(b"x") * (400 << 20)
    open(sys.argv[1], "w").write(str(os.getpid()))
    time.sleep(1000)
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.01)
"""


def test_a_large_grandchild_has_ended_once_its_parent_is_ended(tmp_path: Path) -> None:
    """The bug: it was killed, but still ran while the kernel released its memory."""
    note = tmp_path / "pid"
    command = [sys.executable, "-c", LARGE_GRANDCHILD, str(note)]
    finished(spawn(command, dict(os.environ), limits=Limits(60.0, None)))
    assert process(int(note.read_text())) is None


def test_a_daemon_of_a_child_in_the_foreground_stays(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    command = [sys.executable, "-IS", "-c", DAEMON, str(note), str(note)]
    assert finished(spawn(command, dict(os.environ), foreground=True)).status == 0
    pid = int(note.read_text())
    assert psutil.pid_exists(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_spawned_child_gets_its_folder_environment_and_files(tmp_path: Path) -> None:
    text = "import os, sys; print(os.getcwd(), os.environ['GIVEN'], sys.stdin.read()); exit('bad')"
    child = spawn(
        [sys.executable, "-c", text], {**os.environ, "GIVEN": "yes"},
        folder=tmp_path, output=tmp_path / "out", errors=tmp_path / "err",
    )  # fmt: skip
    assert finished(child).status == 1
    assert (tmp_path / "out").read_text() == f"{tmp_path} yes \n"
    assert (tmp_path / "err").read_text() == "bad\n"


def test_a_missing_command_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        spawn(["/no/such/command"], {})


PARENT = """
import os, sys, time
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.spawn import spawn
children = [fork(lambda parent: time.sleep(1000)), spawn(["sleep", "1000"], os.environ)]
print(*(child.pid for child in children), flush=True)
os.kill(os.getpid(), 9)
"""


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    ended = finished(spawn([sys.executable, "-c", PARENT], os.environ, output=tmp_path / "out"))
    assert ended.signal == signal.SIGKILL
    pids = [int(word) for word in (tmp_path / "out").read_text().split()]
    assert len(pids) == 2
    assert not any(running(pid) for pid in pids)


def test_children_of_both_kinds_are_watched_by_one_thread(tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)"
    spawned, forked = python(waits, PATIENT), fork(lambda parent: b"well", PATIENT)
    ((first, ended),) = wait([spawned, forked])
    assert (first, ended.answer) == (forked, b"well")
    assert wait([spawned], 0.1) == []
    go.touch()
    assert finished(spawned).status == 0


def test_a_file_that_the_program_has_open_is_kept_when_children_are_ended(
    tmp_path: Path,
) -> None:
    """The bug: files that were open in a killed descendant were taken for a compiler's output."""
    log = tmp_path / "train.log"
    with log.open("w") as file:

        def work(parent: Parent) -> bytes:
            own = (tmp_path / "worker.log").open("w")
            if os.fork() == 0:
                time.sleep(1000)
            own.close()
            parent("forward")
            time.sleep(1000)
            return b""

        ended = finished(fork(work, LIMITS))
        file.write("still here")
    assert ended.timed_out
    assert log.read_text() == "still here"
    assert (tmp_path / "worker.log").exists()
