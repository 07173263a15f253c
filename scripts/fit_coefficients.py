"""Fit the coefficients of the scalar functions in `ir`, and print them as they stand there.

The f32 fits minimise the largest relative error with Lawson's method (least squares whose weights
grow where the error is large). Their coefficients are rounded one after the other, lowest order
first, and the rest is fitted again each time, so later ones absorb the rounding of earlier ones.
The f64 fits interpolate at Chebyshev nodes with one or two orders to spare.

Run: python scripts/fit_coefficients.py   (needs mpmath)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np

mp.mp.dps = 50
HALF = mp.mpf(1) / 2


@dataclass(frozen=True)
class Fit:
    """`target(x)` on [lo, hi] by a polynomial in `variable(x)`; errors count times `weight(x)`."""

    name: str
    target: Callable
    weight: Callable
    interval: tuple[float, float]
    degree: int
    variable: Callable = lambda x: x


def nodes(lo: float, hi: float, count: int) -> list:
    """Chebyshev nodes, none of them exactly 0."""
    cosines = [mp.cos(mp.pi * (k + HALF) / count) for k in range(count)]
    at = [mp.mpf(lo) + (mp.mpf(hi) - mp.mpf(lo)) * (t + 1) / 2 for t in cosines]
    return [x if abs(x) > 1e-12 else mp.mpf("1e-12") for x in at]


def lawson(basis: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    w = np.ones(len(target)) / len(target)
    best, least = np.zeros(basis.shape[1]), np.inf
    for _ in range(200):
        scale = weight * np.sqrt(w)
        c = np.linalg.lstsq(basis * scale[:, None], target * scale, rcond=None)[0]
        error = np.abs((basis @ c - target) * weight)
        if error.max() < least:
            best, least = c, error.max()
        w = w * (error + 1e-30 * error.max())
        w /= w.sum()
    return best


def fit_f32(q: Fit) -> list[float]:
    at = nodes(*q.interval, 501)
    x, target, weight = (
        np.array([float(g(p)) for p in at]) for g in (q.variable, q.target, q.weight)
    )
    powers = np.stack([x**k for k in range(q.degree + 1)], 1)
    done: list[float] = []
    for k in range(q.degree + 1):
        c = lawson(powers[:, k:], target - powers[:, :k] @ np.array(done), weight)
        done.append(float(np.float32(c[0])))
    return done


def fit_f64(q: Fit) -> list[float]:
    """The nodes are those of the variable, not of x; x is what the variable is made of."""
    lo, hi = sorted(q.variable(mp.mpf(e)) for e in q.interval)
    at = nodes(lo, hi, q.degree + 1)
    left, right = (mp.mpf(e) for e in q.interval)
    xs = [mp.findroot(lambda x, v=v: q.variable(x) - v, (left, right), "anderson") for v in at]
    powers = mp.matrix([[v**k for k in range(q.degree + 1)] for v in at])
    values = mp.matrix([q.target(x) for x in xs])
    return [float(c) for c in mp.lu_solve(powers, values)]


def error(q: Fit, coefficients: Sequence[float]) -> float:
    worst = mp.mpf(0)
    for x in nodes(*q.interval, 301):
        value = mp.polyval([mp.mpf(c) for c in reversed(coefficients)], q.variable(x))
        worst = max(worst, abs((value - q.target(x)) * q.weight(x)))
    return float(worst)


def square(x: mp.mpf) -> mp.mpf:
    return x * x


def atanh_tail(z: mp.mpf) -> mp.mpf:
    """(log(1 + f) - 2 s - 2/3 s^3) / s^5 with s = f / (2 + f) and z = s^2."""
    s = mp.sqrt(z)
    return (2 * mp.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5


def scaled_erfc(z: mp.mpf) -> mp.mpf:
    return mp.exp(z * z) * mp.erfc(z)


def erfcx(limit: float, a: int, degree: int) -> Fit:
    """(z + a) exp(z^2) erfc(z) on [0, limit] in t, the 1 / (z + a) mapped onto [-1, 1]."""
    lo, hi = 1 / (mp.mpf(limit) + a), 1 / mp.mpf(a)
    slope = float(np.float32(2 / (hi - lo)))
    shift = float(np.float32(-(hi + lo) / (hi - lo)))
    print(f"# ERFCX below: t = {slope!r} / (z + {a}) + {shift!r}")
    return Fit(
        "ERFCX",
        lambda z: (z + a) * scaled_erfc(z),
        lambda z: 1 / ((z + a) * scaled_erfc(z)),
        (0.0, limit),
        degree,
        lambda z: slope / (z + a) + shift,
    )


def exp_fit(degree: int) -> Fit:
    return Fit(
        "EXP",
        lambda f: (mp.expm1(f) - f) / f**2,
        lambda f: f**2 / abs(mp.expm1(f)),
        (-0.3475, 0.3475),
        degree,
    )


def sin_cos(sin_degree: int, cos_degree: int) -> list[Fit]:
    near = (1e-6, 0.7995)
    sin = lambda r: (mp.sin(r) - r) / r**3  # noqa: E731
    cos = lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4  # noqa: E731
    return [
        Fit("SIN", sin, lambda r: r**3 / mp.sin(r), near, sin_degree, square),
        Fit("COS", cos, lambda r: r**4 / mp.cos(r), near, cos_degree, square),
    ]


def erf_small(hi: float, degree: int) -> Fit:
    def target(x: mp.mpf) -> mp.mpf:
        return mp.erf(x) / x - 1

    return Fit("ERF_SMALL", target, lambda x: x / mp.erf(x), (1e-6, hi), degree, square)


def atan_fit(degree: int) -> Fit:
    return Fit(
        "ATAN",
        lambda t: (mp.atan(t) - t) / t**3,
        lambda t: t**3 / mp.atan(t),
        (1e-6, 0.4143),
        degree,
        square,
    )


def erfinv_fit(lo: float, hi: float, degree: int, root: bool, middle: float) -> Fit:
    """erfinv(x) / x for w = -log(1 - x^2) in [lo, hi], in w or its root, less `middle`."""

    def target(w: mp.mpf) -> mp.mpf:
        x = mp.sqrt(1 - mp.exp(-w))
        return mp.erfinv(x) / x

    def variable(w: mp.mpf) -> mp.mpf:
        return (mp.sqrt(w) if root else w) - middle

    return Fit("ERFINV", target, lambda w: 1 / target(w), (lo, hi), degree, variable)


def f32_fits() -> list[Fit]:
    log = Fit(
        "LOG",
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f**3 / mp.log1p(f),
        (-0.3334, 0.3334),
        7,
    )
    large = Fit(
        "ERF_LARGE",
        lambda x: -mp.log(mp.erfc(x)) / x - 1,
        lambda x: x * mp.erfc(x) / mp.erf(x),
        (0.92, 4.0),
        6,
    )
    inverse = [erfinv_fit(1e-6, 5, 8, False, 2.5), erfinv_fit(5, 16.7, 8, True, 3)]
    erf = [erf_small(0.93, 5), large, erfcx(10.2, 3, 9)]
    return [exp_fit(4), log, *sin_cos(2, 2), *erf, atan_fit(3), *inverse]


def f64_fits() -> list[Fit]:
    log = Fit("LOG", atanh_tail, lambda z: z**2 / 2, (1e-12, 0.02947), 7)
    inverse = [
        erfinv_fit(1e-9, 6.25, 24, False, 3.125),
        erfinv_fit(6.25, 16, 20, True, 3.25),
        erfinv_fit(16, 36.8, 20, True, 5),
    ]
    erf = [erf_small(0.75, 10), erfcx(27.4, 3, 24)]
    return [exp_fit(10), log, *sin_cos(5, 5), *erf, atan_fit(11), *inverse]


def pieces_of_half_pi(mantissa: int) -> list[float]:
    """pi/2 in three summands, each truncated to `mantissa` bits, all positive."""
    rest, pieces = mp.pi / 2, []
    for _ in range(3):
        unit = mp.mpf(2) ** (mp.floor(mp.log(rest, 2)) - mantissa + 1)
        pieces.append(float(mp.floor(rest / unit) * unit))
        rest -= pieces[-1]
    return pieces


def show(name: str, coefficients: Sequence[float], digits: int, note: str) -> None:
    body = ", ".join(f"{c:.{digits}g}" for c in coefficients)
    print(f"{name} = ({body})  # {note}")


def main() -> None:
    for fits, method, bits, digits in ((f32_fits(), fit_f32, 24, 9), (f64_fits(), fit_f64, 53, 17)):
        show("HALF_PI", pieces_of_half_pi(bits), digits, f"{bits} bits each")
        for q in fits:
            c = method(q)
            show(q.name, c, digits, f"relative error {error(q, c) * 2**bits:.3f} x 2^-{bits}")


if __name__ == "__main__":
    main()
