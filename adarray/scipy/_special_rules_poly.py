"""Rules of orthogonal polynomials, Legendre functions and spherical harmonics, in the argument.

References
----------
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 14.10 (Legendre functions),
  18.9 (orthogonal polynomials).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from adarray.base.op import Op
from adarray.core.dispatch import run
from adarray.scipy._elementwise import elementwise, lowered, sp

UNIT = (-0.9, 0.9)
DEGREE = (1, 4, "int")
_NOTE = "in the argument only, not in the degree and the parameters"

# -- classical polynomials ---------------------------------------------------------------------


def _gegenbauer_slope(order: int, front: float, half: bool, shifted: bool) -> Callable[..., Any]:
    """``front * C(n - 1, order / 2)(x)``: the slope of a Gegenbauer polynomial."""

    def slope(out: Any, n: Any, x: Any) -> Any:
        below, there = lowered(n)
        at = 2 * x - 1 if shifted else x / 2 if half else x
        scale = front * (2 if shifted else 0.5 if half else 1)
        return scale * there * sp.eval_gegenbauer(below, order / 2, at)

    return slope


def _chebyshev_slope(half: bool, shifted: bool) -> Callable[..., Any]:
    """``n U(n - 1)``; U is smooth at the ends, unlike the trigonometric form of T."""

    def slope(out: Any, n: Any, x: Any) -> Any:
        below, there = lowered(n)
        at = 2 * x - 1 if shifted else x / 2 if half else x
        return (2 if shifted else 1) * (n * there) * sp.eval_chebyu(below, at)

    return slope


for _ufunc, _slope in (
    (sp.eval_legendre, _gegenbauer_slope(3, 1.0, False, False)),
    (sp.eval_sh_legendre, _gegenbauer_slope(3, 1.0, False, True)),
    (sp.eval_chebyu, _gegenbauer_slope(4, 2.0, False, False)),
    (sp.eval_sh_chebyu, _gegenbauer_slope(4, 2.0, False, True)),
    (sp.eval_chebys, _gegenbauer_slope(4, 2.0, True, False)),
    (sp.eval_chebyt, _chebyshev_slope(False, False)),
    (sp.eval_sh_chebyt, _chebyshev_slope(False, True)),
    (sp.eval_chebyc, _chebyshev_slope(True, False)),
):
    elementwise(_ufunc, None, _slope, domain=[DEGREE, (0.1, 0.8)], extra=[(0, 0.3)], note=_NOTE)


def _hermite_slope(function: Any, front: float) -> Callable[..., Any]:
    def slope(out: Any, n: Any, x: Any) -> Any:
        below, there = lowered(n)
        return front * n * there * function(below, x)

    return slope


for _ufunc, _front in ((sp.eval_hermite, 2.0), (sp.eval_hermitenorm, 1.0)):
    elementwise(
        _ufunc, None, _hermite_slope(_ufunc, _front), domain=[DEGREE, UNIT], extra=[(0, 0.3)],
        note=_NOTE,
    )  # fmt: skip


def _laguerre_slope(out: Any, n: Any, alpha: Any, x: Any) -> Any:
    below, there = lowered(n)
    return -1.0 * there * sp.eval_genlaguerre(below, alpha + 1.0, x)


elementwise(
    sp.eval_laguerre, None, lambda out, n, x: _laguerre_slope(out, n, 0.0, x),
    domain=[DEGREE, UNIT], extra=[(0, 0.3)], note=_NOTE,
)  # fmt: skip
elementwise(
    sp.eval_genlaguerre, None, None, _laguerre_slope,
    domain=[DEGREE, (0.2, 1.5), UNIT], extra=[(0, 0.5, 0.3)], note=_NOTE,
)  # fmt: skip


def _general_gegenbauer_slope(out: Any, n: Any, alpha: Any, x: Any) -> Any:
    below, there = lowered(n)
    return 2 * alpha * there * sp.eval_gegenbauer(below, alpha + 1.0, x)


elementwise(
    sp.eval_gegenbauer, None, None, _general_gegenbauer_slope,
    domain=[DEGREE, (0.2, 1.5), UNIT], extra=[(0, 0.5, 0.3)], note=_NOTE,
)  # fmt: skip


def _jacobi_slope(out: Any, n: Any, alpha: Any, beta: Any, x: Any) -> Any:
    below, there = lowered(n)
    front = 0.5 * (n + alpha + beta + 1) * there
    return front * sp.eval_jacobi(below, alpha + 1.0, beta + 1.0, x)


def _shifted_jacobi_slope(out: Any, n: Any, p: Any, q: Any, x: Any) -> Any:
    below, there = lowered(n)
    return n * there * sp.eval_sh_jacobi(below, p + 2.0, q + 1.0, x)


elementwise(
    sp.eval_jacobi, None, None, None, _jacobi_slope,
    domain=[DEGREE, (0.2, 1.5), (0.2, 1.5), UNIT], extra=[(0, 0.5, 0.5, 0.3)], note=_NOTE,
)  # fmt: skip
elementwise(
    sp.eval_sh_jacobi, None, None, None, _shifted_jacobi_slope,
    domain=[DEGREE, (2.5, 3.5), (0.5, 1.5), (0.1, 0.9)], extra=[(0, 2.5, 0.5, 0.3)], note=_NOTE,
)  # fmt: skip

# -- Legendre functions ------------------------------------------------------------------------


def _end_slope(m: Any, v: Any, x: Any) -> Any:
    """Slope of the associated Legendre function at x = 1 and -1, for m = 0, 1, 2, ..."""
    first = v * (v + 1) / 2
    second = -x * (v - 1) * v * (v + 1) * (v + 2) / 4
    slope = np.where(m == 0, first, np.where(m == 1, np.inf, np.where(m == 2, second, 0.0)))
    return slope * np.where(x > 0, 1.0, np.cos(math.pi * (v + 1)))


def _lpmv_slope(out: Any, m: Any, v: Any, x: Any) -> Any:
    end = np.abs(x) == 1
    safe = np.where(end, 0.0, x)
    pull = (m - v - 1) * sp.lpmv(m, v + 1.0, safe) + (v + 1) * safe * np.where(end, 0.0, out)
    slope = pull / (1 - safe * safe)
    return np.where(end, _end_slope(m, v, x), slope) if np.any(end) else slope


elementwise(
    sp.lpmv, None, None, _lpmv_slope, domain=[(0, 2, "int"), (1, 4, "int"), UNIT],
    note=_NOTE,
)  # fmt: skip


def legendre_row(n: Any, z: Any, i: int) -> Any:
    """Return the i-th derivative of Legendre's polynomial: a Gegenbauer polynomial."""
    if i == 0:
        return sp.eval_legendre(n, z)
    front = math.prod(range(1, 2 * i, 2)) * (np.asarray(n) >= i)
    return front * sp.eval_gegenbauer(np.maximum(np.asarray(n) - i, 0), i + 0.5, z)


def row(function: str, n: Any, m: Any, x: Any, **options: Any) -> Any:
    """Return a `scipy.special` Legendre function without derivatives, as a plain array."""
    args = (n, m, x) if m is not None else (n, x)
    return getattr(scipy.special, function)(*args, **options)[0]


@functools.cache
def associated_op(branch_cut: int, norm: bool) -> Op:
    """Return the associated Legendre function of integer degree and order as an operation."""

    def slope(out: Any, n: Any, m: Any, z: Any) -> Any:
        above = run(associated_op(branch_cut, norm), n + 1, m, z)
        inside = np.abs(m) <= n  # else the function is 0
        if norm:
            scale = (2 * n + 1) * (n + 1 + m) / ((2 * n + 3) * np.maximum(n + 1 - m, 1))
            above = np.sqrt(np.maximum(scale, 0.0)) * above
        return inside * ((m - n - 1) * above + (n + 1) * z * out) / (1 - z * z)

    return elementwise(
        lambda n, m, z: row(
            "assoc_legendre_p", n, m, z, branch_cut=branch_cut, norm=norm
        ),
        None, None, slope,
        domain=[(2, 4, "int"), (0, 2, "int"), UNIT],
        name=f"assoc_legendre_p_{branch_cut}_{int(norm)}",
        note=_NOTE,
    )  # fmt: skip


def _ladder(function: Any, n: Any, m: Any, phase: Any) -> Any:
    """Return the derivative in theta of a spherical function from its neighbours in m."""
    up = np.sqrt(np.maximum((n - m) * (n + m + 1), 0) * 1.0)
    down = np.sqrt(np.maximum((n + m) * (n - m + 1), 0) * 1.0)
    if phase is None:
        return 0.5 * (up * function(m + 1) - down * function(m - 1))
    return 0.5 * (up * function(m + 1) / phase - down * function(m - 1) * phase)


spherical_legendre_op: Op = elementwise(
    lambda n, m, theta: row("sph_legendre_p", n, m, theta),
    None,
    None,
    lambda out, n, m, theta: _ladder(lambda k: run(spherical_legendre_op, n, k, theta), n, m, None),
    domain=[(2, 4, "int"), (-2, 2, "int"), (0.2, 2.8)],
    name="sph_legendre_p",
    note=_NOTE,
)
harmonic_op: Op = elementwise(
    lambda n, m, theta, phi: scipy.special.sph_harm_y(n, m, theta, phi),
    None,
    None,
    lambda out, n, m, theta, phi: _ladder(
        lambda k: run(harmonic_op, n, k, theta, phi), n, m, np.exp(1j * phi)
    ),
    lambda out, n, m, theta, phi: 1j * m * out,
    domain=[(2, 4, "int"), (-2, 2, "int"), (0.2, 2.8), (0.2, 6.0)],
    name="sph_harm_y",
    note="in the angles",
)
