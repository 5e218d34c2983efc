"""Reductions that leave nan out: the same reductions over replaced values."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.ops.common import composite_if_traced


def _filled(a: Any, value: float) -> Any:
    """Return `a` with `value` in place of nan; those elements get derivative 0."""
    return np.where(np.isnan(a), value, a)


def _present(a: Any, axis: Any, keepdims: bool) -> Any:
    """Return the number of elements that are not nan."""
    return np.sum(~np.isnan(a), axis=axis, keepdims=keepdims)


def _given(keepdims: Any) -> bool:
    return False if keepdims is np._NoValue else bool(keepdims)


def _store(r: Any, out: Any) -> Any:
    return r if out is None else np.positive(r, out=out)


@composite_if_traced(np.nansum)
def _nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue
) -> Any:
    return _store(np.sum(_filled(a, 0.0), axis=axis, dtype=dtype, keepdims=_given(keepdims)), out)


@composite_if_traced(np.nanprod)
def _nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue
) -> Any:
    return _store(np.prod(_filled(a, 1.0), axis=axis, dtype=dtype, keepdims=_given(keepdims)), out)


@composite_if_traced(np.nanmean)
def _nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = np._NoValue
) -> Any:
    total = np.sum(_filled(a, 0.0), axis=axis, dtype=dtype, keepdims=_given(keepdims))
    count = np.asarray(_present(a, axis, _given(keepdims))).astype(total.dtype)[()]
    return _store(total / count, out)


@composite_if_traced(np.nanvar)
def _nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: float = 0,
    keepdims: Any = np._NoValue,
    *,
    mean: Any = np._NoValue,
    correction: Any = np._NoValue,
) -> Any:
    center = _nanmean(a, axis, dtype, keepdims=True) if mean is np._NoValue else mean
    squares = np.square(np.where(np.isnan(a), 0.0, a - center))
    count = np.asarray(_present(a, axis, _given(keepdims))).astype(squares.dtype)[()]
    free = ddof if correction is np._NoValue else correction
    return _store(np.sum(squares, axis=axis, keepdims=_given(keepdims)) / (count - free), out)


@composite_if_traced(np.nanstd)
def _nanstd(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, *args: Any,
            **kwargs: Any) -> Any:  # fmt: skip
    var = _nanvar(a, axis, dtype, None, *args, **kwargs)
    # 0 where the deviation is 0, as for np.std.
    return _store(np.sqrt(var + (var == 0)) - (var == 0), out)


def _extremum(function: Any, fill: float) -> Any:
    def body(a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Any:
        r = function(_filled(a, fill), axis=axis, keepdims=_given(keepdims))
        # Where all are nan, the result is nan, as NumPy says (with a warning).
        empty = np.asarray(_present(a, axis, _given(keepdims))) == 0
        return _store(np.where(empty, np.nan, r) if empty.any() else r, out)

    return body


composite_if_traced(np.nanmax)(_extremum(np.max, -np.inf))
composite_if_traced(np.nanmin)(_extremum(np.min, np.inf))


@composite_if_traced(np.nancumsum)
def _nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _store(np.cumsum(_filled(a, 0.0), axis=axis, dtype=dtype), out)


@composite_if_traced(np.nancumprod)
def _nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _store(np.cumprod(_filled(a, 1.0), axis=axis, dtype=dtype), out)
