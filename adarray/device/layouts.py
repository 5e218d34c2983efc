"""Where NumPy would put the elements of a result: asked of NumPy once, over small arrays.

Array libraries of devices write results in C order. NumPy's lie as the operands do in most of its
functions, and whether ``reshape`` and ``ravel`` look at them or copy depends on it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adarray.base.memory import strided, strides_like
from adarray.device.array import DeviceArray

# Those whose results may lie in another order although all operands lie in C order.
TRANSPOSING = frozenset({
    np.argwhere, np.cross, np.apply_along_axis, np.apply_over_axes, np.quantile, np.nanquantile,
    np.percentile, np.nanpercentile, np.linalg.eig, np.linalg.eigvals, np.einsum,
})  # fmt: skip
_MOST_AXES = 4096
_axes: dict[Any, Any] = {}  # of results, by what was called with what


def arrays_of(values: Any) -> Iterator[DeviceArray]:
    """Yield the arrays among values, and in their sequences and slices."""
    for x in values:
        kind = type(x)
        if kind is DeviceArray:
            yield x
        elif kind is tuple or kind is list:
            yield from arrays_of(x)


def lie_in_c_order(values: Any) -> bool:
    """Whether all arrays among values lie in C order."""
    for x in values:
        kind = type(x)
        if kind is DeviceArray:
            if len(x.shape) > 1 and not x.raw.flags.c_contiguous:
                return False
        elif (kind is tuple or kind is list) and not lie_in_c_order(x):
            return False
    return True


def result_orders(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Return the axes of each result from the outermost in memory, in the structure of the results.

    Parameters
    ----------
    function : callable
        Of NumPy.
    args : tuple
    kwargs : dict

    Returns
    -------
    tuple of int, list, or None
        The axes of an array, a list with those of several, None for what is no array, and where
        NumPy raises.
    """
    try:
        key = (function, _frozen(args), _frozen(kwargs))
        return _axes[key]
    except KeyError:
        pass
    except TypeError:  # not hashable
        return _axes_by_numpy(function, args, kwargs)
    if len(_axes) >= _MOST_AXES:
        _axes.clear()
    axes = _axes[key] = _axes_by_numpy(function, args, kwargs)
    return axes


def in_order(shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether an array lies in memory in the order of `axes`."""
    steps = [abs(strides[a]) for a in axes if shape[a] > 1]
    return all(a >= b for a, b in itertools.pairwise(steps))


def _frozen(x: Any) -> Any:
    """Return a hashable key of all that the order of results may depend on."""
    kind = type(x)
    if kind is DeviceArray or kind is np.ndarray:
        return kind, x.shape, x.strides, x.dtype.char
    if kind is tuple or kind is list:
        return kind, *map(_frozen, x)
    if kind is slice:
        return kind, _frozen(x.start), _frozen(x.stop), _frozen(x.step)
    if kind is dict:
        return tuple((k, _frozen(v)) for k, v in x.items())
    return kind, x


def _axes_by_numpy(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call NumPy over small arrays; where parameters do not fit them, over as large ones."""
    shapes = {n for x in arrays_of((*args, *kwargs.values())) for n in x.shape}
    small = {n: k for k, n in enumerate(sorted(n for n in shapes if n > 1), 2)}
    for sizes in (small, {}):
        stand = functools.partial(_stand_in, function, sizes)
        try:
            with np.errstate(all="ignore"):
                return _orders(function(*stand(args), **stand(kwargs)))
        except Exception:  # anything that NumPy, or memory, objects to
            continue
    return None


def _stand_in(function: Callable[..., Any], sizes: dict[int, int], x: Any) -> Any:
    """Return `x` with arrays replaced by arrays of the sizes that stand for theirs."""
    kind = type(x)
    stand = functools.partial(_stand_in, function, sizes)
    if kind is DeviceArray or kind is np.ndarray:
        return _array(function, x, tuple(sizes.get(n, n) for n in x.shape))
    if kind is tuple or kind is list:
        return kind(map(stand, x))
    if kind is slice:
        return slice(stand(x.start), stand(x.stop), stand(x.step))
    if kind is dict:
        return {k: stand(v) for k, v in x.items()}
    return x


def _array(function: Callable[..., Any], x: Any, shape: tuple[int, ...]) -> Any:
    """Return an array that lies in memory as `x` does: zeros, or for linear algebra no such."""
    dtype = x.dtype
    if type(x) is DeviceArray and x.scalar:
        return dtype.type(0)
    array = strided(shape, _strides(shape, x), dtype)
    if dtype.kind == "b":  # a mask chooses as many as there are
        array[...] = True
    if len(shape) > 1 and (getattr(function, "__module__", None) or "").endswith("linalg"):
        array[...] = np.eye(shape[-2], shape[-1]) + 1 / (1 + math.prod(shape[-2:]))
    return array


def _strides(shape: tuple[int, ...], x: Any) -> tuple[int, ...]:
    """Return strides for an array of a shape that lies in memory as `x` does."""
    repeated = [s == 0 and n != 1 for s, n in zip(x.strides, x.shape, strict=True)]
    single = [1 if r else n for r, n in zip(repeated, shape, strict=True)]
    original = tuple(1 if r else n for r, n in zip(repeated, x.shape, strict=True))
    size = x.dtype.itemsize
    strides = strides_like(tuple(single), x.strides, size, original)
    if strides is None:  # windows, whose elements share memory: steps of the same order
        steps = sorted({abs(s) for s in x.strides} - {0})
        wide = max(shape) + 1
        strides = tuple(size * wide ** steps.index(abs(s)) if s else 0 for s in x.strides)
    return tuple(0 if r else s for r, s in zip(repeated, strides, strict=True))


def _orders(r: Any) -> Any:
    if isinstance(r, (tuple, list)):
        return [_orders(x) for x in r]
    if not isinstance(r, np.ndarray):
        return None
    return tuple(sorted(range(r.ndim), key=lambda a: -abs(r.strides[a])))
