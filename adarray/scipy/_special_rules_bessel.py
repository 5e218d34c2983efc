"""Rules of Bessel, Airy, Struve, Kelvin, Mathieu, cylinder and spheroidal functions.

Derivatives are those in the argument; with respect to an order there is no finite
formula, and the operand is refused.

References
----------
- NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 9.2 (Airy), 10.6, 10.29 and
  10.51 (Bessel), 10.63 (Kelvin), 11.4 (Struve), 12.8 (parabolic cylinder), 28.2 and 28.20
  (Mathieu), 30.2 (spheroidal).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adarray.scipy._elementwise import composed, elementwise, is_complex, private, refused, sp

POSITIVE = (0.4, 4.0)
REAL = (-3.0, 3.0)
ORDER = (0.2, 2.5)
_NOTE = "not with respect to the order"

# -- orders 0 and 1 ----------------------------------------------------------------------------

elementwise(sp.j0, lambda out, x: -sp.j1(x), domain=[REAL])
elementwise(sp.j1, lambda out, x: 0.5 * (sp.j0(x) - sp.jv(2, x)), domain=[REAL], extra=[(0.0,)])
elementwise(sp.y0, lambda out, x: -sp.y1(x), domain=[POSITIVE])
elementwise(sp.y1, lambda out, x: 0.5 * (sp.y0(x) - sp.yv(2, x)), domain=[POSITIVE])
elementwise(sp.i0, lambda out, x: sp.i1(x), domain=[REAL])
elementwise(sp.i1, lambda out, x: 0.5 * (sp.i0(x) + sp.iv(2, x)), domain=[REAL], extra=[(0.0,)])
elementwise(
    sp.i0e, lambda out, x: sp.i1e(x) - np.sign(x) * out, domain=[REAL], note="0 at 0, a kink"
)
elementwise(
    sp.i1e,
    lambda out, x: 0.5 * (sp.i0e(x) + sp.ive(2, x)) - np.sign(x) * out,
    domain=[REAL],
)
elementwise(sp.k0, lambda out, x: -sp.k1(x), domain=[POSITIVE])
elementwise(sp.k1, lambda out, x: -0.5 * (sp.k0(x) + sp.kv(2, x)), domain=[POSITIVE])
elementwise(sp.k0e, lambda out, x: out - sp.k1e(x), domain=[POSITIVE])
elementwise(sp.k1e, lambda out, x: out - 0.5 * (sp.k0e(x) + sp.kve(2, x)), domain=[POSITIVE])

# -- any order ---------------------------------------------------------------------------------


def _neighbours(f: Any, below: float, above: float) -> Any:
    """Half the weighted sum of the functions of the orders below and above."""
    return lambda v, z: 0.5 * (below * f(v - 1, z) + above * f(v + 1, z))


_jv, _yv = _neighbours(sp.jv, 1, -1), _neighbours(sp.yv, 1, -1)
_iv, _kv = _neighbours(sp.iv, 1, 1), _neighbours(sp.kv, -1, -1)
_h1, _h2 = _neighbours(sp.hankel1, 1, -1), _neighbours(sp.hankel2, 1, -1)
_jve, _yve = _neighbours(sp.jve, 1, -1), _neighbours(sp.yve, 1, -1)
_ive, _kve = _neighbours(sp.ive, 1, 1), _neighbours(sp.kve, -1, -1)
_h1e, _h2e = _neighbours(sp.hankel1e, 1, -1), _neighbours(sp.hankel2e, 1, -1)


def _ordered(function: Any, slope: Any, domain: Any = POSITIVE, **options: Any) -> None:
    elementwise(function, None, slope, domain=[options.pop("order", ORDER), domain], note=_NOTE,
                **options)  # fmt: skip


_ordered(sp.jv, lambda out, v, z: _jv(v, z), extra=[(1.0, 0.0), (0, -1.5)])
_ordered(sp.yv, lambda out, v, z: _yv(v, z))
_ordered(sp.iv, lambda out, v, z: _iv(v, z), extra=[(1.0, 0.0), (0, -1.5)])
_ordered(sp.kv, lambda out, v, z: _kv(v, z))
_ordered(sp.hankel1, lambda out, v, z: _h1(v, z))
_ordered(sp.hankel2, lambda out, v, z: _h2(v, z))


def _along_imaginary(out: Any, v: Any, z: Any) -> Any:
    """Rate of |Im z|; real z do not move it."""
    return -1j * np.sign(np.imag(z)) if is_complex(z) else None


_ordered(sp.jve, lambda out, v, z: _jve(v, z), growth=_along_imaginary)
_ordered(sp.yve, lambda out, v, z: _yve(v, z), growth=_along_imaginary)
_ordered(sp.ive, lambda out, v, z: _ive(v, z), growth=lambda out, v, z: np.sign(np.real(z)))
_ordered(sp.kve, lambda out, v, z: out + _kve(v, z))
_ordered(sp.hankel1e, lambda out, v, z: _h1e(v, z) - 1j * out)
_ordered(sp.hankel2e, lambda out, v, z: _h2e(v, z) + 1j * out)
# SciPy cuts other orders off to integers, with a warning.
_ordered(sp.kn, lambda out, n, z: _kv(np.trunc(n), z), order=(0, 3, "int"))
_ordered(sp.yn, lambda out, n, z: _yv(np.trunc(n), z), order=(0, 3, "int"))


def _power(v: Any, x: Any) -> Any:
    """Inhomogeneous term of the recurrences of Struve's functions."""
    return 0.5 / math.sqrt(math.pi) * (0.5 * x) ** v * sp.rgamma(v + 1.5)


_ordered(
    sp.struve, lambda out, v, x: 0.5 * (sp.struve(v - 1, x) - sp.struve(v + 1, x)) + _power(v, x)
)
_ordered(
    sp.modstruve,
    lambda out, v, x: 0.5 * (sp.modstruve(v - 1, x) + sp.modstruve(v + 1, x)) + _power(v, x),
)
elementwise(
    sp.besselpoly,
    lambda out, a, lam, nu: (
        sp.besselpoly(a, lam + 1, nu - 1.0) - sp.besselpoly(a, lam + 1, nu + 1.0)
    ),
    None,
    None,
    domain=[(0.5, 1.5), (0.5, 1.5), (2.0, 3.0)],
    note="not with respect to the power and the order",
)

# -- spherical ---------------------------------------------------------------------------------


def _spherical(name: str, below: float, above: float) -> None:
    """Register ``((n below f(n-1) + (n+1) above f(n+1)) / (2n+1)``, which has no pole at 0."""
    function = private(f"_spherical_{name}")

    def slope(out: Any, n: Any, z: Any) -> Any:
        lower = np.maximum(n - 1, 0)
        total = n * below * function(lower, z) + (n + 1) * above * function(n + 1, z)
        return total / (2 * n + 1)

    elementwise(
        function, None, slope, domain=[(0, 3, "int"), POSITIVE], name=f"spherical_{name}",
        note=_NOTE,
    )  # fmt: skip
    composed(private(f"_spherical_{name}_d"), lambda n, z: slope(None, n, z))


_spherical("jn", 1, -1)
_spherical("yn", 1, -1)
_spherical("in", 1, 1)
_spherical("kn", -1, -1)

# -- Airy, integrals, Kelvin -------------------------------------------------------------------

elementwise(
    sp.airy,
    lambda out, z: (out[1], z * out[0], out[3], z * out[2]),
    domain=[REAL],
    outputs=4,
)


def _airye_root(z: Any) -> Any:
    """Root of z, the slope of the exponent; SciPy does not scale for negative numbers."""
    return np.sqrt(z) if is_complex(z) else np.sqrt(np.maximum(z, 0.0))


def _airye_slope(out: Any, z: Any) -> Any:
    root = _airye_root(z)
    return root * out[0] + out[1], root * out[1] + z * out[0], out[3], z * out[2]


def _airye_growth(out: Any, z: Any) -> Any:
    root = _airye_root(z)
    rate = root * np.sign(np.real(z * root))
    return None, None, rate, rate


elementwise(sp.airye, _airye_slope, domain=[(0.3, 3.0)], outputs=4, growth=_airye_growth)


def _itairy_slope(out: Any, x: Any) -> Any:
    here, there = sp.airy(x), sp.airy(-x)
    return here[0], here[2], there[0], there[2]


elementwise(
    sp.itairy, _itairy_slope, domain=[(0.1, 0.5)], outputs=4,
    note="exact; SciPy's values of the integrals have errors of 1e-6",
)  # fmt: skip
elementwise(sp.iti0k0, lambda out, x: (sp.i0(x), sp.k0(x)), domain=[POSITIVE], outputs=2)
elementwise(sp.itj0y0, lambda out, x: (sp.j0(x), sp.y0(x)), domain=[POSITIVE], outputs=2)
elementwise(
    sp.it2i0k0, lambda out, x: ((sp.i0(x) - 1) / x, -sp.k0(x) / x), domain=[POSITIVE], outputs=2
)
elementwise(
    sp.it2j0y0, lambda out, x: ((1 - sp.j0(x)) / x, -sp.y0(x) / x), domain=[POSITIVE], outputs=2
)
elementwise(sp.itstruve0, lambda out, x: sp.struve(0.0, x), domain=[POSITIVE])
elementwise(sp.itmodstruve0, lambda out, x: sp.modstruve(0.0, x), domain=[POSITIVE])

elementwise(sp.ber, lambda out, x: sp.berp(x), domain=[POSITIVE])
elementwise(sp.bei, lambda out, x: sp.beip(x), domain=[POSITIVE])
elementwise(sp.ker, lambda out, x: sp.kerp(x), domain=[POSITIVE])
elementwise(sp.kei, lambda out, x: sp.keip(x), domain=[POSITIVE])


def _over(p: Any, x: Any, limit: float) -> Any:
    """Return p(x) / x, with its limit at 0."""
    return p / (x + (x == 0)) + limit * (x == 0)


elementwise(
    sp.it2struve0, lambda out, x: -_over(sp.struve(0.0, x), x, 2 / math.pi), domain=[POSITIVE]
)
elementwise(sp.berp, lambda out, x: -_over(out, x, 0.0) - sp.bei(x), domain=[POSITIVE])
elementwise(sp.beip, lambda out, x: -_over(out, x, 0.5) + sp.ber(x), domain=[POSITIVE])
elementwise(sp.kerp, lambda out, x: -out / x - sp.kei(x), domain=[POSITIVE])
elementwise(sp.keip, lambda out, x: -out / x + sp.ker(x), domain=[POSITIVE])
elementwise(
    sp.kelvin,
    lambda out, x: (out[2], out[3], 1j * out[0] - out[2] / x, 1j * out[1] - out[3] / x),
    domain=[POSITIVE],
    outputs=4,
)

# -- solutions of second-order equations: (y, y') -------------------------------------------------

_DEGREE = math.pi / 180


def _mathieu(characteristic: Any, radial: bool) -> Any:
    def slope(out: Any, m: Any, q: Any, x: Any) -> Any:
        a = characteristic(m, q)
        if radial:
            return out[1], (a - 2 * q * np.cosh(2 * x)) * out[0]
        return _DEGREE * out[1], _DEGREE * (2 * q * np.cos(2 * _DEGREE * x) - a) * out[0]

    return slope


for _name, _characteristic in (("cem", sp.mathieu_a), ("sem", sp.mathieu_b)):
    elementwise(
        getattr(sp, f"mathieu_{_name}"), None, None, _mathieu(_characteristic, False),
        domain=[(1, 3, "int"), (0.5, 2.0), (10.0, 80.0)], outputs=2,
        note="not with respect to the order and q",
    )  # fmt: skip
for _name, _characteristic in (
    ("modcem1", sp.mathieu_a), ("modcem2", sp.mathieu_a),
    ("modsem1", sp.mathieu_b), ("modsem2", sp.mathieu_b),
):  # fmt: skip
    elementwise(
        getattr(sp, f"mathieu_{_name}"), None, None, _mathieu(_characteristic, True),
        domain=[(1, 3, "int"), (0.5, 2.0), (0.3, 1.2)], outputs=2,
        note="not with respect to the order and q",
    )  # fmt: skip
refused(
    "a characteristic value has no derivative formula in q",
    sp.mathieu_a, sp.mathieu_b,
)  # fmt: skip

for _function in (sp.pbdv, sp.pbvv):
    elementwise(
        _function, None, lambda out, v, x: (out[1], (0.25 * x * x - v - 0.5) * out[0]),
        domain=[ORDER, POSITIVE], outputs=2, note=_NOTE,
    )  # fmt: skip
elementwise(
    sp.pbwa, None, lambda out, a, x: (out[1], (a - 0.25 * x * x) * out[0]),
    domain=[ORDER, (0.4, 2.5)], outputs=2, note=_NOTE,
)  # fmt: skip


def _spheroidal(prolate: bool, radial: bool, with_cv: bool) -> Any:
    """Slope from the equation ((1 - x x) y')' + (cv - c c x x - m m / (1 - x x)) y = 0.

    The oblate functions have i c for c, and the radial ones of them i x for x.
    """

    def slope(out: Any, m: Any, n: Any, c: Any, *rest: Any) -> Any:
        x = rest[-1]
        value = rest[0] if with_cv else (sp.pro_cv if prolate else sp.obl_cv)(m, n, c)
        square = -1.0 if radial and not prolate else 1.0  # of the unit of x
        weight = 1 - square * x * x
        bend = square * (c * c if prolate else -c * c) * x * x
        force = square * (value - bend - m * m / weight)
        return out[1], (square * 2 * x * out[1] - force * out[0]) / weight

    return slope


def _register_spheroidal(kind: str, part: str, with_cv: bool) -> None:
    function = getattr(sp, f"{kind}_{part}" + ("_cv" if with_cv else ""))
    x = (0.2, 0.8) if part == "ang1" else (1.3, 2.0)
    orders: list[Any] = [np.array([1]), np.array([2]), np.array([0.8])]
    cv = [getattr(sp, f"{kind}_cv")(*orders)] if with_cv else []
    places = 3 + with_cv
    elementwise(
        function, *[None] * places, _spheroidal(kind == "pro", part != "ang1", with_cv),
        domain=[*orders, *cv, x], outputs=2,
        note="in the coordinate only, not in the orders, c and cv",
    )  # fmt: skip


for _kind in ("pro", "obl"):
    for _part in ("ang1", "rad1"):
        for _with_cv in (False, True):
            _register_spheroidal(_kind, _part, _with_cv)
refused("a characteristic value has no derivative formula in c", sp.pro_cv, sp.obl_cv)
refused(
    "the values that SciPy gives for small arguments do not satisfy their differential equation",
    sp.pro_rad2, sp.pro_rad2_cv, sp.obl_rad2, sp.obl_rad2_cv,
)  # fmt: skip


def spherical(name: str, n: Any, z: Any, derivative: bool) -> Any:
    """Return a spherical Bessel function of traced z, real z < 0 too, or its derivative."""
    n = np.asarray(n, int)[()]
    function = private(f"_spherical_{name}" + ("_d" if derivative else ""))
    if np.dtype(z.dtype).kind == "c" or not np.any(z < 0):
        return function(n, z)
    if name == "kn":
        return np.real(function(n, z + 0j))
    # f(-z) = +-f(z): the sign goes on the argument and on the result, so that 0 is no kink.
    parity = np.where(n % 2 == 0, 1.0, -1.0) * (-1.0 if name == "yn" else 1.0)
    sign_z = np.where(z < 0, -1.0, 1.0)
    sign = np.where(z < 0, -parity if derivative else parity, 1.0)
    return sign * function(n, sign_z * z)
