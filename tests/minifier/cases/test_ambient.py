"""The state of torch is restored, whatever a graph that stops halfway has switched on."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from tcdebug.minifier.cases.ambient import restored


def fails_in_a_jacobian() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("in the middle")

    torch._C._enter_dual_level()  # as a graph that Dynamo captured from jacfwd does
    torch.func.jacfwd(broken)(torch.ones(2))


def test_a_level_of_forward_mode_differentiation_is_left() -> None:
    for _ in range(2):
        with pytest.raises((ValueError, RuntimeError)), restored():
            fails_in_a_jacobian()
    with forward_ad.dual_level():
        pass


def test_a_level_that_was_entered_before_stays() -> None:
    with forward_ad.dual_level():
        with restored():
            pass
        dual = forward_ad.make_dual(torch.ones(1), torch.ones(1) * 3)
        assert forward_ad.unpack_dual(dual).tangent is not None


def test_hooks_of_saved_tensors_are_allowed_again() -> None:
    """A captured graph of torch.func.grad forbids them, and allows them again at its end."""
    with restored():
        torch._C._autograd._saved_tensors_hooks_disable("as in a transform")
    x = torch.ones(1, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 3, lambda t: t):
        (x * x).backward()
    assert x.grad is not None
    assert x.grad.item() == 6.0


def test_hooks_of_saved_tensors_that_were_forbidden_stay_so() -> None:
    with torch.autograd.graph.disable_saved_tensors_hooks("before"):
        with restored():
            pass
        with pytest.raises(RuntimeError, match="before"):
            torch._C._autograd._push_saved_tensors_default_hooks(lambda t: t, lambda t: t)
