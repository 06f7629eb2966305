"""What generated Triton kernels call: operations that Triton has not, or has with other rules."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def trunc_mod(a, b):
    """The remainder of an integer division that rounds toward zero."""
    return a - (a // b) * b


@triton.jit
def int_floor_div(a, b):
    """Integer division that rounds down. What division by zero gives is not defined."""
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def int_remainder(a, b):
    """The remainder with the sign of the divisor."""
    rest = a - (a // b) * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def remainder(a, b):
    """The remainder of floats with the sign of the divisor."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def floor_div(a, b):
    """Division of floats that rounds down, as eager does it: by the exact remainder."""
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1.0, quotient)
    down = libdevice.floor(quotient)
    whole = tl.where(quotient - down > 0.5, down + 1.0, down)
    zero = libdevice.copysign(quotient * 0.0, a / b)
    return tl.where(b == 0, a / b, tl.where(quotient == 0, zero, whole))


@triton.jit
def shift_left(a, b):
    """Bits shifted out are lost, also by a count that is negative or too large."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    out = (b < 0) | (b >= bits)
    return tl.where(out, a * 0, a << tl.where(out, b * 0, b))


@triton.jit
def shift_right(a, b):
    """The sign stays, also for a count that is negative or too large."""
    last: tl.constexpr = a.dtype.primitive_bitwidth - 1
    out = (b < 0) | (b > last)
    return a >> tl.where(out, b * 0 + last, b)


@triton.jit
def sign(x):
    """-1, 0 or 1; 0 for a NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def maximum(a, b):
    """The larger; NaN wins."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def minimum(a, b):
    """The smaller; NaN wins."""
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def multiply(a, b):
    """The product, as a combination."""
    return a * b


@triton.jit
def argmax(value, place, other, other_place):
    """The larger of two with its place: of equal ones the first; a NaN is the largest."""
    larger = (value > other) | ((value != value) & (other == other))
    same = (value == other) | ((value != value) & (other != other))
    wins = larger | (same & (place < other_place))
    return tl.where(wins, value, other), tl.where(wins, place, other_place)


@triton.jit
def argmin(value, place, other, other_place):
    """The smaller of two with its place: of equal ones the first; a NaN is the smallest."""
    smaller = (value < other) | ((value != value) & (other == other))
    same = (value == other) | ((value != value) & (other != other))
    wins = smaller | (same & (place < other_place))
    return tl.where(wins, value, other), tl.where(wins, place, other_place)


@triton.jit
def add_distance(total, best, value):
    """A sum of exp(x - m) for the values so far, of which m is the largest, with one more.

    Where no value was there m is -inf, and the sum whatever: it is multiplied by 0 when one comes.
    """
    same = best == value
    scale = tl.exp(tl.where(same, 0.0, tl.minimum(best, value) - tl.maximum(best, value)))
    nan = (best != best) | (value != value)
    added = tl.where(value > best, total * scale + 1.0, total + scale)
    return tl.where(nan, float("nan"), added)


@triton.jit
def sum_of_distances(best, total, largest):
    """The sums along r, each for a largest value of its own, as one for the largest of all.

    NaN where that is an infinity: there eager takes inf from inf.
    """
    scaled = tl.where(best == largest, total, total * tl.exp(best - largest))
    result = tl.sum(scaled, 1, keep_dims=True)
    return tl.where(tl.abs(largest) == float("inf"), float("nan"), result)


@triton.jit
def index_div(a, b):
    """Division of indices that rounds down; the divisor is positive."""
    quotient = a // b
    return tl.where(a - quotient * b < 0, quotient - 1, quotient)


@triton.jit
def index_mod(a, b):
    """The remainder of indices; the divisor is positive."""
    rest = a % b
    return tl.where(rest < 0, rest + b, rest)
