"""Derivatives of reductions in which some elements take no part, or another value does.

One set of rules serves ``where=``, ``initial=`` and ``mean=`` of NumPy's reductions and
the functions that leave nan out: nan is one more reason for an element not to take
part. What a masked element holds reaches no derivative, nan included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.base.op import Op, Opaque, Rule, register
from adarray.batching.rules import along
from adarray.ops.common import keep, normalized_axes, unbroadcast, weighted
from adarray.ops.complex import conjugate_of

SUM = "a, axis=None, dtype=None, out=None, keepdims=_, initial=None, where=True"
EXTREMUM = "a, axis=None, out=None, keepdims=_, initial=None, where=True"
MEAN = "a, axis=None, dtype=None, out=None, keepdims=_, *, where=True"
DEVIATION = (
    "a, axis=None, dtype=None, out=None, ddof=0, keepdims=_, *, where=True, mean=None, correction=_"
)
_OPERANDS = ("a", "initial", "where", "mean")
_PARAMS = ("axis", "dtype", "ddof", "keepdims", "correction")


class Rules(NamedTuple):
    """Cotangent and tangent rules, one per operand."""

    rules: list[Rule | None]
    jvp: list[Rule | None]


def general(
    name: str,
    function: Callable[..., Any],
    signature: str,
    derivatives: Rules,
    samples: Callable[..., Any],
    dispatched: bool = False,
    note: str = "",
) -> Op:
    """Register a reduction of which ``where=``, ``initial=`` and ``mean=`` are operands.

    Parameters
    ----------
    name, signature, samples, note
        As in `Op`. Operands that are not given are None; ``where`` is True, since None
        means False to NumPy.
    derivatives : Rules
    function : callable
        NumPy's function.
    dispatched : bool
        Make it the record of `function` itself, not one that another record names
        as its general form.
    """
    names = [part.split("=")[0].strip() for part in signature.split(",")]
    operands = tuple(n for n in names if n in _OPERANDS)

    def _evaluate(a: Any, *args: Any, **params: Any) -> Any:
        named = zip(operands[1:], args, strict=True)
        params.update((n, v) for n, v in named if v is not (True if n == "where" else None))
        return function(a, **params)

    return register(
        Op(
            name,
            function if dispatched else _evaluate,
            Opaque(),
            derivatives.rules,
            jvp=derivatives.jvp,
            drops=True,
            samples=samples,
            operands=operands,
            params=tuple(n for n in names if n in _PARAMS),
            signature=signature,
            evaluate=_evaluate,
            batch=along("all", stay=[i for i, n in enumerate(operands) if n in ("where", "mean")]),
            note=note,
        )
    )


# -- which elements take part --------------------------------------------------------------------


def size_along(shape: tuple[int, ...], axis: Any) -> int:
    """Return how many elements are folded into one."""
    n = 1
    for a in normalized_axes(axis, len(shape)):
        n *= shape[a]
    return n


def real_dtype(x: Any) -> np.dtype[Any]:
    """Return the dtype of the real part of `x`, in the machine's byte order."""
    dtype: np.dtype[Any] = x.dtype
    if dtype.kind == "f" and dtype.isnative:
        return dtype
    return np.empty(0, dtype).real.dtype.newbyteorder("=")


def live(a: Any, where: Any, skip: bool) -> Any:
    """Return the mask of the elements that take part, None for all; `skip` leaves nan out."""
    mask = None if where is True else False if where is None else where
    if not skip:
        return mask
    present = np.logical_not(np.isnan(a))
    return present if mask is None else np.logical_and(present, mask)


def masked(x: Any, mask: Any, fill: float = 0) -> Any:
    """Return `x` with `fill` in place of the elements that take no part."""
    return x if mask is None else np.where(mask, x, fill)


def live_count(a: Any, mask: Any, axis: Any) -> Any:
    """Return how many elements are folded into one, with the folded axes kept."""
    if mask is None:
        return size_along(a.shape, axis)
    return np.sum(np.broadcast_to(mask, a.shape), axis=axis, keepdims=True, dtype=np.intp)


def _total(t: Any, mask: Any, axis: Any, keepdims: Any, dtype: Any = None) -> Any:
    """Return the sum over the elements that take part."""
    return np.sum(masked(t, mask), axis=axis, keepdims=bool(keepdims), dtype=dtype)


def _like(x: Any, out: Any) -> Any:
    """Give an array that kept its folded axes the shape and the dtype of the result."""
    if isinstance(x, (int, float)):  # yields to any dtype
        return x
    x = np.reshape(x, out.shape) if x.shape != out.shape else x
    dtype = real_dtype(out)
    return x.astype(dtype) if x.dtype != dtype else x


def _at_least(n: Any, low: int) -> Any:
    return max(n, low) if isinstance(n, (int, float)) else np.maximum(n, low)


def _over(shape: tuple[int, ...], x: Any) -> Any:
    return np.broadcast_to(x, shape) if np.shape(x) != shape else x


# -- sums and means ------------------------------------------------------------------------------


def sum_rules(skip: bool) -> Rules:
    """Return the rules of ``sum(a, initial, where)``."""

    def of_a(g: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, **_: Any) -> Any:
        return _over(a.shape, masked(keep(g, a.shape, axis), live(a, where, skip)))

    def of_initial(g: Any, out: Any, a: Any, initial: Any, where: Any, **_: Any) -> Any:
        return np.sum(g)

    def tangent(
        t: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, dtype: Any = None,
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        return _total(t, live(a, where, skip), axis, keepdims, dtype)

    def tangent_of_initial(t: Any, out: Any, *_: Any, **params: Any) -> Any:
        return _over(out.shape, t)

    return Rules([of_a, of_initial, None], [tangent, tangent_of_initial, None])


def mean_rules(skip: bool) -> Rules:
    """Return the rules of ``mean(a, where)``."""

    def of_a(g: Any, out: Any, a: Any, where: Any, axis: Any = None, **_: Any) -> Any:
        mask = live(a, where, skip)
        part = _like(_at_least(live_count(a, mask, axis), 1), g)
        return _over(a.shape, masked(keep(g / part, a.shape, axis), mask))

    def tangent(
        t: Any, out: Any, a: Any, where: Any, axis: Any = None, dtype: Any = None,
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        mask = live(a, where, skip)
        n = _at_least(live_count(a, mask, axis), 1)
        return _total(t, mask, axis, keepdims, dtype) / _like(n, out)

    return Rules([of_a, None], [tangent, None])


# -- products ------------------------------------------------------------------------------------


def others(a: Any, axis: Any) -> Any:
    """Return the product of the other elements along `axis`, exact where some are zero."""
    shape = a.shape
    axes = normalized_axes(axis, len(shape))
    rest = tuple(i for i in range(len(shape)) if i not in axes)
    moved = np.transpose(a, rest + axes)
    flat = np.reshape(moved, (*(shape[i] for i in rest), -1))
    one = np.ones_like(flat[..., :1])
    before = np.cumprod(np.concatenate([one, flat[..., :-1]], axis=-1), axis=-1)
    behind = np.concatenate([one, np.flip(flat, -1)[..., :-1]], axis=-1)
    after = np.flip(np.cumprod(behind, axis=-1), -1)
    back = np.reshape(before * after, moved.shape)
    return np.transpose(back, tuple(int(i) for i in np.argsort(rest + axes)))


def prod_rules(skip: bool) -> Rules:
    """Return the rules of ``prod(a, initial, where)``."""

    def partials(a: Any, initial: Any, mask: Any, axis: Any) -> Any:
        if not a.size:
            return np.zeros_like(a)
        rest = masked(others(masked(a, mask, 1), axis), mask)
        return rest if initial is None else rest * initial

    def of_a(g: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, **_: Any) -> Any:
        return keep(g, a.shape, axis) * partials(a, initial, live(a, where, skip), axis)

    def of_initial(
        g: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, dtype: Any = None,
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        filled = masked(a, live(a, where, skip), 1)
        return np.sum(g * np.prod(filled, axis=axis, dtype=dtype, keepdims=bool(keepdims)))

    def tangent(
        t: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, dtype: Any = None,
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        mask = live(a, where, skip)
        moved = masked(t, mask) * partials(a, initial, mask, axis)
        return np.sum(moved, axis=axis, dtype=dtype, keepdims=bool(keepdims))

    def tangent_of_initial(
        t: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, dtype: Any = None,
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        filled = masked(a, live(a, where, skip), 1)
        return t * np.prod(filled, axis=axis, dtype=dtype, keepdims=bool(keepdims))

    return Rules([of_a, of_initial, None], [tangent, tangent_of_initial, None])


# -- extrema -------------------------------------------------------------------------------------


def extremum_rules(skip: bool) -> Rules:
    """Return the rules of ``max(a, initial, where)`` and of ``min``: ties share equally."""

    def ties(a: Any, out: Any, initial: Any, where: Any, axis: Any) -> tuple[Any, Any]:
        """Return the weights of the elements and, with the folded axes kept, of `initial`."""
        best = keep(out, a.shape, axis)
        equal = a == best
        if where is not True:
            equal = np.logical_and(equal, where is not None and where)
        dtype = real_dtype(a)
        shared = np.sum(equal, axis=axis, keepdims=True, dtype=dtype)
        first = None
        if initial is not None:
            first = (initial == best).astype(dtype)
            shared = shared + first
        if skip:  # nothing equals the nan that stands for nothing
            shared = np.maximum(shared, 1)
        return equal / shared, 0.0 if first is None else first / shared

    def of_a(g: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, **_: Any) -> Any:
        return keep(g, a.shape, axis) * ties(a, out, initial, where, axis)[0]

    def of_initial(
        g: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, **_: Any
    ) -> Any:
        return np.sum(keep(g, a.shape, axis) * ties(a, out, initial, where, axis)[1])

    def tangent(
        t: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, keepdims: Any = False
    ) -> Any:
        weights = ties(a, out, initial, where, axis)[0]
        return np.sum(weighted(t, weights), axis=axis, keepdims=bool(keepdims))

    def tangent_of_initial(
        t: Any, out: Any, a: Any, initial: Any, where: Any, axis: Any = None, **_: Any
    ) -> Any:
        return weighted(t, _like(ties(a, out, initial, where, axis)[1], out))

    return Rules([of_a, of_initial, None], [tangent, tangent_of_initial, None])


# -- variances -----------------------------------------------------------------------------------


def _twice_over(free: Any) -> Any:
    """Return 2 / free, inf where there is no degree of freedom (NumPy has warned of that)."""
    if isinstance(free, (int, float)):
        return 2.0 / free if free else np.inf
    return np.where(free == 0, np.inf, 2.0 / np.where(free == 0, 1, free))


def variance_rules(skip: bool, root: bool) -> Rules:
    """Return the rules of ``var(a, where, mean)``, with `root` of ``std``: 0 at deviation 0.

    With d = a - mean and f degrees of freedom, the differential of
    ``sum(|d|**2) / f`` is ``2 Re(sum(conj(d) * dd)) / f``; the mean of `a` itself does
    not enter, since the deviations from it sum to zero.
    """

    def deviation(a: Any, mean: Any, mask: Any, n: Any, axis: Any) -> Any:
        if mean is None:
            sums = np.sum(masked(a, mask), axis=axis, keepdims=True)
            mean = sums / _like(_at_least(n, 1), sums)
        return masked(a - mean, mask)

    def parts(
        out: Any, a: Any, where: Any, mean: Any, axis: Any, ddof: Any, correction: Any
    ) -> tuple[Any, Any, Any]:
        """Return the mask, the conjugate of the deviation, and its factor for the result."""
        mask = live(a, where, skip)
        n = live_count(a, mask, axis)
        free = _at_least(n - (ddof if correction is None else correction), 0)
        factor = _like(_twice_over(free), out)
        if root:
            factor = factor * 0.5 / (out + (out == 0))
        return mask, conjugate_of(deviation(a, mean, mask, n, axis)), factor

    def of_a(
        g: Any, out: Any, a: Any, where: Any, mean: Any, axis: Any = None, ddof: Any = 0,
        correction: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        mask, d, factor = parts(out, a, where, mean, axis, ddof, correction)
        # The deviation is 0 where masked; the factor is infinite where all is.
        return d * masked(keep(g * factor, a.shape, axis), mask)

    def of_mean(g: Any, out: Any, a: Any, where: Any, mean: Any, **params: Any) -> Any:
        return unbroadcast(-of_a(g, out, a, where, mean, **params), np.shape(mean))

    def tangent(
        t: Any, out: Any, a: Any, where: Any, mean: Any, axis: Any = None, dtype: Any = None,
        ddof: Any = 0, keepdims: Any = False, correction: Any = None,
    ) -> Any:  # fmt: skip
        mask, d, factor = parts(out, a, where, mean, axis, ddof, correction)
        return _total(d * t, mask, axis, keepdims) * factor

    def tangent_of_mean(t: Any, out: Any, *operands: Any, **params: Any) -> Any:
        return tangent(-t, out, *operands, **params)

    return Rules([of_a, None, of_mean], [tangent, None, tangent_of_mean])
