"""Custom operators that are registered wrongly are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from captured import captured
from torch_versions import needs_torch

from tcdebug.minifier.judging.custom_operators import custom_operators, misregistered

SCHEMA = "test_schema of torch.library.opcheck"
FAKE = "test_faketensor of torch.library.opcheck"


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


def doubled_in_place(x: torch.Tensor) -> torch.Tensor:
    return x.add_(x).clone()


def itself(x: torch.Tensor) -> torch.Tensor:
    return x


def first_half(x: torch.Tensor) -> torch.Tensor:
    return x[: x.shape[0] // 2].clone()


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()


def integers(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.int32)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    with torch.library._scoped_library("planted", "DEF") as library:
        library.define("op(Tensor x) -> Tensor")
        torch.library.register_fake("planted::op", torch.empty_like, lib=library)
        yield library


def objections(library: torch.library.Library, kernel: Callable[..., torch.Tensor]) -> list[str]:
    library.impl("op", kernel, "CPU")
    case = captured(lambda x: torch.ops.planted.op(x.sin()) * 2, torch.ones(4, 6))
    assert [str(operator) for operator in custom_operators(case.module)] == ["planted.op.default"]
    return misregistered(case)


def test_a_correct_registration_is_not_reported(library: torch.library.Library) -> None:
    assert objections(library, doubled) == []


@pytest.mark.parametrize(
    ("kernel", "check", "what"),
    [
        (first_half, FAKE, "Shapes torch.Size([2, 6]) and torch.Size([4, 6]) are not equal"),
        pytest.param(
            transposed,
            FAKE,
            "Stride mismatch! Strides are (1, 4) and (6, 1)",
            marks=needs_torch("2.13", "opcheck does not compare strides"),
        ),
        (integers, FAKE, "Dtypes torch.int32 and torch.float32 are not equal"),
        (doubled_in_place, SCHEMA, "Argument x is not defined as mutable but was mutated"),
        (itself, SCHEMA, "Argument x is not defined to alias output but was aliasing"),
    ],
)
def test_errors_of_a_registration_are_reported(
    library: torch.library.Library,
    kernel: Callable[..., torch.Tensor],
    check: str,
    what: str,
) -> None:
    first = objections(library, kernel)[0]
    assert first.startswith(
        f"the custom operator planted.op.default is registered wrongly, says {check}: "
    )
    assert what in first


def branch(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: torch.ops.planted.op(x.sin()), lambda x: x.cos(), (x,))


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(torch.ops.planted.op, x.sin(), use_reentrant=False)


@pytest.mark.parametrize("function", [branch, checkpointed])
@pytest.mark.parametrize("gradients", [False, True])
def test_operators_in_nested_graphs_are_checked(
    library: torch.library.Library, function: Callable[..., torch.Tensor], gradients: bool
) -> None:
    kernel = [doubled]
    library.impl("op", lambda x: kernel[0](x), "CPU")
    case = captured(function, torch.ones(4, 6, requires_grad=gradients))
    assert misregistered(case) == []
    kernel[0] = doubled_in_place
    (only,) = misregistered(case)
    assert "Argument x is not defined as mutable but was mutated" in only


def test_operators_of_torch_are_not_custom_operators() -> None:
    case = captured(lambda x: torch.ops.aten.sin(x) + torch.ops.prims.cos(x), torch.ones(3))
    assert list(custom_operators(case.module)) == []
