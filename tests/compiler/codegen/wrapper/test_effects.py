"""Calls of operators whose effects are ordered by tokens, such as checks of a factorisation."""

from __future__ import annotations

import pytest
import torch
from judge import assert_same, compiled, gradients
from torch import Tensor

from tcdebug.compiler.codegen.wrapper.python_bindings import DIRECT

WITH_EFFECTS = torch.ops.higher_order.with_effects


def checked_twice(x: Tensor) -> Tensor:
    return torch.linalg.inv(x) @ torch.linalg.cholesky(x @ x.mT + torch.eye(x.shape[-1]))


def test_checked_factorisations_and_their_gradients_are_those_of_eager() -> None:
    x = torch.randn(3, 4, 4)
    assert_same(compiled(checked_twice)(x), checked_twice(x))
    found = gradients(compiled(checked_twice), [x.clone().requires_grad_()])
    assert_same(found, gradients(checked_twice, [x.clone().requires_grad_()]))


def test_a_check_that_fails_raises_unless_aotautograd_drops_it() -> None:
    try:
        torch.compile(checked_twice, backend="aot_eager")(torch.zeros(3, 4, 4))
    except torch.linalg.LinAlgError:
        torch._dynamo.reset()
    else:
        pytest.skip("AOTAutograd of this torch removes the check")
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(checked_twice)(torch.zeros(3, 4, 4))


def test_a_call_with_an_effect_gives_its_results_behind_a_token() -> None:
    call = DIRECT[WITH_EFFECTS]
    token, result = call(None, torch.ops.aten.relu.default, torch.tensor([-1.0, 2.0]))
    assert token.numel() == 0
    assert result.tolist() == [0.0, 2.0]
    again, values, places = call(token, torch.ops.aten.max.dim, torch.tensor([[3, 5]]), 1)
    assert again is token
    assert (values.tolist(), places.tolist()) == ([5], [1])
