"""Random numbers in kernels: Philox as published, seeded by torch, reproducible everywhere."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from judge import copies, gradients
from torch.utils.checkpoint import checkpoint

from tcdebug.compiler.operators.philox import philox, philox4x32, random_bits

OWN = {"fallback_random": False}
BITS = "lower.tcdebug.random_bits.default"
KNOWN = [  # test vectors published with Random123: counter, key, result
    ((0,) * 4, (0,) * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def compiled(function: Callable[..., Any], *off: str, **options: Any) -> Callable[..., Any]:
    """A function compiled with random numbers in kernels."""
    torch._dynamo.reset()
    chosen = {**OWN, "off": list(off)}
    return torch.compile(function, backend="tcdebug", options=chosen, **options)


def seeded(function: Callable[..., Any], *inputs: Any) -> Any:
    torch.manual_seed(7)
    return function(*inputs)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_computes_the_published_test_vectors(
    counter: tuple[int, ...], key: tuple[int, ...], words: str
) -> None:
    given = philox4x32(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert " ".join(f"{int(word):08x}" for word in given) == words


def test_kernels_compute_philox_exactly() -> None:
    bits = random_bits()
    compute = compiled(lambda seed: bits(seed, 2**61 + 5, [3, 70]))
    assert compiled(lambda seed: bits(seed, 0, [2]))(torch.tensor(0))[0].item() == (
        0xE169C58D6627E8D5 - 2**64
    )
    place = torch.arange(210).reshape(3, 70)
    for seed in (torch.tensor(-1), torch.tensor(2**63 - 1), torch.tensor(12345678901)):
        assert torch.equal(compute(seed), philox(seed, torch.tensor(2**61 + 5), place))


N = 20_000
DISTRIBUTIONS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[float], float]]] = {
    "uniform": (lambda: torch.rand(N), lambda v: v),
    "uniform of doubles": (lambda: torch.rand(N, dtype=torch.float64), lambda v: v),
    "from 2 to 5": (lambda: torch.empty(N).uniform_(2, 5), lambda v: (v - 2) / 3),
    "normal": (lambda: torch.randn(N), lambda v: (1 + erf(v / sqrt(2))) / 2),
    "normal of doubles": (
        lambda: torch.randn(N, dtype=torch.float64),
        lambda v: (1 + erf(v / sqrt(2))) / 2,
    ),
    "around 1": (
        lambda: torch.empty(N).normal_(1, 3),
        lambda v: (1 + erf((v - 1) / 3 / sqrt(2))) / 2,
    ),
    "exponential": (
        lambda: torch.empty(N).exponential_(0.5),
        lambda v: 1 - float(torch.tensor(-v / 2).exp()),
    ),
    "cauchy": (
        lambda: torch.empty(N).cauchy_(),
        lambda v: 0.5 + float(torch.tensor(v).atan()) / torch.pi,
    ),
}


def test_random_numbers_have_the_requested_distribution() -> None:
    """Kolmogorov-Smirnov: the distance exceeds 1.95
    sqrt(n) in one of a thousand samples.
    """
    draw = compiled(lambda: [function() for function, _ in DISTRIBUTIONS.values()])
    for name, values, (_, below) in zip(
        DISTRIBUTIONS, seeded(draw), DISTRIBUTIONS.values(), strict=True
    ):
        expected = torch.tensor([below(v) for v in values.sort().values.tolist()])
        steps = torch.arange(N) / N
        distance = torch.maximum((expected - steps).abs(), (expected - steps - 1 / N).abs()).max()
        assert distance < 1.95 / sqrt(N), name


def test_integers_and_bernoulli_trials_have_the_right_frequencies() -> None:
    def draw(x: torch.Tensor) -> Any:
        return (
            torch.randint(-3, 4, (N,)),
            torch.bernoulli(x),
            F.dropout(torch.ones(N), 0.25),
            torch.empty(N).geometric_(0.4),
            torch.randint_like(x, 5, dtype=torch.float64),
        )

    x = torch.full((N,), 0.3)
    whole, happened, kept, waited, floats = seeded(compiled(draw), x)
    assert whole.unique().tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert (whole + 3).bincount().min() > N / 7 * 0.93
    assert abs(happened.mean().item() - 0.3) < 0.015
    assert kept.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert abs(kept.mean().item() - 1) < 0.02
    assert waited.min() == 1 and abs(waited.mean().item() - 2.5) < 0.06
    assert floats.unique().tolist() == [0, 1, 2, 3, 4] and floats.dtype == torch.float64


def test_probabilities_of_one_and_zero_are_certain() -> None:
    draw = compiled(lambda: (torch.empty(N).bernoulli_(1.0), torch.empty(N).bernoulli_(0.0)))
    always, never = draw()
    assert always.min() == 1 and never.max() == 0


def test_a_seed_reproduces_numbers_and_each_call_draws_new_ones() -> None:
    draw = compiled(lambda x: (torch.rand_like(x), torch.randn(4, 4), torch.rand_like(x)))
    x = torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    first, again, next_ = seeded(draw, x), seeded(draw, x), draw(x)
    for a, b, c in zip(first, again, next_, strict=True):
        assert torch.equal(a, b) and not torch.equal(a, c)
    assert first[0].stride() == x.stride()
    assert not torch.equal(first[0], first[2])  # two draws in one call


def test_numbers_do_not_depend_on_which_kernels_are_generated() -> None:
    def draw(x: torch.Tensor) -> Any:
        return F.dropout(x * 2, 0.3) + 1, torch.randint(0, 9, x.shape), torch.rand_like(x) * x

    x = torch.rand(33, 40)
    expected = seeded(compiled(draw), x)
    for off in ([BITS], ["fuse.inline", "fuse.vertical", "fuse.horizontal"], ["codegen.vectorize"]):
        for a, b in zip(expected, seeded(compiled(draw, *off), x), strict=True):
            assert torch.equal(a, b), off


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.softmax(F.dropout(x @ w, 0.2).relu(), -1), 0.5).sin()


@pytest.mark.sampled
@pytest.mark.parametrize("off", [(), ("partition.min_cut",)], ids=str)
@pytest.mark.parametrize("kept", [True, False], ids=["saved", "checkpointed"])
def test_backward_drops_the_elements_that_forward_dropped(off: tuple[str, ...], kept: bool) -> None:
    def saved(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = attention(x, w) if kept else checkpoint(attention, x, w, use_reentrant=False)
        return y, (y.detach() == 0)

    x, w = torch.rand(9, 16, requires_grad=True), torch.rand(16, 20, requires_grad=True)
    y, zero, *grads = seeded(gradients, compiled(saved, *off), copies([x, w]))

    # eager with the same masks as constants; only forward returns them
    def masks() -> tuple[torch.Tensor, torch.Tensor]:
        ones = torch.ones(9, 20)
        return seeded(compiled(lambda o: (F.dropout(o, 0.2), F.dropout(o, 0.5))), ones)

    first, second = masks()
    x2, w2 = copies([x, w])

    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(((x @ w) * first).relu(), -1) * second).sin()

    expected, *wanted = gradients(plain, [x2, w2])
    torch.testing.assert_close(y, expected)
    assert zero.any()
    for mine, theirs in zip(grads, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_sizes_may_be_dynamic() -> None:
    draw = compiled(lambda x: torch.rand_like(x) + F.dropout(x, 0.5) * 0, dynamic=True)
    for size in ((4, 6), (9, 5), (30, 2)):
        value = seeded(draw, torch.ones(size))
        seed = seeded(lambda: torch.randint(-(2**63), 2**63 - 1, ()))
        bits = philox(seed, torch.tensor(0), torch.arange(value.numel()).reshape(size))
        assert torch.equal(value, (bits & 0xFFFFFF) * 2.0**-24)


def test_numbers_are_those_of_eager_without_the_option() -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.randn(3, 4)

    torch._dynamo.reset()
    x = torch.ones(3, 4)
    assert torch.equal(seeded(torch.compile(draw, backend="tcdebug"), x), seeded(draw, x))
