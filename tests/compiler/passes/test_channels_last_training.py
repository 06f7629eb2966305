"""Training steps in channels-last layout, for half types on processors with AMX."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import compiled
from programs import f32
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from tcdebug.compiler import pipeline, seams
from tcdebug.compiler.gate.gate import Gate

aten = torch.ops.aten
LAST = torch.channels_last


@pytest.fixture(autouse=True)
def with_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_tile": True})
    monkeypatch.setattr(seams, "has_onednn", lambda _: True)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.second(self.norm(self.first(x)).relu())).relu()


def stem() -> nn.Module:
    norm = nn.BatchNorm2d(16)
    return nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), norm, nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def with_group_norm() -> nn.Module:
    first, second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
    return nn.Sequential(
        nn.GroupNorm(2, 8), nn.SiLU(), first, nn.GroupNorm(4, 8), nn.SiLU(), second
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "a convolution": lambda: nn.Conv2d(8, 16, 3),
    "a stem": stem,
    "a residual block": Residual,
    "group norms": with_group_norm,
    "channels one by one": lambda: nn.Conv2d(8, 8, 3, groups=8),
    "a transposed convolution": lambda: nn.ConvTranspose2d(8, 4, 2, 2),
    "an average": lambda: nn.Sequential(nn.Conv2d(8, 8, 3), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3)),
    "a head": lambda: nn.Sequential(
        nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(1152, 10)
    ),
}


def image(memory_format: torch.memory_format) -> torch.Tensor:
    return f32(4, 8, 16, 16).bfloat16().contiguous(memory_format=memory_format).requires_grad_()


def step(module: nn.Module, function: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    """The result of a training step, and the gradients of its image and parameters."""
    result = function(x)
    slope = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result.dtype)
    leaves = [x, *module.parameters()]
    return [result.detach(), *torch.autograd.grad(result, leaves, slope)]


def strides(t: torch.Tensor) -> list[int]:
    """The strides of the dimensions with more than one element."""
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, LAST], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_training_steps_are_as_accurate_as_in_eager_and_have_its_strides(
    name: str, memory_format: torch.memory_format
) -> None:
    torch.manual_seed(0)
    network, x = NETWORKS[name]().bfloat16(), image(memory_format)
    exact, eager = (copy.deepcopy(network) for _ in range(2))
    right = step(exact, exact.double(), x.detach().double().requires_grad_())
    wanted, found = step(eager, eager, x), step(network, compiled(network), x)
    for best, usual, ours in zip(right, wanted, found, strict=True):
        allowed = 1.6 * (usual.double() - best).norm() + 1e-3 * best.norm()
        assert (ours.double() - best).norm() <= allowed
        assert (ours.dtype, strides(ours)) == (usual.dtype, strides(usual))


@pytest.mark.parametrize("name", ["a stem", "a residual block"])
def test_symbolic_sizes_get_no_more_guards_than_without_a_compiler(name: str) -> None:
    counts = []
    for backend in ("aot_eager", "tcdebug"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        network, counted = NETWORKS[name]().bfloat16(), CompileCounterWithBackend(backend)
        function = torch.compile(network, backend=counted, dynamic=True)
        for size in ((4, 8, 16, 18), (3, 8, 20, 14), (5, 8, 12, 22)):
            x = f32(*size).bfloat16().requires_grad_()
            wanted, found = step(network, network, x), step(network, function, x)
            torch.testing.assert_close(found[0], wanted[0], rtol=0.05, atol=0.05)
        counts.append(counted.frame_count)
    assert counts[0] == counts[1]


def graphs(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[torch.fx.Node], ...]:
    """The nodes of the forward and the backward of a training step, after the passes."""
    torch.manual_seed(0)
    found: list[list[torch.fx.Node]] = []
    lower = pipeline.lower_graph

    def lowered(module: torch.fx.GraphModule, gate: Gate) -> Any:
        found.append(list(module.graph.nodes))
        return lower(module, gate)

    monkeypatch.setattr(pipeline, "lower_graph", lowered)
    network = NETWORKS[name]().bfloat16()
    step(network, compiled(network), image(torch.contiguous_format))
    return tuple(found)


def turned(nodes: list[torch.fx.Node], *targets: Any) -> list[bool]:
    """For each image of the first operand of some operators, whether it is channels-last."""
    values = [n.args[0].meta["val"] for n in nodes if n.target in targets]
    return [v.is_contiguous(memory_format=LAST) and not v.is_contiguous() for v in values]


def test_forward_saves_images_in_the_layout_in_which_backward_reads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forward, backward = graphs("a stem", monkeypatch)
    assert turned(forward, aten.convolution.default, aten.max_pool2d_with_indices.default) == [
        True, True,
    ]  # fmt: skip
    gradients = (
        aten.convolution_backward.default,
        aten.max_pool2d_with_indices_backward.default,
        aten.sum.dim_IntList,
    )
    assert turned(backward, *gradients) == [True] * 4
    copied = [n.args[0] for n in backward if n.target is aten.clone.default]
    # the gradient that enters, the image, and the gradients of the image and of the weight
    assert len(copied) == 4


def test_beside_operators_of_rows_images_return_to_their_layout_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, backward = graphs("group norms", monkeypatch)
    assert turned(backward, aten.convolution_backward.default) == [True, True]
    assert not any(turned(backward, aten.mul.Tensor))


def test_float32_and_processors_without_tiles_train_in_the_layout_of_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {})
    _, backward = graphs("a stem", monkeypatch)
    assert turned(backward, aten.convolution_backward.default) == [False]
