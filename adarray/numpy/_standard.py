"""Functions in which the array API standard asks for more than NumPy gives.

Each keeps NumPy's own signature and adds the standard's arguments, or exists for a
NumPy that does not have it yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.core.protocol import call_function
from adarray.core.trace import Handle
from adarray.numpy._creation import check_device
from adarray.numpy._lift import UFunc, call_lifted, lift, lifted
from adarray.ops import creation

_NEW = tuple(int(part) for part in np.__version__.split(".")[:2])


def sort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """As `numpy.sort`, and in descending order if asked so."""
    r = call_lifted(np.sort, (a, axis, kind, order), {"stable": stable})
    return np.flip(r, 0 if axis is None else axis) if descending else r


def argsort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """As `numpy.argsort`, stable unless told otherwise, and in descending order if asked so.

    Equal elements keep their order in either direction, as the array API has it.
    """
    if kind is None and stable is None:
        stable = True
    if not descending:
        return call_lifted(np.argsort, (a, axis, kind, order), {"stable": stable})
    a = creation.asarray(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    if a.ndim == 0:
        return call_lifted(np.argsort, (a, axis, kind, order), {"stable": stable})
    # The last of equal elements comes first when the order is reversed, so reverse both.
    r = np.flip(np.argsort(np.flip(a, axis), axis, kind, order, stable=stable), axis)
    return lift(a.shape[axis] - 1 - r)


def clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,  # noqa: A002
    max: Any = None,  # noqa: A002
    **kwargs: Any,
) -> Any:
    """As `numpy.clip`; the bounds may be left out, one or both."""
    if (min is not None and a_min is not None) or (max is not None and a_max is not None):
        raise ValueError("clip: pass a bound once, as a_min or min, a_max or max")
    low = a_min if min is None else min
    high = a_max if max is None else max
    if low is None and high is None and out is None and not kwargs:
        return lift(creation.copy(a))
    if out is not None:
        kwargs["out"] = out
    return call_lifted(np.clip, (creation.asarray(a), low, high), kwargs)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """As `numpy.astype`: the values in another dtype."""
    check_device(device, "astype")
    if not isinstance(x, (Handle, np.ndarray)):
        raise TypeError(
            "astype: the argument x must be an array, got "
            f"{type(x).__name__}; make one with asarray"
        )
    if isinstance(x, Handle) and not copy and np.dtype(dtype) == x.dtype:  # type: ignore[attr-defined]
        return x
    return call_lifted(np.astype, (x, dtype), {"copy": copy})


def reshape(
    a: Any,
    /,
    shape: Any = None,
    order: Any = "C",
    *,
    newshape: Any = None,
    copy: bool | None = None,
) -> Any:
    """As `numpy.reshape`; ``copy=`` works on any NumPy.

    Raises
    ------
    ValueError
        If ``copy=False`` and the elements must be moved.
    """
    shape = newshape if shape is None else shape
    if shape is None:
        raise TypeError("reshape: the argument shape is missing")
    x = lift(creation.asarray(a), (a,))
    r = call_function(np.reshape, (x, shape), {"order": order})
    shared = np.may_share_memory(np.asarray(r._plain), np.asarray(x._plain)) or x.size == 0
    if copy is False and not shared:
        raise ValueError("reshape: copy=False, and this shape needs a copy; pass copy=None")
    return call_function(np.copy, (r,), {}) if copy and shared else r


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """As `numpy.take_along_axis`; the last axis if none is given, on any NumPy."""
    return call_lifted(np.take_along_axis, (arr, indices, axis), {})


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the arrays along one axis, as `numpy.unstack` does."""
    x = lift(creation.asarray(x), (x,))
    if x.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    rows = np.moveaxis(x, axis, 0)
    return tuple(rows[i] for i in range(rows.shape[0]))


def _cumulative(name: str, scan: Callable[..., Any], first: int) -> Callable[..., Any]:
    """Return ``cumulative_sum`` or ``cumulative_prod`` for a NumPy without them."""

    def cumulative(
        x: Any,
        /,
        *,
        axis: int | None = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> Any:
        x = creation.asarray(x)
        if axis is None:
            if x.ndim > 1:
                raise ValueError(
                    f"{name}: the argument axis is needed for an array of {x.ndim} dimensions"
                )
            axis = 0
        if include_initial and out is not None:
            raise ValueError(f"{name}: out= does not go with include_initial=True")
        r = call_lifted(scan, (x,), {"axis": axis, "dtype": dtype, "out": out})
        if not include_initial:
            return r
        shape = tuple(1 if i == axis % x.ndim else n for i, n in enumerate(r.shape))
        return np.concatenate([np.full(shape, first, r.dtype), r], axis=axis)

    cumulative.__name__ = cumulative.__qualname__ = name
    cumulative.__doc__ = f"As `numpy.{name}`, of NumPy 2.1."
    return cumulative


class _Rounding(UFunc):
    """``floor``, ``ceil``, ``trunc``: integers stay as they are on any NumPy."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            x = creation.asarray(args[0])
            if x.dtype.kind in "biu":
                return lift(creation.copy(x))
        return super().__call__(*args, **kwargs)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """As `numpy.count_nonzero`: always an array."""
    r = call_lifted(np.count_nonzero, (a, axis), {"keepdims": keepdims})
    return r if isinstance(r, Handle) else Handle.array_class(np.intp(r))


def unique_values(x: Any) -> Any:
    """As `numpy.unique_values`, in ascending order on any NumPy: scikit-learn relies on it."""
    return call_lifted(np.unique, (x,), {"equal_nan": False})


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """As `numpy.diff`; None stands for nothing to put before or after."""
    ends = {"prepend": prepend, "append": append}
    return call_lifted(np.diff, (a, n, axis), {k: v for k, v in ends.items() if v is not None})


def matrix_transpose(x: Any, /) -> Any:
    """As `numpy.matrix_transpose`: the last two axes swapped."""
    x = lift(creation.asarray(x), (x,))
    if x.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {x.ndim}")
    return np.swapaxes(x, -1, -2)


FUNCTIONS: dict[str, Any] = {
    f.__name__: f
    for f in (
        sort, argsort, clip, astype, reshape, take_along_axis, count_nonzero, matrix_transpose,
        unstack, diff, unique_values,
    )
}  # fmt: skip
for _name, _scan, _first in (("cumulative_sum", np.cumsum, 0), ("cumulative_prod", np.cumprod, 1)):
    FUNCTIONS[_name] = (
        lifted(getattr(np, _name)) if hasattr(np, _name) else _cumulative(_name, _scan, _first)
    )
if _NEW < (2, 1):
    for _name in ("floor", "ceil", "trunc"):
        FUNCTIONS[_name] = _Rounding(getattr(np, _name))
