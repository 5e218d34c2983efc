"""Rules of the distribution functions in `scipy.special`, and of their inverses.

Most are incomplete gamma and beta functions of other arguments, and are computed
so where they are traced.

References
----------
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 8.2 and 8.17 (incomplete
  gamma and beta functions).
- A. Kolmogorov, "Sulla determinazione empirica di una legge di distribuzione", G. Ist. Ital.
  Attuari 4 (1933), 83-91.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.scipy._elementwise import composed, elementwise, refused, sp
from adarray.scipy._special_rules_gamma import beta_pdf, beta_slope, gamma_pdf, gamma_slope

POSITIVE = (0.5, 3.0)
UNIT = (0.1, 0.9)


def whole(k: Any) -> Any:
    """Return a count as SciPy reads it: rounded down."""
    return np.floor(k)


# -- gamma, chi-square, Poisson ------------------------------------------------------------------

composed(sp.gdtr, lambda a, b, x: sp.gammainc(b, a * x))
composed(sp.gdtrc, lambda a, b, x: sp.gammaincc(b, a * x))
composed(sp.gdtrix, lambda a, b, p: sp.gammaincinv(b, p) / a)
composed(sp.gdtria, lambda p, b, x: sp.gammaincinv(b, p) / x)
composed(sp.chdtr, lambda v, x: sp.gammainc(v / 2, x / 2))
composed(sp.chdtrc, lambda v, x: sp.gammaincc(v / 2, x / 2))
composed(sp.chdtri, lambda v, p: 2 * sp.gammainccinv(v / 2, p))
composed(sp.pdtr, lambda k, m: sp.gammaincc(whole(k) + 1, m))
composed(sp.pdtrc, lambda k, m: sp.gammainc(whole(k) + 1, m))
composed(sp.pdtri, lambda k, y: sp.gammainccinv(whole(k) + 1, y))

# -- beta, binomial, F, Student's t ------------------------------------------------------------


def _binomial(upper: bool) -> Callable[..., Any]:
    def body(k: Any, n: Any, p: Any) -> Any:
        k = whole(k)
        short = n - k > 0
        rest = np.where(short, n - k, 1.0)
        function = sp.betainc if upper else sp.betaincc
        return np.where(short, function(k + 1, rest, p), 0.0 if upper else 1.0)

    return body


def _f_fraction(dfn: Any, dfd: Any, x: Any) -> Any:
    return dfn * x / (dfd + dfn * x)


def _f_quantile(dfn: Any, dfd: Any, p: Any) -> Any:
    # From the side of 1 - t, which is small for large quantiles.
    rest = sp.betainccinv(dfd / 2, dfn / 2, p)
    return dfd * sp.betaincinv(dfn / 2, dfd / 2, p) / (dfn * rest)


composed(sp.bdtr, _binomial(False))
composed(sp.bdtrc, _binomial(True))
composed(sp.bdtri, lambda k, n, y: sp.betainccinv(whole(k) + 1, n - whole(k), y))
composed(sp.nbdtr, lambda k, n, p: sp.betainc(n, whole(k) + 1, p))
composed(sp.nbdtrc, lambda k, n, p: sp.betaincc(n, whole(k) + 1, p))
composed(sp.nbdtri, lambda k, n, y: sp.betaincinv(n, whole(k) + 1, y))
composed(sp.fdtr, lambda dfn, dfd, x: sp.betainc(dfn / 2, dfd / 2, _f_fraction(dfn, dfd, x)))
composed(
    sp.fdtrc,
    lambda dfn, dfd, x: sp.betainc(dfd / 2, dfn / 2, dfd / (dfd + dfn * x)),
)
composed(sp.fdtri, _f_quantile)


def student_density(df: Any, t: Any) -> Any:
    """Density of Student's t."""
    log = -0.5 * (df + 1) * np.log1p(t * t / df) - sp.betaln(df / 2, 0.5)
    return np.exp(log) / np.sqrt(df)


def _student_in_df(df: Any, t: Any) -> Any:
    """Return the derivative of Student's distribution function in df.

    It is ``1/2 + sign(t)/2 I_y(1/2, df/2)`` with ``y = t t / (df + t t)``; the part from
    y is that of a scale, and the part from df/2 is taken on the side where y or 1 - y
    is small.
    """
    t = t + (t == 0) * 1e-18  # where powers of t t cancel, derivatives of them need not
    square = t * t
    wide = square > df
    x = np.where(wide, df / (df + square), 0.5)
    y = np.where(wide, 0.5, square / (df + square))
    part = np.where(wide, -beta_slope(0, df / 2, 0.5, x), beta_slope(1, 0.5, df / 2, y))
    return 0.25 * np.sign(t) * part - t / (2 * df) * student_density(df, t)


elementwise(
    sp.stdtr,
    lambda out, df, t: _student_in_df(df, t),
    lambda out, df, t: student_density(df, t),
    domain=[(1.0, 6.0), (-3.0, 3.0)],
    extra=[(3.0, 0.0)],
)


def _f_in_dfd(dfn: Any, dfd: Any, x: Any) -> Any:
    """Return the derivative of the F distribution function in the second degrees of freedom."""
    z = _f_fraction(dfn, dfd, x)
    rate = -z / (dfd + dfn * x)
    return 0.5 * beta_slope(1, dfn / 2, dfd / 2, z) + beta_pdf(dfn / 2, dfd / 2, z) * rate


def _f_in_x(dfn: Any, dfd: Any, x: Any) -> Any:
    z = _f_fraction(dfn, dfd, x)
    return beta_pdf(dfn / 2, dfd / 2, z) * dfn * dfd / np.square(dfd + dfn * x)


def _f_in_dfn(dfn: Any, dfd: Any, x: Any) -> Any:
    z = _f_fraction(dfn, dfd, x)
    rate = x * dfd / np.square(dfd + dfn * x)
    return 0.5 * beta_slope(0, dfn / 2, dfd / 2, z) + beta_pdf(dfn / 2, dfd / 2, z) * rate


# -- noncentral chi-square ------------------------------------------------------------------------


def _noncentral_density(x: Any, df: Any, nc: Any) -> Any:
    front = np.exp(-0.5 * (x + nc)) * 0.5 * (x / 2) ** (df / 2 - 1) * sp.rgamma(df / 2)
    return front * sp.hyp0f1(df / 2, nc * x / 4)


def _noncentral_in_nc(x: Any, df: Any, nc: Any) -> Any:
    return -_noncentral_density(x, df + 2.0, nc)


elementwise(
    sp.chndtr,
    lambda out, x, df, nc: _noncentral_density(x, df, nc),
    None,
    lambda out, x, df, nc: _noncentral_in_nc(x, df, nc),
    domain=[POSITIVE, POSITIVE, POSITIVE],
    note="not with respect to the degrees of freedom",
)

# -- solutions of distribution functions for one argument --------------------------------------


def solved(
    ufunc: Any,
    arguments: str,
    unknown: str,
    order: str,
    partials: dict[str, Callable[..., Any]],
    domain: Sequence[Any],
) -> None:
    """Register the ufunc that solves ``cdf(...) = p`` for the argument `unknown` of the cdf.

    `arguments` are the names of the operands, p among them; the cdf's `partials` take
    those in `order`.
    """
    names = arguments.split()

    def values(out: Any, operands: Sequence[Any]) -> list[Any]:
        known = dict(zip(names, operands, strict=True)) | {unknown: out}
        return [known[n] for n in order.split()]

    def slope(name: str) -> Any:
        if name == "p":
            return lambda out, *operands: 1 / partials[unknown](*values(out, operands))
        if name not in partials:
            return None
        return lambda out, *operands: (
            -partials[name](*values(out, operands)) / partials[unknown](*values(out, operands))
        )

    elementwise(ufunc, *(slope(n) for n in names), domain=domain)


_IN_CHI2 = {
    "v": lambda v, x: 0.5 * gamma_slope(v / 2, x / 2),
    "x": lambda v, x: 0.5 * gamma_pdf(v / 2, x / 2),
}
_IN_GAMMA = {
    "a": lambda a, b, x: x * gamma_pdf(b, a * x),
    "b": lambda a, b, x: gamma_slope(b, a * x),
    "x": lambda a, b, x: a * gamma_pdf(b, a * x),
}
_IN_BETA = {
    "a": lambda a, b, x: beta_slope(0, a, b, x),
    "b": lambda a, b, x: beta_slope(1, a, b, x),
    "x": beta_pdf,
}
_IN_F = {"n": _f_in_dfn, "d": _f_in_dfd, "x": _f_in_x}
_IN_T = {"v": _student_in_df, "t": student_density}
_IN_NONCENTRAL = {"x": _noncentral_density, "c": _noncentral_in_nc}

solved(sp.chdtriv, "p x", "v", "v x", _IN_CHI2, [UNIT, POSITIVE])
solved(sp.gdtrib, "a p x", "b", "a b x", _IN_GAMMA, [POSITIVE, UNIT, POSITIVE])
solved(sp.btdtria, "p b x", "a", "a b x", _IN_BETA, [UNIT, POSITIVE, UNIT])
solved(sp.btdtrib, "a p x", "b", "a b x", _IN_BETA, [POSITIVE, UNIT, UNIT])
solved(
    sp.fdtridfd, "n p x", "d", "n d x", _IN_F,
    [np.array([2.5]), np.array([0.62]), np.array([1.3])],
)  # fmt: skip
solved(sp.stdtrit, "v p", "t", "v t", _IN_T, [(1.5, 5.0), UNIT])
solved(sp.stdtridf, "p t", "v", "v t", _IN_T, [np.array([0.85, 0.8]), np.array([1.2])])
solved(sp.chndtrix, "p v c", "x", "x v c", _IN_NONCENTRAL, [UNIT, POSITIVE, POSITIVE])
solved(
    sp.chndtrinc, "x v p", "c", "x v c", _IN_NONCENTRAL,
    [(8.0, 9.0), (2.0, 3.0), (0.2, 0.6)],
)  # fmt: skip
composed(sp.nrdtrimn, lambda p, std, x: x - std * sp.ndtri(p))
composed(sp.nrdtrisd, lambda mn, p, x: (x - mn) / sp.ndtri(p))

# -- Kolmogorov and Smirnov --------------------------------------------------------------------


def _kolmogorov_slope(y: Any) -> Any:
    """Return the derivative of the survival function, by the theta series that converges fast."""
    low = y < 1
    small, large = np.where(low, np.maximum(y, 0.02), 1.0), np.where(low, 1.0, y)
    tail: Any = 0.0
    for k in range(1, 6):
        tail = tail - (-1.0) ** (k - 1) * 8 * k * k * large * np.exp(-2 * k * k * large * large)
    head: Any = 0.0
    for k in range(1, 6):
        c = (2 * k - 1) ** 2 * math.pi**2 / 8
        inverse = 1 / (small * small)
        head = head - np.exp(-c * inverse) * (2 * c * inverse - 1) * inverse
    return np.where(y > 0.02, np.where(low, math.sqrt(2 * math.pi) * head, tail), 0.0)


elementwise(
    sp.kolmogorov, lambda out, y: _kolmogorov_slope(y), domain=[(0.4, 1.8)], extra=[((0.0, 2.0),)]
)
elementwise(sp.kolmogi, lambda out, p: 1 / _kolmogorov_slope(out), domain=[UNIT])


def _smirnov_slope(n: Any, d: Any) -> Any:
    """Return the slope in d of ``d sum of binom(n, v) (d + v/n)**(v-1) (1 - d - v/n)**(n-v)``."""
    total: Any = 0.0
    for v in range(int(np.max(n, initial=1)) + 1):
        left, right = d + v / n, 1 - d - v / n
        inside = (right > 0) & (n >= v) & (d > 0)
        left, right = np.where(inside, left, 1.0), np.where(inside, right, 1.0)
        size = sp.binom(n * 1.0, v) * left ** (v - 1.0) * right ** (n - v)
        change = 1 / np.where(inside, d, 1.0) + (v - 1) / left - (n - v) / right
        total = total + np.where(inside, size * d * change, 0.0)
    return total


elementwise(sp.smirnov, None, lambda out, n, d: _smirnov_slope(n, d), domain=[(3, 6, "int"), UNIT])
elementwise(
    sp.smirnovi, None, lambda out, n, p: 1 / _smirnov_slope(n, out), domain=[(3, 6, "int"), UNIT]
)

# -- no formula --------------------------------------------------------------------------------

refused(
    "solves for a count, which has no derivative",
    sp.bdtrik, sp.bdtrin, sp.nbdtrik, sp.nbdtrin, sp.pdtrik,
)  # fmt: skip
refused(
    "solves for degrees of freedom, in which the noncentral distribution has no formula",
    sp.chndtridf, sp.nctdtridf, sp.ncfdtridfd, sp.ncfdtridfn,
)  # fmt: skip
refused(
    "the noncentral t and F distributions have no derivative rules",
    sp.nctdtr, sp.nctdtrit, sp.nctdtrinc, sp.ncfdtr, sp.ncfdtri, sp.ncfdtrinc,
)  # fmt: skip
