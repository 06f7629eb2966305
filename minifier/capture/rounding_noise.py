"""A backend that runs graphs in eager, and changes the last bits of what their operators round.

A script that fails with it, and passes in eager and with its control, rejects differences that
rounding explains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from tcdebug.compiler.seams import boxed
from tcdebug.minifier.cases.case import tensors_of

ULPS = 2.0
"""A result changes by this many units in the last place, at least."""
ERRORS = 3.0
"""It changes by this multiple of its own distance from float64, if that is more."""


def with_noise(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the graph, compiled by AOTAutograd and run with noise, forward and backward.

    Results of integers, moved data and random numbers are those of eager. Equal calls have equal
    results.
    """
    return _traced(_NoisyRun, module, inputs)


def without_noise(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return the graph, compiled as by `with_noise`, but run as it is: its control."""
    return _traced(fx.Interpreter, module, inputs)


def _traced(
    run: Callable[[fx.GraphModule], fx.Interpreter], module: fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    """Compile a graph with AOTAutograd, and run its graphs with an interpreter."""

    def interpreted(graph: fx.GraphModule, given: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return boxed(lambda arguments: run(graph).run(*arguments))

    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=interpreted,
        bw_compiler=interpreted,
        inference_compiler=interpreted,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(module, inputs)
    return compiled


class _NoisyRun(fx.Interpreter):
    """One run of a graph of AOTAutograd."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.signs = torch.Generator().manual_seed(0)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Call an operator, and change what it rounds."""
        made = super().call_function(target, args, kwargs)
        schema = getattr(target, "_schema", None)
        if schema is None or schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
            return made
        exact = _in_float64(target, args, kwargs) if _rounds(made) else None
        if exact is None:
            return made
        read = [*tensors_of([args, kwargs])]
        if isinstance(made, torch.Tensor):
            return self._changed(made, exact, read)
        return type(made)(self._changed(a, b, read) for a, b in zip(made, exact, strict=True))

    def _changed(self, made: Any, exact: Any, read: Sequence[torch.Tensor]) -> Any:
        """Return a result with noise where it is not equal to that in float64.

        What is computed in float64 has noise unless it is in what was read, or in float32.
        """
        if not _rounds(made) or not isinstance(exact, torch.Tensor) or exact.shape != made.shape:
            return made
        if made.dtype == torch.float64:
            distance = torch.zeros_like(made)
            moved = [t.reshape(-1) for t in read if t.dtype == made.dtype]
            rounded = made != made.float().double()
            rounded &= ~torch.isin(made.abs(), torch.cat([made.new_zeros(1), *moved]).abs())
        else:
            distance = (made.double() - exact.double()).abs()
            rounded = distance > 0
        last = torch.finfo(made.dtype).eps * made.double().abs()
        step = torch.where(rounded, torch.maximum(ULPS * last, ERRORS * distance), 0.0)
        signs = torch.randint(0, 2, made.shape, generator=self.signs).to(made.device) * 2 - 1
        noisy = (made.double() + signs * step).to(made.dtype)
        return torch.where(made.isfinite(), noisy, made)


def _rounds(made: Any) -> bool:
    """Return whether a result, or a part of it, is a tensor of floats."""
    if isinstance(made, tuple | list):
        return any(map(_rounds, made))
    return isinstance(made, torch.Tensor) and made.is_floating_point()


def _in_float64(target: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of an operator in float64; None if it takes no float64."""
    try:
        return target(*_widened(args), **_widened(kwargs))
    except Exception:
        return None  # as the docstring says


def _widened(value: Any) -> Any:
    return fx.node.map_aggregate(value, _wide)


def _wide(value: Any) -> Any:
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floats else value
