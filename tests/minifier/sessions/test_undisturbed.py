"""What a script has set up for signals, while one of its calls is searched."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import compiled_autograd

from tcdebug.minifier.sessions.undisturbed import TIMERS, Undisturbed, timers_stopped


@pytest.fixture(params=TIMERS)
def timer(request: pytest.FixtureRequest) -> Iterator[int]:
    number: int = request.param
    signal.setitimer(number, 60.0, 5.0)
    yield number
    signal.setitimer(number, 0.0)


def left_in_block(timer: int) -> tuple[float, float]:
    with timers_stopped():
        return signal.getitimer(timer)


def test_a_timer_of_the_script_stands_still_during_a_search(timer: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        in_thread = pool.submit(left_in_block, timer).result()
    assert (left_in_block(timer), in_thread) == ((0.0, 0.0), (0.0, 0.0))
    seconds, interval = signal.getitimer(timer)
    assert 0 < seconds < 61
    assert interval == 5.0


def test_a_watchdog_of_faulthandler_does_not_end_a_search() -> None:
    faulthandler.dump_traceback_later(0.2, exit=True, file=sys.__stderr__)
    with timers_stopped():
        signal.sigtimedwait([], 0.4)


def test_warnings_that_a_script_turns_into_errors_are_errors_in_candidates_alone() -> None:
    undisturbed = Undisturbed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with undisturbed.search():
            warnings.warn("of a search", stacklevel=1)
            if (child := os.fork()) == 0:
                undisturbed.in_candidate()
                try:
                    warnings.warn("of a compile", stacklevel=1)
                finally:
                    os._exit(0 if isinstance(sys.exception(), UserWarning) else 1)
            assert os.waitpid(child, 0)[1] == 0


def status_of_candidate(undisturbed: Undisturbed, ends_well: Callable[[], bool]) -> int:
    with undisturbed.search():
        if (child := os.fork()) == 0:
            status = 70
            try:
                undisturbed.in_candidate()
                status = 0 if ends_well() else 1
            finally:  # the child never goes on as a process that runs tests
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(torch.version.cuda is not None, reason="no backward in a process that forks")
def test_a_candidate_does_not_compile_the_backward_passes_that_its_script_compiles() -> None:
    undisturbed, captured, ended = Undisturbed(), [], []

    def runs_backward() -> bool:
        known = len(captured)
        torch._dynamo.reset()
        with torch.enable_grad():
            x.tan().sum().backward()
        return len(captured) == known

    def compiler(graph: torch.fx.GraphModule) -> Any:
        captured.append(graph)

        def call(*args: Any) -> Any:
            ended.append(status_of_candidate(undisturbed, runs_backward))
            return graph(*args)

        return call

    x = torch.ones(2, requires_grad=True)
    with compiled_autograd._enable(compiler):
        ended.append(status_of_candidate(undisturbed, runs_backward))
        x.tan().sum().backward()
    assert (len(captured), ended) == (1, [0, 0])


def reaping(*_: Any) -> None:
    os.wait()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, reaping])
def test_a_script_that_waits_for_any_child_takes_none_of_a_search(handler: Any) -> None:
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        with timers_stopped():
            child = os.posix_spawn(sys.executable, [sys.executable, "-c", "exit(7)"], os.environ)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert signal.getsignal(signal.SIGCHLD) is handler
    finally:
        signal.signal(signal.SIGCHLD, before)


def exits_in_thread(found: int) -> None:
    """Search in this thread, while another ends the process with the status 4."""
    undisturbed = Undisturbed()
    with ThreadPoolExecutor(1) as pool, undisturbed.search():
        ended = pool.submit(os._exit, 4)
        with contextlib.suppress(TimeoutError):
            ended.result(0.2)
        if (child := os.fork()) == 0:
            os._exit(0)  # a candidate does not wait
        assert os.waitpid(child, 0)[1] == 0
        os.write(found, b"found")


def test_a_search_has_a_folder_where_the_script_has_removed_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with tempfile.TemporaryDirectory() as removed:
        os.chdir(removed)
    with Undisturbed().search():
        assert os.getcwd() == "/"
    with pytest.raises(FileNotFoundError):
        os.getcwd()


def test_a_thread_that_ends_the_process_waits_for_the_search_in_another_thread() -> None:
    reading, writing = os.pipe()
    script = multiprocessing.get_context("fork").Process(target=exits_in_thread, args=(writing,))
    script.start()
    script.join()
    assert (os.read(reading, 9), script.exitcode) == (b"found", 4)
