"""Rules of the error functions, the logistic and other elementary functions, and entropies.

References
----------
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, chapter 7 (error
  functions).
- D. B. Owen, "Tables for computing bivariate normal probabilities", Ann. Math. Statist. 27 (1956),
  1075-1090.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adarray.base.op import constant
from adarray.scipy._elementwise import elementwise, sp

REAL = (-2.0, 2.0)
POSITIVE = (0.3, 3.0)
UNIT = (0.1, 0.9)
ROOT_PI = math.sqrt(math.pi)
ROOT_2PI = math.sqrt(2 * math.pi)


def _far_slope(x: Any, sign: float) -> Any:
    """Asymptotic series of the derivative of ``sum of sign**n (2n-1)!! / (2 x x)**n / x``."""
    q = 0.5 / (x * x)
    total: Any = 0.0
    for n in range(9, 0, -1):  # Horner's rule: factors (2n - 1), slopes -(2n + 1)
        total = sign * (2 * n - 1) * q * (total + (2 * n + 1))
    return -(1 + total) / (x * x)


def _near_or_far(x: Any, near: Any, sign: float, front: Any) -> Any:
    """Return the slope `near`, and where |x| > 15 and it cancels, the asymptotic series."""
    far = (np.abs(x) > 15) & (np.real(x) > 0 if sign < 0 else True)
    if not np.any(far):
        return near
    return np.where(far, front * _far_slope(np.where(far, x, 16.0), sign), near)


def _wofz_slope(out: Any, z: Any) -> Any:
    near = -2 * z * out + 2j / ROOT_PI
    far = (np.abs(z) > 15) & (np.imag(z) > 0)
    if not np.any(far):
        return near
    return np.where(far, 1j / ROOT_PI * _far_slope(np.where(far, z, 16.0), 1.0), near)


elementwise(sp.erf, lambda out, x: 2 / ROOT_PI * np.exp(-x * x), domain=[REAL])
elementwise(sp.erfc, lambda out, x: -2 / ROOT_PI * np.exp(-x * x), domain=[REAL])
elementwise(sp.erfi, lambda out, x: 2 / ROOT_PI * np.exp(x * x), domain=[REAL])
elementwise(
    sp.erfcx,
    lambda out, x: _near_or_far(x, 2 * x * out - 2 / ROOT_PI, -1.0, 1 / ROOT_PI),
    domain=[REAL],
    extra=[((20.0, 1.0),)],
)
elementwise(
    sp.dawsn,
    lambda out, x: _near_or_far(x, 1 - 2 * x * out, 1.0, 0.5),
    domain=[REAL],
    extra=[((20.0, -17.0, 1.0),)],
)
elementwise(sp.wofz, _wofz_slope, domain=[REAL])
elementwise(sp.erfinv, lambda out, y: ROOT_PI / 2 * np.exp(out * out), domain=[(-0.8, 0.8)])
elementwise(sp.erfcinv, lambda out, y: -ROOT_PI / 2 * np.exp(out * out), domain=[(0.2, 1.8)])
elementwise(sp.ndtr, lambda out, x: np.exp(-0.5 * x * x) / ROOT_2PI, domain=[REAL])
elementwise(
    sp.log_ndtr,
    lambda out, x: math.sqrt(2 / math.pi) / sp.erfcx(-x / math.sqrt(2)),
    domain=[REAL],
    extra=[((-30.0, 5.0),)],
)
elementwise(sp.ndtri, lambda out, p: ROOT_2PI * np.exp(0.5 * out * out), domain=[UNIT])
elementwise(
    sp.ndtri_exp,
    lambda out, y: math.sqrt(math.pi / 2) * sp.erfcx(-out / math.sqrt(2)),
    domain=[(-3.0, -0.3)],
    extra=[((-50.0, -0.1),)],
)
elementwise(
    sp.fresnel,
    lambda out, x: (np.sin(math.pi / 2 * x * x), np.cos(math.pi / 2 * x * x)),
    domain=[REAL],
    outputs=2,
)
_EIGHTH = complex(math.sqrt(0.5), math.sqrt(0.5))
elementwise(
    sp.modfresnelp,
    lambda out, x: (-np.exp(1j * x * x), -2j * x * out[1] - _EIGHTH.conjugate() / ROOT_PI),
    domain=[(0.2, 2.0)],
    outputs=2,
)
elementwise(
    sp.modfresnelm,
    lambda out, x: (-np.exp(-1j * x * x), 2j * x * out[1] - _EIGHTH / ROOT_PI),
    domain=[(0.2, 2.0)],
    outputs=2,
)


def _voigt(x: Any, sigma: Any, gamma: Any) -> Any:
    """Return z and the complex derivative of its Faddeeva function, scaled as the profile."""
    z = (x + 1j * gamma) / (sigma * math.sqrt(2))
    return z, _wofz_slope(sp.wofz(z), z) / (sigma * sigma * 2 * ROOT_PI)


elementwise(
    sp.voigt_profile,
    lambda out, x, sigma, gamma: np.real(_voigt(x, sigma, gamma)[1]),
    lambda out, x, sigma, gamma: (
        -out / sigma - math.sqrt(2) * np.real(np.prod(np.stack(_voigt(x, sigma, gamma)), axis=0))
    ),
    lambda out, x, sigma, gamma: -np.imag(_voigt(x, sigma, gamma)[1]),
    domain=[REAL, POSITIVE, POSITIVE],
    note="sigma > 0",
)


def owens_slopes() -> tuple[Any, Any]:
    """Partial derivatives of Owen's T function in h and a."""

    def in_h(out: Any, h: Any, a: Any) -> Any:
        return -np.exp(-0.5 * h * h) / (2 * ROOT_2PI) * sp.erf(a * h / math.sqrt(2))

    def in_a(out: Any, h: Any, a: Any) -> Any:
        return np.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a))

    return in_h, in_a


elementwise(sp.owens_t, *owens_slopes(), domain=[REAL, REAL])

# -- logistic ----------------------------------------------------------------------------------

elementwise(sp.expit, lambda out, x: out * sp.expit(-x), domain=[REAL])
elementwise(sp.logit, lambda out, x: 1 / (x * (1 - x)), domain=[UNIT])
elementwise(sp.log_expit, lambda out, x: sp.expit(-x), domain=[REAL])

# -- exponentials, powers, angles --------------------------------------------------------------


def exprel_slope(x: Any) -> Any:
    """Return the derivative of (exp(x) - 1) / x, without cancellation near 0.

    There it is 1F1(2, 3, x) / 2, a function that takes SciPy long for large x.
    """
    near = np.abs(x) < 1
    close = 0.5 * sp.hyp1f1(2.0, 3.0, np.where(near, x, 0.0))
    if np.all(near):
        return close
    far = np.where(near, 1.0, np.maximum(x, -1e100))
    return np.where(near, close, (1 + (far - 1) * np.exp(far)) / (far * far))


elementwise(sp.exprel, lambda out, x: exprel_slope(x), domain=[REAL], extra=[((0.0, -30.0),)])
elementwise(sp.expm1, lambda out, x: out + 1, domain=[REAL], name="expm1")
elementwise(sp.log1p, lambda out, x: 1 / (1 + x), domain=[POSITIVE], name="log1p")
elementwise(sp.exp2, lambda out, x: out * math.log(2), domain=[REAL], name="exp2")
elementwise(sp.exp10, lambda out, x: out * math.log(10), domain=[REAL])
elementwise(sp.cbrt, lambda out, x: 1 / (3 * out * out), domain=[POSITIVE], name="cbrt")
elementwise(sp.cosm1, lambda out, x: -np.sin(x), domain=[REAL])
elementwise(
    sp.powm1,
    lambda out, x, y: y * x ** (y - 1),
    lambda out, x, y: (out + 1) * np.log(x),
    domain=[POSITIVE, REAL],
)
_DEGREE = math.pi / 180
elementwise(sp.sindg, lambda out, x: sp.cosdg(x) * _DEGREE, domain=[(-80.0, 80.0)])
elementwise(sp.cosdg, lambda out, x: sp.sindg(x) * -_DEGREE, domain=[(-80.0, 80.0)])
elementwise(sp.tandg, lambda out, x: (1 + out * out) * _DEGREE, domain=[(-60.0, 60.0)])
elementwise(sp.cotdg, lambda out, x: (1 + out * out) * -_DEGREE, domain=[(20.0, 80.0)])
elementwise(
    sp.radian,
    lambda out, d, m, s: out * 0 + _DEGREE,
    lambda out, d, m, s: out * 0 + _DEGREE / 60,
    lambda out, d, m, s: out * 0 + _DEGREE / 3600,
    domain=[POSITIVE, POSITIVE, POSITIVE],
)
constant(sp.round)


def _agm_slope(a: Any, b: Any) -> Any:
    """Return the derivative in a of the mean pi (a + b) / (4 K(m)), m = ((a - b) / (a + b))**2."""
    total = a + b
    ratio = (a - b) / total
    m = ratio * ratio
    quarter = sp.ellipk(m)
    grown = sp.elliprd(0.0, 1.0, 1 - m) / 6  # dK/dm
    return math.pi / (4 * quarter) * (1 - grown / quarter * 4 * ratio * b / total)


elementwise(
    sp.agm,
    lambda out, a, b: _agm_slope(a, b),
    lambda out, a, b: _agm_slope(b, a),
    domain=[POSITIVE, POSITIVE],
)

# -- entropies and losses ----------------------------------------------------------------------


def _both_zero(x: Any, y: Any) -> Any:
    return (x == 0) & (y == 0)


def _ratio(x: Any, y: Any) -> Any:
    """Return x / y, and 0 for 0 / 0."""
    return x / (y + _both_zero(x, y))


elementwise(
    sp.xlogy,
    lambda out, x, y: np.log(y + _both_zero(x, y)),
    lambda out, x, y: _ratio(x, y),
    domain=[REAL, POSITIVE],
    extra=[(0.0, 2.0)],
    note="0 in both where both are 0",
)
elementwise(
    sp.xlog1py,
    lambda out, x, y: np.log1p(y + _both_zero(x, 1 + y)),
    lambda out, x, y: _ratio(x, 1 + y),
    domain=[REAL, POSITIVE],
    extra=[(0.0, 2.0)],
    note="0 in both where x and 1 + y are 0",
)
elementwise(
    sp.entr,
    lambda out, x: np.where(x < 0, 0.0, -np.log(np.where(x < 0, 1.0, x)) - 1),
    domain=[POSITIVE],
    note="inf at 0; 0 below it, where the value is -inf",
)


def _in_domain(slope: Any) -> Any:
    """Return a slope in x and y that is 0 where the function is infinite."""

    def guarded(out: Any, x: Any, y: Any) -> Any:
        inside = np.isfinite(out)
        one = np.where(inside, x, 1.0), np.where(inside, y, 1.0)
        return np.where(inside, slope(*one), 0.0)

    return guarded


elementwise(
    sp.rel_entr,
    _in_domain(lambda x, y: np.log(_ratio(x, y) + _both_zero(x, y)) + 1),
    _in_domain(lambda x, y: -_ratio(x, y)),
    domain=[POSITIVE, POSITIVE],
    note="0 outside of x, y > 0, where the value is inf; -inf in x at x = 0",
)
elementwise(
    sp.kl_div,
    _in_domain(lambda x, y: np.log(_ratio(x, y) + _both_zero(x, y))),
    _in_domain(lambda x, y: 1 - _ratio(x, y)),
    domain=[POSITIVE, POSITIVE],
    note="0 outside of x, y > 0, where the value is inf; -inf in x at x = 0",
)
elementwise(
    sp.huber,
    lambda out, delta, r: np.where(delta < 0, 0.0, np.maximum(np.abs(r) - delta, 0.0)),
    lambda out, delta, r: np.where(
        delta < 0, 0.0, np.where(np.abs(r) <= delta, r, delta * np.sign(r))
    ),
    domain=[(0.5, 1.5), (-3.0, 3.0)],
)


def _pseudo_huber(delta: Any, r: Any) -> Any:
    """Return delta (1 where it is 0), r (0 there) and the root of 1 + (r / delta)**2."""
    zero = delta == 0
    d, r = np.where(zero, 1.0, delta), np.where(zero, 0.0, r)
    return d, r, np.sqrt(1 + np.square(r / d))


def _pseudo_huber_in_delta(out: Any, delta: Any, r: Any) -> Any:
    d, r, root = _pseudo_huber(delta, r)
    q = r / d
    # 2 d (root - 1) - r q / root, with root - 1 = q q / (root + 1)
    return d * (q * q * (2 / (root + 1) - 1 / root))


def _pseudo_huber_in_r(out: Any, delta: Any, r: Any) -> Any:
    _, r, root = _pseudo_huber(delta, r)
    return r / root


elementwise(
    sp.pseudo_huber, _pseudo_huber_in_delta, _pseudo_huber_in_r, domain=[(0.5, 1.5), (-3.0, 3.0)],
    note="delta > 0",
)  # fmt: skip

# -- Box and Cox, Tukey ------------------------------------------------------------------------


def _boxcox_in_lambda(log: Any, lam: Any) -> Any:
    """Return the derivative of (exp(lam log) - 1) / lam in lam."""
    return log * log * exprel_slope(lam * log)


elementwise(
    sp.boxcox,
    lambda out, x, lam: x ** (lam - 1),
    lambda out, x, lam: _boxcox_in_lambda(np.log(x), lam),
    domain=[POSITIVE, REAL],
    extra=[(1.7, 0.0)],
)
elementwise(
    sp.boxcox1p,
    lambda out, x, lam: (1 + x) ** (lam - 1),
    lambda out, x, lam: _boxcox_in_lambda(np.log1p(x), lam),
    domain=[POSITIVE, REAL],
    extra=[(1.7, 0.0)],
)
elementwise(
    sp.inv_boxcox,
    lambda out, y, lam: out ** (1 - lam),
    lambda out, y, lam: -_boxcox_in_lambda(np.log(out), lam) * out ** (1 - lam),
    domain=[UNIT, UNIT],
    extra=[(0.7, 0.0)],
)
elementwise(
    sp.inv_boxcox1p,
    lambda out, y, lam: (1 + out) ** (1 - lam),
    lambda out, y, lam: -_boxcox_in_lambda(np.log1p(out), lam) * (1 + out) ** (1 - lam),
    domain=[UNIT, UNIT],
    extra=[(0.7, 0.0)],
)


def _tukey(which: int) -> Any:
    def slope(out: Any, x: Any, lam: Any) -> Any:
        inside = (out > 0) & (out < 1)
        p = np.where(inside, out, 0.5)
        density = 1 / (p ** (lam - 1) + (1 - p) ** (lam - 1))
        if which:
            change = _boxcox_in_lambda(np.log(p), lam) - _boxcox_in_lambda(np.log1p(-p), lam)
            density = -change * density
        return np.where(inside, density, 0.0)

    return slope


elementwise(sp.tklmbda, _tukey(0), _tukey(1), domain=[(-0.7, 0.7), (-0.5, 1.0)])
