"""Functions for generated Triton kernels: operations that Triton lacks or defines differently."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from tcdebug.compiler.codegen.triton import places

NO_PLACE = tl.constexpr(places.NO_PLACE)
"""The place of an element beyond the end of a row."""
LAST = tl.constexpr(2**63 - 1)


@triton.jit
def trunc_mod(a, b):
    """Return the remainder of an integer division that rounds toward zero."""
    return a - (a // b) * b


@triton.jit
def int_floor_div(a, b):
    """Integer division that rounds down. The result of division by zero is undefined."""
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def int_remainder(a, b):
    """Return the remainder with the sign of the divisor."""
    rest = a - (a // b) * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def remainder(a, b):
    """Return the remainder of floats with the sign of the divisor."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def floor_div(a, b):
    """Division of floats that rounds down. As in eager, it uses the exact remainder."""
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1.0, quotient)
    down = libdevice.floor(quotient)
    whole = tl.where(quotient - down > 0.5, down + 1.0, down)
    zero = libdevice.copysign(quotient * 0.0, a / b)
    return tl.where(b == 0, a / b, tl.where(quotient == 0, zero, whole))


@triton.jit
def float16_quotient(a, b):
    """Return a / b of float16 numbers in float32, to be rounded to float16.

    The remainder corrects the product with the approximate reciprocal. The quotient of float16
    numbers is at least 2^-23 of its size away from the middle of two others.
    """
    near = libdevice.fast_dividef(tl.full([], 1.0, tl.float32), b)
    found = a * near
    dividend, divisor = tl.broadcast(a, b)
    _, inverse = tl.broadcast(dividend, near)
    found = tl.fma(tl.fma(-found, divisor, dividend), inverse, found)
    return tl.where(tl.abs(found) > 0, found, a * near)  # zeros, infinities and NaN


@triton.jit
def bfloat16_log(x):
    """Return the logarithm of a bfloat16 number in float32, to be rounded to bfloat16.

    The instruction takes numbers below 2^-126 for zeros. The rounded result was that of `log` for
    each of the 65536 numbers.
    """
    small = x < 2.0**-100
    found = libdevice.fast_log2f(tl.where(small, x * 2.0**64, x))
    return (found - tl.where(small, 64.0, 0.0)) * 0.6931471805599453


@triton.jit
def shift_left(a, b):
    """Shift left. The result is 0 for a count that is negative or too large."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    out = (b < 0) | (b >= bits)
    return tl.where(out, a * 0, a << tl.where(out, b * 0, b))


@triton.jit
def shift_right(a, b):
    """Arithmetic shift right. For a count that is negative or too large, the sign is left."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    out = (b < 0) | (b >= bits)
    return tl.where(out, tl.where(a < 0, a * 0 - 1, a * 0), a >> tl.where(out, b * 0, b))


@triton.jit
def sign(x):
    """-1, 0 or 1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def maximum(a, b):
    """Return the larger; NaN wins."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """Return the smaller; NaN wins."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def multiply(a, b):
    """Return the product, as a function for `tl.reduce` and scans."""
    return a * b


@triton.jit
def plus(a, b):
    """Return the sum, as a function for scans."""
    return a + b


@triton.jit
def log_add_exp(a, b):
    """log(exp(a) + exp(b)). For two equal infinities the result is that infinity."""
    largest = maximum(a, b)
    distance = minimum(a, b) - largest
    same = (a == b) & (tl.abs(a) == float("inf"))
    return tl.where(same, a, libdevice.log1p(tl.exp(distance)) + largest)


@triton.jit
def last_max(value, place, other, other_place):
    """Return the larger of two values, with its position.

    The last of equals wins. NaN is largest.
    """
    larger = (value > other) | ((value != value) & (other == other))
    same = (value == other) | ((value != value) & (other != other))
    wins = larger | (same & (place > other_place))
    return tl.where(wins, value, other), tl.where(wins, place, other_place)


@triton.jit
def last_min(value, place, other, other_place):
    """Return the smaller of two values, with its position.

    The last of equals wins. NaN is smallest.
    """
    smaller = (value < other) | ((value != value) & (other == other))
    same = (value == other) | ((value != value) & (other != other))
    wins = smaller | (same & (place > other_place))
    return tl.where(wins, value, other), tl.where(wins, place, other_place)


@triton.jit
def places_in_order(value, place, DOWN: tl.constexpr):
    """Sort rows and return the places of their elements; equal ones keep their order.

    As in eager, zeros are equal, and NaN is larger than anything else. An integer that is sorted
    has the element in its upper half and its place in the lower one.
    """
    if value.dtype == tl.float32:
        number = tl.where(value == value, value, float("nan")) + 0.0  # no sign of NaN or zero
        bits = number.to(tl.int32, bitcast=True)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    else:
        key = value.to(tl.int32)
    if DOWN:
        key = key ^ -1
    packed = (key.to(tl.int64) << 32) | place.to(tl.int64)
    packed = tl.where(place == NO_PLACE, LAST, packed)
    return (tl.sort(packed, 1) & NO_PLACE).to(tl.int32)


@triton.jit
def argmax(value, place, other, other_place):
    """Return the larger of two values, with its position.

    The first of equals wins. NaN is largest.
    """
    larger = (value > other) | ((value != value) & (other == other))
    same = (value == other) | ((value != value) & (other != other))
    wins = larger | (same & (place < other_place))
    return tl.where(wins, value, other), tl.where(wins, place, other_place)


@triton.jit
def argmin(value, place, other, other_place):
    """Return the smaller of two values, with its position.

    The first of equals wins. NaN is smallest.
    """
    smaller = (value < other) | ((value != value) & (other == other))
    same = (value == other) | ((value != value) & (other != other))
    wins = smaller | (same & (place < other_place))
    return tl.where(wins, value, other), tl.where(wins, place, other_place)


@triton.jit
def next_argmax(best, place, value, value_place):
    """Return the larger of a state and a later element, as `argmax`, without comparing places."""
    wins = ((best == best) & ~(value <= best)) | (place == NO_PLACE)
    return tl.where(wins, value, best), tl.where(wins, value_place, place)


@triton.jit
def next_argmin(best, place, value, value_place):
    """Return the smaller of a state and a later element, as `argmin`, without comparing places."""
    wins = ((best == best) & ~(value >= best)) | (place == NO_PLACE)
    return tl.where(wins, value, best), tl.where(wins, value_place, place)


LOWEST = tl.constexpr(-3.4028234663852886e38)
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def add_distances(best, total, values):
    """Update the maximum of each group, and the sum of exp(x - maximum), with more values.

    The second and the last dimension of `values` are those of a group. The maximum may be infinite;
    differences are taken from a finite number, so that they are not NaN for groups without values.
    """
    largest = maximum(best, tl.reduce(tl.reduce(values, 3, maximum), 1, maximum))
    finite = tl.maximum(largest, LOWEST)
    distances = values - tl.expand_dims(tl.expand_dims(finite, 1), 3)
    added = tl.sum(tl.sum(libdevice.exp2(distances * LOG2_E), 3), 1)
    return largest, total * libdevice.exp2((best - finite) * LOG2_E) + added


@triton.jit
def add_distance(best, total, value):
    """The same for groups of one value, with one exponential instead of two."""
    distance = value - tl.maximum(best, LOWEST)
    scale = libdevice.exp2(tl.abs(distance) * -LOG2_E)
    grown = distance > 0
    return maximum(best, value), tl.where(grown, total * scale + 1, total + scale)


@triton.jit
def sum_of_distances(best, total, largest):
    """Combine the sums along r, each relative to its own maximum, into one for the overall maximum.

    NaN if that is infinite, because eager then computes inf - inf.
    """
    scaled = tl.where(best == largest, total, total * tl.exp(best - largest))
    result = tl.sum(scaled, 1, keep_dims=True)
    return tl.where(tl.abs(largest) == float("inf"), float("nan"), result)


@triton.jit
def sum_of_finite_distances(best, total, largest):
    """The same, but the sum of exp(x) if the overall maximum is infinite, as in logsumexp."""
    result = sum_of_distances(best, total, largest)
    return tl.where(tl.abs(largest) == float("inf"), tl.maximum(largest, 0.0), result)


@triton.jit
def add_squares(mean, squares, count, values):
    """Update the mean of each group and the squared distances from it. Also return the new sums.

    The second and the last dimension of `values` are those of a group. `count` is the number of
    earlier values of each group.
    """
    added = tl.sum(tl.sum(values, 3), 1)
    number: tl.constexpr = values.shape[1] * values.shape[3]
    own = added / number
    distances = values - tl.expand_dims(tl.expand_dims(own, 1), 3)
    within = tl.sum(tl.sum(distances * distances, 3), 1)
    mean, squares, count = _joined(mean, squares, count, own, within, number)
    return mean, squares, count, added


@triton.jit
def add_squares_inside(mean, squares, count, values, inside):
    """The same for the values that are `inside`. Groups may differ in their number.

    One reduction finds a sum and a number, so that they have one layout: a mask alone has none.
    """
    values = tl.where(inside, values, 0.0)
    pairs = tl.reduce((values, inside.to(values.dtype)), 3, _plus_both)
    added, number = tl.reduce(pairs, 1, _plus_both)
    own = added / tl.maximum(number, 1.0)
    distances = tl.where(inside, values - tl.expand_dims(tl.expand_dims(own, 1), 3), 0.0)
    within = tl.sum(tl.sum(distances * distances, 3), 1)
    mean, squares, count = _joined(mean, squares, count, own, within, number)
    return mean, squares, count, added


@triton.jit
def _plus_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def _joined(mean, squares, count, own, within, number):
    """Join the mean, the squares and the number of two sets of values."""
    distance = own - mean
    share = number / tl.maximum(count + number, 1.0)
    squares += within + distance * distance * (count * share)
    return mean + distance * share, squares, count + number


@triton.jit
def sum_of_squares(mean, squares, count, center):
    """Combine sums along r, each relative to its own mean, into one relative to a common center."""
    distance = mean - center
    return tl.sum(squares + distance * distance * count, 1, keep_dims=True)


@triton.jit
def one_plus_erf(x):
    """erf(x) + 1 within 1.2e-7. For negative x it is exp2(-q(|x|)).

    q is a fit of -log2(erfc) from 0 to 10, weighted by the effect of its error on the result.
    """
    size = tl.abs(x)
    q = tl.fma(size, 4.5359236537478864e-05, -0.0004455121816135943)
    q = tl.fma(q, size, 0.0014894540654495358)
    q = tl.fma(q, size, 0.0007746127084828913)
    q = tl.fma(q, size, -0.028253668919205666)
    q = tl.fma(q, size, 0.1484816074371338)
    q = tl.fma(q, size, 0.9184163808822632)
    q = tl.fma(q, size, 1.6279085874557495)
    tail = libdevice.exp2(q * size * -1.0)
    return tl.where(x < 0, tail, 2.0 - tail)


@triton.jit
def joined_places(first, COUNT: tl.constexpr):
    """Return the places of neighbours along a new last dimension, of which `first` are first."""
    return tl.expand_dims(first, 2) + tl.arange(0, COUNT)[None, None, :]


@triton.jit
def joined2(a, b):
    """Return two values as neighbours along a new last dimension."""
    return tl.join(a, b)


@triton.jit
def joined4(a, b, c, d):
    """Return four values as neighbours along a new last dimension."""
    pairs = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.reshape(pairs, (a.shape[0], a.shape[1], 4))


@triton.jit
def philox(seed, stream, place):
    """Return the first two words of Philox 4x32-10 for the counter (place, stream), as 64 bits."""
    spread = place * 0
    c2, c3 = stream + spread, (stream >> 32) + spread
    low, high, _, _ = tl.philox(
        seed + spread,
        place.to(tl.uint32),
        (place >> 32).to(tl.uint32),
        c2.to(tl.uint32),
        c3.to(tl.uint32),
    )
    return low.to(tl.int64) | (high.to(tl.int64) << 32)


@triton.jit
def index_div(a, b):
    """Division of indices that rounds down, for a positive divisor."""
    quotient = a // b
    return tl.where(a - quotient * b < 0, quotient - 1, quotient)


@triton.jit
def index_mod(a, b):
    """Return the non-negative remainder of indices, for a positive divisor."""
    rest = a % b
    return tl.where(rest < 0, rest + b, rest)


@triton.jit
def beside(program, rows, columns, together):
    """(row, column, rest) of a program among the tiles of a matrix.

    Consecutive programs take `together` rows of tiles before the next column, so that programs that
    run at the same time share operands in the cache.
    """
    rest = program // (rows * columns)
    place = program % (rows * columns)
    first = place // (together * columns) * together
    height = tl.minimum(rows - first, together)
    place = place % (together * columns)
    return first + place % height, place // height, rest
