"""passes.channels_last: chains of convolutions run in channels-last layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import applied, aten_graph, ops
from judge import assert_as_eager, assert_same, compiled
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch_versions import needs_torch

from tcdebug.compiler.passes.channels_last import channels_last
from tcdebug.compiler.passes.replacement import FIXED_STRIDES

X = torch.randn(2, 3, 11, 10, generator=torch.Generator().manual_seed(0))
W1 = torch.randn(5, 3, 3, 3, generator=torch.Generator().manual_seed(1))
W2 = torch.randn(4, 5, 3, 3, generator=torch.Generator().manual_seed(2))


def chain(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    x = torch.conv2d(x, w1).relu() + 1
    x = F.max_pool2d(torch.cat([x, x.sin()], 1), 2)[:, :5]
    return torch.conv2d(x, w2, padding=1)


def layouts(module: torch.fx.GraphModule, op: Any) -> list[bool]:
    """For each call of an operator, whether its result is channels-last."""
    values = [n.meta["val"] for n in module.graph.nodes if n.target is op]
    return [v.is_contiguous(memory_format=torch.channels_last) for v in values]


def test_a_chain_of_convolutions_is_converted_once_in_each_direction() -> None:
    def function(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(F.max_pool2d(torch.conv2d(x, w1).relu(), 2), w2)

    changed, module = applied(channels_last, aten_graph(function, X, W1, W2))
    assert changed
    assert layouts(module, torch.ops.aten.convolution.default) == [True, True]
    assert ops(module)["clone.default"] == 2
    out = module(X, W1, W2)
    assert out.stride() == function(X, W1, W2).stride() == (16, 4, 2, 1)
    assert_same(out, function(X, W1, W2))


def test_a_single_convolution_is_not_converted() -> None:
    changed, _ = applied(channels_last, aten_graph(lambda x, w: torch.conv2d(x, w).relu(), X, W1))
    assert not changed


def test_a_single_transposed_convolution_is_converted() -> None:
    function = torch.conv_transpose2d
    w = torch.randn(3, 5, 2, 2, generator=torch.Generator().manual_seed(1))
    changed, module = applied(channels_last, aten_graph(lambda x, w: function(x, w), X, w))
    assert changed
    assert layouts(module, torch.ops.aten.convolution.default) == [True]
    assert module(X, w).stride() == function(X, w).stride() == (660, 132, 11, 1)
    assert_same(module(X, w), function(X, w))


@pytest.mark.parametrize(
    ("channels", "dtype", "feature", "expected"),
    [
        (3, torch.float32, "", True),
        (16, torch.float32, "", False),
        (16, torch.bfloat16, "", False),
        (16, torch.bfloat16, "amx_tile", True),
        (16, torch.float16, "amx_tile", True),
        (16, torch.float32, "amx_tile", False),
        (16, torch.bfloat16, "avx512_bf16", True),
        (16, torch.float16, "avx512_bf16", False),
        (16, torch.float32, "avx512_bf16", False),
    ],
)
def test_two_convolutions_are_converted_if_the_processor_gains_from_it(
    monkeypatch: pytest.MonkeyPatch, channels: int, dtype: torch.dtype, feature: str, expected: bool
) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(torch.conv2d(x, w, padding=1).relu(), w, padding=1)

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {feature: True})
    x, w = torch.randn(1, channels, 6, 6), torch.randn(channels, channels, 3, 3)
    changed, _ = applied(channels_last, aten_graph(function, x.to(dtype), w.to(dtype)))
    assert changed == expected


def test_a_chain_may_change_its_dtype() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.conv2d(x, w).to(torch.float32).relu().to(torch.bfloat16), 2)

    x, w = X.bfloat16(), W1.bfloat16()
    changed, module = applied(channels_last, aten_graph(function, x, w))
    assert changed
    pools = layouts(module, torch.ops.aten._to_copy.default)
    assert pools == [True, True]
    assert_same(module(x, w), function(x, w))


def test_a_chain_that_copies_as_much_as_it_gains_is_not_converted() -> None:
    def function(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> Any:
        x = torch.conv2d(x, w1)
        flat = torch.sort(x, 1).values
        return torch.sort(torch.conv2d(flat, w2), 1).values

    changed, _ = applied(channels_last, aten_graph(function, X, W1, W2))
    assert not changed


def test_tensors_that_are_channels_last_already_are_not_copied() -> None:
    x = X.to(memory_format=torch.channels_last)
    graph = aten_graph(lambda x, a, b: torch.conv2d(torch.conv2d(x, a), b), x, W1, W2)
    assert not applied(channels_last, graph)[0]


def test_a_view_of_the_result_sees_the_old_layout() -> None:
    def function(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.conv2d(torch.conv2d(x, w1, padding=1), w2, padding=1), 2)
        return x.view(2, -1) * 2

    changed, module = applied(channels_last, aten_graph(function, X, W1, W2))
    assert changed
    assert_same(module(X, W1, W2), function(X, W1, W2))


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts of fake convolutions as cuDNN chooses them, on a machine without it."""

    def layout(*given: Any) -> torch.memory_format:
        formats = [torch.contiguous_format, torch.channels_last]
        operands = given[:2]
        return formats[
            any(
                not x.is_contiguous() and x.is_contiguous(memory_format=formats[1])
                for x in operands
            )
        ]

    monkeypatch.setattr(torch._C, "_conv_determine_backend_memory_format", layout)


def on_gpu(function: Any, *sizes: tuple[int, ...], dtype: torch.dtype) -> torch.fx.GraphModule:
    with FakeTensorMode():
        return make_fx(function)(*(torch.empty(s, device="cuda", dtype=dtype) for s in sizes))


IMAGE, FILTERS = (4, 32, 28, 28), (32, 32, 3, 3)


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_on_a_gpu_a_single_convolution_has_channels_last(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(x, w, padding=1).relu()

    changed, module = applied(channels_last, on_gpu(function, IMAGE, FILTERS, dtype=dtype))
    assert changed
    assert layouts(module, torch.ops.aten.relu.default) == [True]
    assert ops(module)["clone.default"] == 2  # of the image and of the result


@pytest.mark.usefixtures("cudnn")
def test_on_a_gpu_a_forward_that_saves_tensors_keeps_its_layouts() -> None:
    graph = on_gpu(
        lambda x, w: torch.conv2d(x, w, padding=1).relu(), IMAGE, FILTERS, dtype=torch.bfloat16
    )
    graph.graph.output_node().meta[FIXED_STRIDES] = 1
    assert not applied(channels_last, graph)[0]


@pytest.mark.usefixtures("cudnn")
@pytest.mark.parametrize(
    ("image", "filters", "dtype", "tensor_cores", "expected"),
    [
        (IMAGE, (64, 32, 1, 1), torch.bfloat16, True, False),
        ((4, 17, 28, 28), (33, 17, 3, 3), torch.bfloat16, True, False),
        ((4, 3, 128, 128), (32, 3, 7, 7), torch.bfloat16, True, True),
        (IMAGE, FILTERS, torch.float32, False, False),
        (IMAGE, FILTERS, torch.float16, False, True),
    ],
    ids=["products", "odd channels", "few channels", "float32 without TF32", "float16"],
)
def test_on_a_gpu_a_convolution_is_converted_if_tensor_cores_gain_from_it(
    monkeypatch: pytest.MonkeyPatch,
    image: tuple[int, ...],
    filters: tuple[int, ...],
    dtype: torch.dtype,
    tensor_cores: bool,
    expected: bool,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tensor_cores)
    graph = on_gpu(lambda x, w: torch.conv2d(x, w).relu(), image, filters, dtype=dtype)
    assert applied(channels_last, graph)[0] == expected


@pytest.mark.usefixtures("cudnn")
def test_on_a_gpu_convolutions_around_group_norms_are_converted() -> None:
    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            groups = x.view(4, 8, -1)
            centered = (groups - groups.mean(-1, keepdim=True)).view(x.shape)
            x = torch.conv2d(centered.sigmoid(), w, padding=1)
        return x

    assert applied(channels_last, on_gpu(block, IMAGE, FILTERS, dtype=torch.bfloat16))[0]


def test_nothing_is_converted_where_convolutions_keep_no_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some of torch's own kernels return contiguous images, whatever their operand's layout is."""
    monkeypatch.setattr(
        torch._C, "_conv_determine_backend_memory_format", lambda *given: torch.contiguous_format
    )
    other = (4, 32, 26, 26)  # torch keeps the results of fake operators for those of other tests
    graph = on_gpu(lambda x, w: torch.conv2d(x, w), other, FILTERS, dtype=torch.bfloat16)
    assert not applied(channels_last, graph)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_whole_compiler_agrees_with_eager(dtype: torch.dtype) -> None:
    inputs = [v.to(dtype) for v in (X, W1, W2)]
    torch._dynamo.reset()
    with torch.no_grad():
        assert_as_eager(compiled(chain), chain, inputs)


@pytest.mark.slow
@needs_torch("2.13", "the shapes of max_pool2d have guards on odd sizes")
def test_one_compile_serves_images_of_many_sizes() -> None:
    torch._dynamo.reset()
    f = compiled(chain, dynamic=True)
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for height, width in ((9, 8), (12, 16), (7, 31)):
            x = torch.randn(3, 3, height, width)
            assert_same(f(x, W1, W2), chain(x, W1, W2))
