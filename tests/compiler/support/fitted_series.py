"""Fits the Chebyshev series of `compiler/lower/special_functions/chebyshev_rows.py` with mpmath.

    python tests/compiler/support/fitted_series.py     writes the file again

A row is the interpolant of its function at Chebyshev nodes, computed with 45 digits. It ends where
the coefficients fall below 1e-17 of the largest. A test compares the committed file with a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpmath import mp

Function = Callable[[Any], Any]
"""Conversions from and to mpmath's numbers."""

ROWS = Path(__file__).parents[3] / "compiler/lower/special_functions/chebyshev_rows.py"
DIGITS = 45
SMALLEST = 1e-17
I_SPLIT, K_SPLIT, J_SPLIT, AIRY_SPLIT = 7.0, 1.5, 6.0, 2.0
"""The arguments at which the near and far series of a family of functions meet."""

HEAD = '''"""Chebyshev series of special functions, and zeros of two of them.

Written by tests/compiler/support/fitted_series.py, which says how. Above each series stands its
function, the degree, and the greatest error, relative to the greatest value of the function.
"""

from tcdebug.compiler.lower.special_functions.chebyshev import Series, Zero
'''


@dataclass(frozen=True)
class Fit:
    """A series to fit: a function of t on an interval, and a sufficient number of nodes."""

    name: str
    says: str
    function: Function
    low: float
    high: float
    nodes: int


def _k0_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def _k1_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))


def _y0_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def _y1_near(z: Any) -> Any:
    x = mp.sqrt(z)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.besselj(1, x) * mp.log(x) - 1 / x)) / x


def _j0_near(z: Any) -> Any:
    zeros = [mp.besseljzero(0, k) ** 2 for k in (1, 2)]
    return mp.besselj(0, mp.sqrt(z)) / ((z - zeros[0]) * (z - zeros[1]))


def _j1_near(z: Any) -> Any:
    return mp.besselj(1, mp.sqrt(z)) / (mp.sqrt(z) * (z - mp.besseljzero(1, 1) ** 2))


def _hankel(order: int, *, odd: bool) -> Function:
    """P or Q of DLMF 10.17.3 and 10.17.4, for u = (J_SPLIT / x)^2; Q times x / J_SPLIT."""

    def function(u: Any) -> Any:
        x = J_SPLIT / mp.sqrt(u)
        turned = x - (mp.mpf(order) / 2 + mp.mpf(1) / 4) * mp.pi
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        c, s = mp.cos(turned), mp.sin(turned)
        scale = mp.sqrt(mp.pi * x / 2)
        return scale * ((y * c - j * s) * x / J_SPLIT if odd else j * c + y * s)

    return function


def _airy_zeta() -> Any:
    return 2 * mp.mpf(AIRY_SPLIT) ** 1.5 / 3


def _airy_decay(u: Any) -> Any:
    zeta = _airy_zeta() / u
    x = (3 * zeta / 2) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * 2 * mp.sqrt(mp.pi) * x**0.25 * mp.exp(zeta)


def _airy_wave(*, cosine: bool) -> Function:
    """The factors of the sine and the cosine in DLMF 9.7.9, for u = (zeta(2)
    zeta)^2.
    """

    def function(u: Any) -> Any:
        zeta = _airy_zeta() / mp.sqrt(u)
        x = (3 * zeta / 2) ** (mp.mpf(2) / 3)
        ai, bi = mp.airyai(-x), mp.airybi(-x)
        c, s = mp.cos(zeta + mp.pi / 4), mp.sin(zeta + mp.pi / 4)
        scale = mp.sqrt(mp.pi) * x**0.25
        return scale * ((bi * s - ai * c) / mp.sqrt(u) if cosine else ai * s + bi * c)

    return function


def _erfcx(t: Any) -> Any:
    x = 7.5 / (1 - t) - 3.75
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def _inverse(w: Any) -> Any:
    """erfinv(x)
    x for w = -log(1 - x^2), by Newton's method on log(erfc).
    """
    x = mp.sqrt(-mp.expm1(-w))
    target = -w - mp.log1p(x)  # log(1 - x)
    y = mp.sqrt(w) if w > 1 else x * mp.sqrt(mp.pi) / 2
    for _ in range(60):
        value = mp.erfc(y)
        step = (mp.log(value) - target) * value * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        y += step
        if abs(step) < mp.mpf(10) ** (8 - DIGITS) * y:
            break
    return y / x


def _inverse_of_root(scale: float) -> Function:
    def function(t: Any) -> Any:
        root = scale / t
        return _inverse(root * root) / root

    return function


def _far(split: float, function: Function) -> Function:
    """sqrt(x) times a function of x, for split / x."""
    return lambda u: mp.sqrt(split / u) * function(split / u)


FITS = (
    Fit("I0E_NEAR", "exp(-x) I0(x) of x",
        lambda x: mp.exp(-x) * mp.besseli(0, x), 0, I_SPLIT, 40),
    Fit("I0E_FAR", "sqrt(x) exp(-x) I0(x) of 7 / x",
        _far(I_SPLIT, lambda x: mp.exp(-x) * mp.besseli(0, x)), 0, 1, 40),
    Fit("I1E_NEAR", "exp(-x) I1(x) / x of x",
        lambda x: mp.exp(-x) * mp.besseli(1, x) / x, 0, I_SPLIT, 40),
    Fit("I1E_FAR", "sqrt(x) exp(-x) I1(x) of 7 / x",
        _far(I_SPLIT, lambda x: mp.exp(-x) * mp.besseli(1, x)), 0, 1, 40),
    Fit("I0_SMALL", "I0(x) of x^2",
        lambda z: mp.besseli(0, mp.sqrt(z)), 0, K_SPLIT**2, 20),
    Fit("I1_SMALL", "I1(x) / x of x^2",
        lambda z: mp.besseli(1, mp.sqrt(z)) / mp.sqrt(z), 0, K_SPLIT**2, 20),
    Fit("K0_NEAR", "K0(x) + log(x / 2) I0(x) of x^2", _k0_near, 0, K_SPLIT**2, 20),
    Fit("K0_FAR", "sqrt(x) exp(x) K0(x) of 1.5 / x",
        _far(K_SPLIT, lambda x: mp.exp(x) * mp.besselk(0, x)), 0, 1, 40),
    Fit("K1_NEAR", "x (K1(x) - log(x / 2) I1(x)) of x^2", _k1_near, 0, K_SPLIT**2, 20),
    Fit("K1_FAR", "sqrt(x) exp(x) K1(x) of 1.5 / x",
        _far(K_SPLIT, lambda x: mp.exp(x) * mp.besselk(1, x)), 0, 1, 40),
    Fit("J0_NEAR", "J0(x) / ((x^2 - z1^2) (x^2 - z2^2)) of x^2, with its zeros z1 and z2",
        _j0_near, 0, J_SPLIT**2, 26),
    Fit("J0_P", "P of order 0 in DLMF 10.17.3 of (6 / x)^2",
        _hankel(0, odd=False), 0, 1, 32),
    Fit("J0_Q", "Q of order 0 in DLMF 10.17.3, times x / 6, of (6 / x)^2",
        _hankel(0, odd=True), 0, 1, 32),
    Fit("Y0_NEAR", "Y0(x) - 2 / pi log(x) J0(x) of x^2", _y0_near, 0, J_SPLIT**2, 26),
    Fit("J1_NEAR", "J1(x) / (x (x^2 - z1^2)) of x^2, with its zero z1",
        _j1_near, 0, J_SPLIT**2, 26),
    Fit("J1_P", "P of order 1 in DLMF 10.17.3 of (6 / x)^2",
        _hankel(1, odd=False), 0, 1, 32),
    Fit("J1_Q", "Q of order 1 in DLMF 10.17.3, times x / 6, of (6 / x)^2",
        _hankel(1, odd=True), 0, 1, 32),
    Fit("Y1_NEAR", "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x of x^2",
        _y1_near, 0, J_SPLIT**2, 26),
    Fit("AIRY_NEAR", "Ai(x) of x", mp.airyai, -AIRY_SPLIT, AIRY_SPLIT, 40),
    Fit("AIRY_DECAY", "2 sqrt(pi) x^(1/4) exp(zeta) Ai(x) of zeta(2) / zeta(x), DLMF 9.7.5",
        _airy_decay, 0, 1, 40),
    Fit("AIRY_SINE", "the factor of sin(zeta + pi / 4) in DLMF 9.7.9 of (zeta(2) / zeta(x))^2",
        _airy_wave(cosine=False), 0, 1, 54),
    Fit("AIRY_COSINE", "that of -cos(zeta + pi / 4) over zeta(2) / zeta(x)",
        _airy_wave(cosine=True), 0, 1, 60),
    Fit("ERFCX", "(1 + 2 x) exp(x^2) erfc(x) of 1 - 7.5 / (x + 3.75)", _erfcx, -1, 1, 40),
    Fit("ERFINV_NEAR", "erfinv(x) / x of w = -log(1 - x^2)", _inverse, 0, 6.25, 40),
    Fit("ERFINV_TAIL", "erfinv(x) / (x sqrt(w)) of 2.5 / sqrt(w)",
        _inverse_of_root(2.5), 0.5, 1, 40),
    Fit("ERFINV_FAR", "erfinv(x) / (x sqrt(w)) of 5 / sqrt(w)",
        _inverse_of_root(5.0), 5 / 28, 1, 40),
)  # fmt: skip


def _place(fit: Fit, t: Any) -> Any:
    """The point of the interval that corresponds to an argument in [-1, 1]."""
    return (mp.mpf(fit.low) + fit.high) / 2 + t * (mp.mpf(fit.high) - fit.low) / 2


def coefficients(fit: Fit) -> list[float]:
    """The significant coefficients, as doubles."""
    count = fit.nodes
    cosines = [mp.cos(mp.pi * m / (2 * count)) for m in range(4 * count)]
    found = [fit.function(_place(fit, cosines[2 * k + 1])) for k in range(count)]
    row = []
    for j in range(count):
        total = mp.fsum(f * cosines[j * (2 * k + 1) % (4 * count)] for k, f in enumerate(found))
        row.append(float(total * (2 if j else 1) / count))
    last = max(k for k, c in enumerate(row) if abs(c) >= SMALLEST * max(map(abs, row)))
    assert last + 4 < count, f"{fit.name}: {last} of {count} nodes"
    return row[: last + 1]


def greatest_error(fit: Fit, row: Sequence[float]) -> float:
    """The greatest error of a series between its nodes, relative to the greatest value."""
    errors, values = [], []
    for k in range(1, fit.nodes, 2):
        t = mp.cos(mp.pi * k / fit.nodes)
        truth = fit.function(_place(fit, t))
        fitted = mp.fsum(c * mp.chebyt(j, t) for j, c in enumerate(row))
        errors.append(abs(fitted - truth))
        values.append(abs(truth))
    return float(max(errors) / max(values))


def _numbers(row: Sequence[float]) -> str:
    lines = ["       "]
    for number in map(repr, row):
        if len(lines[-1]) + len(number) + 2 > 100:
            lines.append("       ")
        lines[-1] += f" {number},"
    return "\n".join(lines)


def _series(fit: Fit) -> str:
    row = coefficients(fit)
    error = greatest_error(fit, row)
    return (
        f"# {fit.says}\n# degree {len(row) - 1}, error {error:.0e}\n"
        f"{fit.name} = Series(\n    {float(fit.low)!r},\n    {float(fit.high)!r},\n"
        f"    (\n{_numbers(row)}\n    ),\n)  # fmt: skip\n"
    )


def _zeros(name: str, order: int, count: int) -> str:
    lines = []
    for k in range(1, count + 1):
        zero = mp.besseljzero(order, k)
        lines.append(f"    Zero({float(zero)!r}, {float(zero - float(zero))!r}),\n")
    return f"{name} = (\n{''.join(lines)})  # fmt: skip\n"


def text() -> str:
    """The source of the file."""
    with mp.workdps(DIGITS):
        parts = [_series(fit) for fit in FITS]
        zeros = [_zeros("J0_ZEROS", 0, 2), _zeros("J1_ZEROS", 1, 1)]
    return "\n".join([HEAD, *parts, "# the positive zeros of J0 and J1", *zeros]).replace(
        "# positive zeros\n\n", "# positive zeros\n"
    )


if __name__ == "__main__":
    ROWS.write_text(text())
