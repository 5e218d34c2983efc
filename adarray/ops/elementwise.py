"""Pointwise operations.

One rule per operand serves reverse mode, forward mode, and the printed kernels:
the Jacobian is diagonal, so it is its own transpose. ``x + (x == 0)`` stands for
"x, but 1 where it is 0", which keeps a division finite without another branch.

References
----------
- F. H. Clarke, "Optimization and Nonsmooth Analysis", Wiley 1983 (what rules return at kinks).
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 14.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray, weakened
from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Op, Opaque, Pointwise, composite, dynamic, register
from adarray.batching import rules as batching
from adarray.core.dispatch import apply
from adarray.core.protocol import plain
from adarray.ops.common import composite_if_traced, s, unbroadcast
from adarray.ops.complex import conjugate_of

REAL = (-3.0, 3.0)
POSITIVE = (0.3, 4.0)
UNIT = (-0.9, 0.9)
LARGE = (-1.0, 1.0, "nonzero")


def pointwise(
    ufunc: Any,
    *rules: Any,
    domain: Any = None,
    name: str | None = None,
    expr: Any = None,
    **options: Any,
) -> Op:
    """Register a pointwise operation with one rule ``(g, out, *operands)`` per operand."""
    domains = domain if isinstance(domain, list) else [domain or REAL] * len(rules)
    return register(
        Op(
            name or ufunc.__name__,
            ufunc,
            Pointwise(expr),
            rules,
            samples=tuple(domains),
            **options,
        )
    )


# -- arithmetic ------------------------------------------------------------------------

add = pointwise(np.add, lambda g, out, x, y: g, lambda g, out, x, y: g)
subtract = pointwise(np.subtract, lambda g, out, x, y: g, lambda g, out, x, y: -g)
multiply = pointwise(np.multiply, lambda g, out, x, y: g * y, lambda g, out, x, y: g * x)
divide = pointwise(
    np.divide,
    lambda g, out, x, y: g / y,
    lambda g, out, x, y: -(g / y) * out,
    domain=[REAL, POSITIVE],
)


def _log(x: Any) -> Any:
    """Return log(x), and for a Python number one again: its dtype yields to that of arrays."""
    if isinstance(x, complex) and not isinstance(x, np.generic):
        return complex(np.log(x))
    if isinstance(x, (int, float)) and not isinstance(x, np.generic):
        return float(np.log(x))
    if isinstance(x, ADArray) and x._x is not None and x._x.weak:
        out: Any = np.log(x)
        return weakened(out)
    return np.log(x)


_TRUTHS = np.dtype(bool)


def _raise(x: Any, y: Any) -> Any:
    """Compute by `**`, which has fast cases (x**2); of truth values that one is another dtype."""
    dtype = x.dtype if type(x) is np.ndarray else getattr(x, "dtype", None)
    if dtype is _TRUTHS:
        return np.power(x, y)
    r = x**y
    # Of Python numbers a number of NumPy, as other functions give; operators know of theirs.
    return r if dtype is not None or hasattr(r, "dtype") else np.asarray(r)[()]


def _base(x: Any) -> Any:
    """Return a base whose negative powers are infinite at zero, where Python's raise an error."""
    return np.float64(x) if type(x) is float and not x else x


power = pointwise(
    np.power,
    lambda g, out, x, y: g * (y * _base(x) ** (y - (y != 0))),
    lambda g, out, x, y: g * out * _log(x + (x == 0)),
    domain=[POSITIVE, REAL],
    evaluate=_raise,
    note="with respect to the exponent: 0 where the base is 0, nan where it is negative",
)


@composite(np.float_power)
def _float_power(x1: Any, x2: Any, /) -> Any:
    """``np.float_power``: the power in float64 at least."""
    dtypes = (x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype for x in (x1, x2))
    dtype = np.result_type(np.float64, *dtypes)
    return np.power(_in_dtype(x1, dtype), _in_dtype(x2, dtype))


def _in_dtype(x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if hasattr(x, "_node") else np.asarray(x, dtype)[()]


remainder = pointwise(
    np.remainder,
    lambda g, out, x, y: g,
    lambda g, out, x, y: -g * np.floor(x / y),
    domain=[REAL, POSITIVE],
    note="jumps, where x is a multiple of y, have the derivative of their surroundings",
)
fmod = pointwise(
    np.fmod,
    lambda g, out, x, y: g,
    lambda g, out, x, y: -g * np.trunc(x / y),
    domain=[REAL, POSITIVE],
    note="as remainder",
)


@composite(np.divmod)
def _divmod(x1: Any, x2: Any, /) -> Any:
    return np.floor_divide(x1, x2), np.remainder(x1, x2)


negative = pointwise(np.negative, lambda g, out, x: -g)
positive = pointwise(np.positive, lambda g, out, x: g)
reciprocal = pointwise(np.reciprocal, lambda g, out, x: -g * out * out, domain=POSITIVE)
square = pointwise(np.square, lambda g, out, x: g * (2 * x))
sqrt = pointwise(np.sqrt, lambda g, out, x: g * 0.5 / out, domain=POSITIVE, note="inf at 0")
cbrt = pointwise(np.cbrt, lambda g, out, x: g / (3 * out * out), domain=POSITIVE, note="inf at 0")
absolute = pointwise(
    np.absolute, lambda g, out, x: g * conjugate_of(np.sign(x)), note="0 at 0; z / |z| conjugated"
)
fabs = pointwise(np.fabs, lambda g, out, x: g * np.sign(x), note="0 at 0")
copysign = pointwise(
    np.copysign,
    lambda g, out, x, y: np.where(np.signbit(x) == np.signbit(y), g, -g),
    lambda g, out, x, y: g * 0,
    note="0 with respect to the sign's source",
)
hypot = pointwise(
    np.hypot,
    lambda g, out, x, y: g * (x / (out + (out == 0))),
    lambda g, out, x, y: g * (y / (out + (out == 0))),
    note="0 at the origin",
)

# -- exponentials and logarithms -----------------------------------------------------------

exp = pointwise(np.exp, lambda g, out, x: g * out)
exp2 = pointwise(np.exp2, lambda g, out, x: g * out * math.log(2))
expm1 = pointwise(np.expm1, lambda g, out, x: g * (out + 1))
log = pointwise(np.log, lambda g, out, x: g / x, domain=POSITIVE)
log2 = pointwise(np.log2, lambda g, out, x: g / (x * math.log(2)), domain=POSITIVE)
log10 = pointwise(np.log10, lambda g, out, x: g / (x * math.log(10)), domain=POSITIVE)
log1p = pointwise(np.log1p, lambda g, out, x: g / (1 + x), domain=(-0.7, 3.0))
logaddexp = pointwise(
    np.logaddexp,
    lambda g, out, x, y: g * np.exp(x - out),
    lambda g, out, x, y: g * np.exp(y - out),
)
logaddexp2 = pointwise(
    np.logaddexp2,
    lambda g, out, x, y: g * np.exp2(x - out),
    lambda g, out, x, y: g * np.exp2(y - out),
)

# -- trigonometric and hyperbolic ------------------------------------------------------------

sin = pointwise(np.sin, lambda g, out, x: g * np.cos(x))
cos = pointwise(np.cos, lambda g, out, x: -g * np.sin(x))
tan = pointwise(np.tan, lambda g, out, x: g * (1 + out * out), domain=(-1.2, 1.2))


def _root(x: Any) -> Any:
    """Return sqrt(1 - x**2); -(x - 1) keeps the sign of a zero imaginary part, on the cuts."""
    return np.sqrt(-(x - 1)) * np.sqrt(x + 1)


arcsin = pointwise(np.arcsin, lambda g, out, x: g / _root(x), domain=UNIT)
arccos = pointwise(np.arccos, lambda g, out, x: -g / _root(x), domain=UNIT)
arctan = pointwise(np.arctan, lambda g, out, x: g / (1 + x * x))
arctan2 = pointwise(
    np.arctan2,
    lambda g, out, y, x: g * (x / (x * x + y * y)),
    lambda g, out, y, x: -g * (y / (x * x + y * y)),
    domain=[REAL, POSITIVE],
)
sinh = pointwise(np.sinh, lambda g, out, x: g * np.cosh(x))
cosh = pointwise(np.cosh, lambda g, out, x: g * np.sinh(x))
tanh = pointwise(np.tanh, lambda g, out, x: g * (1 - out * out))
arcsinh = pointwise(np.arcsinh, lambda g, out, x: g / np.sqrt(x * x + 1))
arccosh = pointwise(
    np.arccosh, lambda g, out, x: g / (np.sqrt(x - 1) * np.sqrt(x + 1)), domain=(1.3, 4.0)
)
arctanh = pointwise(np.arctanh, lambda g, out, x: g / (1 - x * x), domain=UNIT)
deg2rad = pointwise(np.deg2rad, lambda g, out, x: g * (math.pi / 180), aliases=(np.radians,))
rad2deg = pointwise(np.rad2deg, lambda g, out, x: g * (180 / math.pi), aliases=(np.degrees,))


def _sinc_slope(g: Any, out: Any, x: Any) -> Any:
    """Cotangent of sinc: a series near 0, where the quotient cancels.

    With z = pi x, the derivative of sin(z) / z is (cos z - sin(z) / z) / z
    = -z/3 + z**3/30 - z**5/840 + z**7/45360 - z**9/3991680 + ...
    """
    near = np.abs(x) < 0.1
    z = np.where(near, math.pi * x, 0.0)  # 0: the series must not overflow far away
    q = z * z
    series = z * (-1 / 3 + q * (1 / 30 + q * (-1 / 840 + q * (1 / 45360 - q / 3991680))))
    quotient = (np.cos(math.pi * x) - out) / (x + (x == 0))
    return g * np.where(near, math.pi * series, quotient)


sinc = pointwise(
    np.sinc,
    _sinc_slope,
    operands=("x",),
    expr=lambda x: np.where(x == 0, 1.0, np.sin(math.pi * x) / (math.pi * x)),
)

# -- parts of floating point numbers -----------------------------------------------------------

ldexp = register(
    Op(
        "ldexp",
        np.ldexp,
        Opaque(),
        [lambda g, out, x1, x2: unbroadcast(np.ldexp(g, x2), x1.shape), None],
        jvp=[lambda t, out, x1, x2: np.ldexp(t, x2), None],
        samples=lambda rng: [
            s(rng.normal(size=(3, 1)), np.array([-2, 0, 3])),
            s(rng.normal(size=4), 2),
        ],
        operands=("x1", "x2"),
        signature="x1, x2, /, out=None",
        note="the exponent is an integer",
    )
)


def _fraction(x: Any) -> Any:
    return np.modf(x)[0]


fraction = register(
    Op(
        "fraction",
        _fraction,
        Opaque(),
        [lambda g, out, x: g],
        jvp=[lambda t, out, x: t],
        samples=lambda rng: [s(rng.uniform(-3, 3, size=(3, 4))), s(np.float64(-1.5))],
        operands=("x",),
        batch=batching.pointwise,
        note="first result of np.modf; jumps have the derivative of their surroundings",
    )
)


@composite(np.modf)
def _modf(x: Any, /) -> Any:
    return apply(fraction, (x,)), np.trunc(x)


# -- choices ---------------------------------------------------------------------------------

_TIES = "ties share the derivative equally"


# Products with truth values, not np.where: five times faster where NumPy runs them.


def _greater(g: Any, a: Any, b: Any) -> Any:
    return g * (a > b) + (g * 0.5) * (a == b)


def _chosen(g: Any, out: Any, a: Any, b: Any) -> Any:
    """As `_greater`, for functions that pass over nan."""
    return g * (a == out) - (g * 0.5) * (a == b)


maximum = pointwise(
    np.maximum,
    lambda g, out, x, y: _greater(g, x, y),
    lambda g, out, x, y: _greater(g, y, x),
    masks=True,
    note=_TIES,
)
minimum = pointwise(
    np.minimum,
    lambda g, out, x, y: _greater(g, y, x),
    lambda g, out, x, y: _greater(g, x, y),
    masks=True,
    note=_TIES,
)
fmax = pointwise(
    np.fmax,
    lambda g, out, x, y: _chosen(g, out, x, y),
    lambda g, out, x, y: _chosen(g, out, y, x),
    masks=True,
    note=_TIES,
)
fmin = pointwise(
    np.fmin,
    lambda g, out, x, y: _chosen(g, out, x, y),
    lambda g, out, x, y: _chosen(g, out, y, x),
    masks=True,
    note=_TIES,
)


def _choose(condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


where = pointwise(
    _choose,
    lambda g, out, c, x, y: g * 0,
    lambda g, out, c, x, y: np.where(c, g, 0.0),
    lambda g, out, c, x, y: np.where(c, 0.0, g),
    domain=[(0, 1, "bool"), REAL, REAL],
    name="where",
    operands=("condition", "x", "y"),
    expr=lambda c, x, y: np.where(c, x, y),
    masks=True,
    note="the branch not taken gets 0, and an infinite derivative there stays without effect",
)


def _finite(x: Any) -> Any:
    return np.nan_to_num(x)


nan_to_num = pointwise(
    _finite,
    lambda g, out, x: g * np.isfinite(x),
    name="nan_to_num",
    masks=True,
    operands=("x",),
    # The largest number of the dtype is the neighbour of its infinity.
    expr=lambda x: np.where(np.isnan(x), 0.0, np.where(np.isinf(x), np.nextafter(x, 0.0), x)),
    note="0 where the value is replaced",
)


@composite_if_traced(np.nan_to_num)
def _nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if x.dtype.kind == "c":  # NumPy replaces real and imaginary parts for themselves
        real, imag = (
            _nan_to_num(part, True, nan, posinf, neginf) for part in (np.real(x), np.imag(x))
        )
        r = real + 1j * imag
        if copy or not x.ndim:
            return r
        x[...] = r
        return x
    r = x
    if posinf is not None:
        r = np.where(np.isposinf(x), posinf, r)
    if neginf is not None:
        r = np.where(np.isneginf(x), neginf, r)
    if not (np.ndim(nan) == 0 and nan == 0):
        r = np.where(np.isnan(x), nan, r)
    r = apply(nan_to_num, (r,))
    if copy or not x.ndim:
        return r
    x[...] = r
    return x


dynamic(np.where, of=lambda args, _kwargs: args if len(args) == 1 else ())


@composite(np.where)
def _where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return np.nonzero(condition)
    return apply(where, (condition, x, y))


@composite_if_traced(np.heaviside)
def _heaviside(x1: Any, x2: Any, /) -> Any:
    """``np.heaviside``: constant in `x1`; where that is 0, the value is `x2`."""
    step = np.heaviside(plain(x1), plain(x2))
    r = np.where(np.equal(x1, 0), x2, step)
    return r if r.ndim else r[()]


def _clip3(a: Any, low: Any, high: Any) -> Any:
    if not hasattr(a, "dtype"):  # np.clip takes a Python number for a float64
        a = np.asarray(a, np.result_type(a, low, high))
    return np.clip(a, low, high)


clip = pointwise(
    _clip3,
    # Functions, not operators: Python's complex numbers have no order, NumPy's have one.
    lambda g, out, a, low, high: g * (np.greater_equal(a, low) & np.less_equal(a, high)),
    lambda g, out, a, low, high: g * (np.less(a, low) & np.less_equal(low, high)),
    lambda g, out, a, low, high: g * (np.greater(a, high) | np.greater(low, high)),
    name="clip",
    masks=True,
    domain=[REAL, (-2.0, -1.0), (1.0, 2.0)],
    operands=("a", "low", "high"),
    expr=lambda a, low, high: np.minimum(high, np.maximum(low, a)),
    note="1 on the bounds",
)


@composite_if_traced(np.clip)
def _clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    **kwargs: Any,
) -> Any:
    low = min if a_min is None or a_min is np._NoValue else a_min
    high = max if a_max is None or a_max is np._NoValue else a_max
    if kwargs:
        name = sorted(kwargs)[0]
        raise NotDifferentiableError(
            f"clip: the argument {name}={kwargs[name]!r} is not differentiated; leave it out"
        )
    r = apply(clip, (a, -np.inf if low is None else low, np.inf if high is None else high))
    return r if out is None else np.positive(r, out=out)


def clip_method(
    a: Any,
    min: Any = None,
    max: Any = None,
    out: Any = None,
    **kwargs: Any,
) -> Any:
    """Return `a` with its values brought into bounds, as the ndarray method does."""
    return np.clip(a, min, max, out=out, **kwargs)


composite(clip_method)(clip_method)


def relu(x: Any) -> Any:
    """Rectified linear unit, ``max(x, 0)``.

    Parameters
    ----------
    x : array_like, real floating

    Returns
    -------
    ndarray or ADArray, shape and dtype of x

    Notes
    -----
    The derivative at 0 is 0, as is usual for networks; that of ``np.maximum(x, 0)``
    is 1/2 there.
    """
    return apply(relu_op, (x,)) if hasattr(x, "_node") else np.maximum(x, 0)


relu_op = pointwise(
    relu,
    lambda g, out, x: g * (x > 0),
    operands=("x",),
    expr=lambda x: np.maximum(x, 0),
    evaluate=lambda x: np.maximum(x, 0),
    note="0 at 0",
)
