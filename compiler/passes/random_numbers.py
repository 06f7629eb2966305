"""Draws random numbers in kernels, with Philox.

Matches the operators in `DISTRIBUTIONS` with a dense result and torch's own generator. Each call of
a graph draws one seed per device from that generator. Backward receives forward's seed, so it
recomputes the same numbers. Guarantees eager's distributions, but not eager's numbers. The option
`fallback_random`, which does, switches the pass off.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import pi
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from tcdebug.compiler.operators.philox import random_bits
from tcdebug.compiler.passes.replacement import same_numbers

aten = torch.ops.aten

LOWEST, HIGHEST = -(2**63), 2**63 - 1
DIGITS = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}
"""Dtype -> random bits of a number in [0, 1). With more bits, rounding could give 1."""


def random_numbers(graph: fx.Graph) -> bool:
    """Draw random numbers in kernels with Philox, from a seed of torch's generator."""
    draws = [n for n in graph.nodes if n.op == "call_function" and n.target in DISTRIBUTIONS]
    writer = _DrawWriter(graph)
    for node in draws:
        if _is_seed(node) or not _has_layout(node) or node.kwargs.get("generator") is not None:
            continue
        with graph.inserting_before(node):
            writer.at = node
            result = DISTRIBUTIONS[node.target](writer, *node.args, **node.kwargs)
        _replace(graph, node, result)
    return writer.streams > 0


def _replace(graph: fx.Graph, node: fx.Node, result: fx.Node | tuple[fx.Node, ...]) -> None:
    if isinstance(result, tuple):
        for user in list(node.users):
            user.replace_all_uses_with(result[int(user.args[1])])  # type: ignore[arg-type] # getitem's
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(result)
    graph.erase_node(node)


def _is_seed(node: fx.Node) -> bool:
    return node.target is aten.randint.low and node.args[:2] == (LOWEST, HIGHEST)


def _has_layout(node: fx.Node) -> bool:
    """Return whether the result is a real tensor that is contiguous in some order of dimensions."""
    value = node.meta["val"]
    if isinstance(value, tuple):
        value = value[0]
    if value.is_complex():
        return False
    return same_numbers(
        _strides([value.shape[d] for d in _order(value)]),
        tuple(value.stride()[d] for d in _order(value)),
    )


def _order(value: torch.Tensor) -> list[int]:
    """Return the dimensions from the outermost in memory to the innermost; as given if symbolic."""
    dims = list(range(value.dim()))
    if all(isinstance(s, int) for s in value.stride()):
        dims.sort(key=lambda d: (-value.stride()[d], value.shape[d] == 1))
    return dims


def _strides(size: Sequence[Any]) -> tuple[Any, ...]:
    strides: list[Any] = []
    step: Any = 1
    for length in reversed(size):
        strides.insert(0, step)
        step = step * length
    return tuple(strides)


class _DrawWriter:
    """Writes the nodes that replace the random operator `at`."""

    at: fx.Node

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.streams = 0
        self._seeds: dict[torch.device, fx.Node] = {}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Return a new call with its fake result."""
        node = self.graph.call_function(target, args, kwargs)
        given, named = fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
        with self.value.fake_mode:  # type: ignore[attr-defined] # fake tensors have one
            value = target(*given, **named)
        node.meta = {**self.at.meta, "val": value}
        return node

    @property
    def value(self) -> torch.Tensor:
        """The fake tensor of the first result."""
        value = self.at.meta["val"]
        first: torch.Tensor = value[0] if isinstance(value, tuple) else value
        return first

    def _seed(self) -> fx.Node:
        device = self.value.device
        if device not in self._seeds:
            seed = self.call(
                aten.randint.low, LOWEST, HIGHEST, [], dtype=torch.int64, device=device
            )
            seed.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            self._seeds[device] = seed
        return self._seeds[device]

    def bits(self) -> fx.Node:
        """64 random bits per element of the result, from a stream of their own."""
        order = _order(self.value)
        size = [self._size(self.value.shape[d], d) for d in order]
        bits = self.call(random_bits(), self._seed(), self.streams, size)
        self.streams += 1
        if order == sorted(order):
            return bits
        inverse = sorted(range(len(order)), key=lambda k: order[k])
        return self.call(aten.permute.default, bits, inverse)

    def _size(self, length: Any, dim: int) -> Any:
        """Return a size: an integer unchanged, a symbolic one as a node."""
        if isinstance(length, int):
            return length
        known = [n for n in self.at.all_input_nodes if str(n.meta.get("val")) == str(length)]
        return known[0] if known else self.call(aten.sym_size.int, self.at.args[0], dim)

    def whole(self, bits: fx.Node, digits: int, shift: int = 0) -> fx.Node:
        """Return an integer from 0 to 2^digits - 1, in int32 if it fits."""
        if shift:
            bits = self.call(aten.bitwise_right_shift.Tensor_Scalar, bits, shift)
        low = self.call(aten.bitwise_and.Scalar, bits, 2**digits - 1)
        return low if digits > 31 else self.cast(low, torch.int32)

    def cast(self, x: fx.Node, dtype: torch.dtype) -> fx.Node:
        """Return a conversion; the node itself if it has the dtype."""
        if x.meta["val"].dtype == dtype:
            return x
        return self.call(aten._to_copy.default, x, dtype=dtype)

    def scaled(self, x: fx.Node, factor: Any, added: Any = 0.0) -> fx.Node:
        """x * factor + added."""
        if isinstance(factor, fx.Node) or factor != 1:
            x = self.call(_form(aten.mul, factor), x, factor)
        if not isinstance(added, fx.Node) and added == 0:
            return x
        return self.call(_form(aten.add, added), x, added)

    def uniform(self, dtype: torch.dtype) -> fx.Node:
        """Uniform numbers in [0, 1)."""
        digits = DIGITS[dtype]
        return self.scaled(self.cast(self.whole(self.bits(), digits), dtype), 2.0**-digits)

    def inner(self, dtype: torch.dtype) -> fx.Node:
        """Uniform numbers in (0, 1), though rounding may give 1."""
        digits = 53 if dtype == torch.float64 else 31
        number = self.cast(self.whole(self.bits(), digits), dtype)
        return self.scaled(number, 2.0**-digits, 2.0 ** -(digits + 1))

    def normal(self, dtype: torch.dtype) -> fx.Node:
        """Standard normal numbers by the method of Box and Muller.

        "A note on the generation of random normal deviates" (1958).
        """
        radius = self.call(aten.log.default, self.inner(dtype))
        radius = self.call(aten.sqrt.default, self.scaled(radius, -2.0))
        angle = self.scaled(self.uniform(dtype), 2 * pi)
        return self.call(aten.mul.Tensor, radius, self.call(aten.cos.default, angle))


def _form(packet: Any, operand: Any) -> Any:
    """Return the overload of an operator for a second operand that is a tensor or a number."""
    tensor = isinstance(operand, fx.Node) and isinstance(operand.meta["val"], torch.Tensor)
    return packet.Tensor if tensor else packet.Scalar


def _compute(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


Distribution = Callable[..., fx.Node | tuple[fx.Node, ...]]


def _uniform(w: _DrawWriter, *args: Any, **kwargs: Any) -> fx.Node:
    return w.uniform(w.value.dtype)


def _uniform_between(
    w: _DrawWriter, x: Any, low: Any = 0.0, high: Any = 1.0, **kwargs: Any
) -> fx.Node:
    number = w.uniform(_compute(w.value.dtype))
    return w.cast(w.scaled(number, high - low, low), w.value.dtype)


def _normal(w: _DrawWriter, *args: Any, **kwargs: Any) -> fx.Node:
    return w.cast(w.normal(_compute(w.value.dtype)), w.value.dtype)


def _normal_around(
    w: _DrawWriter, x: Any, mean: Any = 0.0, std: Any = 1.0, **kwargs: Any
) -> fx.Node:
    return w.cast(w.scaled(w.normal(_compute(w.value.dtype)), std, mean), w.value.dtype)


def _normal_with(w: _DrawWriter, mean: Any, std: Any = 1.0, *size: Any, **kwargs: Any) -> fx.Node:
    return _normal_around(w, None, mean, std)


def _log_normal(w: _DrawWriter, x: Any, mean: Any = 1.0, std: Any = 2.0, **kwargs: Any) -> fx.Node:
    number = w.scaled(w.normal(_compute(w.value.dtype)), std, mean)
    return w.cast(w.call(aten.exp.default, number), w.value.dtype)


def _between(w: _DrawWriter, low: Any, high: Any) -> fx.Node:
    bits = w.call(aten.bitwise_and.Scalar, w.bits(), HIGHEST)
    known = isinstance(low, int) and isinstance(high, int)
    span = high - low if known else w.call(operator.sub, high, low)
    number = w.call(aten.remainder.Scalar, bits, span)
    return w.cast(w.scaled(number, 1, low), w.value.dtype)


def _integers(w: _DrawWriter, high: Any, *args: Any, **kwargs: Any) -> fx.Node:
    return _between(w, 0, high)


def _integers_from(w: _DrawWriter, low: Any, high: Any, *args: Any, **kwargs: Any) -> fx.Node:
    return _between(w, low, high)


def _integers_like(w: _DrawWriter, x: Any, high: Any, **kwargs: Any) -> fx.Node:
    return _between(w, 0, high)


def _integers_like_from(w: _DrawWriter, x: Any, low: Any, high: Any, **kwargs: Any) -> fx.Node:
    return _between(w, low, high)


def _bernoulli_trial(w: _DrawWriter, chance: Any) -> fx.Node:
    """Return a Bernoulli trial per element: true with probability `chance`."""
    if isinstance(chance, fx.Node):
        dtype = _compute(chance.meta["val"].dtype)
        return w.call(aten.lt.Tensor, w.uniform(dtype), w.cast(chance, dtype))
    return w.call(aten.lt.Scalar, w.uniform(torch.float32), chance)


def _bernoulli(w: _DrawWriter, x: Any, p: Any = None, **kwargs: Any) -> fx.Node:
    return w.cast(_bernoulli_trial(w, x if p is None else p), w.value.dtype)


def _dropout(w: _DrawWriter, x: fx.Node, p: float, train: bool | None) -> tuple[fx.Node, fx.Node]:
    """Return the elements of x that are kept, scaled, and the mask of those elements."""
    chance = 1.0 if train is False else 1.0 - p
    kept = _bernoulli_trial(w, chance)
    out = w.call(aten.mul.Tensor, x, kept)
    return w.scaled(out, 1 / chance if chance else 0.0), kept


def _exponential(w: _DrawWriter, x: Any, rate: Any = 1.0, **kwargs: Any) -> fx.Node:
    dtype = _compute(w.value.dtype)
    log = w.call(aten.log.default, w.inner(dtype))
    waited = w.call(aten.clamp_min.default, w.scaled(log, -1.0), torch.finfo(dtype).eps / 2)
    return w.cast(w.scaled(waited, 1.0 / rate), w.value.dtype)


def _geometric(w: _DrawWriter, x: Any, p: Any, **kwargs: Any) -> fx.Node:
    dtype = _compute(w.value.dtype)
    log = w.call(aten.log.default, w.inner(dtype))
    waited = w.scaled(log, float(1 / torch.log1p(torch.tensor(-p, dtype=torch.float64))))
    return w.cast(
        w.call(aten.clamp_min.default, w.call(aten.ceil.default, waited), 1), w.value.dtype
    )


def _cauchy(w: _DrawWriter, x: Any, median: Any = 0.0, sigma: Any = 1.0, **kwargs: Any) -> fx.Node:
    angle = w.scaled(w.inner(_compute(w.value.dtype)), pi, -pi / 2)
    return w.cast(w.scaled(w.call(aten.tan.default, angle), sigma, median), w.value.dtype)


DISTRIBUTIONS: dict[Any, Distribution] = {
    aten.rand.default: _uniform,
    aten.rand_like.default: _uniform,
    aten.uniform.default: _uniform_between,
    aten.randn.default: _normal,
    aten.randn_like.default: _normal,
    aten.normal_functional.default: _normal_around,
    aten.normal.float_float: _normal_with,
    aten.normal.Tensor_float: _normal_with,
    aten.normal.float_Tensor: _normal_with,
    aten.normal.Tensor_Tensor: _normal_with,
    aten.log_normal.default: _log_normal,
    aten.randint.default: _integers,
    aten.randint.low: _integers_from,
    aten.randint_like.default: _integers_like,
    aten.randint_like.low_dtype: _integers_like_from,
    aten.bernoulli.default: _bernoulli,
    aten.bernoulli.p: _bernoulli,
    aten.native_dropout.default: _dropout,
    aten.exponential.default: _exponential,
    aten.geometric.default: _geometric,
    aten.cauchy.default: _cauchy,
}
"""Random operator -> its implementation. ATen computes the others: multinomial, permutations."""
