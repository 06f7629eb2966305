"""A program that runs as usual with its graphs watched: a failure leaves a repro."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from torch import fx
from torch._dynamo.exc import RestartAnalysis

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.watching.watcher import Watcher
from tcdebug.minifier.targets.interception import backward_watched, compile_patched


@contextmanager
def watched(folder: Path, *, check: bool = False) -> Iterator[Watcher]:
    watcher = Watcher(folder, EventLog(None), check=check)
    with (
        compile_patched(watcher.wrap, watcher.log),
        backward_watched(watcher.backward_failed, watcher.log),
    ):
        yield watcher


def left(folder: Path) -> list[str]:
    """Return the repro scripts below a folder."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("repro.py"))


def expected_of(path: Path) -> dict[str, str]:
    names: dict[str, Any] = {"__file__": str(path), "__name__": "repro"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    found: dict[str, str] = names["EXPECTED"]
    return found


def program(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).tanh()


def test_a_success_leaves_nothing(tmp_path: Path) -> None:
    x = torch.randn(3, requires_grad=True)
    with watched(tmp_path, check=True) as watcher:
        y = torch.compile(program, backend="aot_eager")(x)
        y.sum().backward()
    assert torch.equal(y, program(x))
    assert watcher.graphs == 1
    assert watcher.repros == []
    assert list(tmp_path.rglob("*.py")) == []


def test_the_embedded_compiler_succeeds(tmp_path: Path) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with watched(tmp_path, check=True) as watcher:
        torch.compile(program, backend="tcdebug")(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * (1 - program(x.detach()) ** 2))
    assert watcher.repros == []


def test_the_random_numbers_of_inductor_are_not_compared(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with watched(tmp_path, check=True) as watcher:
        torch.compile(lambda x: torch.rand_like(x) + x)(torch.ones(5))
    assert (watcher.graphs, left(tmp_path)) == (1, [])


def test_an_exception_in_a_compile_leaves_a_repro_and_names_its_path(tmp_path: Path) -> None:
    with watched(tmp_path) as watcher:
        compiled = torch.compile(program, backend=backends.raises)
        with pytest.raises(Exception, match="no tanh among") as info:
            compiled(torch.randn(3))
    (path,) = watcher.repros
    assert left(tmp_path) == ["graphs/0/repro.py"]
    found = expected_of(path)
    assert (found["kind"], found["class"]) == ("exception", "Planted")
    assert found["what"] == "no tanh among # nodes"
    notes = getattr(info.value, "__notes__", [])
    inner = getattr(getattr(info.value, "inner_exception", None), "__notes__", [])
    assert any(f"tcdebug: repro {path}" in note for note in [*notes, *inner])


def test_an_exception_in_a_compiled_graph_leaves_a_repro(tmp_path: Path) -> None:
    with watched(tmp_path) as watcher:
        compiled = torch.compile(program, backend=backends.raises_late)
        with pytest.raises(backends.Planted, match="in the compiled program") as info:
            compiled(torch.randn(3))
    assert len(watcher.repros) == 1
    assert f"tcdebug: repro {watcher.repros[0]}" in info.value.__notes__[0]


def test_only_the_graph_that_fails_leaves_a_repro(tmp_path: Path) -> None:
    def two(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.tanh()

    with watched(tmp_path) as watcher:
        compiled = torch.compile(two, backend=backends.raises)
        with pytest.raises(Exception, match="no tanh"):
            compiled(torch.randn(3))
    assert left(tmp_path) == ["graphs/1/repro.py"]
    assert watcher.graphs == 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_wrong_number_leaves_a_repro_if_results_are_checked(
    dynamic: bool, tmp_path: Path
) -> None:
    def sized(x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * x.shape[0]

    x = torch.randn(3)
    with watched(tmp_path, check=True) as watcher:
        y = torch.compile(sized, backend=backends.wrong, dynamic=dynamic)(x)
    torch.testing.assert_close(y, torch.sigmoid(x) * 3)
    (path,) = watcher.repros
    assert expected_of(path) == {"kind": "wrong", "what": "forward | wrong value"}


def test_a_wrong_number_goes_unseen_without_a_check(tmp_path: Path) -> None:
    with watched(tmp_path) as watcher:
        torch.compile(program, backend=backends.wrong)(torch.randn(3))
    assert watcher.repros == []
    assert left(tmp_path) == []


def test_a_later_call_is_checked_too(tmp_path: Path) -> None:
    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        calls = []

        def call(*values: Any) -> Any:
            calls.append(values)
            return module(*values) if len(calls) < 3 else [v + 1 for v in module(*values)]

        return call

    with watched(tmp_path, check=True) as watcher:
        compiled = torch.compile(program, backend=backend)
        compiled(torch.randn(3))
        assert watcher.repros == []
        compiled(torch.randn(3))
        assert len(watcher.repros) == 1


def test_checking_changes_no_argument(tmp_path: Path) -> None:
    x = torch.zeros(3)
    with watched(tmp_path, check=True):
        compiled = torch.compile(lambda x: x.add_(1).sum(), backend="aot_eager")
        assert compiled(x) == 3.0
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_a_failing_backward_leaves_a_repro(tmp_path: Path) -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise backends.Planted("in backward")

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *values: [Failing.apply(v) for v in module(*values)]

    x = torch.randn(3, requires_grad=True)
    with watched(tmp_path) as watcher:
        y = torch.compile(program, backend=backend)(x)
        assert watcher.repros == []
        with pytest.raises(backends.Planted):
            y.sum().backward()
    (path,) = watcher.repros
    assert "failure   exception, backward: Planted: in backward" in path.read_text()


def test_a_restart_of_dynamo_is_not_a_failure(tmp_path: Path) -> None:
    times = []

    def backend(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        times.append(1)
        if len(times) == 1:
            raise RestartAnalysis(restart_reason="planted")
        return module.forward

    wrapped = Watcher(tmp_path, EventLog(None)).wrap(backend)
    module = fx.symbolic_trace(lambda x: x.tanh())
    with pytest.raises(RestartAnalysis):
        wrapped(module, [torch.ones(2)])
    wrapped(module, [torch.ones(2)])
    assert wrapped.watcher.repros == []


def test_a_backend_is_watched_once(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path, EventLog(None))
    wrapped = watcher.wrap("eager")
    assert watcher.wrap(wrapped) is wrapped
    assert wrapped.compiler_name == "eager"
