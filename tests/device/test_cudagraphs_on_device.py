"""Tests CUDA graphs of the embedded compiler. Skipped without a GPU.

pytest tests/device
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tcdebug

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size, device="cuda")


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [
        line for path in folder.glob("events-*.jsonl") for line in path.read_text().splitlines()
    ]
    return [event["data"] for event in map(json.loads, lines) if event["event"] == kind]


def captured(function: Callable[..., Any], folder: Path, **options: Any) -> Callable[..., Any]:
    given = {"cudagraphs": True, "run_dir": str(folder), **options}
    return torch.compile(function, backend="tcdebug", options=given)


def test_every_call_gives_what_eager_gives(tmp_path: Path) -> None:
    weight = randn(64, 64)

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x @ weight, (64,)).relu()

    fast = captured(function, tmp_path)
    for _ in range(6):
        x = randn(8, 64)
        torch.testing.assert_close(fast(x), function(x))
    assert len(events(tmp_path, "cuda_graph_captured")) == 1
    assert events(tmp_path, "cuda_graph_skipped") == []


def test_outputs_that_are_kept_stay_as_they_were(tmp_path: Path) -> None:
    fast = captured(lambda x: (x * 2 + 1, x.sum()), tmp_path)
    inputs = [randn(100) for _ in range(20)]
    kept = [fast(x) for x in inputs]
    for x, (double, total) in zip(inputs, kept, strict=True):
        torch.testing.assert_close(double, x * 2 + 1)
        torch.testing.assert_close(total, x.sum())
    assert "8 captures" in events(tmp_path, "cuda_graph_skipped")[0]["reason"]


def test_a_result_that_replaces_the_last_one_takes_two_captures(tmp_path: Path) -> None:
    fast = captured(lambda x: x * 2 + 1, tmp_path)
    for _ in range(10):
        x = randn(100)
        y = fast(x)
        torch.testing.assert_close(y, x * 2 + 1)
    assert len(events(tmp_path, "cuda_graph_captured")) <= 2


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 1)
    ).cuda()


def gradients(net: torch.nn.Module, step: Callable[[], None]) -> list[torch.Tensor]:
    net.zero_grad()
    step()
    return [p.grad.clone() for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize("cleared", ["never", "between"])
def test_gradients_that_are_kept_outlive_later_replays(tmp_path: Path, cleared: str) -> None:
    """Gradients are summed over several steps, and cleared only after the next forward."""
    plain, net = model(), model()
    fast = captured(net, tmp_path)
    for _ in range(8):
        x = randn(16, 32)
        held = [p.grad for p in net.parameters()]
        before = [None if g is None else g.clone() for g in held]
        losses = [f(x).pow(2).mean() for f in (plain, fast)]
        assert all(g is b or torch.equal(g, b) for g, b in zip(held, before, strict=True))
        if cleared == "between":
            plain.zero_grad()
            net.zero_grad()
        del held
        for loss in losses:
            loss.backward()
        for wanted, got in zip(plain.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-3, atol=1e-5)
    assert len(events(tmp_path, "cuda_graph_captured")) <= 6


@pytest.mark.parametrize("pending", [1, 2, 3])
def test_training_gives_the_gradients_of_eager(tmp_path: Path, pending: int) -> None:
    plain, net = model(), model()
    fast = captured(net, tmp_path)
    for _ in range(5):
        inputs = [randn(16, 32) for _ in range(pending)]

        def step(f: Callable[..., Any], inputs: list[torch.Tensor] = inputs) -> None:
            losses = [f(x).pow(2).mean() for x in inputs]
            for loss in losses:
                loss.backward()

        expected = gradients(plain, lambda: step(plain))
        result = gradients(net, lambda: step(fast))
        for wanted, got in zip(expected, result, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    assert events(tmp_path, "cuda_graph_skipped") == []
    assert events(tmp_path, "cuda_graph_captured")


def test_a_step_of_an_optimiser_is_seen_by_the_next_call(tmp_path: Path) -> None:
    plain, net = model(), model()
    fast = captured(net, tmp_path)
    slow_step = torch.optim.SGD(plain.parameters(), lr=0.1)
    fast_step = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        x = randn(16, 32)
        for f, optimiser in ((plain, slow_step), (fast, fast_step)):
            optimiser.zero_grad()
            f(x).pow(2).mean().backward()
            optimiser.step()
    for wanted, got in zip(plain.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def test_inputs_that_are_written_to_are_written_to(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return x * 2

    fast = captured(function, tmp_path)
    for _ in range(5):
        x, y = randn(50), randn(50)
        expected = x.clone()
        wanted = function(expected, y)
        torch.testing.assert_close(fast(x, y), wanted)
        torch.testing.assert_close(x, expected)
    counter = torch.zeros(4, device="cuda")
    for _ in range(5):
        fast(counter, torch.ones(4, device="cuda"))
    assert counter.tolist() == [5.0] * 4


@pytest.mark.parametrize(
    ("function", "given", "reason"),
    [
        (lambda x: x.cpu() + 1, (50,), "is on the CPU"),
        (lambda x: (x > 0).nonzero() * 2, (50,), "that only the CPU can read"),
    ],
)
def test_a_graph_that_cannot_be_captured_runs_without_cuda_graphs_and_says_why(
    tmp_path: Path, function: Callable[..., Any], given: tuple[int, ...], reason: str
) -> None:
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        fast = captured(function, tmp_path)
        for _ in range(3):
            x = randn(*given)
            torch.testing.assert_close(fast(x), function(x))
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False
    assert reason in events(tmp_path, "cuda_graph_skipped")[0]["reason"]


def test_sizes_among_the_gears_are_captured_and_no_others(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1) * 2

    fast = captured(function, tmp_path, dim_gears=[4, 8])
    for size in (8, 4, 5, 8, 4, 5, 8, 4, 5, 8, 4):
        x = randn(size, 16)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(fast(x), function(x))
    skipped = [e["reason"] for e in events(tmp_path, "cuda_graph_skipped")]
    assert skipped == ["size 5 is not among the gears 4, 8"]
    assert sorted(e["sizes"] for e in events(tmp_path, "cuda_graph_captured")) == [[4], [8]]


def test_gears_of_a_tensor_are_those_of_the_graph(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1) * 2

    fast = captured(function, tmp_path)
    for size in (8, 4, 5, 8, 4, 5, 8, 4, 5, 8, 4):
        x = randn(size, 16)
        tcdebug.set_dim_gears(x, {0: [4, 8]})
        torch.testing.assert_close(fast(x), function(x))
    assert sorted(e["sizes"] for e in events(tmp_path, "cuda_graph_captured")) == [[4], [8]]


def test_the_mode_captures_cuda_graphs_unless_their_unit_is_off(tmp_path: Path) -> None:
    x = randn(10)
    for options in ({}, {"off": ["runtime.cudagraphs"]}):
        torch._dynamo.reset()
        folder = tmp_path / str(len(options))
        fast = captured(lambda t: t * 2, folder, **options)
        for _ in range(3):
            fast(x)
        assert len(events(folder, "cuda_graph_captured")) == 1 - len(options)
    torch._dynamo.reset()
    fast = torch.compile(lambda t: t * 2, backend="tcdebug", mode="reduce-overhead")
    for _ in range(3):
        torch.testing.assert_close(fast(x), x * 2)


def test_the_fastest_tile_is_kept_for_the_next_compile(tmp_path: Path) -> None:
    x = randn(4096, 1024)
    for attempt in ("first", "second"):
        torch._dynamo.reset()
        options = {"autotune": True, "run_dir": str(tmp_path / attempt)}
        options["cache_dir"] = str(tmp_path / "cache")
        fast = torch.compile(lambda t: t.softmax(-1), backend="tcdebug", options=options)
        torch.testing.assert_close(fast(x), x.softmax(-1))
    first, second = (events(tmp_path / a, "tile")[0] for a in ("first", "second"))
    assert first["tried"] > 3
    assert second["tried"] == 0
    assert (first["blocks"], first["warps"]) == (second["blocks"], second["warps"])


def test_expanded_inputs_are_replayed(tmp_path: Path) -> None:
    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x.sin() + y * z.sum(0)

    fast = captured(function, tmp_path)
    for _ in range(6):
        inputs = (randn(1, 4).expand(9, 4), randn(9, 1).expand(9, 4), randn(1).expand(3, 4))
        torch.testing.assert_close(fast(*inputs), function(*inputs))
    assert len(events(tmp_path, "cuda_graph_captured")) == 1
