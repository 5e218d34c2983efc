"""Sets of values: each element of a result is one element of an argument.

Which one it is depends on the values and has no derivative, so results are gathered.
Where equal elements are merged, the derivative belongs to the first of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import composite, dynamic
from adarray.core.protocol import plain, plain_array
from adarray.core.trace import Handle
from adarray.ops import creation
from adarray.ops.common import composite_if_traced, normalized_axes

dynamic(
    np.unique, np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values, np.union1d,
    np.intersect1d, np.setdiff1d, np.setxor1d, np.trim_zeros,
)  # fmt: skip


def _flat(x: Any) -> Any:
    """Return `x` as a 1-d ADArray; its derivative may be zero, that of another argument not."""
    flat = np.ravel(creation.asanyarray(x))
    return flat if isinstance(flat, Handle) else Handle.array_class(flat)


@composite_if_traced(np.unique)
def _unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    **kwargs: Any,
) -> Any:
    """``np.unique``: NumPy finds the first of each kind, and the values are read there."""
    ar = creation.asanyarray(ar)
    kwargs.pop("sorted", None)  # with an index the values come sorted, as they may always
    find: Any = np.unique
    _, index, *rest = find(plain(ar), True, return_inverse, return_counts, axis, **kwargs)
    values = np.ravel(ar)[index] if axis is None else np.take(ar, index, axis=axis)
    extra = ([index] if return_index else []) + rest
    return (values, *map(Handle.array_class, extra)) if extra else values


def _named(function: Any, fields: tuple[str, ...]) -> None:
    """Register one of the array API's forms of `unique`, whose result has named fields."""

    def body(x: Any, /) -> Any:
        unique = function(plain(x))
        values, index = np.unique(plain(x), return_index=True, equal_nan=False)
        if not fields:
            return np.ravel(x)[_positions(unique, values, index)]
        fields_of_result = {
            name: np.ravel(x)[_positions(unique.values, values, index)]
            if name == "values"
            else Handle.array_class(getattr(unique, name))
            for name in fields
        }
        return type(unique)(**fields_of_result)

    composite_if_traced(function)(body)


def _positions(unique: Any, values: Any, index: Any) -> Any:
    """Return where the values `found` stand first; NumPy may not sort them."""
    if np.array_equal(unique, values, equal_nan=True):
        return index
    at = np.searchsorted(values, unique)
    # Every nan is a kind of its own, in the order in which they come.
    missing = np.isnan(unique)
    at[missing] = np.arange(len(values) - np.count_nonzero(missing), len(values))
    return index[at]


_named(np.unique_all, ("values", "indices", "inverse_indices", "counts"))
_named(np.unique_counts, ("values", "counts"))
_named(np.unique_inverse, ("values", "inverse_indices"))
_named(np.unique_values, ())


@composite_if_traced(np.union1d)
def _union1d(ar1: Any, ar2: Any) -> Any:
    return np.unique(np.concatenate((_flat(ar1), _flat(ar2))))


@composite_if_traced(np.intersect1d)
def _intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """``np.intersect1d``: the values are those of `ar1`."""
    _, first, second = np.intersect1d(plain(ar1), plain(ar2), assume_unique, True)
    values = _flat(ar1)[first]
    if not return_indices:
        return values
    return values, Handle.array_class(first), Handle.array_class(second)


@composite_if_traced(np.setdiff1d)
def _setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    first = _flat(ar1) if assume_unique else np.unique(_flat(ar1))
    keep = np.isin(plain(first), plain(ar2), assume_unique=assume_unique, invert=True)
    return first[keep]


@composite_if_traced(np.setxor1d)
def _setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    if assume_unique:
        both = np.concatenate((_flat(ar1), _flat(ar2)))
    else:
        both = np.concatenate([np.unique(creation.asanyarray(a)) for a in (ar1, ar2)])
    _, index, counts = np.unique(
        plain(both), return_index=True, return_counts=True, equal_nan=False
    )
    return both[index[counts == 1]]


@composite(np.trim_zeros)
def _trim_zeros(filt: Any, trim: Any = "fb", axis: Any = None) -> Any:
    """``np.trim_zeros``: NumPy gives the lengths, the first elements that are not 0 the places."""
    filt = creation.asanyarray(filt)
    values = plain_array(filt)
    trimmed = np.trim_zeros(values, trim, **({} if axis is None else {"axis": axis}))
    axes = normalized_axes(axis, values.ndim)
    starts = [0] * values.ndim
    if trimmed.size and "f" in trim.lower():
        starts = [
            int(np.min(positions)) if i in axes else 0
            for i, positions in enumerate(np.nonzero(values))
        ]
    index = tuple(slice(k, k + n) for k, n in zip(starts, trimmed.shape, strict=True))
    return filt[index]
