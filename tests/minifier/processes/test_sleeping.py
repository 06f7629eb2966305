"""CUDA asleep: torch does not initialise it, and is announced when the script does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.processes.devices.sleeping import Sleeping

ASK = "import torch\ndef ask(): return torch.cuda.is_available()"


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return what is announced while CUDA sleeps, on a machine that claims to have a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found: list[str] = []
    sleeping = Sleeping(lambda: found.append("initialises"), EventLog(None))
    yield found
    sleeping.wake()
    assert torch.cuda.is_available()


def asked_in(module: str) -> bool:
    """Return whether a function of a module is told that CUDA is available."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(ASK, namespace)
    told: bool = namespace["ask"]()
    return told


def test_scripts_see_devices_and_torch_does_not(announced: list[str]) -> None:
    assert asked_in("__main__")
    assert asked_in("torchvision.models")
    assert not asked_in("torch._dynamo.convert_frame")
    assert not asked_in("torch")
    assert announced == []


def test_the_call_that_initialises_cuda_is_announced(announced: list[str]) -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        pytest.skip("this process has initialised CUDA")
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.init()  # type: ignore[no-untyped-call] # torch has no annotation
    assert announced == ["initialises"]


def test_pinning_memory_is_announced_since_it_initialises_cuda(announced: list[str]) -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        pytest.skip("this process has initialised CUDA")
    with contextlib.suppress(RuntimeError):
        torch.ones(2).pin_memory()
    assert announced == ["initialises"]


def test_a_process_that_has_initialised_cuda_stays_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    Sleeping(pytest.fail, EventLog(None))
    assert asked_in("torch.distributed.fsdp")


def driver_asked_for_in(module: str) -> bool:
    """Return whether Triton finds a device when a function of a module asks for its driver."""
    namespace: dict[str, Any] = {"__name__": "triton.backends.nvidia.driver"}
    exec(ASK, namespace)
    caller: dict[str, Any] = {"__name__": module, "ask": namespace["ask"]}
    exec("def search(): return ask()", caller)
    found: bool = caller["search"]()
    return found


def test_a_script_that_asks_for_the_driver_of_triton_is_announced(announced: list[str]) -> None:
    assert not driver_asked_for_in("torch._inductor.runtime.triton_heuristics")
    assert announced == []
    assert driver_asked_for_in("__main__")
    assert announced == ["initialises"]


class Asked:
    """A number that calls a function when torch asks for its value, inside of `torch.tensor`."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def __float__(self) -> float:
        self.call()
        return 2.0


def gradient_of_a_compiled_square() -> float:
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: x.square().sum(), backend="aot_eager_decomp_partition")(x).backward()
    assert x.grad is not None
    return x.grad.sum().item()


def test_graphs_compile_outside_of_the_call_that_initialises_cuda() -> None:
    sleeping = Sleeping(lambda: None, EventLog(None))
    found: list[float | str] = []

    def work() -> None:
        try:
            found.append(gradient_of_a_compiled_square())
        except Exception as error:
            found.append(type(error).__name__)

    def work_outside() -> None:
        with sleeping.outside_of_call():
            work()

    try:
        made = [torch.tensor([Asked(call)], dtype=torch.float32) for call in (work, work_outside)]
    finally:
        sleeping.wake()
    torch._dynamo.reset()
    assert [m.item() for m in made] == [2.0, 2.0]
    assert len(found) == 2
    assert found[0] != 6.0  # torch keeps the operator from autograd and from dispatch modes
    assert found[1] == 6.0


def test_autocast_of_the_script_stays_outside_of_the_call() -> None:
    sleeping = Sleeping(lambda: None, EventLog(None))
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16), sleeping.outside_of_call():
            product = torch.ones(2, 2) @ torch.ones(2, 2)
    finally:
        sleeping.wake()
    assert product.dtype == torch.bfloat16
