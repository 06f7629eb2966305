"""A layer without which the same code runs is confirmed by repeated runs of the repro."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tcdebug.minifier.repros import verify
from tcdebug.minifier.repros.verify import FAILS, PASSES, Verified, _run_again

PATH = Path("repro.py")


def ending(statuses: Sequence[int]) -> Callable[[Path, Sequence[str], float], Verified]:
    """Return what runs a repro that ends with these statuses, one after the other."""
    left: Iterator[int] = iter(statuses)
    return lambda path, off, seconds: Verified(next(left), 0.1, "")


@pytest.mark.parametrize(
    ("off", "statuses", "expected", "others"),
    [
        ((), [FAILS, FAILS], FAILS, 1),
        ((), [FAILS, PASSES], PASSES, 1),
        ((), [PASSES], PASSES, 0),
        (("layer.cache",), [PASSES, PASSES], PASSES, 1),
        (("layer.cache",), [PASSES, FAILS], FAILS, 1),
        (("layer.cache",), [FAILS], FAILS, 0),
    ],
)
def test_a_repro_runs_again_until_a_run_contradicts_the_claim(
    monkeypatch: pytest.MonkeyPatch,
    off: tuple[str, ...],
    statuses: Sequence[int],
    expected: int,
    others: int,
) -> None:
    monkeypatch.setattr(verify, "verify", ending(statuses))
    result, agreed = _run_again(PATH, off, 60.0, 2)
    assert (result.status, agreed) == (expected, others)
