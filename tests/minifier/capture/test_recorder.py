"""A recorder replaces a script's backend: it sees every graph, and the script runs in eager."""

from __future__ import annotations

from typing import Any

import backends
import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.recorder import CALLS, Recorder, differing_inputs
from tcdebug.minifier.cases.case import Case, from_captured
from tcdebug.minifier.targets.backends import Backend
from tcdebug.minifier.targets.describe import describe
from tcdebug.minifier.targets.interception import compile_patched


class Judged:
    """The graphs that a recorder hands over."""

    def __init__(self) -> None:
        self.seen: list[tuple[Case, Backend, int, int]] = []

    def __call__(self, case: Case, backend: Backend, ordinal: int, call: int) -> None:
        self.seen.append((case, backend, ordinal, call))

    def places(self) -> list[tuple[int, int]]:
        return [(ordinal, call) for _, _, ordinal, call in self.seen]


def test_a_graph_is_judged_and_runs_in_eager() -> None:
    judged = Judged()
    x = torch.randn(3)
    with compile_patched(Recorder(judged, "run").wrap, EventLog(None)):
        compiled = torch.compile(lambda x: x.tanh() + 1, backend=backends.wrong)
        assert torch.equal(compiled(x), x.tanh() + 1)
    ((case, backend, ordinal, call),) = judged.seen
    assert case.calls[0].target == "tanh"
    assert case.values()[0] is x
    assert (backend.name, backend.backend, backend.run_dir) == ("wrong", backends.wrong, "run")
    assert (ordinal, call) == (0, 0)


def test_an_input_whose_dtype_is_not_the_captured_one_is_described() -> None:
    graph = torch.fx.Graph()
    x, drawn = graph.placeholder("x"), graph.placeholder("drawn")
    graph.output((graph.call_function(torch.add, (x, drawn)),))
    x.meta["example_value"], drawn.meta["example_value"] = torch.ones(2), torch.ones(())
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    right = from_captured(module, (torch.ones(3), torch.ones(())))
    wrong = from_captured(module, (torch.ones(2), torch.ones((), dtype=torch.float64)))
    assert differing_inputs(right) == ""
    assert differing_inputs(wrong) == "drawn is torch.float64 and was captured as torch.float32"


def test_a_graph_without_calls_is_not_judged() -> None:
    judged = Judged()
    with compile_patched(Recorder(judged, "").wrap, EventLog(None)):
        torch.compile(lambda x: x, backend="eager")(torch.ones(2))
    assert judged.seen == []


def test_each_layout_is_judged_once_up_to_a_limit() -> None:
    judged = Judged()
    with compile_patched(Recorder(judged, "").wrap, EventLog(None)):
        compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=True)
        sizes = [4, 4, 5, 4, 6, 7, 8]
        for size in sizes:
            assert compiled(torch.ones(size, 2)).shape == (size, 2)
    assert judged.places() == [(0, 0), (0, 1), (0, 2)]
    assert CALLS == 3
    assert [s[0].values()[-1].shape[0] for s in judged.seen] == [4, 5, 6]


def test_graphs_are_counted_over_all_functions() -> None:
    judged = Judged()

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    with compile_patched(Recorder(judged, "").wrap, EventLog(None)):
        torch.compile(broken, backend="eager")(torch.ones(2))
        torch.compile(lambda x: x.tanh(), backend="eager")(torch.ones(2))
    assert judged.places() == [(0, 0), (1, 0), (2, 0)]
    assert [s[0].calls[0].target for s in judged.seen] == ["sin", "cos", "tanh"]


def test_nothing_is_recorded_outside_the_block() -> None:
    judged = Judged()
    original = torch._dynamo.optimize
    with pytest.raises(KeyError), compile_patched(Recorder(judged, "").wrap, EventLog(None)):
        raise KeyError
    assert torch._dynamo.optimize is original
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert judged.seen == []


def test_a_backward_pass_that_compiled_autograd_captures_is_a_graph() -> None:
    judged = Judged()
    x = torch.ones(2, requires_grad=True)
    with (
        compile_patched(Recorder(judged, "").wrap, EventLog(None)),
        torch._dynamo.compiled_autograd._enable(torch.compile(backend=backends.raises)),
    ):
        x.tan().sum().backward()
    assert judged.places() == [(0, 0)]
    assert x.grad is not None


def test_an_inactive_recorder_lets_the_backend_compile() -> None:
    judged = Judged()
    recorder = Recorder(judged, "", active=False)
    with compile_patched(recorder.wrap, EventLog(None)):
        compiled = torch.compile(lambda x: x.tanh(), backend=backends.raises)
        with pytest.raises(Exception, match="no tanh among"):
            compiled(torch.ones(2))
    assert judged.seen == []


def test_a_graph_may_be_judged_by_compiling_it() -> None:
    """A compile while a graph is judged is not recorded itself."""
    results: list[Any] = []

    def judge(case: Case, backend: Backend, ordinal: int, call: int) -> None:
        recorder.active = False
        results.append(torch.compile(lambda x: x * 3, backend="eager")(torch.ones(2)))
        recorder.active = True

    recorder = Recorder(judge, "")
    with compile_patched(recorder.wrap, EventLog(None)):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert [r.tolist() for r in results] == [[3.0, 3.0]]
    assert recorder.graphs == 1


def test_a_forced_backend_replaces_the_scripts() -> None:
    judged = Judged()
    with compile_patched(Recorder(judged, "", forced="tcdebug").wrap, EventLog(None)):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert judged.seen[0][1].name == "tcdebug"


def described(**given: Any) -> Backend:
    """Return what a recorder sees of the arguments of torch.compile."""
    found: list[Any] = []

    def wrap(backend: Any) -> Any:
        found.append(backend)
        return "eager"

    with compile_patched(wrap, EventLog(None)):
        torch.compile(lambda x: x, **given)
    return describe(found[0], "")


def test_names_modes_and_options_are_read_out_of_torchs_wrappers() -> None:
    plain = described(backend="tcdebug")
    assert (plain.name, plain.backend, plain.mode) == ("tcdebug", "tcdebug", None)
    assert plain.call() == {"backend": "tcdebug"}
    options = described(backend="tcdebug", options={"log": False})
    assert options.call() == {"backend": "tcdebug", "options": {"log": False}}
    assert described(backend="eager").call() == {"backend": "eager"}
    assert described(backend="eager").named


def test_a_callable_is_named_after_itself_and_has_no_call() -> None:
    backend = described(backend=backends.wrong)
    assert (backend.name, backend.named) == ("wrong", False)
    assert backend.call() == {"backend": None}


def test_a_custom_backend_may_have_the_name_of_a_registered_one() -> None:
    def tcdebug(graph: Any, inputs: Any) -> Any:
        return graph

    def inductor(graph: Any, inputs: Any) -> Any:
        return graph

    class eager:
        def __call__(self, graph: Any, inputs: Any) -> Any:
            return graph

    objects = [tcdebug, inductor, eager()]
    found = [described(backend=given) for given in objects]
    assert [backend.backend for backend in found] == objects
    assert [backend.name for backend in found] == [
        f"{__name__}.{name}" for name in ("tcdebug", "inductor", "eager")
    ]
    assert {backend.call()["backend"] for backend in found} == {None}
    registered = described(backend=torch._dynamo.lookup_backend("aot_eager"))
    assert (registered.name, registered.backend) == ("aot_eager", "aot_eager")


def test_inductor_is_recognised_with_its_options() -> None:
    assert described().name == "inductor"
    tuned = described(mode="max-autotune-no-cudagraphs")
    assert tuned.call() == {"backend": "inductor", "mode": "max-autotune-no-cudagraphs"}
    assert tuned.added() == {"fallback_random": True}
    given = described(options={"max_fusion_size": 4})
    assert given.call() == {"backend": "inductor", "options": {"max_fusion_size": 4}}
    assert described(options={"fallback_random": False}).added() == {}, "it is the script's own"
    assert given.named
    passes = described(options={"joint_custom_pre_pass": print})
    assert (passes.named, passes.call()) == (False, {"backend": None}), "a repro cannot state it"
