"""What a process leaves behind if it ends in a graph: real processes, ended in many ways."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from captured import captured
from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.watching.journal import without_large_storages
from tcdebug.minifier.capture.watching.running import left_running, mark
from tcdebug.minifier.capture.watching.watcher import Watcher
from tcdebug.minifier.repros.verify import verify
from tcdebug.minifier.targets.interception import backward_watched, compile_patched


def after(folder: Path, program: Callable[[], Any], *, every_call: bool = False) -> int:
    """Run a watched program in a child. Return how it ended, as waitpid reports it."""
    child = os.fork()
    if child == 0:
        watcher = Watcher(folder, EventLog(None), every_call=every_call)
        with (
            compile_patched(watcher.wrap, watcher.log),
            backward_watched(watcher.backward_failed, watcher.log),
        ):
            try:
                program()
            except KeyboardInterrupt:
                os._exit(130)
        watcher.journal.close()
        os._exit(0)
    return os.waitpid(child, 0)[1]


def left(folder: Path) -> list[str]:
    return [str(p.relative_to(folder)) for p in left_running(folder)]


def named(path: Path, backend: str = "eager") -> Path:
    """Rewrite the repro of a backend that is an object to use a named backend."""
    path.write_text(path.read_text().replace("{'backend': None}", f"{{'backend': '{backend}'}}"))
    return path


def namespace(path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__file__": str(path), "__name__": "repro"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def aborts_on_rows(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Ends the process while it compiles for a matrix."""
    if any(isinstance(i, torch.Tensor) and i.dim() == 2 for i in inputs):
        os.abort()
    return module.forward


class AbortsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        os.abort()


def aborts_in_backward(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    return lambda *values: [AbortsInBackward.apply(v) for v in module(*values)]


def aborts_at_five(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        if any(isinstance(v, torch.Tensor) and bool((v == 5).any()) for v in values):
            os.abort()
        return module(*values)

    return call


def test_a_process_that_dies_in_a_graph_leaves_its_repro(tmp_path: Path) -> None:
    status = after(tmp_path, lambda: torch.compile(torch.tanh, backend=backends.crashes)(ONES))
    assert os.WTERMSIG(status) == signal.SIGSEGV
    assert left(tmp_path) == ["graphs/0/repro.py"]
    names = namespace(tmp_path / "graphs/0/repro.py")
    assert names["EXPECTED"] == {"kind": ["crash", "hang"]}


ONES = torch.ones(3)


def test_the_third_recompile_leaves_the_graph_of_the_third_recompile(tmp_path: Path) -> None:
    def program() -> None:
        compiled = torch.compile(lambda x: x.tanh() * x.shape[0], backend=aborts_on_rows)
        for shape in ((3,), (4,), (5, 2)):
            compiled(torch.ones(shape))

    assert os.WTERMSIG(after(tmp_path, program)) == signal.SIGABRT
    assert left(tmp_path) == ["graphs/2/repro.py"]
    (value,) = namespace(tmp_path / "graphs/2/repro.py")["inputs"]()
    assert tuple(value.shape) == (5, 2)


@pytest.mark.usefixtures("warm")
def test_a_compile_with_symbolic_sizes_leaves_the_numbers(tmp_path: Path) -> None:
    def symbols_abort(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if any(isinstance(i, torch.SymInt) for i in inputs):
            os.abort()
        return module.forward

    def program() -> None:
        compiled = torch.compile(lambda x: x.tanh() * x.shape[0], backend=symbols_abort)
        compiled(torch.ones(3))
        compiled(torch.ones(7))

    assert os.WTERMSIG(after(tmp_path, program)) == signal.SIGABRT
    assert left(tmp_path) == ["graphs/1/repro.py"]
    path = named(tmp_path / "graphs/1/repro.py")
    (value,) = namespace(path)["inputs"]()
    assert tuple(value.shape) == (7,)
    assert verify(path).status == 0


@pytest.mark.usefixtures("backward_after_fork")
def test_a_process_that_dies_in_backward_leaves_the_graph_with_its_gradients(
    tmp_path: Path,
) -> None:
    def program() -> None:
        x = torch.ones(3, requires_grad=True)
        torch.compile(torch.tanh, backend=aborts_in_backward)(x).sum().backward()

    assert os.WTERMSIG(after(tmp_path, program)) == signal.SIGABRT
    assert left(tmp_path) == ["graphs/0/repro.py"]
    (value,) = namespace(tmp_path / "graphs/0/repro.py")["inputs"]()
    assert value.requires_grad


def test_a_kill_from_outside_leaves_the_graph_that_was_compiling(tmp_path: Path) -> None:
    """The kernel kills a process like this when memory runs out."""
    child = os.fork()
    if child == 0:
        after(tmp_path, lambda: torch.compile(torch.tanh, backend=backends.hangs)(ONES))
        os._exit(0)
    mark = tmp_path / "graphs/0/running"
    while not mark.exists():
        time.sleep(0.02)
    os.kill(int(mark.read_text().split()[0]), signal.SIGKILL)
    os.waitpid(child, 0)
    assert left(tmp_path) == ["graphs/0/repro.py"]
    assert mark.read_text().split()[1] == "compile"


def test_a_mark_can_be_read_at_any_moment(tmp_path: Path) -> None:
    """The bug: a mark was empty for a moment, and whoever looked for marks then failed."""
    repro = tmp_path / "graphs" / "0" / "repro.py"
    repro.parent.mkdir(parents=True)
    mark(repro, os.getpid(), "compile")
    pid = os.fork()
    if pid == 0:
        for _ in range(3000):
            mark(repro, os.getppid(), "forward")
        os._exit(0)
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        assert list(left_running(tmp_path)) == []


def test_ctrl_c_in_a_compile_is_a_hang(tmp_path: Path) -> None:
    def interrupted(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        os.kill(os.getpid(), signal.SIGINT)
        return backends.hangs(module, inputs)

    def program() -> None:
        torch.compile(torch.tanh, backend=interrupted)(ONES)

    assert os.WEXITSTATUS(after(tmp_path, program)) == 130
    assert left(tmp_path) == []  # the way it ended is known
    path = tmp_path / "graphs/0/repro.py"
    names = namespace(path)
    assert names["EXPECTED"] == {"kind": "hang"}
    assert "        seconds=30.0,\n" in path.read_text()


def test_ctrl_c_in_a_later_call_says_nothing_about_the_graph(tmp_path: Path) -> None:
    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        calls: list[int] = []

        def call(*values: Any) -> Any:
            calls.append(1)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
            return module(*values)

        return call

    def program() -> None:
        compiled = torch.compile(torch.tanh, backend=backend)
        for _ in range(3):
            compiled(ONES)

    assert os.WEXITSTATUS(after(tmp_path, program)) == 130
    assert list(tmp_path.rglob("*.py")) == []


def test_processes_forked_while_watching_have_their_own_repros(
    tmp_path: Path,
) -> None:
    def program() -> None:
        children = []
        for function in (torch.tanh, lambda x: x.tanh() + 1):
            child = os.fork()
            if child == 0:
                torch.compile(function, backend=backends.crashes)(ONES)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        torch.compile(torch.sin, backend=backends.right)(ONES)

    assert after(tmp_path, program) == 0
    paths = left(tmp_path)
    assert len(paths) == 2
    assert all(p.startswith("graphs/0-") for p in paths)


def test_threads_have_their_own_repros(tmp_path: Path) -> None:
    def program() -> None:
        functions = (torch.sin, torch.cos, torch.tanh)
        threads = [
            threading.Thread(target=lambda f: torch.compile(f, backend=backends.crashes)(ONES),
                             args=(function,))
            for function in functions
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert os.WTERMSIG(after(tmp_path, program)) == signal.SIGSEGV
    found = [p for p in left(tmp_path) if "tanh" in (tmp_path / p).read_text()]
    assert len(found) == 1


def calls(count: int) -> None:
    compiled = torch.compile(lambda x: x.tanh(), backend=aborts_at_five)
    for number in range(count):
        compiled(torch.full((3,), float(number)))


def test_without_every_call_a_crash_in_the_sixth_call_leaves_nothing(tmp_path: Path) -> None:
    assert os.WTERMSIG(after(tmp_path, lambda: calls(10))) == signal.SIGABRT
    assert left(tmp_path) == []


def test_with_every_call_a_crash_in_the_sixth_call_leaves_its_inputs(tmp_path: Path) -> None:
    status = after(tmp_path, lambda: calls(10), every_call=True)
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert left(tmp_path) == ["graphs/0/repro.py"]
    (value,) = namespace(tmp_path / "graphs/0/repro.py")["inputs"]()
    assert value.tolist() == [5.0, 5.0, 5.0]


def test_with_every_call_a_success_leaves_nothing(tmp_path: Path) -> None:
    assert after(tmp_path, lambda: calls(4), every_call=True) == 0
    assert list(tmp_path.rglob("*.py")) == []


def test_a_parameter_that_an_optimizer_changed_is_journalled_again(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.nn.Parameter(torch.zeros(3))
        compiled = torch.compile(lambda x: (x * weight).tanh(), backend=aborts_at_five)
        for _ in range(10):
            compiled(ONES)
            with torch.no_grad():
                weight.add_(1)

    assert os.WTERMSIG(after(tmp_path, program, every_call=True)) == signal.SIGABRT
    names = namespace(tmp_path / "graphs/0/repro.py")
    assert [5.0, 5.0, 5.0] in [v.tolist() for v in names["inputs"]()]


def test_a_call_with_other_sizes_is_journalled_too(tmp_path: Path) -> None:
    def program() -> None:
        compiled = torch.compile(lambda x: x.tanh(), backend=aborts_at_five, dynamic=True)
        for size in (2, 3, 4):
            compiled(torch.full((size,), 5.0 if size == 4 else 0.0))

    assert os.WTERMSIG(after(tmp_path, program, every_call=True)) == signal.SIGABRT
    (value,) = namespace(tmp_path / "graphs/0/repro.py")["inputs"]()
    assert value.tolist() == [5.0, 5.0, 5.0, 5.0]


def test_only_the_view_is_stored_if_its_memory_is_much_larger(tmp_path: Path) -> None:
    big = torch.arange(100_000.0)
    case = without_large_storages(captured(torch.tanh, big[10:13]))
    (value,) = case.values()
    assert value.tolist() == [10.0, 11.0, 12.0]
    assert value.untyped_storage().nbytes() == 12
    shared = captured(lambda x, y: x + y, big[10:13], big[11:14])
    assert without_large_storages(shared).values()[0].untyped_storage().nbytes() == 400_000


def test_a_journal_that_cannot_be_written_does_not_end_the_program(tmp_path: Path) -> None:
    (tmp_path / "graphs").write_text("no folder")
    watcher = Watcher(tmp_path, EventLog(None))
    with compile_patched(watcher.wrap, EventLog(None)):
        compiled = torch.compile(torch.sin, backend=backends.right)
        assert torch.equal(compiled(ONES), ONES.sin())
        with pytest.raises(Exception, match="no tanh") as info:
            torch.compile(torch.tanh, backend=backends.raises)(ONES)
    inner = getattr(info.value, "inner_exception", info.value)
    notes = [*getattr(info.value, "__notes__", []), *getattr(inner, "__notes__", [])]
    assert any("no repro could be written" in note for note in notes)
