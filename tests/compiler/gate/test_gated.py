"""Gated passes: what runs, what is returned and recorded, and what can be gated."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.passes.infra.pass_base import PassResult

import tcdebug
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.gated import SUPERVISION, unit_of
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.stages.gated_passes import GatedPasses


@pytest.fixture
def graph() -> fx.GraphModule:
    return fx.symbolic_trace(lambda x: x.sin().cos())


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate with user.off off, which all passes ask."""
    asked = Gate(Toggles.parse(["user.off"]))
    with SUPERVISION.of_process(GatedPasses(asked, EventLog(None))):
        yield asked


def drops_cos(graph: fx.Graph) -> fx.Graph:
    for node in graph.find_nodes(op="call_method", target="cos"):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return graph


def size(graph: fx.GraphModule) -> int:
    return len(graph.graph.nodes)


def test_the_decorator_is_found_without_importing_torch() -> None:
    code = "import sys, tcdebug; tcdebug.gated('a')(print); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_search_a_gated_pass_just_runs(graph: fx.GraphModule) -> None:
    gated = tcdebug.gated("off")(drops_cos)
    assert (gated.__name__, unit_of(gated), unit_of(drops_cos)) == ("drops_cos", "user.off", "")
    assert gated(graph.graph) is graph.graph
    assert size(graph) == 3
    with tcdebug.gated("off", graph=graph) as wanted:
        assert wanted


def test_a_pass_that_is_off_changes_nothing(graph: fx.GraphModule, gate: Gate) -> None:
    assert tcdebug.gated("off")(drops_cos)(graph.graph) is graph.graph
    with tcdebug.gated("off", graph=graph) as wanted:
        assert not wanted
    assert size(graph) == 4
    tcdebug.gated("on")(drops_cos)(graph.graph)
    assert size(graph) == 3
    assert [(d.unit, d.subject, d.allowed) for d in gate.decisions] == [
        ("user.off", "drops_cos", False),
        ("user.off", "user.off", False),
        ("user.on", "drops_cos", True),
    ]


def test_a_pass_that_is_off_returns_what_its_annotation_says(
    graph: fx.GraphModule, gate: Gate
) -> None:
    off = tcdebug.gated("off")

    @off
    def nothing(graph: fx.Graph) -> None: ...

    @off
    def whether(graph: fx.Graph) -> bool:
        return True

    @off
    def result(module: fx.GraphModule) -> PassResult:
        return PassResult(module, True)

    @off
    def unannotated(module, scale=1):  # type: ignore[no-untyped-def] # the case
        raise AssertionError

    assert nothing(graph.graph) is None  # type: ignore[func-returns-value] # the claim
    assert whether(graph.graph) is False
    assert (result(graph).graph_module, result(graph).modified) == (graph, False)
    assert unannotated(scale=2, module=graph) is graph


def test_a_pass_with_something_to_do_otherwise_does_that(graph: fx.GraphModule, gate: Gate) -> None:
    gated = tcdebug.gated("off", otherwise=lambda graph, scale: ("plain", scale))
    assert gated(lambda graph, scale: ("fast", scale))(graph, scale=3) == ("plain", 3)


def test_a_required_pass_is_never_off_and_never_asks_the_gate(
    graph: fx.GraphModule, gate: Gate
) -> None:
    tcdebug.gated("off", required=True)(drops_cos)(graph.graph)
    assert (size(graph), gate.decisions) == (3, [])


def test_a_pass_without_a_graph_is_always_on(tmp_path: Path) -> None:
    asked = Gate(Toggles.parse(["user.nodes"]))
    with SUPERVISION.of_process(GatedPasses(asked, EventLog(tmp_path, own=True))):
        assert tcdebug.gated("nodes")(sorted)([2, 1]) == [1, 2]
    assert '"what":"user.nodes is always on"' in (tmp_path / "events.jsonl").read_text()


class Manager(CustomGraphPass):
    """A pass that inductor identifies by its class and its uuid."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, graph: fx.Graph) -> None:
        """Count a call."""
        self.calls += 1

    def uuid(self) -> str:
        """The identity of the pass in inductor's caches."""
        return "manager"


def test_a_gated_object_is_still_that_object(graph: fx.GraphModule, gate: Gate) -> None:
    manager = Manager()
    on, off = (tcdebug.gated(name)(manager) for name in ("on", "off"))
    assert isinstance(on, CustomGraphPass) and on.uuid() == "manager"
    on(graph.graph)
    assert off(graph.graph) is None  # type: ignore[func-returns-value] # the claim
    assert (on.calls, manager.calls, unit_of(on)) == (1, 1, "user.on")
    on.calls = 5
    assert manager.calls == 5
    assert copy.deepcopy(on).uuid() == "manager"


def test_a_method_of_a_class_of_passes_is_gated(graph: fx.GraphModule, gate: Gate) -> None:
    class Fusion:
        @tcdebug.gated("off")
        def __call__(self, graph: fx.Graph) -> None:
            raise AssertionError

    Fusion()(graph.graph)
    assert [d.subject for d in gate.decisions] == ["__call__"]


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a:1", ".a", "a.", "-a"])
def test_a_name_can_be_written_as_a_toggle(name: str) -> None:
    with pytest.raises(tcdebug.BadGate, match="is not a name"):
        tcdebug.gated(name)


def test_an_object_that_is_not_a_pass_is_refused() -> None:
    with pytest.raises(tcdebug.BadGate, match="not the class Manager"):
        tcdebug.gated("a")(Manager)
    with pytest.raises(tcdebug.BadGate, match="cannot be called"):
        tcdebug.gated("a")(3)  # type: ignore[type-var] # the case
    with pytest.raises(tcdebug.BadGate, match="is not required"):
        tcdebug.gated("a", required=True, otherwise=print)


def test_each_run_is_an_event_with_the_graph_that_it_leaves(
    graph: fx.GraphModule, tmp_path: Path
) -> None:
    @tcdebug.gated("takes_sin")
    def takes_sin_for_tan(graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_method", target="sin"):
            node.target = "tan"

    @tcdebug.gated("broken")
    def broken(graph: fx.Graph) -> None:
        raise ValueError("no")

    with SUPERVISION.of_process(GatedPasses(Gate(), EventLog(tmp_path, own=True))):
        takes_sin_for_tan(graph.graph)
        takes_sin_for_tan(graph.graph)
        with pytest.raises(ValueError, match="no"):
            broken(graph.graph)
    records = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    first, second, failed = records
    assert (first["unit"], first["stage"]) == ("user.takes_sin", "user")
    assert [r["data"]["changed"] for r in (first, second)] == [True, False]
    assert ".tan()" in (tmp_path / first["data"]["artifact"]).read_text()
    assert (failed["event"], failed["data"]["failed_unit"]) == ("compile.fail", "user.broken")


def test_the_embedded_compiler_can_supervise_gated_passes_of_its_backend(
    tmp_path: Path,
) -> None:
    calls: list[Any] = []

    @tcdebug.register_pass()
    @tcdebug.gated("counted")
    def counted(graph: fx.Graph) -> bool:
        calls.append(graph)
        return False

    try:
        for off in ([], ["user"], ["all"]):
            torch._dynamo.reset()
            options = {"off": off, "run_dir": str(tmp_path)}
            torch.compile(lambda x: x + 1, backend="tcdebug", options=options)(torch.ones(2))
    finally:
        from tcdebug.compiler.registry import REGISTRY  # noqa: PLC0415 - undoes the registration

        del REGISTRY.aten_passes["passes.counted"]
    assert len(calls) == 1
