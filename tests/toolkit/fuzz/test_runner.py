"""Whatever happens to the child that judges programs is attributed to the right program."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tcdebug.fuzz.runner import Enough, ProgramRunner
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.minifier.processes.process import Limits
from tcdebug.strategies.program import Argument, Program, ProgramStep

LATER = os.pipe()
"""What is written to it ends the child that has been told to die later."""


def exited(verdict: ProgramVerdict) -> None:
    """Wait until the process that gave a verdict has exited, and leave its status to others."""
    os.waitid(os.P_PID, int(verdict.message), os.WEXITED | os.WNOWAIT)


def program(text: str) -> Program:
    """A program of one line, which the judge below executes as a command."""
    return Program((Argument("a0", "0", "0"),), (ProgramStep("v0", text, "row"),), ("v0",), ())


def obey(program: Program, notify: Callable[[str], None]) -> ProgramVerdict:
    """Do what the line of a program says. The message names the process that did it."""
    notify("eager")
    notify("forward")
    match program.steps[0].text:
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            time.sleep(1000)
        case "die later":  # as the kernel does if the machine has no memory left
            if os.fork() == 0:
                os.read(LATER[0], 1)
                os.kill(os.getppid(), signal.SIGKILL)
                os._exit(0)
        case "fail":
            os.write(2, b"judged\n")
            return ProgramVerdict(Status.FAILED, signature="planted", message=str(os.getpid()))
    return ProgramVerdict(Status.PASSED, message=str(os.getpid()))


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProgramRunner]:
    """A runner that ends with the test, with its child."""
    made = ProgramRunner(obey, Limits(1.0, 200 << 20), tmp_path / "output.log")
    before = set(psutil.Process().children(recursive=True))
    yield made
    made.close()
    assert set(psutil.Process().children(recursive=True)) <= before


def test_programs_are_judged_in_one_child(runner: ProgramRunner) -> None:
    pids = {runner(program("pass")).message for _ in range(3)}
    assert len(pids) == 1
    assert pids != {str(os.getpid())}


def test_a_crash_is_the_verdict_on_the_program_that_crashed(runner: ProgramRunner) -> None:
    assert runner(program("pass")).status is Status.PASSED
    crashed = runner(program("crash"))
    assert (crashed.status, crashed.signature) == (Status.FAILED, "forward | SIGSEGV")
    assert runner(program("pass")).status is Status.PASSED


def test_failures_in_a_row_are_judged_once_each_in_a_child_of_their_own(
    runner: ProgramRunner, tmp_path: Path
) -> None:
    pids = {runner(program("fail")).message for _ in range(3)}
    assert len(pids) == 3
    assert (tmp_path / "output.log").read_text() == "judged\n" * 3


def test_a_failure_in_a_used_child_is_judged_again_in_another(
    runner: ProgramRunner, tmp_path: Path
) -> None:
    passed = runner(program("pass"))
    failed = runner(program("fail"))
    assert (failed.status, failed.signature) == (Status.FAILED, "planted")
    assert failed.message != passed.message
    assert (tmp_path / "output.log").read_text() == "judged\n" * 2


def test_a_hang_is_the_verdict_on_the_program_that_hung(runner: ProgramRunner) -> None:
    hung = runner(program("hang"))
    assert (hung.status, hung.signature) == (Status.FAILED, "forward | hang")


def test_a_program_at_the_end_of_the_time_is_left_without_a_verdict(tmp_path: Path) -> None:
    began = time.monotonic()
    late = ProgramRunner(obey, Limits(60.0, 200 << 20), tmp_path / "log", until=began + 1.0)
    assert late(program("pass")).status is Status.PASSED
    with pytest.raises(Enough):
        late(program("hang"))
    assert time.monotonic() - began < 20.0
    late.close()


def test_the_death_of_an_idle_child_says_nothing_about_the_next_program(
    runner: ProgramRunner,
) -> None:
    first = runner(program("pass"))
    os.kill(int(first.message), signal.SIGKILL)
    exited(first)
    second = runner(program("pass"))
    assert second.status is Status.PASSED
    assert second.message != first.message


def test_a_crash_caused_by_an_earlier_program_says_nothing_about_the_next(
    runner: ProgramRunner,
) -> None:
    last = runner(program("die later"))
    assert last.status is Status.PASSED
    os.write(LATER[1], b"!")
    exited(last)
    assert runner(program("pass")).status is Status.PASSED
    assert runner(program("crash")).signature == "forward | SIGSEGV"


def test_stopping_an_idle_child_says_nothing_about_the_next_program(
    runner: ProgramRunner,
) -> None:
    first = runner(program("pass"))
    os.kill(int(first.message), signal.SIGSTOP)
    assert runner(program("pass")).status is Status.PASSED
