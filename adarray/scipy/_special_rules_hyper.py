"""Rules of hypergeometric, exponential-integral, elliptic and related functions.

References
----------
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 13.3 and 15.5
  (hypergeometric), 8.19 (exponential integrals), 19.4 and 19.18 (elliptic integrals), 22.13
  (Jacobian elliptic functions).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Op
from adarray.core.dispatch import run
from adarray.scipy._elementwise import elementwise, private, sp
from adarray.scipy._quadrature import carlson_integral

POSITIVE = (0.4, 3.0)
REAL = (-2.0, 2.0)
UNIT = (0.1, 0.9)
_NOTE = "not with respect to the parameters, only the argument"

# -- hypergeometric ----------------------------------------------------------------------------

elementwise(
    sp.hyp0f1, None, lambda out, v, z: sp.hyp0f1(v + 1, z) / v, domain=[POSITIVE, REAL], note=_NOTE
)
elementwise(
    sp.hyp1f1,
    None,
    None,
    lambda out, a, b, z: a / b * sp.hyp1f1(a + 1, b + 1, z),
    domain=[POSITIVE, POSITIVE, REAL],
    note=_NOTE,
)
elementwise(
    sp.hyp2f1,
    None,
    None,
    None,
    lambda out, a, b, c, z: a * b / c * sp.hyp2f1(a + 1, b + 1, c + 1, z),
    domain=[POSITIVE, POSITIVE, POSITIVE, (-0.7, 0.7)],
    note=_NOTE,
)
elementwise(
    sp.hyperu,
    None,
    None,
    lambda out, a, b, x: -a * sp.hyperu(a + 1, b + 1, x),
    domain=[POSITIVE, (1.2, 2.7), POSITIVE],
    note=_NOTE,
)
elementwise(
    sp.wright_bessel,
    None,
    None,
    lambda out, a, b, x: sp.wright_bessel(a, a + b, x),
    domain=[UNIT, POSITIVE, POSITIVE],
    note=_NOTE,
)
elementwise(
    sp.log_wright_bessel,
    None,
    None,
    lambda out, a, b, x: np.exp(sp.log_wright_bessel(a, a + b, x) - out),
    domain=[UNIT, POSITIVE, POSITIVE],
    note=_NOTE,
)

# -- exponential integrals ---------------------------------------------------------------------


def _expn_slope(out: Any, n: Any, x: Any) -> Any:
    n = np.trunc(n)  # as SciPy reads it, with a warning
    below = -sp.expn(np.maximum(n - 1, 0), x)
    return np.where(np.equal(n, 0), -np.exp(-x) * (1 + x) / (x * x), below)


elementwise(sp.exp1, lambda out, x: -np.exp(-x) / x, domain=[POSITIVE])
elementwise(sp.expi, lambda out, x: np.exp(x) / x, domain=[POSITIVE], extra=[((-1.2, 0.7),)])
elementwise(sp.expn, None, _expn_slope, domain=[(0, 4, "int"), POSITIVE], note="n is an integer")
elementwise(
    sp.sici,
    lambda out, x: (np.sinc(x / math.pi), np.cos(x) / x),
    domain=[POSITIVE],
    outputs=2,
)


def _sinhc(x: Any) -> Any:
    """Return sinh(x) / x, smooth at 0."""
    near = np.abs(x) < 1
    if not np.any(near):
        return np.sinh(x) / x
    # 0F1(3/2, x x / 4) is it; far away the quotient does not cancel.
    small = np.where(near, x, 0.0)
    return np.where(near, sp.hyp0f1(1.5, small * small / 4), np.sinh(x) / np.where(near, 1.0, x))


elementwise(
    sp.shichi,
    lambda out, x: (_sinhc(x), np.cosh(x) / x),
    domain=[POSITIVE],
    outputs=2,
)


def _spence_slope(out: Any, z: Any) -> Any:
    """``log(z) / (1 - z)``; near 1 by the hypergeometric function that it is."""
    d = z - 1
    near = np.abs(d) < 0.3
    if not np.any(near):
        return -np.log(z) / d
    small = np.where(near, d, 0.0)
    far = -np.log(np.where(near, 2.0, z)) / np.where(near, 1.0, d)
    return np.where(near, -sp.hyp2f1(1.0, 1.0, 2.0, -small), far)


elementwise(sp.spence, _spence_slope, domain=[POSITIVE], extra=[((1.0, 0.9, 5.0),)])
elementwise(
    private("_lambertw"),
    lambda out, z, k, tol: np.exp(-out) / (1 + out),
    None,
    None,
    domain=[POSITIVE, np.array([0]), np.array([1e-8])],
    extra=[(0.0, 0, 1e-8)],
    name="lambertw",
)
elementwise(sp.wrightomega, lambda out, z: out / (1 + out), domain=[REAL])

# -- Carlson's symmetric integrals -------------------------------------------------------------


@functools.cache
def _carlson_op(power: int, exponents: tuple[float, ...]) -> Op:
    def slope(i: int) -> Any:
        raised = tuple(e + (k == i) for k, e in enumerate(exponents))
        return lambda out, *z: -exponents[i] * carlson(power, raised, *z)

    return elementwise(
        functools.partial(carlson_integral, power, exponents),
        *(slope(i) for i in range(len(exponents))),
        domain=[POSITIVE] * len(exponents),
        name=f"carlson_{power}_" + "_".join(f"{int(2 * e)}" for e in exponents),
    )


def carlson(power: int, exponents: tuple[float, ...], *z: Any) -> Any:
    """Return the integral over t > 0 of ``t**power * product of (t + z[i])**-exponents[i]``."""
    return run(_carlson_op(power, exponents), *z)


def _symmetric(function: Any, front: float, power: int, exponents: tuple[float, ...]) -> None:
    """Register an integral ``front * carlson(...)``; R_G is one after differentiation only."""

    def slope(i: int) -> Any:
        raised = tuple(e + (k == i) for k, e in enumerate(exponents))
        return lambda out, *z: -exponents[i] * front * carlson(power, raised, *z)

    elementwise(
        function, *(slope(i) for i in range(len(exponents))), domain=[POSITIVE] * len(exponents)
    )


_H = 0.5
_symmetric(sp.elliprf, 0.5, 0, (_H, _H, _H))
_symmetric(sp.elliprd, 1.5, 0, (_H, _H, 1.5))
# The integral of R_G diverges before differentiation: t (t + x)**(1 - 1/2 - 1)... once.
elementwise(
    sp.elliprg,
    lambda out, x, y, z: carlson(1, (1.5, _H, _H), x, y, z) / 8,
    lambda out, x, y, z: carlson(1, (_H, 1.5, _H), x, y, z) / 8,
    lambda out, x, y, z: carlson(1, (_H, _H, 1.5), x, y, z) / 8,
    domain=[POSITIVE] * 3,
)


def _refuse_negative(name: str, p: Any) -> None:
    if np.dtype(getattr(p, "dtype", float)).kind != "c" and np.any(np.less(p, 0)):
        raise NotDifferentiableError(
            f"{name}: the last operand is negative, where the integral is a principal value; its "
            "derivative is given for positive and complex values only"
        )


def _principal(name: str, slope: Any) -> Any:
    def guarded(out: Any, *z: Any) -> Any:
        _refuse_negative(name, z[-1])
        return slope(out, *z)

    return guarded


elementwise(
    sp.elliprc,
    _principal("elliprc", lambda out, x, y: -0.25 * carlson(0, (1.5, 1.0), x, y)),
    _principal("elliprc", lambda out, x, y: -0.5 * carlson(0, (0.5, 2.0), x, y)),
    domain=[POSITIVE] * 2,
)


def _rj(i: int) -> Any:
    exponents = (_H, _H, _H, 1.0)
    raised = tuple(e + (k == i) for k, e in enumerate(exponents))
    return _principal("elliprj", lambda out, *z: -1.5 * exponents[i] * carlson(0, raised, *z))


elementwise(sp.elliprj, *(_rj(i) for i in range(4)), domain=[POSITIVE] * 4)

# -- Legendre's elliptic integrals, Jacobi's functions -----------------------------------------

elementwise(sp.ellipk, lambda out, m: sp.elliprd(0.0, 1.0, 1 - m) / 6, domain=[(-1.0, 0.9)])
elementwise(sp.ellipkm1, lambda out, p: -sp.elliprd(0.0, 1.0, p) / 6, domain=[(0.1, 1.5)])
elementwise(sp.ellipe, lambda out, m: -sp.elliprd(0.0, 1 - m, 1.0) / 6, domain=[(-1.0, 0.9)])


def _incomplete(complete: Any, part: Any, phi: Any, m: Any) -> Any:
    """Return the derivative in m of an incomplete integral: half periods and the rest."""
    periods = np.round(phi / math.pi)
    rest = phi - math.pi * periods
    sine = np.sin(rest)
    square = sine * sine
    inner = sine * square * part(np.square(np.cos(rest)), 1 - m * square) / 6
    return inner + 2 * periods * complete(m) if np.any(periods) else inner


def first_kind_in_m(phi: Any, m: Any) -> Any:
    """Return the derivative in m of the elliptic integral of the first kind."""
    return _incomplete(
        lambda m: sp.elliprd(0.0, 1.0, 1 - m) / 6,
        lambda c, d: sp.elliprd(c, 1.0, d),
        phi,
        m,
    )


elementwise(
    sp.ellipkinc,
    lambda out, phi, m: 1 / np.sqrt(1 - m * np.square(np.sin(phi))),
    lambda out, phi, m: first_kind_in_m(phi, m),
    domain=[(0.2, 1.4), (-0.5, 0.8)],
    extra=[(4.0, 0.3), (-2.5, 0.3)],
)
elementwise(
    sp.ellipeinc,
    lambda out, phi, m: np.sqrt(1 - m * np.square(np.sin(phi))),
    lambda out, phi, m: (
        -_incomplete(
            lambda m: sp.elliprd(0.0, 1 - m, 1.0) / 6,
            lambda c, d: sp.elliprd(c, d, 1.0),
            phi,
            m,
        )
    ),
    domain=[(0.2, 1.4), (-0.5, 0.8)],
    extra=[(4.0, 0.3), (-2.5, 0.3)],
)


def _jacobi_in_u(out: Any, u: Any, m: Any) -> Any:
    sn, cn, dn, _ = out
    return cn * dn, -sn * dn, -m * sn * cn, dn


def _jacobi_in_m(out: Any, u: Any, m: Any) -> Any:
    sn, cn, dn, phi = out
    rate = -dn * first_kind_in_m(phi, m)  # of the amplitude, at fixed u
    return cn * rate, -sn * rate, -(sn * sn + 2 * m * sn * cn * rate) / (2 * dn), rate


elementwise(
    sp.ellipj, _jacobi_in_u, _jacobi_in_m, domain=[(0.2, 1.4), (0.1, 0.9)], outputs=4,
    extra=[(5.0, 0.4)],
)  # fmt: skip
