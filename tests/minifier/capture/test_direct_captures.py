"""Functions that a program gives to AOTAutograd or to a tracer itself, without torch.compile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import functorch.compile
import pytest
import torch
from torch._functorch import aot_autograd
from torch.fx.experimental import proxy_tensor

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.direct_captures import aot_stopped_at, tracers_noticed
from tcdebug.minifier.capture.layers_off import layers_off


def tripled(x: torch.Tensor) -> torch.Tensor:
    """Keep the gradient of a value that AOTAutograd hides."""
    y = x * 3
    y.retain_grad()
    return y


def keeps_its_gradient(function: Callable[..., Any]) -> bool:
    y = function(torch.ones(2, requires_grad=True))
    y.sum().backward()
    return y.is_leaf or y.retains_grad


def wrong(graph: torch.fx.GraphModule, inputs: Any) -> Any:
    """Compile a graph to one that returns zeros."""
    return lambda *args: [torch.zeros_like(value) for value in graph(*args)]


class InTuple(torch.nn.Module):
    """A module that triples and returns a tuple."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        """Triple it."""
        return (x * 3,)


def _first(result: Any) -> float:
    return float(result[0] if isinstance(result, list | tuple) else result)


class Tripling(torch.nn.Module):
    """A module that triples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Triple it."""
        return x * 3


@pytest.mark.parametrize(
    ("off", "result"),
    [("layer.dynamo", 3.0), ("layer.autograd", 3.0), ("layer.backend", 3.0), ("fuse", 0.0)],
)
def test_a_layer_is_off_in_what_a_script_gives_to_aotautograd_too(off: str, result: float) -> None:
    with layers_off(Toggles.parse([off]), EventLog(None)):
        function = aot_autograd.aot_function(lambda x: x * 3, wrong)
        module = aot_autograd.aot_module(Tripling(), fw_compiler=wrong)
        inputs = [torch.ones(())]
        simplified = aot_autograd.aot_module_simplified(InTuple(), inputs, wrong)
        results = [_first(call(torch.ones(()))) for call in (function, module, simplified)]
        assert results == [result] * 3


def test_without_aotautograd_a_function_runs_as_it_is() -> None:
    with aot_stopped_at("eager", EventLog(None)):
        assert functorch.compile.aot_function(tripled, wrong) is tripled
        assert aot_autograd.aot_function(tripled, wrong) is tripled
        assert keeps_its_gradient(aot_autograd.aot_function(tripled, wrong))


@pytest.mark.parametrize("name", ["memory_efficient_fusion", "compiled_function"])
def test_other_names_of_aotautograd_run_a_function_as_it_is(name: str) -> None:
    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        nop = functorch.compile.nop
        return getattr(functorch.compile, name)(function, fw_compiler=nop, bw_compiler=nop)

    assert not keeps_its_gradient(compiled(tripled))
    with layers_off(Toggles.parse(["layer.dynamo"]), EventLog(None)):
        assert keeps_its_gradient(compiled(tripled))


def test_the_partition_of_the_script_is_kept_by_the_backend_that_partitions() -> None:
    seen = []

    def partition(*args: Any, **options: Any) -> Any:
        seen.append("partition")
        return aot_autograd.default_partition(*args, **options)

    for backend in ("aot_eager", "aot_eager_decomp_partition"):
        with aot_stopped_at(backend, EventLog(None)):
            call = aot_autograd.aot_function(torch.sin, wrong, wrong, partition)
            call(torch.ones(2, requires_grad=True)).sum().backward()
        seen.append(backend)
    assert seen == ["aot_eager", "partition", "aot_eager_decomp_partition"]


def test_a_tracer_that_the_program_calls_is_noticed_and_one_that_torch_calls_is_not(
    tmp_path: Path,
) -> None:
    with tracers_noticed(EventLog(tmp_path)):
        proxy_tensor.make_fx(torch.sin)(torch.ones(2))
        torch.jit.trace(torch.sin, torch.ones(2))
        torch.compile(torch.cos, backend="aot_eager")(torch.ones(2))
    (file,) = tmp_path.glob("events*.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [e["data"]["tracer"] for e in events if e["event"] == "program.traced"] == [
        "torch.fx.experimental.proxy_tensor.make_fx",
        "torch.jit.trace",
    ]
