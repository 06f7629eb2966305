"""A program without some of torch's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.exc import UncapturedHigherOrderOpError
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor import config as inductor_config
from torch.compiler._cache import CacheArtifactManager

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.layers_off import layers_off
from tcdebug.minifier.cases.layer_names import (
    CACHES,
    COMPILED_AUTOGRAD,
    PRECISION,
    ROUNDING_CONTROLS,
    STAND_INS,
)
from tcdebug.minifier.targets import inductor
from tcdebug.minifier.targets.captures import CapturedInside


def off(*names: str) -> Any:
    torch._dynamo.reset()
    return layers_off(Toggles.parse(names), EventLog(None))


def never(graph: Any, inputs: Any) -> Any:
    raise AssertionError("the backend of the script compiles")


def is_captured(x: torch.Tensor) -> torch.Tensor:
    return x + torch.compiler.is_compiling()


@pytest.mark.parametrize("layer", STAND_INS)
def test_a_backend_of_torch_can_replace_the_scripts_backend(layer: str) -> None:
    with off(layer):
        assert torch.compile(is_captured, backend=never)(torch.zeros(1)).item() == 1.0


def draws_again(x: torch.Tensor) -> torch.Tensor:
    """Return the mask of the numbers that a checkpoint draws, with that mask as its gradient."""
    dropout = torch.dropout
    return torch.utils.checkpoint.checkpoint(dropout, x, 0.5, True, use_reentrant=False)


@pytest.mark.parametrize("layer", ["layer.autograd", "rounding_control", "layer.decompositions"])
def test_a_checkpoint_draws_the_same_numbers_in_backward_whatever_runs_its_graph(
    layer: str,
) -> None:
    names = {"rounding_control": ROUNDING_CONTROLS[PRECISION]}
    x = torch.ones(64, requires_grad=True)
    with off(names.get(layer, layer)):
        y = torch.compile(lambda x: draws_again(x * x), backend=never, fullgraph=True)(x)
        y.sum().backward()
    assert torch.equal(x.grad, 2 * y)  # type: ignore[arg-type]


@pytest.mark.parametrize("layer", ["layer.dynamo", "layer.autograd", "layer.backend"])
def test_settings_that_torch_compile_refuses_belong_to_the_backend(layer: str) -> None:
    with layers_off(Toggles.parse([layer]), EventLog(None)):
        no_mode = torch.compile(torch.neg, mode="fastest")
        no_option = torch.compile(options={"no_such_option": 1})(torch.neg)
        both = torch.nn.Identity()
        both.compile(mode="default", options={})
        with pytest.raises(RuntimeError, match="Model can't be None"):
            torch.compile(mode="fastest")(None)  # type: ignore[arg-type]
        assert [f(torch.ones(())).item() for f in (no_mode, no_option, both)] == [-1, -1, 1]
    with (
        pytest.raises(RuntimeError, match="Unrecognized mode"),
        layers_off(Toggles.parse(["fuse"]), EventLog(None)),
    ):
        torch.compile(torch.neg, mode="fastest")


@pytest.mark.parametrize("layer", ["layer.dynamo", *STAND_INS, *CACHES])
def test_a_script_can_save_and_load_what_torch_has_cached_where_nothing_is(
    layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CacheArtifactManager, "serialize", lambda: None)
    assert torch.compiler.save_cache_artifacts() is None
    with off(layer):
        artifacts, info = torch.compiler.save_cache_artifacts()  # type: ignore[misc]
        loaded = torch.compiler.load_cache_artifacts(artifacts)
    assert info.empty()
    assert loaded is not None and loaded.empty()
    assert torch.compiler.save_cache_artifacts() is None


def test_without_dynamo_nothing_is_captured() -> None:
    with off("layer.dynamo"):
        assert torch.compile(is_captured, backend=never)(torch.zeros(1)).item() == 0.0


@pytest.mark.parametrize("layer", ["layer.dynamo", "layer.autograd", "layer.backend"])
def test_what_torch_compiles_for_its_own_purposes_fails_without_a_layer_too(layer: str) -> None:
    """Torch compiles while_loop itself, and then rejects a result that is an input (#191582)."""
    more, x = torch.tensor(True), torch.ones(2)
    with off(layer), pytest.raises(UncapturedHigherOrderOpError, match="while_loop"):
        while_loop(lambda more, x: more, lambda more, x: (x.sum() < 8, x * 2), (more, x))


def test_with_python_in_its_place_the_results_of_control_flow_operators_are_not_captured() -> None:
    more, x = torch.tensor(True), torch.ones(2, requires_grad=True)

    def doubled(more: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return y.sum() < 8, y * (9 if torch.compiler.is_compiling() else 2)

    def tripled(y: torch.Tensor) -> torch.Tensor:
        return y * (9 if torch.compiler.is_compiling() else 3)

    with off("layer.dynamo.operators"):
        (_, y) = while_loop(lambda more, y: more.clone(), doubled, (more, x))
        z = torch.cond(more, tripled, tripled, (y,))
        z.sum().backward()
    assert x.grad is not None
    assert (z.tolist(), x.grad.tolist()) == ([24.0, 24.0], [24.0, 24.0])


def test_what_torch_refuses_of_a_control_flow_operator_is_refused_with_python_in_its_place() -> (
    None
):
    more, x = torch.tensor(True), torch.ones(2)
    with off("layer.dynamo.operators"), pytest.raises(UncapturedHigherOrderOpError):
        while_loop(lambda more, x: more, lambda more, x: (x.sum() < 8, x.double()), (more, x))


def test_without_its_wrapper_torch_compile_returns_what_it_is_given() -> None:
    linear = torch.nn.Linear(2, 2)
    with off("layer.dynamo"):
        assert [*torch.compile(linear).state_dict()] == ["_orig_mod.weight", "_orig_mod.bias"]
    with off("layer.dynamo.wrapper"):
        assert torch.compile(linear, backend=never) is linear
        assert torch.compile(backend=never, mode="default")(is_captured) is is_captured


def notes_calls(x: torch.Tensor, calls: list[int]) -> torch.Tensor:
    calls.append(len(calls))
    return x * len(calls)


def leaves_alone(x: torch.Tensor, calls: list[int]) -> torch.Tensor:
    torch._dynamo.graph_break()
    return notes_calls(x, calls)


def is_skipped(x: torch.Tensor, calls: list[int]) -> torch.Tensor:
    torch._dynamo.skip_frame()
    calls.append(len(calls))
    return x * len(calls)


@pytest.mark.parametrize("function", [notes_calls, is_skipped])
def test_a_call_that_is_captured_only_to_be_counted_runs_once_in_eager(
    function: Callable[..., torch.Tensor],
) -> None:
    calls: list[int] = []
    counter = CompileCounter()
    with off("layer.dynamo.code"):
        compiled = torch.compile(function, backend=counter)
        results = [compiled(torch.ones(1), calls).item() for _ in range(3)]
    assert (results, calls) == ([1, 2, 3], [0, 1, 2])
    assert counter.frame_count == (3 if function is notes_calls else 0)


@pytest.mark.parametrize("counter", [CompileCounter(), CompileCounterWithBackend("inductor")])
@pytest.mark.parametrize("layer", ["layer.dynamo.code", *STAND_INS])
def test_compiles_are_counted_whatever_backend_takes_the_place_of_the_counter(
    layer: str, counter: Any
) -> None:
    counter.clear()
    with off(layer):
        net = torch.compile(torch.nn.Linear(2, 2), backend=counter, dynamic=False, fullgraph=True)
        for size in (1, 1, 3):
            net(torch.ones(size, 2))
    assert (counter.frame_count, counter.op_count) == (2, 2)


def test_what_dynamo_refuses_runs_in_eager_where_its_captures_only_count() -> None:
    with off("layer.dynamo.code"):
        refused = torch.compile(leaves_alone, backend=CompileCounter(), fullgraph=True)
        assert refused(torch.ones(1), []).item() == 1


def test_a_capture_inside_a_function_that_runs_already_is_an_error() -> None:
    calls: list[int] = []

    def outer(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.skip_frame()
        return notes_calls(x, calls)

    with off("layer.dynamo.code"), pytest.raises(CapturedInside, match="outer"):
        torch.compile(outer, backend=CompileCounter())(torch.ones(1))


FACTOR = {0: 2.0}


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]  # torch has no types here
def factor() -> float:
    return FACTOR[0]


class Scaled(torch.nn.Module):
    """Reads a value that nothing guards."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input times the factor."""
        return x * factor()


def in_place() -> torch.nn.Module:
    module = Scaled()
    module.compile(backend="eager")
    return module


UNGUARDED: dict[str, Callable[[], Callable[..., Any]]] = {
    "a function": lambda: torch.compile(lambda x: x * factor(), backend="eager"),
    "a module": lambda: torch.compile(Scaled(), backend="eager"),
    "a module in place": in_place,
    "a bound method": lambda: torch.compile(Scaled().forward, backend="eager"),
    "one graph": lambda: torch.compile(lambda x: x * factor(), backend="eager", fullgraph=True),
    "dynamic": lambda: torch.compile(lambda x: x * factor(), backend="eager", dynamic=True),
}


@pytest.mark.parametrize("make", UNGUARDED.values(), ids=UNGUARDED)
@pytest.mark.parametrize(
    ("names", "results"), [((), [2.0, 2.0]), (("layer.dynamo.guards",), [2.0, 3.0])]
)
def test_every_call_is_recompiled_without_guards(
    make: Callable[[], Callable[..., Any]], names: tuple[str, ...], results: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with off(*names):
        call = make()
        monkeypatch.setitem(FACTOR, 0, 2.0)
        first = call(torch.ones(1)).item()
        FACTOR[0] = 3.0
        assert [first, call(torch.ones(1)).item()] == results


def test_sizes_that_changed_stay_symbolic_when_calls_are_recompiled() -> None:
    seen: list[bool] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.append(any(isinstance(i, torch.SymInt) for i in inputs))
        return graph.forward

    with off("layer.dynamo.guards"):
        call = torch.compile(lambda x: x * 2, backend=backend)
        for size in (2, 3, 4):
            call(torch.ones(size))
    assert seen == [False, True, True]


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_is_off_even_if_the_script_switches_it_on(name: str) -> None:
    seen: list[bool] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.append(bool(functorch_config.enable_autograd_cache))
        seen.append(bool(inductor_config.fx_graph_cache))
        return graph.forward

    with (
        functorch_config.patch(enable_autograd_cache=True),
        inductor_config.patch(fx_graph_cache=True),
        off(name),
    ):
        functorch_config.enable_autograd_cache = inductor_config.fx_graph_cache = True
        torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2))
    assert seen == [name != "layer.cache.aotautograd", name != "layer.cache.fx_graph"]


def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have both caches on as if a variable of the environment had been set at torch's import."""
    for module, name in (
        (functorch_config, "enable_autograd_cache"),
        (inductor_config, "fx_graph_cache"),
    ):
        monkeypatch.setattr(vars(module)["_config"][name], "env_value_force", True)


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_is_off_even_if_a_variable_of_the_environment_forces_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced(monkeypatch)
    with off(name):
        assert functorch_config.enable_autograd_cache is (name != "layer.cache.aotautograd")
        assert inductor_config.fx_graph_cache is (name != "layer.cache.fx_graph")
    assert functorch_config.enable_autograd_cache is inductor_config.fx_graph_cache is True


def test_candidates_use_no_caches_even_if_a_variable_of_the_environment_forces_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forced(monkeypatch)
    with inductor.switched(Toggles(), EventLog(None)):
        assert not functorch_config.enable_autograd_cache
        assert not inductor_config.fx_graph_cache
    assert functorch_config.enable_autograd_cache is inductor_config.fx_graph_cache is True


@pytest.mark.parametrize(("name", "captures"), [("layer.cache", 1), (COMPILED_AUTOGRAD, 0)])
def test_without_compiled_autograd_no_backward_is_captured(name: str, captures: int) -> None:
    counters["compiled_autograd"].clear()
    x = torch.full((3,), 2.0, requires_grad=True)
    with off(name), torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4.0, 4.0, 4.0]
    assert counters["compiled_autograd"]["captures"] == captures
