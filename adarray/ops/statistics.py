"""Averages, ranges and covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from adarray.base.op import composite
from adarray.core.protocol import traced
from adarray.core.trace import Handle
from adarray.ops.borrow import borrowed
from adarray.ops.common import composite_if_traced
from adarray.ops.creation import asarray


@composite(np.ptp)
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    keepdims = False if keepdims is np._NoValue else keepdims
    r = np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)
    return r if out is None else np.positive(r, out=out)


@composite_if_traced(np.average)
def _average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = np._NoValue,
) -> Any:
    a = asarray(a)
    if axis is not None:
        axis = normalize_axis_tuple(axis, a.ndim, argname="axis")
    keep = keepdims is not np._NoValue and bool(keepdims)
    if weights is None:
        r = np.mean(a, axis=axis, keepdims=keep)
        total: Any = np.asarray(a.size / r.size).astype(r.dtype)
    else:
        weights = _as_weights(a, axis, asarray(weights))
        dtype = np.result_type(a.dtype, weights.dtype, *(["f8"] if a.dtype.kind in "biu" else []))
        total = np.sum(weights, axis=axis, dtype=dtype, keepdims=keep)
        if np.any(total == 0):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        # The dtype is that of a product of the two, and the sum of it has the same one.
        r = np.sum(np.multiply(a, weights, dtype=dtype), axis=axis, keepdims=keep) / total
    return (r, np.copy(np.broadcast_to(total, r.shape))) if returned else r


def _as_weights(a: Any, axes: Any, weights: Any) -> Any:
    """Return the weights of an average in the shape of `a`.

    Raises
    ------
    TypeError, ValueError
        NumPy's own.
    """
    if weights.shape == a.shape:
        return weights
    if axes is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    if weights.shape != tuple(a.shape[i] for i in axes):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )
    moved = np.transpose(weights, tuple(int(i) for i in np.argsort(axes)))
    shape = tuple(n if i in axes else 1 for i, n in enumerate(a.shape))
    return np.broadcast_to(np.reshape(moved, shape), a.shape)


_numpy_cov = borrowed(np.cov)


@composite_if_traced(np.cov)
def _cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    if fweights is not None and traced(aweights):
        # NumPy multiplies the weights into the frequencies, in place.
        fweights = Handle.array_class(np.array(fweights, float))
    return _numpy_cov(m, y, rowvar, bias, ddof, fweights, aweights, dtype=dtype)


@composite_if_traced(np.corrcoef)
def _corrcoef(
    x: Any, y: Any = None, rowvar: bool = True, *bias_ddof: Any, dtype: Any = None, **more: Any
) -> Any:
    if bias_ddof or more:
        # They have no effect. NumPy warns of them, or has them no longer and raises.
        np.corrcoef(np.eye(2), None, True, *bias_ddof, **more)
    c = np.cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    spread = np.sqrt(np.real(np.diag(c)))
    c = c / spread[:, None] / spread
    # Rounding may have led out of what is possible.
    real = np.clip(np.real(c), -1, 1)
    return real + 1j * np.clip(np.imag(c), -1, 1) if c.dtype.kind == "c" else real
