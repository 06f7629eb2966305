"""Graphs that a script gives directly to inductor are seen, judged, and run without layers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
from repro_scripts import set_up_of
from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.entries import EntryCall, as_it_is, entries_replaced
from tcdebug.minifier.capture.layers_off import layers_off
from tcdebug.minifier.capture.recorder import Recorder
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.sessions.off import switched
from tcdebug.minifier.targets import inductor
from tcdebug.minifier.targets.backends import Backend

SILENT = EventLog(None)
ONES = torch.ones(2, 3)


@pytest.fixture
def graph() -> fx.GraphModule:
    """A new graph: inductor changes the graphs that it compiles."""
    return fx.symbolic_trace(lambda x: (x + 1,))


def total(outputs: Any) -> float:
    """Return the sum of the only output."""
    (output,) = outputs
    return float(output.sum())


CALLS: dict[str, Callable[..., Any]] = {
    "compile_fx": lambda g, x: torch._inductor.compile_fx.compile_fx(
        g, x, config_patches={"max_fusion_size": 8}
    ),
    "inductor_compile": lambda g, x: torch._inductor.compile(g, x, {"max_fusion_size": 8}),
    "standalone_compile": lambda g, x: torch._inductor.standalone_compile(
        gm=g,
        example_inputs=x,
        dynamic_shapes="from_example_inputs",
        options={"config_patches": {"max_fusion_size": 8}},
    ),
}
"""A call of each entry, by the name of its backend."""


@pytest.mark.parametrize("name", CALLS)
def test_an_entry_is_replaced_with_its_settings(name: str, graph: fx.GraphModule) -> None:
    seen: list[EntryCall] = []

    def stand_in(call: EntryCall) -> Any:
        seen.append(call)
        return as_it_is(call)

    with entries_replaced(stand_in, SILENT):
        compiled = CALLS[name](graph, [ONES])
    assert total(compiled(ONES)) == total(compiled([ONES])) == 12
    (call,) = seen
    assert (call.backend, call.module, call.settings) == (name, graph, {"max_fusion_size": 8})


def test_arguments_without_a_text_are_given_again(graph: fx.GraphModule) -> None:
    seen: list[EntryCall] = []

    def inner(graph: Any, inputs: Any, **options: Any) -> Any:
        return graph.forward

    with entries_replaced(lambda call: seen.append(call), SILENT):  # type: ignore[func-returns-value] # nothing is replaced
        compiled = torch._inductor.compile_fx.compile_fx(graph, [ONES], inner)
    assert seen[0].settings is None
    assert total(compiled(ONES)) == total(seen[0].again(graph, [ONES])(ONES)) == 12


def test_a_compile_of_torch_itself_is_left_alone() -> None:
    seen: list[EntryCall] = []
    with entries_replaced(lambda call: seen.append(call), SILENT):  # type: ignore[func-returns-value] # nothing is replaced
        torch._dynamo.reset()
        torch.compile(lambda x: x + 1)(ONES)
    assert seen == []


@pytest.mark.parametrize("layer", ["layer.dynamo", "layer.backend", "layer.rounding"])
def test_layers_of_an_entry_are_off(layer: str) -> None:
    graph = fx.symbolic_trace(lambda x: x.sin())
    with layers_off(Toggles.parse([layer]), SILENT):
        compiled = torch._inductor.compile(graph, [ONES])
        torch.testing.assert_close(compiled(ONES), ONES.sin())
    assert type(compiled).__name__ == "StandInArtifact"


def test_a_graph_is_judged_when_it_is_called(graph: fx.GraphModule) -> None:
    judged: list[tuple[str, Any, int, int, dict[str, Any]]] = []

    def judge(case: Case, backend: Backend, ordinal: int, call: int) -> None:
        judged.append((backend.name, backend.named, ordinal, call, dict(backend.options)))

    recorder = Recorder(judge, "")
    with entries_replaced(recorder.judge_entry, SILENT):
        first = CALLS["standalone_compile"](graph, [ONES])
        second = torch._inductor.compile_fx.compile_fx(graph, [ONES], decompositions={})
        assert judged == []
        assert total(first(ONES)) == total(second(ONES)) == 12
    assert recorder.entered
    assert judged == [
        ("standalone_compile", True, 0, 0, {"max_fusion_size": 8}),
        ("compile_fx", False, 1, 0, {}),
    ]


def test_a_setup_stops_at_a_graph_that_was_given_to_inductor(
    tmp_path: Path, graph: fx.GraphModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import torch\n"
        "from torch import fx\n"
        "from torch._inductor.compile_fx import compile_fx\n"
        "graph = fx.symbolic_trace(lambda x: (x + 1,))\n"
        "torch.compile(lambda x: x.cos(), backend='eager')(torch.ones(2))\n"
        "compile_fx(graph, [torch.ones(2)], config_patches={})(torch.ones(2))\n"
        "raise AssertionError\n"
    )
    names = set_up_of(text, 1, tmp_path, monkeypatch, entered=True)
    reached: list[str] = []
    before = torch._inductor.compile_fx.compile_fx
    names["set_up"](lambda: reached.append("graph"))
    assert reached == ["graph"]
    assert torch._inductor.compile_fx.compile_fx is before
    backend = names["CALL"]["backend"]
    assert backend.__closure__ is not None  # the entry with the arguments that the script gave
    assert total(backend(graph, [ONES])(ONES)) == 12


@pytest.mark.parametrize("form", ["binary", "unpacked"])
def test_the_stand_in_of_an_artifact_is_saved_and_loaded(
    tmp_path: Path, graph: fx.GraphModule, form: str
) -> None:
    path = tmp_path / "saved"
    with entries_replaced(as_it_is, SILENT):
        made = CALLS["standalone_compile"](graph, [ONES])
        made.save(path=str(path), format=form)
        assert path.is_dir() == (form == "unpacked")
        assert path.exists()
        loaded = torch._inductor.CompiledArtifact.load(path=str(path), format=form)
        assert total(loaded(ONES)) == 12
    assert not path.exists()  # a later run would take it for compiled code


@pytest.mark.parametrize("form", ["binary", "unpacked"])
def test_another_process_runs_the_graph_of_an_artifact(
    tmp_path: Path, graph: fx.GraphModule, form: str
) -> None:
    path = tmp_path / "saved"
    with entries_replaced(as_it_is, SILENT):
        CALLS["standalone_compile"](graph, [ONES]).save(path=str(path), format=form)
        with entries_replaced(as_it_is, SILENT):  # it has not saved anything
            loaded = torch._inductor.CompiledArtifact.load(path=str(path), format=form)
        assert type(loaded).__name__ == "StandInArtifact"
        assert total(loaded(ONES)) == 12
    assert not path.exists()


@pytest.mark.parametrize("example", [ONES, 3, ONES.to("meta")])
def test_a_graph_is_judged_when_it_is_saved(
    tmp_path: Path, graph: fx.GraphModule, example: Any
) -> None:
    given: list[Any] = []

    def stand_in(call: EntryCall) -> Callable[..., Any]:
        return lambda *args: given.append(args)

    with entries_replaced(stand_in, SILENT, called_when_saved=True):
        made = CALLS["standalone_compile"](graph, [ONES, example])
        assert given == []
        made.save(path=str(tmp_path / "saved"))
    assert len(given) == (0 if torch.is_tensor(example) and example.is_meta else 1)
    assert all(args[0] is not ONES and total(args[:1]) == 6 for args in given)


def test_an_artifact_of_an_earlier_run_stays_as_it_is(
    tmp_path: Path, graph: fx.GraphModule
) -> None:
    earlier = tmp_path / "saved"
    earlier.write_bytes(b"compiled")
    with entries_replaced(as_it_is, EventLog(tmp_path)):
        with pytest.raises(Exception, match=r".+"):
            torch._inductor.CompiledArtifact.load(path=str(earlier))
        CALLS["standalone_compile"](graph, [ONES]).save(path=str(earlier))
        assert total(torch._inductor.CompiledArtifact.load(path=str(earlier))(ONES)) == 12
    assert earlier.read_bytes() == b"compiled"
    (events,) = tmp_path.glob("events*.jsonl")
    assert events.read_text().count(f'"path":"{earlier}"') == 1  # the first load


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_setup_reaches_an_artifact_when_it_is_saved_or_continues_past_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    text = (
        "import torch\n"
        "from torch import fx\n"
        "made = torch._inductor.standalone_compile(\n"
        "    fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(2)],\n"
        "    dynamic_shapes='from_example_inputs', options={})\n"
        "made.save(path='saved', format='unpacked')\n"
        "torch._inductor.CompiledArtifact.load(path='saved', format='unpacked')(torch.ones(2))\n"
        "torch.compile(lambda x: x * 2, backend='eager')(torch.ones(2))\n"
        "raise AssertionError\n"
    )
    names = set_up_of(text, wanted, tmp_path, monkeypatch, entered=True)
    reached: list[bool] = []
    before = torch._inductor.CompiledArtifact.load
    names["set_up"](lambda: reached.append((tmp_path / "saved").exists()))
    assert reached == [False]  # what stood for it is removed
    assert torch._inductor.CompiledArtifact.load is before


SAVES = """
import torch
def saves(graph, inputs):
    made = torch._inductor.standalone_compile(
        graph, list(inputs), dynamic_shapes="from_graph", options={})
    made.save(path="saved", format="unpacked")
    return torch._inductor.CompiledArtifact.load(path="saved", format="unpacked")
"""
NO_KERNELS = Toggles.parse(["lower", "fuse", "codegen"])


def test_a_backend_that_saves_its_artifacts_runs_with_units_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(SAVES, names)
    with switched(NO_KERNELS) as decisions:
        compiled = torch.compile(lambda x: x + 1, backend=names["saves"])
        assert compiled(ONES).sum() == 12
        assert not (tmp_path / "saved").exists()  # the next candidate would load it
    assert "lower.aten.add.Tensor" in {d.unit for d in decisions}


def test_a_repro_runs_a_backend_that_saves_its_artifacts_without_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cls, name in (("CacheCompiledArtifact", "save"), ("CompiledArtifact", "load")):
        artifact = getattr(sys.modules["torch._inductor.standalone_compile"], cls)
        monkeypatch.setattr(artifact, name, getattr(artifact, name))
    text = SAVES + "torch.compile(lambda x: x + 1, backend=saves)(torch.ones(2))\n"
    names = set_up_of(text, 0, tmp_path, monkeypatch)
    results: list[float] = []

    def judge() -> None:
        with inductor.switched(NO_KERNELS, SILENT):
            compiled = torch.compile(lambda x: x * 2, backend=names["CALL"]["backend"])
            results.append(float(compiled(ONES).sum()))

    names["set_up"](judge)
    assert results == [12.0]
