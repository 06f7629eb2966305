"""Graphs that a script gives directly to inductor are watched like those of torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
from torch import fx
from torch._inductor import lowering
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.watching.watched_entries import entries_watched
from tcdebug.minifier.capture.watching.watcher import Watcher
from tcdebug.minifier.targets.interception import compile_patched

aten = torch.ops.aten


class Scaled(torch.nn.Module):
    """Multiplies by a weight and adds the second argument."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor, *, more: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tangent of the product, and the sum."""
        return {"tanh": torch.tanh(x * self.weight), "sum": x + more[0]}


def traced() -> fx.GraphModule:
    return make_fx(lambda x: (torch.tanh(x),))(torch.ones(3))


def exported() -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows")
    shapes = {"x": {0: rows}, "more": [{0: rows}]}
    named = {"more": [torch.zeros(2, 3)]}
    return torch.export.export(Scaled(), (torch.ones(2, 3),), named, dynamic_shapes=shapes)


ENTRIES: dict[str, Callable[[], Any]] = {
    "compile_fx": lambda: torch._inductor.compile_fx.compile_fx(traced(), [torch.ones(3)]),
    "inductor_compile": lambda: torch._inductor.compile(traced(), [torch.ones(3)]),
    "standalone_compile": lambda: torch._inductor.standalone_compile(
        traced(), [torch.ones(3)], dynamic_shapes="from_example_inputs", options={}
    ),
    "aotinductor": lambda: torch._inductor.aoti_compile_and_package(exported()),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_exception_in_a_compile_leaves_a_repro_that_calls_the_same_function(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(x: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setitem(lowering.lowerings, aten.tanh.default, broken)
    # an artifact may come from the cache of an earlier run, even with caches off
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))
    watcher = Watcher(tmp_path, EventLog(None))
    with entries_watched(watcher, watcher.log), pytest.raises(Exception, match="planted") as info:
        ENTRIES[entry]()
    (path,) = watcher.repros
    assert f"CALL = {{'backend': '{entry}'}}" in path.read_text()
    assert f"tcdebug: repro {path}" in "".join(info.value.__notes__)


def test_a_graph_that_a_backend_gives_to_inductor_is_a_part_of_the_one_that_is_watched(
    tmp_path: Path,
) -> None:
    def backend(module: fx.GraphModule, inputs: Any) -> Any:
        return torch._inductor.standalone_compile(
            module, inputs, dynamic_shapes="from_graph", options={}
        )

    watcher = Watcher(tmp_path, EventLog(None))
    with entries_watched(watcher, watcher.log), compile_patched(watcher.wrap, watcher.log):
        compiled = torch.compile(lambda x: x + 1, backend=backend)
        assert compiled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert watcher.graphs == 1


def test_a_wrong_result_of_an_entry_is_seen_and_its_artifact_is_that_of_torch(
    tmp_path: Path,
) -> None:
    def inner(graph: Any, inputs: Any, **options: Any) -> Any:
        return lambda x: (x * 3,)

    watcher = Watcher(tmp_path, EventLog(None), check=True)
    ones = torch.ones(3)
    with entries_watched(watcher, watcher.log):
        artifact = ENTRIES["standalone_compile"]()
        artifact.save(path=str(tmp_path / "artifact"), format="unpacked")
        assert [artifact(ones)[0].tolist(), artifact([ones])[0].tolist()] == [
            torch.tanh(ones).tolist()
        ] * 2
        loaded = torch._inductor.CompiledArtifact.load(
            path=str(tmp_path / "artifact"), format="unpacked"
        )
        assert loaded(ones)[0].tolist() == torch.tanh(ones).tolist()
        assert watcher.repros == []
        assert any((tmp_path / "artifact").iterdir())
        wrong = torch._inductor.compile_fx.compile_fx(traced(), [ones], inner)
        assert wrong(ones)[0].tolist() == [3.0, 3.0, 3.0]
    (path,) = watcher.repros
    assert "EXPECTED = {'kind': 'wrong', 'what': 'forward | wrong value'}" in path.read_text()


def test_a_wrong_result_of_an_artifact_that_was_saved_and_loaded_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lowering.lowerings, aten.tanh.default, lowering.lowerings[aten.sin.default])
    watcher = Watcher(tmp_path, EventLog(None), check=True)
    path = str(tmp_path / "artifact.bin")
    with fresh_cache(), entries_watched(watcher, watcher.log):
        ENTRIES["standalone_compile"]().save(path=path, format="binary")
        torch._inductor.CompiledArtifact.load(path=path, format="binary")(torch.ones(3))
    (repro,) = watcher.repros
    assert "EXPECTED = {'kind': 'wrong', 'what': 'forward | wrong value'}" in repro.read_text()


@pytest.mark.slow
def test_a_loaded_package_behaves_as_without_a_watch_and_its_wrong_results_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = lowering.lowerings[aten.tanh.default]
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    watcher = Watcher(tmp_path, EventLog(None), check=True)

    def called() -> Any:
        package = torch._inductor.aoti_compile_and_package(exported())
        call = torch._inductor.aoti_load_package(package)
        assert "AOTI_DEVICE_KEY" in call.get_metadata()
        return call(x, more=[y])

    with entries_watched(watcher, watcher.log), torch.no_grad():
        torch.testing.assert_close(called(), Scaled()(x, more=[y]))
        assert watcher.repros == []
        monkeypatch.setitem(lowering.lowerings, aten.tanh.default, lambda x: right(right(x)))
        wrong = called()["tanh"]
    torch.testing.assert_close(wrong, torch.tanh(torch.tanh(x * 2)))
    (path,) = watcher.repros
    assert "CALL = {'backend': 'aotinductor'}" in path.read_text()


def test_a_library_that_is_not_watched_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(x: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setitem(lowering.lowerings, aten.tanh.default, broken)
    log = EventLog(tmp_path)
    with entries_watched(Watcher(tmp_path, log), log), pytest.raises(Exception, match="planted"):
        torch._inductor.aot_compile(traced(), (torch.ones(3),))
    (events,) = tmp_path.glob("events*.jsonl")
    assert "a library of AOTInductor is not watched" in events.read_text()
