"""Judges the results of a program by eager, and where they differ, by eager in float64."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from programs.program import Made, caller, differentiated, tensors
from torch import Tensor, nn
from torch.utils import _pytree as pytree

ALLOWED = 0.02
"""The share of the norm of an output by which it may differ from eager's."""
EAGER_ERRORS = 4.0
"""The error that an output may have as a multiple of eager's own."""


def difference(made: Made, expected: Any, found: Any) -> str:
    """How far results are from eager's; empty if they are as accurate.

    An output that differs is right if its distance from a run in float64 is at most a few times
    that of eager's output. A gradient that is zero in exact arithmetic is therefore right, although
    each version computes other rounding errors of it. A program that updates tensors or cannot run
    in float64 is judged by eager alone.
    """
    eager, ours = tensors(expected), tensors(found)
    wrong = [n for n, (a, b) in enumerate(zip(eager, ours, strict=False)) if _distance(a, b)]
    if not wrong:
        return ""
    number = wrong[0]
    if eager[number].shape != ours[number].shape:
        sizes = f"{tuple(ours[number].shape)} instead of {tuple(eager[number].shape)}"
        return f"output {number} has size {sizes}"
    exact = in_double(made)
    if exact is not None and len(exact) != len(eager):  # an input without a gradient in float64
        exact = None
    for number in wrong:
        if exact is None or not _as_accurate(eager[number], ours[number], exact[number]):
            distance = _distance(eager[number], ours[number])
            return f"output {number} differs by {distance:.2g} of its norm"
    return ""


def in_double(made: Made) -> Sequence[Tensor] | None:
    """The results of a program in float64; None if it updates tensors or does not run so."""
    if made.updated:
        return None
    function = made.function
    try:
        if isinstance(function, nn.Module):
            function = copy.deepcopy(function).double()
        inputs = pytree.tree_map(_doubled, made.inputs)
        keywords = pytree.tree_map(_doubled, made.keywords)
        again = Made(function, inputs, (), keywords)
        if made.leaves:
            leaves = differentiated(function, *inputs).leaves
            again = Made(function, inputs, leaves, keywords)
        torch.manual_seed(0)
        return tensors(caller(again, function)())
    except Exception:  # whatever a program raises for numbers that it was not written for
        return None


def _doubled(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().double()
    return value


def _distance(a: Tensor, b: Tensor) -> float:
    """The distance of two outputs as a share of the first one's norm; 0 if it is allowed.

    Where the first one, eager's, has overflowed, it says nothing about the second.
    """
    if a.shape != b.shape:
        return 1.0
    if not a.is_floating_point() or not a.numel():
        return 0.0
    known = a.isfinite()
    a, b = a.detach()[known].double(), b.detach()[known].double().nan_to_num()
    distance = float((a - b).norm() / (a.norm() + 1e-12))
    return distance if distance > ALLOWED else 0.0


def _as_accurate(eager: Tensor, ours: Tensor, exact: Tensor) -> bool:
    if exact.shape != eager.shape:
        return False
    known = eager.isfinite()
    reference = exact.detach()[known].double().nan_to_num()
    error, own = (
        float((t.detach()[known].double().nan_to_num() - reference).norm()) for t in (ours, eager)
    )
    return error <= EAGER_ERRORS * own
