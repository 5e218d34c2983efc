"""Integrals that stand behind derivatives with respect to parameters, on plain arrays.

Each family is closed under differentiation, so that one function with integer
orders gives derivatives of every order.

References
----------
- H. Takahasi, M. Mori, "Double exponential formulas for numerical integration", Publ. RIMS Kyoto
  Univ. 9 (1974), 721-741.
- B. C. Carlson, "Numerical computation of real or complex elliptic integrals", Numer. Algorithms 10
  (1995), 13-26.
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, chapters 5, 8, 19 and 25.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.errors import DTypeError
from adarray.scipy._elementwise import sp

_CHUNK = 1 << 11  # elements that are integrated at a time: 126 nodes each

# Nodes of the double exponential rule on (0, inf): w = c exp(tau - exp(-tau)).
_STEP = 1 / 14
_TAU = np.arange(-3.7, 5.3, _STEP)
_NODES = np.exp(_TAU - np.exp(-_TAU))
_WEIGHTS = _NODES * (1 + np.exp(-_TAU)) * _STEP


def _scale(fall: Callable[[Any], Any], shape: tuple[int, ...]) -> Any:
    """Return where the convex, rising function `fall` of w > 0 reaches 1, within a factor."""
    low, high = np.full(shape, -60.0), np.full(shape, 60.0)
    for _ in range(10):
        middle = (low + high) / 2
        below = fall(np.exp(middle)) < 1
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.exp(low)


def _tail(parts: Callable[[Any], tuple[Any, Any]], shape: tuple[int, ...]) -> Any:
    """Return the integral over w > 0 of ``exp(-fall) * factor``; nodes on a last axis.

    `parts` gives fall, which is convex and rises from 0, and factor.
    """
    c = _scale(lambda w: parts(w[..., None])[0][..., 0], shape)[..., None]
    fall, factor = parts(c * _NODES)
    np.exp(np.negative(fall, out=fall), out=fall)
    return np.einsum("...n,...n,n->...", fall, factor, _WEIGHTS) * c[..., 0]


def in_chunks(function: Callable[..., Any], *arrays: Any) -> Any:
    """Run a function of flat float64 arrays on pieces; broadcast and keep the dtype."""
    dtype = np.result_type(*arrays)
    dtype = dtype if dtype.kind in "fc" else np.dtype(np.float64)
    if dtype.kind != "c":
        wide: Any = np.float64
    else:
        wide = np.complex128
    spread = np.broadcast_arrays(*arrays)
    shape = spread[0].shape
    flat = [a.reshape(-1).astype(wide) for a in spread]
    out = np.empty(flat[0].shape, wide)
    with np.errstate(all="ignore"):
        for k in range(0, out.size, _CHUNK):
            out[k : k + _CHUNK] = function(*(a[k : k + _CHUNK] for a in flat))
    return out.reshape(shape).astype(dtype)[()]


def gamma_density(a: Any, x: Any) -> Any:
    """Return ``x**a exp(-x) / gamma(a)``, without cancellation for large a."""
    big = np.maximum(a, 30.0)
    d = (x - big) / big
    # Stirling's series of log gamma.
    s = 1 / (big * big)
    rest = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / big
    far = np.exp(big * (np.log1p(d) - d) - rest) * np.sqrt(big / (2 * math.pi))
    near = np.exp(sp.xlogy(a, x) - x - sp.gammaln(a))
    return np.where(a > 30, far, near)


def _moments(n: int, cumulant: Callable[[int], Any]) -> Any:
    """Return the n-th central moment from cumulants."""
    moments: list[Any] = [1.0, 0.0]
    for m in range(2, n + 1):
        moments.append(
            sum(math.comb(m - 1, k - 1) * cumulant(k) * moments[m - k] for k in range(2, m + 1))
        )
    return moments[n]


def _polygamma(n: int, x: Any) -> Any:
    if n == 0:
        return sp.psi(x)
    return (-1.0) ** (n + 1) * math.factorial(n) * sp.zeta(n + 1, x)


def _gamma_part(n: int, upper: bool, a: Any, x: Any) -> Any:
    """One side, the integral of the density times (log t - psi(a))**n, on the side of x < a."""
    sign = 1.0 if upper else -1.0
    a, x, center = a[:, None], x[:, None], np.log(x)[:, None] - sp.psi(a)[:, None]

    def parts(w: Any) -> tuple[Any, Any]:
        move = sign * w
        return x * np.expm1(move) - a * move, (center + move) ** n

    return _tail(parts, a.shape[:1]) * gamma_density(a[:, 0], x[:, 0])


def gamma_moment(n: int, upper: bool, a: Any, x: Any) -> Any:
    """Incomplete central moment of log t, where t is gamma-distributed with shape a.

    ``integral of t**(a-1) exp(-t) / gamma(a) * (log t - psi(a))**n`` over (0, x), or
    over (x, inf) where `upper`. In u = log t the density is log-concave; the side of
    its peak where x lies is integrated, the other is what is missing to the moment.
    """

    def flat(a: Any, x: Any) -> Any:
        inside = (a > 0) & (x > 0) & np.isfinite(x) & np.isfinite(a)
        total = _moments(n, lambda k: _polygamma(k - 1, a))
        # Beyond both ends: nothing below x <= 0, everything below inf.
        everything = np.where(x > 0, total, 0.0) if not upper else np.where(x > 0, 0.0, total)
        a_, x_ = np.where(inside, a, 1.0), np.where(inside, x, 1.0)
        total = np.where(inside, total, 0.0)
        right = x_ >= a_
        value = np.empty_like(a_)
        for side in (False, True):
            at = right == side
            if at.any():
                part = _gamma_part(n, side, a_[at], x_[at])
                value[at] = part if side == upper else total[at] - part
        value = np.where(inside, value, everything)
        return np.where(np.isnan(a) | np.isnan(x) | (a <= 0) | (x < 0), np.nan, value)

    return in_chunks(flat, a, x)


def _joint_moment(j: int, k: int, a: Any, b: Any) -> Any:
    """Central joint moment of log t and log(1 - t), where t is beta-distributed."""

    def cumulant(p: int, q: int) -> Any:
        if p + q == 1:
            return 0.0
        r = -_polygamma(p + q - 1, a + b)
        if q == 0:
            return r + _polygamma(p - 1, a)
        return r + _polygamma(q - 1, b) if p == 0 else r

    if j + k < 2:
        return 1.0 - (j + k)
    if j == 0:
        return _joint_moment(k, 0, b, a)
    return sum(
        math.comb(j - 1, p)
        * math.comb(k, q)
        * cumulant(p + 1, q)
        * _joint_moment(j - 1 - p, k - q, a, b)
        for p in range(j)
        for q in range(k + 1)
    )


def _beta_part(j: int, k: int, a: Any, b: Any, x: Any, y: Any) -> Any:
    """Integral over (0, x) of the density times powers of the centred logarithms; y = 1 - x."""
    front = np.exp(sp.xlogy(a, x) + sp.xlogy(b, y) - sp.betaln(a, b))
    both = sp.psi(a + b)
    means = (sp.psi(a) - both)[:, None], (sp.psi(b) - both)[:, None]
    a, b, x, y = (v[:, None] for v in (a, b, x, y))
    low, high = np.log(x) - means[0], np.log(y) - means[1]

    def parts(w: Any) -> tuple[Any, Any]:
        # In u = logit t: t / x = exp(-w) / (y + x exp(-w)), (1 - t) / y = 1 / (y + x exp(-w))
        up = -np.log1p(x * np.expm1(-w))
        down = up - w
        factor = (low + down) ** j if j else np.ones_like(w)
        return -(a * down + b * up), factor * (high + up) ** k if k else factor

    return front * _tail(parts, a.shape[:1])


def beta_moment(j: int, k: int, upper: bool, a: Any, b: Any, x: Any) -> Any:
    """Incomplete central moment of log t and log(1 - t), where t is beta-distributed.

    ``integral of t**(a-1) (1-t)**(b-1) / B(a, b) * (log t - E)**j * (log(1-t) - E)**k``
    over (0, x), or over (x, 1) where `upper`, by the same way as `gamma_moment`
    (in u = logit t).
    """

    def flat(a: Any, b: Any, x: Any) -> Any:
        valid = (a > 0) & (b > 0) & (x >= 0) & (x <= 1) & np.isfinite(a) & np.isfinite(b)
        inside = valid & (x > 0) & (x < 1)
        a_, b_ = np.where(valid, a, 1.0), np.where(valid, b, 1.0)
        x_ = np.where(inside, x, 0.5)
        total = np.broadcast_to(np.asarray(_joint_moment(j, k, a_, b_), float), a_.shape)
        everything = np.where((x <= 0) == upper, total, 0.0)
        right = x_ * (a_ + b_) > a_
        value = np.empty_like(a_)
        at = ~right
        if at.any():
            part = _beta_part(j, k, a_[at], b_[at], x_[at], 1 - x_[at])
            value[at] = total[at] - part if upper else part
        at = right
        if at.any():
            part = _beta_part(k, j, b_[at], a_[at], 1 - x_[at], x_[at])
            value[at] = part if upper else total[at] - part
        return np.where(valid, np.where(inside, value, everything), np.nan)

    return in_chunks(flat, a, b, x)


def carlson_integral(power: int, exponents: tuple[float, ...], *z: Any) -> Any:
    """Integral over t > 0 of ``t**power * product of (t + z[i])**-exponents[i]``.

    Carlson's symmetric elliptic integrals and all of their derivatives are of this
    form. In log t the integrand is analytic in a strip and falls exponentially, so
    that the trapezoidal rule converges geometrically.
    """
    total = sum(exponents)

    def flat(*z: Any) -> Any:
        angles = [np.abs(np.angle(v)) for v in z]
        valid = np.all([np.isfinite(v) & (a < 3.1) for v, a in zip(z, angles, strict=True)], axis=0)
        z = tuple(np.where(valid, v, 1.0) for v in z)
        widest = max((float(np.max(a, initial=0.0, where=valid)) for a in angles), default=0.0)
        sizes = [np.abs(v) for v in z]
        least = np.min([np.where(s == 0, np.inf, s) for s in sizes], axis=0)
        low, high = np.log(np.minimum(least, 1e300)), np.log(np.max(sizes, axis=0))
        # Rates of the fall: 1 + power on the left (less what stands at 0), the rest right.
        at_zero = sum(np.where(s == 0, e, 0.0) for s, e in zip(sizes, exponents, strict=True))
        rate = np.maximum(1 + power - at_zero, 0.25)
        start, stop = low - 42 / rate, high + 42 / (total - 1 - power)
        step = 0.9 * max(0.05, (math.pi - widest) / math.pi) * 0.5
        count = int(np.max((stop - start) / step, initial=1.0)) + 2
        s = start[:, None] + step * np.arange(count)
        t = np.exp(s)
        log = (1 + power) * s
        for v, e in zip(z, exponents, strict=True):
            log = log - e * np.log(t + v[:, None])
        value = step * np.sum(np.exp(log), axis=-1)
        diverges = 1 + power - at_zero <= 0
        return np.where(valid, np.where(diverges, np.inf, value), np.nan)

    return in_chunks(flat, *z)


def zeta_derivative(k: int, x: Any, q: Any) -> Any:
    """Return the k-th derivative with respect to x of Hurwitz' zeta(x, q), q > 0, x > -10.

    Sum of 18 terms and Euler and Maclaurin's series of the rest, in truncated power
    series of the increment of x.
    """
    bernoulli = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510,
                 43867 / 798, -174611 / 330)  # fmt: skip

    def times(p: list[Any], r: list[Any]) -> list[Any]:
        return [sum(p[i] * r[m - i] for i in range(m + 1)) for m in range(k + 1)]

    def powers(base: Any, x: Any) -> list[Any]:
        log = -np.log(base)
        return [base ** (-x) * log**m / math.factorial(m) for m in range(k + 1)]

    def linear(c: Any) -> list[Any]:
        return [c, 1.0, *[0.0] * (k - 1)][: k + 1]

    def flat(x: Any, q: Any) -> Any:
        total: Any = 0.0
        for n in range(18):
            total = total + powers(q + n, x)[k]
        w = q + 18
        end = powers(w, x)
        inverse = [(-1.0) ** m / (x - 1) ** (m + 1) for m in range(k + 1)]
        total = total + w * times(end, inverse)[k] + end[k] / 2
        term, scale = end, 1 / w
        for j, b in enumerate(bernoulli, 1):
            term = times(term, linear(x + 2 * j - 2))
            if j > 1:
                term = times(term, linear(x + 2 * j - 3))
            total = total + b / math.factorial(2 * j) * scale * term[k]
            scale = scale / (w * w)
        return np.where(q.real > 0, math.factorial(k) * total, np.nan)

    if np.asarray(q).dtype.kind == "c":
        raise DTypeError("zeta: operand 1 is complex; pass a real shift q")
    return in_chunks(flat, x, q)
