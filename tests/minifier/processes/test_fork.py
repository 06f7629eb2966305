"""Whatever the work does in its child, the parent learns how it ended."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

from tcdebug.minifier.processes.fork import Fork, Notify, Work, fork, fork_past_handlers
from tcdebug.minifier.processes.process import Ended, Limits, finished, wait
from tcdebug.minifier.processes.threads import Threads
from tcdebug.minifier.processes.tree import CpuQueue

SOON = Limits(seconds=1.0)
BRIEF = Limits(seconds=0.5)


def ended(
    work: Work,
    limits: Limits | None = None,
    output: Path | None = None,
    system_call: Fork = os.fork,
) -> Ended:
    """Return how the work ends in its own child."""
    return finished(fork(work, limits or Limits(seconds=30.0), output, system_call))


def gone(pid: int) -> bool:
    """Return whether a process has ended. Without a reaper it remains a zombie."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_an_answer_is_returned() -> None:
    result = ended(lambda notify: b"answer")
    assert result.answer == b"answer"
    assert (result.signal, result.timed_out, result.over_memory) == (0, False, False)
    assert gone(result.pid)


def test_a_child_computes_with_as_many_threads_as_the_script_wants() -> None:
    def session(notify: Notify) -> bytes:
        threads = Threads()
        torch.set_num_threads(3)

        def candidate(notify: Notify) -> bytes:
            threads.restore()
            return b"%d" % torch.get_num_threads()

        return finished(fork(candidate)).answer or b""

    assert ended(session).answer == b"3"


def test_an_empty_message_is_delivered() -> None:
    assert ended(lambda notify: b"").answer == b""


@pytest.mark.parametrize("system_call", [os.fork, fork_past_handlers])
def test_a_child_draws_the_random_numbers_that_come_next_here(system_call: Fork) -> None:
    def draw() -> bytes:
        return repr([random.random(), torch.rand(1).item()]).encode()

    children = [ended(lambda notify: draw(), system_call=system_call) for _ in range(2)]
    assert [child.answer for child in children] == [draw(), children[0].answer]


def test_the_work_is_done_in_another_process() -> None:
    result = ended(lambda notify: str(os.getpid()).encode())
    assert result.answer == str(result.pid).encode()
    assert result.pid != os.getpid()


def test_a_large_answer_arrives_complete() -> None:
    block = bytes(range(256)) * 40_960
    assert ended(lambda notify: block).answer == block


def test_the_last_phase_is_known() -> None:
    def work(notify: Notify) -> bytes:
        for phase in ("eager", "compile", "forward"):
            notify(phase)
        return b"done"

    assert ended(work).phase == "forward"


def test_an_exception_leaves_no_answer_and_its_traceback_in_the_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(notify: Notify) -> bytes:
        notify("compile")
        raise ValueError("planted")

    with capfd.disabled():  # pytest's sys.stderr is not descriptor 2
        result = ended(work, output=tmp_path / "out.log")
    assert result.answer is None
    assert result.signal == 0
    assert result.phase == "compile"
    assert (tmp_path / "out.log").read_text().endswith("ValueError: planted\n")


@pytest.mark.parametrize(
    ("die", "number"),
    [
        (lambda: ctypes.string_at(0), signal.SIGSEGV),
        (os.abort, signal.SIGABRT),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), signal.SIGKILL),
    ],
)
def test_a_signal_is_reported_with_the_phase_before_it(die: object, number: int) -> None:
    def work(notify: Notify) -> bytes:
        notify("backward")
        die()  # type: ignore[operator] # one of the above
        return b"not reached"

    result = ended(work)
    assert result.answer is None
    assert result.signal == number
    assert result.phase == "backward"


@pytest.mark.parametrize("leave", [lambda: os._exit(3), lambda: sys.exit(0)])
def test_leaving_without_an_answer_is_not_a_signal(leave: object) -> None:
    def work(notify: Notify) -> bytes:
        leave()  # type: ignore[operator] # one of the above
        return b"not reached"

    result = ended(work)
    assert result.answer is None
    assert (result.signal, result.timed_out) == (0, False)


def test_a_hang_ends_at_its_time_limit() -> None:
    def work(notify: Notify) -> bytes:
        notify("forward")
        time.sleep(1000)
        return b"not reached"

    result = ended(work, BRIEF)
    assert result.timed_out
    assert result.answer is None
    assert result.signal == 0
    assert result.phase == "forward"
    assert 0.5 <= result.seconds < 5.0
    assert gone(result.pid)


def test_a_hang_that_keeps_sending_ends_at_its_time_limit() -> None:
    def work(notify: Notify) -> bytes:
        while True:
            notify("x" * 1000)

    assert ended(work, BRIEF).timed_out


SILENCE = Limits(60.0, None, 1.0)


def test_a_silent_child_ends_before_its_time_limit() -> None:
    def work(notify: Notify) -> bytes:
        notify("compile")
        while True:
            pass

    result = ended(work, SILENCE)
    assert (result.timed_out, result.silenced, result.phase) == (True, True, "compile")
    assert result.silence > 1.0
    assert result.seconds < 60.0


@pytest.mark.parametrize("sign", ["phase", "event", "descendant"])
def test_a_child_that_shows_progress_is_not_silent(sign: str, tmp_path: Path) -> None:
    signs = tmp_path / "events"

    def work(notify: Notify) -> bytes:
        end = time.monotonic() + 1.6
        if sign == "descendant":
            busy = f"import time\nwhile time.monotonic() < {end}: pass"
            subprocess.run([sys.executable, "-c", busy], check=True)
        while time.monotonic() < end:
            if sign == "phase":
                notify("compile")
            else:
                with signs.open("a") as file:
                    file.write("decision")
            time.sleep(0.05)
        return b"done"

    child = fork(work, SILENCE)
    child.signs = signs
    result = finished(child)
    assert (result.answer, result.silenced) == (b"done", False)
    assert 0.0 < result.silence < 1.6


def test_a_busy_hang_uses_cpu_time() -> None:
    def work(notify: Notify) -> bytes:
        while True:
            pass

    result = ended(work, BRIEF)
    assert result.timed_out
    assert result.cpu_seconds > 0.1


def test_memory_beyond_the_limit_ends_a_child() -> None:
    def work(notify: Notify) -> bytes:
        notify("compile")
        block = b"x" * (600 << 20)
        time.sleep(1000)
        return block

    result = ended(work, Limits(seconds=30.0, memory=300 << 20))
    assert result.over_memory
    assert not result.timed_out
    assert result.signal == 0
    assert result.phase == "compile"


def test_memory_of_grandchildren_counts() -> None:
    code = "x = b'x' * (600 << 20); import time; time.sleep(1000)"

    def work(notify: Notify) -> bytes:
        subprocess.run([sys.executable, "-c", code], check=False)
        return b"not reached"

    assert ended(work, Limits(seconds=30.0, memory=300 << 20)).over_memory


@pytest.mark.parametrize("hangs", [False, True])
def test_grandchildren_end_with_the_child(hangs: bool) -> None:
    def work(notify: Notify) -> bytes:
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        notify(str(started.pid))
        if hangs:
            time.sleep(1000)
        return b""

    result = ended(work, SOON)
    assert result.timed_out is hangs
    assert gone(int(result.phase))


def test_the_output_of_a_child_goes_to_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def work(notify: Notify) -> bytes:
        sys.stdout.write("from python\n")
        sys.stdout.flush()
        os.write(2, b"from below python\n")
        subprocess.run(["echo", "from a grandchild"], check=True)
        return os.read(0, 100)

    path = tmp_path / "out.log"
    path.write_text("earlier\n")
    with capfd.disabled():  # pytest's sys.stdout is not descriptor 1
        result = ended(work, output=path)
    assert result.answer == b""
    assert path.read_text().splitlines() == [
        "earlier",
        "from python",
        "from below python",
        "from a grandchild",
    ]


def test_output_of_a_child_without_a_file_is_discarded(capfd: pytest.CaptureFixture[str]) -> None:
    def work(notify: Notify) -> bytes:
        os.write(1, b"to nobody\n")
        return b""

    ended(work)
    assert capfd.readouterr() == ("", "")


def test_ctrl_c_does_not_reach_the_child() -> None:
    def work(notify: Notify) -> bytes:
        os.kill(os.getpid(), signal.SIGINT)
        return b"alive"

    assert ended(work).answer == b"alive"


def test_the_child_is_not_in_the_terminals_group() -> None:
    result = ended(lambda notify: f"{os.getpgid(0)} {os.getsid(0)}".encode())
    assert result.answer == f"{result.pid} {result.pid}".encode()


def test_ctrl_c_in_the_parent_ends_the_child_at_once() -> None:
    def work(notify: Notify) -> bytes:
        notify("forward")
        time.sleep(1000)
        return b""

    children = set(psutil.Process().children())
    child = fork(work, Limits(60.0))

    def interrupt() -> None:
        while child.phase != "forward":  # it is watched
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    started = time.monotonic()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        finished(child)
    assert time.monotonic() - started < 30.0
    thread.join()
    assert set(psutil.Process().children()) <= children


def test_a_child_that_hangs_after_its_answer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdebug.minifier.processes.process.PATIENCE", 0.3)

    def work(notify: Notify) -> bytes:
        class Stuck:
            def flush(self) -> None:
                time.sleep(1000)

        sys.stdout = Stuck()  # type: ignore[assignment] # hangs on the way out
        return b"answer"

    result = ended(work)
    assert result.answer == b"answer"
    assert not result.timed_out
    assert result.seconds < 5.0
    assert gone(result.pid)


def test_nothing_stays_open() -> None:
    before = psutil.Process().num_fds()
    for _ in range(3):
        ended(lambda notify: b"")
        ended(lambda notify: os.abort())  # type: ignore[arg-type,func-returns-value] # never returns
    assert psutil.Process().num_fds() == before


def test_several_children_are_watched_at_once() -> None:
    gates = [os.pipe() for _ in range(3)]

    def work(gate: int) -> Work:
        return lambda notify: os.read(gate, 1)

    children = [fork(work(read)) for read, _ in gates]
    for last in (1, 2, 0):
        os.write(gates[last][1], b"%d" % last)
        ((child, result),) = wait([one for one in children if one.ended is None])
        assert (child, result.answer) == (children[last], b"%d" % last)
    for gate in gates:
        for file in gate:
            os.close(file)


def test_each_child_has_its_own_time() -> None:
    def hang(notify: Notify) -> bytes:
        time.sleep(1000)
        return b""

    first, second = fork(hang, Limits(0.2)), fork(hang, Limits(1000.0))
    ((child, result),) = wait([first, second])
    assert (child, result.timed_out) == (first, True)
    assert result.seconds >= 0.2
    second.restart_time(Limits(0.2))
    ((child, result),) = wait([second])
    assert (child, result.timed_out) == (second, True)
    assert result.seconds >= 0.2


def test_time_in_which_a_child_waits_for_a_cpu_does_not_count_up_to_as_much_again() -> None:
    cpu = min(os.sched_getaffinity(0))

    def spin(notify: Notify) -> bytes:
        os.sched_setaffinity(0, {cpu})
        while True:
            pass

    others = [fork(spin, None) for _ in range(3)]
    result = ended(spin, BRIEF)
    assert result.timed_out
    assert result.seconds > 0.75
    for other in others:
        other.end()


def test_time_counts_only_while_a_child_is_watched() -> None:
    def work(notify: Notify) -> bytes:
        notify("forward")
        return b"done"

    child = fork(work, Limits(0.5))
    time.sleep(0.8)
    ((_, result),) = wait([child])
    assert result.answer == b"done"
    assert not result.timed_out


def test_ctrl_c_ends_all_children() -> None:
    def hang(notify: Notify) -> bytes:
        time.sleep(1000)
        return b""

    children = [fork(hang, Limits(30.0)) for _ in range(3)]
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        wait(children)
    timer.join()
    assert all(gone(child.pid) for child in children)


def test_a_fork_past_handlers_is_a_fork(tmp_path: Path) -> None:
    called: list[str] = []
    os.register_at_fork(after_in_child=lambda: called.append("python"))

    def work(notify: Notify) -> bytes:
        x = torch.ones(3, requires_grad=True)
        (gradient,) = torch.autograd.grad((x * 3).sum(), x)
        threads = [threading.Thread(target=lambda: called.append("thread"))]
        for thread in threads:
            thread.start()
            thread.join()
        subprocess.run(["true"], check=True)
        return f"{os.getpid()} {gradient.tolist()} {called}".encode()

    result = ended(work, system_call=fork_past_handlers)
    assert result.answer == f"{result.pid} [3.0, 3.0, 3.0] ['python', 'thread']".encode()
    assert result.signal == 0


def test_a_crash_past_handlers_is_a_crash() -> None:
    def work(notify: Notify) -> bytes:
        ctypes.string_at(0)
        return b""

    assert ended(work, system_call=fork_past_handlers).signal == signal.SIGSEGV


HANDLER = """
import ctypes, os
from tcdebug.minifier.processes.fork import fork_past_handlers
handled = []
handler = ctypes.CFUNCTYPE(None)(lambda: handled.append("C"))
ctypes.CDLL(None).__register_atfork(None, None, handler, None)
for fork in (os.fork, fork_past_handlers):
    child = fork()
    if child == 0:
        os.write(1, f"{handled} ".encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_fork_handlers_of_libraries_are_bypassed() -> None:
    done = subprocess.run([sys.executable, "-c", HANDLER], capture_output=True, check=True)
    assert done.stdout == b"['C'] [] "


def test_files_that_a_killed_compiler_was_writing_are_removed(tmp_path: Path) -> None:
    whole, part, own = (tmp_path / name for name in ("whole.so", "part.so", "own.txt"))
    whole.touch()
    text = f"exec 9> {part}; echo half of it >&9; sleep 60"  # like a compiler, it is not Python

    def work(notify: Notify) -> bytes:
        with own.open("w") as file:
            subprocess.run(["/bin/sh", "-c", text], stdout=file, check=False)
        return b""

    child = fork(work, Limits(seconds=60.0))
    while not part.exists():
        time.sleep(0.02)
    child.end()
    assert [path.exists() for path in (whole, part, own)] == [True, False, True]


@pytest.mark.parametrize(("excuse", "lasts"), [(None, 0.8), (0.1, 0.5)])
def test_waiting_for_a_cpu_is_excused_up_to_a_limit(
    excuse: float | None, lasts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(notify: Notify) -> bytes:
        time.sleep(60)
        return b""

    monkeypatch.setattr(CpuQueue, "waited", lambda self, pids: 60.0)  # as if it never ran
    found = ended(sleep, Limits(0.4, None, excuse=excuse))
    assert found.timed_out
    assert lasts <= found.seconds < lasts + 0.25
