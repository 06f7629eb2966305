"""What runs in place of functions that torch.compile compiles ahead of time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from repro_scripts import set_up_of
from torch_versions import needs_torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.aot_functions import StandInFunction, aot_functions_unwatched
from tcdebug.minifier.capture.exports import in_eager, packages_replaced
from tcdebug.minifier.capture.identity import compile_is_identity
from tcdebug.minifier.capture.recorder import Recorder
from tcdebug.minifier.capture.watching.watcher import Watcher
from tcdebug.minifier.sessions.off import switched
from tcdebug.minifier.targets.interception import compile_patched

SILENT = EventLog(None)
INPUTS = ((torch.ones(2, 3),), {})


def step(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


@pytest.fixture(autouse=True)
def compiled_ahead_of_time() -> Iterator[None]:
    with torch._dynamo.config.patch(enable_aot_compile=True):  # the default from torch 2.12 on
        yield


class Own:
    def __init__(self, added: float) -> None:
        self.added = added

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.added


def loaded(path: Path, compiled: Any) -> Any:
    """The function, once it was saved and loaded."""
    ahead = compiled.aot_compile(INPUTS)
    ahead.save_compiled_function(str(path))
    with path.open("rb") as file:
        return torch.compiler.load_compiled_function(file)


def test_in_eager_a_function_that_is_compiled_ahead_of_time_is_the_function(tmp_path: Path) -> None:
    path = tmp_path / "step.bin"
    with compile_is_identity(SILENT), packages_replaced(in_eager, SILENT):
        call = loaded(path, torch.compile(step, fullgraph=True))
        assert call.call.__wrapped__ is step
        assert torch.equal(call(*INPUTS[0]), step(*INPUTS[0]))
        module = torch.compile(torch.nn.Linear(3, 2), fullgraph=True)
        assert loaded(path, module.forward)(*INPUTS[0]).shape == (2, 2)
    assert not path.exists()


needs_cache_of_backends = needs_torch("2.12", "AOTAutograd keeps inductor's code only")


@pytest.mark.parametrize("replaced", [True, pytest.param(False, marks=needs_cache_of_backends)])
def test_a_method_that_is_compiled_ahead_of_time_takes_its_object_first(
    replaced: bool, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        if replaced:
            stack.enter_context(compile_is_identity(SILENT))
            stack.enter_context(packages_replaced(in_eager, SILENT))
        compiled = torch.compile(Own(2.0).step, fullgraph=True, backend="aot_eager")
        call = loaded(tmp_path / "step.bin", compiled)
        assert torch.equal(call(Own(2.0), *INPUTS[0]), torch.full((2, 3), 3.0))


def test_a_function_that_is_compiled_ahead_of_time_is_judged(tmp_path: Path) -> None:
    judged: list[str] = []
    recorder = Recorder(lambda case, backend, *_: judged.append(backend.name), "")
    with (
        compile_patched(recorder.wrap, SILENT),
        packages_replaced(recorder.judge_program, SILENT),
    ):
        call = loaded(tmp_path / "step.bin", torch.compile(step, fullgraph=True))
        assert torch.equal(call(*INPUTS[0]), step(*INPUTS[0]))
    assert judged == ["inductor"]


@needs_cache_of_backends
def test_a_function_with_a_backend_of_torch_is_compiled_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "step.bin"
    log = EventLog(tmp_path)
    with packages_replaced(in_eager, log):
        call = loaded(path, torch.compile(step, fullgraph=True, backend="aot_eager"))
        assert torch.equal(call(*INPUTS[0]), step(*INPUTS[0]))
    assert path.stat().st_size > 0
    assert list(tmp_path.glob("events*.jsonl")) == []  # the code was not compiled before


@needs_cache_of_backends
def test_a_watched_backend_compiles_ahead_of_time_without_its_watcher(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path, SILENT)
    with compile_patched(watcher.wrap, SILENT), aot_functions_unwatched(SILENT):
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        call = loaded(tmp_path / "step.bin", compiled)
        assert torch.equal(call(*INPUTS[0]), step(*INPUTS[0]))
    assert watcher.graphs == 0


@pytest.mark.parametrize("off", ["lower", "layer.cache"])
def test_a_function_is_compiled_ahead_of_time_without_caches_of_graphs(
    off: str, tmp_path: Path
) -> None:
    with switched(Toggles.parse([off])):
        call = loaded(tmp_path / "step.bin", torch.compile(step, fullgraph=True))
        assert isinstance(call, StandInFunction)
        if off == "lower":
            assert torch.allclose(call(*INPUTS[0]), step(*INPUTS[0]))


@pytest.mark.parametrize(
    ("function", "arguments"), [("lambda x: x + 1", "x"), ("Own().step", "Own(), x")]
)
def test_a_setup_stops_at_a_graph_that_was_compiled_ahead_of_time(
    function: str, arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import torch\n"
        "class Own:\n"
        "    def step(self, x):\n"
        "        return x + 1\n"
        "x = torch.ones(2)\n"
        f"made = torch.compile({function}, fullgraph=True).aot_compile(((x,), {{}}))\n"
        "made.save_compiled_function('saved')\n"
        "with open('saved', 'rb') as file:\n"
        f"    torch.compiler.load_compiled_function(file)({arguments})\n"
        "raise AssertionError\n"
    )
    names = set_up_of(text, 0, tmp_path, monkeypatch)
    reached: list[bool] = []
    names["set_up"](lambda: reached.append((tmp_path / "saved").exists()))
    assert reached == [False]  # what stood for it is removed
