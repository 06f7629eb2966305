"""The counter-based random number generator Philox 4x32-10, in plain torch.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). 32-bit words are
held in int64. The products wrap around, which keeps their lower 64 bits.
"""

from __future__ import annotations

from functools import cache

import torch

from tcdebug.compiler.operators.library import register

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF

SCHEMA = "random_bits(Tensor seed, int stream, SymInt[] size) -> Tensor"

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _words(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the lower and the upper 32-bit word."""
    return x & WORD, (x >> 32) & WORD


def philox4x32(counter: Words, key: tuple[torch.Tensor, torch.Tensor]) -> Words:
    """Return the four random words of a counter and a key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        low0, high0 = _words(c0 * MULTIPLIERS[0])
        low1, high1 = _words(c2 * MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def philox(seed: torch.Tensor, stream: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """64 random bits as int64: the first two words of the counter (place, stream), key `seed`."""
    low, high, _, _ = philox4x32((*_words(place), *_words(stream)), _words(seed))
    return low | (high << 32)


@cache
def random_bits() -> torch._ops.OpOverload:
    """tcdebug::random_bits(seed, stream, size): `philox` of each place in row-major order.

    The first call registers the operator with torch.
    """
    operator: torch._ops.OpOverload = register(SCHEMA, _bits, _fake)
    return operator


def _bits(seed: torch.Tensor, stream: int, size: list[int]) -> torch.Tensor:
    count = 1
    for length in size:
        count *= length
    place = torch.arange(count, device=seed.device).reshape(size)
    return philox(seed, torch.tensor(stream, device=seed.device), place)


def _fake(seed: torch.Tensor, stream: int, size: list[int]) -> torch.Tensor:
    return seed.new_empty(size)
