"""The committed Chebyshev series are those that mpmath gives."""

from __future__ import annotations

import fitted_series
import pytest
from mpmath import mp

from tcdebug.compiler.lower.special_functions import bessel, chebyshev_rows
from tcdebug.compiler.lower.special_functions.chebyshev import Series


def test_every_committed_series_equals_that_of_mpmath() -> None:
    assert fitted_series.ROWS.read_text() == fitted_series.text()


def test_committed_series_have_the_intervals_that_the_lowerings_use() -> None:
    splits = fitted_series.I_SPLIT, fitted_series.K_SPLIT, fitted_series.J_SPLIT
    assert splits == (bessel.I_SPLIT, bessel.K_SPLIT, bessel.J_SPLIT)
    series = {n: s for n, s in vars(chebyshev_rows).items() if isinstance(s, Series)}
    assert sorted(series) == sorted(fit.name for fit in fitted_series.FITS)
    assert all(
        (s.low, s.high) == (f.low, f.high) for f in fitted_series.FITS for s in [series[f.name]]
    )


def test_a_wrong_coefficient_shows_in_the_error() -> None:
    fit = fitted_series.FITS[0]
    with mp.workdps(fitted_series.DIGITS):
        row = fitted_series.coefficients(fit)
        assert fitted_series.greatest_error(fit, row) < 1e-16
        row[3] *= 1 + 1e-12
        assert fitted_series.greatest_error(fit, row) == pytest.approx(1e-13, rel=1)
