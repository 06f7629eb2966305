"""Decompositions: which operators are decomposed under the gate, and into what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import ops
from judge import assert_as_eager, compiled
from programs import f32, positive
from stages import capture
from torch.nn import functional as F

from tcdebug.compiler.decompose import decompositions, unit
from tcdebug.compiler.errors.exceptions import CompileError
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.registry import REGISTRY

aten = torch.ops.aten


def operators(function: Callable[..., Any], *inputs: Any, off: tuple[str, ...] = ()) -> set[str]:
    captured = capture(function, *inputs, toggles=Toggles.parse(off))
    (module,) = captured.aten
    return set(ops(module))


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: F.gelu(x), "gelu.default"),
        (lambda x: torch.softmax(x, -1), "_softmax.default"),
        (lambda x: F.layer_norm(x, (4,)), "native_layer_norm.default"),
        (lambda x: F.elu(x), "elu.default"),
        (lambda x: torch.addcmul(x, x, x), "addcmul.default"),
    ],
    ids=["gelu", "softmax", "layer_norm", "elu", "addcmul"],
)
def test_an_operator_is_decomposed_unless_its_unit_is_off(
    function: Callable[..., Any], op: str
) -> None:
    assert op not in operators(function, f32(3, 4))
    torch._dynamo.reset()
    assert op in operators(function, f32(3, 4), off=(f"decompose.aten.{op}",))


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: x.sum(), "sum.default"),
        (lambda x: F.silu(x), "silu.default"),
        (lambda x: x.mv(x[0]), "mv.default"),
        (lambda x: x.tril(), "tril.default"),
    ],
    ids=["sum", "silu", "mv", "tril"],
)
def test_operators_better_as_one_call_stay_whole(function: Callable[..., Any], op: str) -> None:
    assert op in operators(function, f32(4, 4))


def test_no_decomposition_mutates_and_all_are_aten_or_prims() -> None:
    table = decompositions()
    assert len(table) > 150
    assert [op for op in table if op._schema.is_mutable] == []
    assert {op.namespace for op in table} <= {"aten", "prims"}


@pytest.mark.parametrize("off", [(), ("lower",)], ids=["lowered", "called"])
def test_the_result_of_take_is_contiguous_even_if_the_index_is_not(off: tuple[str, ...]) -> None:
    index = torch.tensor([[0, 3], [1, 1], [-1, 2]]).mT
    taken = compiled(torch.take, options={"off": list(off)})
    assert_as_eager(taken, torch.take, [f32(2, 2), index])
    assert taken(f32(2, 2), index).stride() == (3, 1)


def test_a_masked_scatter_from_a_source_of_unknown_size_stays_a_call() -> None:
    def chosen(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.masked_scatter(mask, x[mask] * 2)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert_as_eager(compiled(chosen), chosen, [f32(4, 5), f32(4, 5) > 0])


def test_the_unit_of_a_decomposition_is_named_by_the_overload() -> None:
    assert unit(aten.gelu.default) == "decompose.aten.gelu.default"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_is_decomposed_without_mutation(training: bool, affine: bool) -> None:
    def function(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        weight = w if affine else None
        return F.batch_norm(x, m, v, weight, weight, training=training)

    inputs = [f32(4, 3, 2, 2), f32(3), f32(3), positive(3)]
    assert_as_eager(compiled(function), function, inputs)
    torch._dynamo.reset()
    found = operators(function, *inputs)
    assert not any("batch_norm" in op for op in found)


def test_the_batch_norm_that_updates_its_statistics_is_decomposed() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        return torch.ops.aten._batch_norm_with_update(x, w, w, m, v, 0.1, 1e-5)

    inputs = [f32(4, 3, 2, 2), f32(3), f32(3), positive(3)]
    assert_as_eager(compiled(function), function, inputs)
    torch._dynamo.reset()
    assert not any("batch_norm" in op for op in operators(function, *inputs))


def test_activations_of_a_transposed_tensor_have_the_layout_of_eager() -> None:
    names = (
        "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
        "leaky_relu", "log_softmax", "logsigmoid", "mish", "relu6", "selu", "silu",
        "softmax", "softmin", "softplus", "softshrink", "softsign", "tanhshrink", "normalize",
    )  # fmt: skip

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        options = {"log_softmax": {"dim": -1}, "softmax": {"dim": -1}, "softmin": {"dim": -1}}
        return [getattr(F, n)(x, **options.get(n, {})) for n in names]

    x = f32(4, 6).mT
    strides = [y.stride() for y in compiled(function)(x)]
    assert dict(zip(names, strides, strict=True)) == dict(
        zip(names, [y.stride() for y in function(x)], strict=True)
    )


def test_a_decomposition_that_raises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("inside")

    monkeypatch.setitem(REGISTRY.decompositions, aten.gelu.default, broken)
    with pytest.raises(Exception) as found:
        compiled(lambda x: F.gelu(x))(f32(3))
    causes = [found.value, found.value.__cause__, getattr(found.value, "inner_exception", None)]
    (error,) = [c for c in causes if isinstance(c, CompileError)][:1]
    assert (error.stage, error.unit) == ("decompose", "decompose.aten.gelu.default")
    assert "ZeroDivisionError: inside" in str(error)
