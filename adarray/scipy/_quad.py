"""Integrals of functions: the derivative of an integral is taken under the integral sign.

SciPy computes the value and chooses the subintervals. The integrand is then
evaluated again at Gauss nodes in these, where it is recorded. What limits do to an
integral is an integral, too, from the limit's value to the traced limit: of length 0,
with the derivatives that the integrand gives it.

References
----------
- R. Piessens, E. de Doncker-Kapenga, C. W. Überhuber, D. K. Kahaner, "QUADPACK", Springer 1983.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import finish, traced
from adarray.scipy._drop_in import REPLACEMENTS, array, holds, instead_of, value
from adarray.scipy._functions import Plainly, corrected, recording

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# Exact for polynomials of degree 7: derivatives of an integral with respect to its
# limits are right up to the 8th.
_FEW, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(4)


def over(f: Callable[[Any], Any], a: Any, b: Any, nodes: Any, weights: Any) -> Any:
    """Return the Gauss sum of `f` from `a` to `b`."""
    half, middle = (b - a) / 2, (b + a) / 2
    total: Any = 0.0
    for x, w in zip(nodes, weights, strict=True):
        total = total + w * f(middle + half * x)
    return half * total


def _limit_terms(f: Callable[[Any], Any], a: Any, b: Any) -> Any:
    """Return the terms of the traced limits: 0, with their derivatives."""
    total: Any = 0.0
    if traced(b):
        total = total + over(f, value(b), b, _FEW, _FEW_WEIGHTS)
    if traced(a):
        total = total - over(f, value(a), a, _FEW, _FEW_WEIGHTS)
    return total


def _mapped(f: Callable[[Any], Any], a: float, b: float) -> tuple[Callable[[Any], Any], float]:
    """Return the integrand on SciPy's panels, which infinite limits map to (0, 1], and a sign."""
    if a > b:
        g, sign = _mapped(f, b, a)
        return g, -sign
    if np.isfinite(a) and np.isfinite(b):
        return f, 1.0
    if np.isfinite(a):
        return lambda t: f(a + (1 - t) / t) / t**2, 1.0
    if np.isfinite(b):
        return lambda t: f(b - (1 - t) / t) / t**2, 1.0
    return lambda t: (f((1 - t) / t) + f(-(1 - t) / t)) / t**2, 1.0


def _near_end(f: Callable[[Any], Any], end: Any, length: Any, u: Any) -> Any:
    """Return the integrand after the substitution x = end + length * u**8."""
    return f(end + length * u**8) * (8 * length * u**7)


def _over_panels(f: Callable[[Any], Any], panels: Any) -> Any:
    """Return the integral of `f` as the sum over SciPy's subintervals.

    Small subintervals at the ends stand before a singularity there, which derivatives
    sharpen: the substitution x = end + L u**8 takes it away.
    """
    low, high = np.min(panels), np.max(panels)
    total: Any = 0.0
    for left, right in panels.tolist():
        length = right - left
        small = abs(length) < (high - low) / 4
        if small and low in (left, right):
            start, length = low, abs(length)
        elif small and high in (left, right):
            start, length = high, -abs(length)
        else:
            total = total + over(f, left, right, _NODES, _WEIGHTS)
            continue
        part = over(
            functools.partial(_near_end, f, start, length), 0.0, 1.0, _NODES,
            _WEIGHTS,
        )  # fmt: skip
        total = total + (part if start == low else -part)
    return total


def _number(x: Any) -> Any:
    """Return a result of one element as a number."""
    return np.reshape(x, ()) if np.ndim(x) else x


@functools.wraps(scipy.integrate.quad)
def quad(func: Any, a: Any, b: Any, args: Any = (), full_output: Any = 0, **options: Any) -> Any:
    if not callable(func):  # compiled: SciPy takes it as it is
        return scipy.integrate.quad(func, a, b, args, full_output, **options)
    args = args if isinstance(args, tuple) else (args,)
    if options.get("complex_func"):
        return _complex_quad(func, a, b, args, full_output, options)
    call = Plainly(func, args)
    low, high = value(a), value(b)
    result = scipy.integrate.quad(call, low, high, (), full_output, **value(options))
    if not (call.seen or holds((a, b)) or holds(options)):
        return result
    if holds(options) and traced(options):
        raise NotDifferentiableError(
            "quad: only the limits, args and what the integrand uses are differentiated; pass the "
            "other arguments as plain values"
        )
    if options.get("weight") is not None:
        raise NotDifferentiableError(
            f"quad: weight={options['weight']!r} is not differentiated; multiply the integrand "
            "with the weight"
        )
    if not recording():
        return finish((np.asarray(result[0])[()],), None, "quad") + result[1:]

    def f(x: Any) -> Any:
        return _number(array(func(x, *args)))

    total = _limit_terms(f, a, b)
    if low != high:
        info = scipy.integrate.quad(call, low, high, (), 1, **options)[2]
        g, sign = _mapped(f, float(low), float(high))
        panels = np.stack([info[k][: info["last"]] for k in ("alist", "blist")], axis=1)
        total = total + sign * _over_panels(g, panels)
    return (corrected(total, result[0]) if holds(total) else result[0], *result[1:])


def _complex_quad(func: Any, a: Any, b: Any, args: Any, full_output: Any, options: Any) -> Any:
    rest = {k: v for k, v in options.items() if k != "complex_func"}
    plain = Plainly(func, args)
    expected = scipy.integrate.quad(
        plain, value(a), value(b), (), full_output, complex_func=True, **rest
    )
    if not (plain.seen or holds((a, b))):
        return expected
    real = quad(lambda x: np.real(func(x, *args)), a, b, **rest)[0]
    imag = quad(lambda x: np.imag(func(x, *args)), a, b, **rest)[0]
    return (real + 1j * imag, *expected[1:])


REPLACEMENTS[scipy.integrate.quad] = quad


@functools.wraps(scipy.integrate.quad_vec)
def quad_vec(f: Any, a: Any, b: Any, *rest: Any, args: Any = (), **options: Any) -> Any:
    args = args if isinstance(args, tuple) else (args,)
    call = Plainly(f, args)
    low, high = value(a), value(b)
    full = options.pop("full_output", False)
    r, error, info = scipy.integrate.quad_vec(call, low, high, *rest, full_output=True, **options)
    if not (call.seen or holds((a, b))):
        return (r, error, info) if full else (r, error)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise NotDifferentiableError(
            "quad_vec: infinite limits are not differentiated; use scipy.integrate.quad, or "
            "substitute the variable"
        )

    def g(x: Any) -> Any:
        return array(f(x, *args))

    total = _limit_terms(g, a, b)
    sign = 1.0 if low <= high else -1.0
    total = total + sign * _over_panels(g, np.sort(info.intervals, axis=1))
    total = corrected(total, r)
    return (total, error, info) if full else (total, error)


REPLACEMENTS[scipy.integrate.quad_vec] = quad_vec


def _nested(func: Any, ranges: Any, args: Any, opts: Any) -> Any:
    """Integrate over the first variable innermost, as SciPy's `nquad` does."""
    integral: Any = quad

    def level(i: int, outer: tuple[Any, ...]) -> Any:
        limits = ranges[i](*outer, *args) if callable(ranges[i]) else ranges[i]
        options = opts[i] if isinstance(opts, (list, tuple)) else opts or {}
        options = options(*outer, *args) if callable(options) else options
        if i == 0:
            return integral(func, *limits, args=(*outer, *args), **options)[:2]
        return integral(lambda x: level(i - 1, (x, *outer))[0], *limits, **options)[:2]

    return level(len(ranges) - 1, ())


class _Seen(Exception):  # noqa: N818  (not an error: it ends the search)
    """The integrand is not plain."""


def _is_plain(func: Any, ranges: Any, args: Any) -> bool:
    """Whether SciPy may integrate: nothing that the limits and the integrand give is an ADArray."""
    if holds(args) or holds([r for r in ranges if not callable(r)]):
        return False

    def integrand(*xs: Any) -> Any:
        r = func(*xs)
        if holds(r):
            raise _Seen
        return r

    def bounds(r: Any) -> Any:
        def limits(*xs: Any) -> Any:
            limits = r(*xs)
            if holds(limits):
                raise _Seen
            return limits

        return limits if callable(r) else r

    # The integrand at one point tells: what it uses does not change.
    outer: tuple[Any, ...] = ()
    try:
        for r in reversed(ranges):
            low, high = bounds(r)(*outer, *args) if callable(r) else r
            low, high = (np.clip(float(x), -1e6, 1e6) for x in (low, high))
            outer = (low + (high - low) * 0.3819, *outer)
        integrand(*outer, *args)
    except _Seen:
        return False
    return True


@functools.wraps(scipy.integrate.nquad)
def nquad(func: Any, ranges: Any, args: Any = None, opts: Any = None,
          full_output: bool = False) -> Any:  # fmt: skip
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    if not callable(func) or _is_plain(func, ranges, args):
        return scipy.integrate.nquad(func, ranges, args, opts, full_output)
    if full_output:
        raise NotDifferentiableError("nquad: full_output=True is not differentiated; leave it out")
    return _nested(func, list(ranges), args, opts)


def _bound(f: Any) -> Any:
    return f if callable(f) else lambda *_: f


@functools.wraps(scipy.integrate.dblquad)
def dblquad(func: Any, a: Any, b: Any, gfun: Any, hfun: Any, args: Any = (),
            epsabs: float = 1.49e-8, epsrel: float = 1.49e-8) -> Any:  # fmt: skip
    def inner(x: Any, *_: Any) -> tuple[Any, Any]:
        return _bound(gfun)(x), _bound(hfun)(x)

    ranges = [inner, [a, b]]
    if not callable(func) or _is_plain(func, ranges, tuple(args)):
        return scipy.integrate.dblquad(func, a, b, gfun, hfun, args, epsabs, epsrel)
    return _nested(func, ranges, tuple(args), {"epsabs": epsabs, "epsrel": epsrel})


@functools.wraps(scipy.integrate.tplquad)
def tplquad(func: Any, a: Any, b: Any, gfun: Any, hfun: Any, qfun: Any, rfun: Any, args: Any = (),
            epsabs: float = 1.49e-8, epsrel: float = 1.49e-8) -> Any:  # fmt: skip
    def innermost(y: Any, x: Any, *_: Any) -> tuple[Any, Any]:
        return _bound(qfun)(x, y), _bound(rfun)(x, y)

    def middle(x: Any, *_: Any) -> tuple[Any, Any]:
        return _bound(gfun)(x), _bound(hfun)(x)

    ranges = [innermost, middle, [a, b]]
    if not callable(func) or _is_plain(func, ranges, tuple(args)):
        return scipy.integrate.tplquad(func, a, b, gfun, hfun, qfun, rfun, args, epsabs, epsrel)
    return _nested(func, ranges, tuple(args), {"epsabs": epsabs, "epsrel": epsrel})


REPLACEMENTS[scipy.integrate.nquad] = nquad
REPLACEMENTS[scipy.integrate.dblquad] = dblquad
REPLACEMENTS[scipy.integrate.tplquad] = tplquad


@instead_of(scipy.integrate.fixed_quad)
def fixed_quad(func: Any, a: Any, b: Any, args: Any = (), n: int = 5) -> Any:
    nodes, weights = np.polynomial.legendre.leggauss(n)
    if np.isinf(value(a)) or np.isinf(value(b)):
        raise ValueError("Gaussian quadrature is only available for finite limits.")
    x = (b - a) * (nodes + 1) / 2 + a
    return (b - a) / 2 * np.sum(weights * func(x, *args), axis=-1), None
