"""The functions of `scipy.special` that are written in Python, for traced arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from adarray.base.errors import DTypeError, NotDifferentiableError
from adarray.batching.rules import along
from adarray.core.dispatch import run
from adarray.core.protocol import finish, on_plain, plain, traced
from adarray.core.trace import Handle
from adarray.ops.common import keep, s
from adarray.scipy._drop_in import REPLACEMENTS, array, holds, instead_of, operation
from adarray.scipy._elementwise import sp
from adarray.scipy._special_rules_bessel import spherical
from adarray.scipy._special_rules_gamma import polygamma
from adarray.scipy._special_rules_poly import (
    associated_op,
    harmonic_op,
    legendre_row,
    spherical_legendre_op,
)

# -- exponentials over an axis -----------------------------------------------------------------


def _softmax_rule(g: Any, out: Any, x: Any, axis: Any = None) -> Any:
    return out * (g - np.sum(g * out, axis=axis, keepdims=True))


def _axis_samples(rng: np.random.Generator) -> list[Any]:
    x = rng.normal(size=(3, 4))
    return [s(x), s(x, axis=0), s(x[::-1], axis=(0, 1)), s(rng.normal(size=5), axis=-1)]


def _plain_softmax(x: Any, axis: Any = None) -> Any:
    return scipy.special.softmax(x, axis=axis)


def _plain_log_softmax(x: Any, axis: Any = None) -> Any:
    return scipy.special.log_softmax(x, axis=axis)


_softmax: Any = operation(
    "special.softmax",
    _plain_softmax,
    [_softmax_rule],
    batch=along(),
    jvp=[_softmax_rule],  # the Jacobian is symmetric
    samples=_axis_samples,
    operands=("x",),
    params=("axis",),
)
_log_softmax: Any = operation(
    "special.log_softmax",
    _plain_log_softmax,
    [lambda g, out, x, axis=None: g - np.exp(out) * np.sum(g, axis=axis, keepdims=True)],
    batch=along(),
    jvp=[lambda t, out, x, axis=None: t - np.sum(np.exp(out) * t, axis=axis, keepdims=True)],
    samples=_axis_samples,
    operands=("x",),
    params=("axis",),
)


@instead_of(scipy.special.softmax)
def softmax(x: Any, axis: Any = None) -> Any:
    """As `scipy.special.softmax`."""
    return _softmax(array(x), axis=axis)


@instead_of(scipy.special.log_softmax)
def log_softmax(x: Any, axis: Any = None) -> Any:
    """As `scipy.special.log_softmax`."""
    return _log_softmax(array(x), axis=axis)


def _log_of_sum(
    a: Any, b: Any = None, axis: Any = None, keepdims: bool = False, signed: bool = False
) -> Any:
    if signed and any(np.dtype(x.dtype).kind == "c" for x in (a, b) if x is not None):
        raise DTypeError(
            "logsumexp: return_sign=True is not differentiated for complex operands; leave it "
            "out, and take real and imaginary part of the result"
        )
    r = scipy.special.logsumexp(a, axis=axis, b=b, keepdims=keepdims, return_sign=signed)
    return r[0] if signed else r


def _weights(out: Any, a: Any, b: Any, axis: Any, signed: bool) -> Any:
    """Return exp(a - out), with the sign of the sum; 0 where everything is."""
    whole = keep(out, np.broadcast_shapes(np.shape(a), np.shape(b)), axis)
    finite = np.isfinite(whole)
    weights = np.exp(a - np.where(finite, whole, 0.0))
    if signed:
        total = weights if b is None else weights * b
        weights = weights * np.sign(np.sum(total, axis=axis, keepdims=True))
    return weights


def _log_sum_rule(which: int) -> Any:
    def rule(
        g: Any, out: Any, a: Any, b: Any = None, axis: Any = None, keepdims: bool = False,
        signed: bool = False,
    ) -> Any:  # fmt: skip
        shape = np.broadcast_shapes(np.shape(a), np.shape(b) if b is not None else ())
        part = keep(g, shape, axis) * _weights(out, a, b, axis, signed)
        return part * b if which == 0 and b is not None else part

    return rule


def _log_sum_tangent(which: int) -> Any:
    def tangent(
        t: Any, out: Any, a: Any, b: Any = None, axis: Any = None, keepdims: bool = False,
        signed: bool = False,
    ) -> Any:  # fmt: skip
        part = t * _weights(out, a, b, axis, signed)
        part = part * b if which == 0 and b is not None else part
        return np.sum(part, axis=axis, keepdims=keepdims)

    return tangent


_logsumexp: Any = operation(
    "special.logsumexp",
    _log_of_sum,
    [_log_sum_rule(0), _log_sum_rule(1)],
    batch=along(stay=[1]),
    jvp=[_log_sum_tangent(0), _log_sum_tangent(1)],
    samples=lambda rng: [
        s(rng.normal(size=(3, 4))),
        s(rng.normal(size=(3, 4)), axis=0, keepdims=True),
        s(rng.normal(size=(3, 4)), rng.uniform(0.5, 1.5, size=4), axis=1),
        s(rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4)), axis=(0, 2), signed=True),
        s(np.float64(0.4)),
    ],
    operands=("a", "b"),
    params=("axis", "keepdims", "signed"),
)


@instead_of(scipy.special.logsumexp)
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """As `scipy.special.logsumexp`; the sign is a constant."""
    a = array(a)
    b = array(b) if b is not None else None
    if b is not None and not traced(b) and (traced(a) or isinstance(b, Handle)):
        a = np.where(np.equal(b, 0), -np.inf, a)  # as SciPy: these have no effect
    if not return_sign:
        return _logsumexp(a, b, axis=axis, keepdims=keepdims)
    signs = scipy.special.logsumexp(
        plain(a), axis=axis, b=plain(b), keepdims=keepdims, return_sign=True
    )[1]
    return _logsumexp(a, b, axis=axis, keepdims=keepdims, signed=True), signs


# -- gamma and combinations --------------------------------------------------------------------


@instead_of(scipy.special.polygamma)
def _polygamma(n: Any, x: Any) -> Any:
    return polygamma(plain(array(n)), array(x))


@instead_of(scipy.special.multigammaln)
def _multigammaln(a: Any, d: Any) -> Any:
    a, d = array(a), int(d)
    if d < 1:
        raise ValueError("d should be a positive integer (dimension)")
    if np.any(a <= 0.5 * (d - 1)):
        raise ValueError(f"condition a > 0.5 * (d-1) ({0.5 * (d - 1)}) not met")
    total: Any = d * (d - 1) * 0.25 * math.log(math.pi)
    for j in range(d):
        total = total + sp.gammaln(a - j / 2)
    return total


@instead_of(scipy.special.comb)
def _comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    N, k = array(N), array(k)
    if repetition:
        return np.where((k == 0) & (N >= 0), 1.0, sp.binom(N + k - 1, k))
    return _inside((k <= N) & (N >= 0) & (k >= 0), sp.binom, N, k)


@instead_of(scipy.special.perm)
def _perm(N: Any, k: Any) -> Any:
    N, k = array(N), array(k)
    inside = (k <= N) & (N >= 0) & (k >= 0)
    return _inside(inside, lambda n, k: sp.poch(n - k + 1, k), N, k)


def _inside(condition: Any, function: Any, *operands: Any) -> Any:
    """Return the function where the condition holds, 0 elsewhere."""
    safe = (np.where(condition, x, 1.0) for x in operands)
    return np.where(condition, function(*safe), 0.0)


@instead_of(scipy.special.factorial)
def _factorial(n: Any, extend: str = "zero") -> Any:
    n = array(n)
    if extend == "complex":
        return sp.gamma(n + 1)
    if extend != "zero":
        raise ValueError(
            f"argument `extend` must be either 'zero' or 'complex', received: {extend}"
        )
    return _inside(n >= 0, lambda x: sp.gamma(x + 1), n)


@instead_of(scipy.special.diric)
def _diric(x: Any, n: Any) -> Any:
    """``U(n-1)(cos(x/2)) / n``, which has no pole."""
    n = plain(array(n))
    whole = (n > 0) & (n == np.floor(n))
    count = np.where(whole, n, 1)
    return np.where(whole, sp.eval_chebyu(count - 1, np.cos(array(x) / 2)) / count, np.nan)


# -- Bessel functions --------------------------------------------------------------------------


def _of_order_and_argument(name: str) -> None:
    @instead_of(getattr(scipy.special, f"spherical_{name}"))
    def body(n: Any, z: Any, derivative: bool = False) -> Any:
        return spherical(name, plain(array(n)), array(z), derivative)


for _name in ("jn", "yn", "in", "kn"):
    _of_order_and_argument(_name)


# -- Legendre functions ------------------------------------------------------------------------


def multi(body: Callable[..., Any]) -> Callable[..., Any]:
    """Put the body in the place of SciPy's object of the same name, which hides its signature."""
    name = body.__name__
    function = getattr(scipy.special, name)

    @functools.wraps(body)
    def either(*args: Any, **kwargs: Any) -> Any:
        if not (holds(args) or holds(kwargs)):
            return function(*args, **kwargs)
        if not (traced(args) or traced(kwargs)):
            return finish(on_plain(function, args, kwargs), None, name)
        return finish(body(*args, **kwargs), None, name)

    either.__doc__ = function.__doc__
    REPLACEMENTS[function] = either
    return either


def _counted(diff_n: Any) -> int:
    if diff_n not in (0, 1, 2):
        raise ValueError(
            f"diff_n is currently only implemented for orders 0, 1, and 2, received: {diff_n}."
        )
    return int(diff_n)


@multi
def legendre_p(n: Any, z: Any, *, diff_n: int = 0) -> Any:
    """As `scipy.special.legendre_p`."""
    n, z = plain(array(n)), array(z)
    return np.stack([legendre_row(n, z, i) for i in range(_counted(diff_n) + 1)])


@multi
def legendre_p_all(n: Any, z: Any, *, diff_n: int = 0) -> Any:
    """As `scipy.special.legendre_p_all`."""
    z = array(z)
    rows = range(_counted(diff_n) + 1)
    return np.stack([np.stack([legendre_row(k, z, i) for k in range(n + 1)]) for i in rows])


def _orders(n: int, m: int) -> list[tuple[int, int]]:
    """Pairs of degree and order as SciPy's tables hold them: negative orders at the end."""
    signed = [*range(abs(m) + 1), *range(-abs(m), 0)]
    return [(j, k) for j in range(n + 1) for k in signed]


def _table(n: int, m: int, function: Any) -> Any:
    values = [function(np.int64(j), np.int64(k)) for j, k in _orders(n, m)]
    stacked = np.stack(values)
    return np.reshape(stacked, (n + 1, 2 * abs(m) + 1, *stacked.shape[1:]))


def _associated_rows(branch_cut: int, norm: bool, n: Any, m: Any, z: Any, count: int) -> Any:
    """Return the function and its derivatives: the second one from Legendre's equation."""
    op = associated_op(int(branch_cut), bool(norm))
    rows = [run(op, n, m, z)]
    if count:
        rule = op.rules[2]
        assert rule is not None
        rows.append(rule(1.0, rows[0], n, m, z))
    if count > 1:
        weight = 1 - z * z
        pull = n * (n + 1) - m * m / weight
        rows.append((2 * z * rows[1] - pull * rows[0]) / weight)
    return np.stack(rows)


@multi
def assoc_legendre_p(
    n: Any, m: Any, z: Any, *, branch_cut: Any = 2, norm: bool = False, diff_n: int = 0
) -> Any:
    """As `scipy.special.assoc_legendre_p`."""
    n, m = plain(array(n)), plain(array(m))
    return _associated_rows(branch_cut, norm, n, m, array(z), _counted(diff_n))


@multi
def assoc_legendre_p_all(
    n: Any, m: Any, z: Any, *, branch_cut: Any = 2, norm: bool = False, diff_n: int = 0
) -> Any:
    """As `scipy.special.assoc_legendre_p_all`."""
    z, count = array(z), _counted(diff_n)
    table = _table(n, m, lambda j, k: _associated_rows(branch_cut, norm, j, k, z, count))
    return np.moveaxis(table, 2, 0)


def _spherical_rows(n: Any, m: Any, theta: Any, count: int) -> Any:
    rows = [run(spherical_legendre_op, n, m, theta)]
    rule = spherical_legendre_op.rules[2]
    assert rule is not None
    if count:
        rows.append(rule(1.0, rows[0], n, m, theta))
    if count > 1:
        sine = np.sin(theta)
        pull = n * (n + 1) - np.square(m / sine)
        rows.append(-np.cos(theta) / sine * rows[1] - pull * rows[0])
    return np.stack(rows)


@multi
def sph_legendre_p(n: Any, m: Any, theta: Any, *, diff_n: int = 0) -> Any:
    """As `scipy.special.sph_legendre_p`."""
    return _spherical_rows(plain(array(n)), plain(array(m)), array(theta), _counted(diff_n))


@multi
def sph_legendre_p_all(n: Any, m: Any, theta: Any, *, diff_n: int = 0) -> Any:
    """As `scipy.special.sph_legendre_p_all`."""
    theta, count = array(theta), _counted(diff_n)
    table = _table(n, m, lambda j, k: _spherical_rows(j, k, theta, count))
    return np.moveaxis(table, 2, 0)


def _without_derivatives(name: str, diff_n: Any) -> None:
    if diff_n != 0:
        raise NotDifferentiableError(
            f"{name}: the argument diff_n={diff_n!r} is not differentiated; leave it at its "
            "default 0 and differentiate the function itself"
        )


@multi
def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, *, diff_n: int = 0) -> Any:
    """As `scipy.special.sph_harm_y`."""
    _without_derivatives("sph_harm_y", diff_n)
    return run(harmonic_op, plain(array(n)), plain(array(m)), array(theta), array(phi))


@multi
def sph_harm_y_all(n: Any, m: Any, theta: Any, phi: Any, *, diff_n: int = 0) -> Any:
    """As `scipy.special.sph_harm_y_all`."""
    _without_derivatives("sph_harm_y_all", diff_n)
    theta, phi = array(theta), array(phi)
    return _table(n, m, lambda j, k: run(harmonic_op, j, k, theta, phi))
