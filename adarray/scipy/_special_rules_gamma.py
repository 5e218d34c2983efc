"""Rules of the gamma, beta and zeta functions, in their parameters too.

References
----------
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 5.15 (polygamma), 8.8 and
  8.17 (incomplete gamma and beta), 25.4 and 25.11 (zeta).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import scipy.special

from adarray.base.op import Op, constant
from adarray.core.dispatch import run
from adarray.scipy._elementwise import composed, elementwise, private, sp
from adarray.scipy._quadrature import beta_moment, gamma_moment, zeta_derivative

POSITIVE = (0.4, 4.0)


def _is_pole(x: Any) -> Any:
    """Whether a real argument is an integer from 0 down, where gamma has a pole."""
    return (np.real(x) <= 0) & (np.round(np.real(x)) == x)


# -- polygamma -------------------------------------------------------------------------------


def _complex_polygamma(n: Any, x: Any) -> Any:
    """Polygamma of complex x: recurrence up to Re x > 15, then the asymptotic series."""
    n, x = np.broadcast_arrays(np.asarray(n, int), x)
    out = np.empty(x.shape, np.result_type(x, np.complex64))
    for order in np.unique(n):
        k, z = int(order), x[n == order].astype(complex)
        total: Any = 0.0
        if k == 0:
            out[n == order] = sp.psi(z)
            continue
        while np.any(low := (z.real < 15) & (np.abs(z.imag) < 15)):
            total = total + np.where(low, 1 / z ** (k + 1), 0)
            z = np.where(low, z + 1, z)
        total = total * math.factorial(k)
        total = total + math.factorial(k - 1) / z**k + math.factorial(k) / (2 * z ** (k + 1))
        for j, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6), 1):
            rising = math.factorial(2 * j + k - 1) / math.factorial(2 * j)
            total = total + b * rising / z ** (2 * j + k)
        out[n == order] = (-1) ** (k + 1) * total
    return out[()]


def _polygamma(n: Any, x: Any) -> Any:
    if getattr(x, "dtype", np.dtype(float)).kind == "c":
        return _complex_polygamma(n, x)
    return np.asarray(scipy.special.polygamma(n, x), np.result_type(x, np.float32))[()]


def polygamma(n: Any, x: Any) -> Any:
    """Return the n-th derivative of the digamma function, as `scipy.special.polygamma`."""
    return run(polygamma_op, n, x)


polygamma_op = elementwise(
    _polygamma,
    None,
    lambda out, n, x: polygamma(n + 1, x),
    domain=[(0, 3, "int"), POSITIVE],
    name="polygamma",
    note="the order n is an integer",
)


# -- gamma -------------------------------------------------------------------------------------


def _rgamma_slope(out: Any, x: Any) -> Any:
    """``-psi(x) / gamma(x)``, and its limit at the poles of psi."""
    pole = _is_pole(x)
    if not np.any(pole):
        return -sp.psi(x) * out
    safe = np.where(pole, 0.5, x)
    at = np.where(pole, x, 0.0)
    # Near -n: (-1)**n n! (e - psi(n+1) e**2 + ...) in e = x + n.
    d = at - np.round(at)
    sign = np.cos(math.pi * np.round(at))
    limit = sign * sp.gamma(1 - at) * (1 - sp.psi(1 - at) * d)
    return np.where(pole, limit, -sp.psi(safe) * sp.rgamma(safe))


def rgamma_slope(x: Any) -> Any:
    """Return the derivative of 1 / gamma(x)."""
    return _rgamma_slope(sp.rgamma(x), x)


elementwise(sp.gamma, lambda out, x: out * sp.psi(x), domain=[POSITIVE], extra=[((-1.4, -0.3),)])
elementwise(sp.gammaln, lambda out, x: sp.psi(x), domain=[POSITIVE], extra=[((-1.4, -0.3),)])
elementwise(sp.loggamma, lambda out, x: sp.psi(x), domain=[POSITIVE])
elementwise(
    sp.psi, lambda out, x: polygamma(1, x), domain=[POSITIVE], extra=[((-1.4, -0.3),)], name="psi"
)
elementwise(sp.rgamma, _rgamma_slope, domain=[POSITIVE], extra=[((-2.0, 0.0, -0.4),)])
constant(sp.gammasgn)


def _poch_slopes(which: int) -> Any:
    def slope(out: Any, a: Any, m: Any) -> Any:
        top = a + m
        if which:
            return out * sp.psi(top)
        pole = _is_pole(a)
        if not np.any(pole):
            return out * (sp.psi(top) - sp.psi(a))
        safe = np.where(pole, 0.5, a)
        both = pole & _is_pole(top)
        # Polynomials of a (m an integer) by reflection; else 1 / gamma(a) is 0 and has a slope.
        reflected = sp.psi(np.where(both, 1 - top, 1.0)) - sp.psi(np.where(both, 1 - a, 1.0))
        rising = sp.gamma(np.where(both, 1.0, top)) * rgamma_slope(a)
        limit = np.where(both, out * reflected, rising)
        return np.where(pole, limit, out * (sp.psi(np.where(both, 1.0, top)) - sp.psi(safe)))

    return slope


elementwise(
    sp.poch, _poch_slopes(0), _poch_slopes(1), domain=[POSITIVE, POSITIVE], extra=[(-2.3, 1.6)],
    note="where a is an integer below 1, the second derivatives in a are not differentiated",
)  # fmt: skip


def _binom_slopes(which: int) -> Any:
    def slope(out: Any, n: Any, k: Any) -> Any:
        rest = n - k + 1
        pole = _is_pole(rest)
        other = sp.psi(n + 1) if which == 0 else sp.psi(k + 1)
        sign = 1.0 if which == 0 else -1.0
        if not np.any(pole):
            return sign * out * (other - sp.psi(rest))
        safe = np.where(pole, 1.0, rest)
        limit = sp.gamma(n + 1) * sp.rgamma(k + 1) * rgamma_slope(rest)
        return np.where(pole, sign * limit, sign * out * (other - sp.psi(safe)))

    return slope


elementwise(
    sp.binom, _binom_slopes(0), _binom_slopes(1), domain=[(4.0, 6.0), POSITIVE], extra=[(5.0, 2.0)]
)
elementwise(
    sp.beta,
    lambda out, a, b: out * (sp.psi(a) - sp.psi(a + b)),
    lambda out, a, b: out * (sp.psi(b) - sp.psi(a + b)),
    domain=[POSITIVE, POSITIVE],
)
elementwise(
    sp.betaln,
    lambda out, a, b: sp.psi(a) - sp.psi(a + b),
    lambda out, a, b: sp.psi(b) - sp.psi(a + b),
    domain=[POSITIVE, POSITIVE],
)

# -- zeta --------------------------------------------------------------------------------------


@functools.cache
def _zeta_op(k: int) -> Op:
    """Return the k-th derivative of Hurwitz' zeta(x, q) with respect to x, as an operation."""

    def in_q(out: Any, x: Any, q: Any) -> Any:
        slope = -x * _zeta(k, x + 1, q)
        return slope - k * _zeta(k - 1, x + 1, q) if k else slope

    return elementwise(
        private("_zeta") if k == 0 else functools.partial(zeta_derivative, k),
        lambda out, x, q: _zeta(k + 1, x, q),
        in_q,
        domain=[(1.5, 5.0), (0.5, 4.0)],
        name=f"zeta_{k}",
        note="x > 1 or, with q = 1, x > -10" if k == 0 else "",
    )


def _zeta(k: int, x: Any, q: Any) -> Any:
    return run(_zeta_op(k), x, q)


def _riemann_slope(out: Any, x: Any) -> Any:
    """Return the derivative of Riemann's zeta; far below 0 by its functional equation.

    Close to 0 the poles of the equation's factors at 1 would cancel, and digits with them.
    """
    low = np.real(x) < -0.5
    right = _zeta(1, np.where(low, 2.0, x), 1.0)
    if not np.any(low):
        return right
    s = np.where(low, x, -1.0)
    r, half = 1 - s, math.pi / 2 * s
    front = np.exp(s * math.log(2 * math.pi)) / math.pi * sp.gamma(r)
    zeta = private("_riemann_zeta")(r)
    slope = (math.log(2 * math.pi) - sp.psi(r)) * np.sin(half) + math.pi / 2 * np.cos(half)
    left = front * (slope * zeta - np.sin(half) * _zeta(1, r, 1.0))
    return np.where(low, left, right)


_zeta_op(0)
elementwise(
    private("_riemann_zeta"), _riemann_slope, domain=[(1.5, 5.0)], extra=[((-2.5, 0.4),)],
    name="riemann_zeta",
)  # fmt: skip
elementwise(sp.zetac, _riemann_slope, domain=[(1.5, 5.0)], extra=[((-2.5, 0.4),)])

# -- incomplete gamma --------------------------------------------------------------------------


def gamma_pdf(a: Any, x: Any) -> Any:
    """Density of the gamma distribution; 0 outside of x >= 0."""
    inside = x >= 0
    safe = np.where(inside, x, 1.0)
    return np.exp(sp.xlogy(a - 1, safe) - safe - sp.gammaln(a)) * inside


@functools.cache
def _gamma_moment_op(n: int, upper: bool) -> Op:
    def in_a(out: Any, a: Any, x: Any) -> Any:
        slope = _gamma_moment(n + 1, upper, a, x)
        if n:
            slope = slope - n * polygamma(1, a) * _gamma_moment(n - 1, upper, a, x)
        return slope

    def in_x(out: Any, a: Any, x: Any) -> Any:
        sign = -1.0 if upper else 1.0
        inside = x > 0
        log = np.log(np.where(inside, x, 1.0)) - sp.psi(a)
        return sign * gamma_pdf(a, np.where(inside, x, 1.0)) * inside * log**n

    return elementwise(
        functools.partial(gamma_moment, n, upper),
        in_a,
        in_x,
        domain=[POSITIVE, POSITIVE],
        extra=[(3.0, 20.0), (20.0, 3.0)],
        name=f"gamma_moment_{n}_{'upper' if upper else 'lower'}",
    )


def _gamma_moment(n: int, upper: bool, a: Any, x: Any) -> Any:
    if n == 0:
        return (sp.gammaincc if upper else sp.gammainc)(a, x)
    return run(_gamma_moment_op(n, upper), a, x)


def gamma_slope(a: Any, x: Any) -> Any:
    """Return the derivative of the regularised incomplete gamma function in a."""
    return _gamma_moment(1, False, a, x)


elementwise(
    sp.gammainc,
    lambda out, a, x: _gamma_moment(1, False, a, x),
    lambda out, a, x: gamma_pdf(a, x),
    domain=[POSITIVE, POSITIVE],
)
elementwise(
    sp.gammaincc,
    lambda out, a, x: _gamma_moment(1, True, a, x),
    lambda out, a, x: -gamma_pdf(a, x),
    domain=[POSITIVE, POSITIVE],
)


def _inverse_gamma(upper: bool) -> tuple[Any, Any]:
    sign = -1.0 if upper else 1.0

    def in_a(out: Any, a: Any, p: Any) -> Any:
        return -sign * _gamma_moment(1, upper, a, out) / gamma_pdf(a, out)

    def in_p(out: Any, a: Any, p: Any) -> Any:
        return sign / gamma_pdf(a, out)

    return in_a, in_p


elementwise(sp.gammaincinv, *_inverse_gamma(False), domain=[POSITIVE, (0.1, 0.9)])
elementwise(sp.gammainccinv, *_inverse_gamma(True), domain=[POSITIVE, (0.1, 0.9)])

# -- incomplete beta ---------------------------------------------------------------------------


def beta_pdf(a: Any, b: Any, x: Any) -> Any:
    """Density of the beta distribution; 0 outside of [0, 1]."""
    inside = (x >= 0) & (x <= 1)
    safe = np.where(inside, x, 0.5)
    log = sp.xlogy(a - 1, safe) + sp.xlog1py(b - 1, -safe) - sp.betaln(a, b)
    return np.exp(log) * inside


@functools.cache
def _beta_moment_op(j: int, k: int, upper: bool) -> Op:
    def factor(i: int, m: int, *args: Any) -> Any:
        return _beta_moment(i, m, upper, *args)

    def in_a(out: Any, a: Any, b: Any, x: Any) -> Any:
        slope, cross = factor(j + 1, k, a, b, x), polygamma(1, a + b)
        if j:
            slope = slope - j * (polygamma(1, a) - cross) * factor(j - 1, k, a, b, x)
        return slope + k * cross * factor(j, k - 1, a, b, x) if k else slope

    def in_b(out: Any, a: Any, b: Any, x: Any) -> Any:
        slope, cross = factor(j, k + 1, a, b, x), polygamma(1, a + b)
        if k:
            slope = slope - k * (polygamma(1, b) - cross) * factor(j, k - 1, a, b, x)
        return slope + j * cross * factor(j - 1, k, a, b, x) if j else slope

    def in_x(out: Any, a: Any, b: Any, x: Any) -> Any:
        inside = (x > 0) & (x < 1)
        safe, both = np.where(inside, x, 0.5), sp.psi(a + b)
        low = np.log(safe) - (sp.psi(a) - both)
        high = np.log1p(-safe) - (sp.psi(b) - both)
        sign = -1.0 if upper else 1.0
        return sign * beta_pdf(a, b, safe) * low**j * high**k * inside

    return elementwise(
        functools.partial(beta_moment, j, k, upper),
        in_a,
        in_b,
        in_x,
        domain=[POSITIVE, POSITIVE, (0.1, 0.9)],
        name=f"beta_moment_{j}_{k}_{'upper' if upper else 'lower'}",
    )


def _beta_moment(j: int, k: int, upper: bool, a: Any, b: Any, x: Any) -> Any:
    if j + k == 0:
        return (sp.betaincc if upper else sp.betainc)(a, b, x)
    return run(_beta_moment_op(j, k, upper), a, b, x)


def beta_slope(which: int, a: Any, b: Any, x: Any) -> Any:
    """Return the derivative of the regularised incomplete beta function in a (0) or b (1)."""
    return _beta_moment(1 - which, which, False, a, b, x)


def _beta_slopes(upper: bool) -> tuple[Any, Any, Any]:
    return (
        lambda out, a, b, x: _beta_moment(1, 0, upper, a, b, x),
        lambda out, a, b, x: _beta_moment(0, 1, upper, a, b, x),
        lambda out, a, b, x: (-1.0 if upper else 1.0) * beta_pdf(a, b, x),
    )


def _inverse_beta(upper: bool) -> tuple[Any, Any, Any]:
    in_a, in_b, in_x = _beta_slopes(upper)
    return (
        lambda out, a, b, p: -in_a(p, a, b, out) / in_x(p, a, b, out),
        lambda out, a, b, p: -in_b(p, a, b, out) / in_x(p, a, b, out),
        lambda out, a, b, p: 1 / in_x(p, a, b, out),
    )


for _upper, _forward, _inverse in (
    (False, sp.betainc, sp.betaincinv),
    (True, sp.betaincc, sp.betainccinv),
):
    elementwise(_forward, *_beta_slopes(_upper), domain=[POSITIVE, POSITIVE, (0.1, 0.9)])
    elementwise(_inverse, *_inverse_beta(_upper), domain=[POSITIVE, POSITIVE, (0.1, 0.9)])

composed(private("_factorial"), lambda n: sp.gamma(n + 1) * (n >= 0))
