"""CUDA asleep: torch does not initialise it, and is announced when the script does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.processes.sleeping import Sleeping

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


def test_a_process_that_has_initialised_cuda_stays_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    Sleeping(pytest.fail, EventLog(None))
    assert asked_in("torch.distributed.fsdp")
