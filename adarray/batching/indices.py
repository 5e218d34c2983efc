"""Indices of one member as indices of the arrays of all members."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from adarray.base.aval import Symbolic
from adarray.batching.batch import Batch, concrete_of
from adarray.batching.values import Batched


class BatchIndex(NamedTuple):
    """How to index the arrays of all members.

    Parameters
    ----------
    parts : tuple
        The index.
    source : tuple of int or None
        Axes of what NumPy gives for it, in the order of the result: the members' axis first, and
        those of a member as NumPy gives them. None if they are in order.
    """

    parts: tuple[Any, ...]
    source: tuple[int, ...] | None


def parts_of(index: Any) -> tuple[Any, ...]:
    """Return an index as a tuple, with lists as arrays and numbers as Python's."""
    parts: list[Any] = []
    for i in index if type(index) is tuple else (index,):
        if type(i) is list:
            parts.append(np.asarray(i, None if i else int))
        elif type(i) is slice:
            parts.append(slice(*(None if k is None else operator.index(k) for k in
                                (i.start, i.stop, i.step))))  # fmt: skip
        else:
            parts.append(i)
    return tuple(parts)


def is_mask(i: Any) -> bool:
    """Whether a part of an index is one of truth values."""
    return isinstance(i, (bool, np.bool)) or (hasattr(i, "dtype") and i.dtype.kind == "b")


def _is_advanced(i: Any) -> bool:
    return i is not None and i is not Ellipsis and type(i) is not slice


def _axes(i: Any) -> int:
    """Return how many axes a part of an index takes."""
    if i is None or i is Ellipsis:
        return 0
    return np.ndim(i) if is_mask(i) else 1


def settled(parts: tuple[Any, ...], batch: Batch) -> tuple[Any, ...]:
    """Return an index whose masks are the same for all members: what they pick has one shape."""
    return tuple(same_mask(i) if type(i) is Batched and i.batch is batch else i for i in parts)


def same_mask(i: Any) -> Any:
    """Return a part of an index; a mask that all members have, where it is one of them."""
    return i.read() if type(i) is Batched and i.dtype.kind == "b" else i


def batched_index(index: Any, shape: tuple[int, ...], batch: Batch) -> BatchIndex:
    """Return the index of all members for one of a member of `shape`."""
    parts = settled(parts_of(index), batch)
    if not any(type(i) is Batched and i.batch is batch for i in parts):
        return _same_for_all(parts)
    return _each_its_own(parts, shape, batch)


def _same_for_all(parts: tuple[Any, ...]) -> BatchIndex:
    """Return the index of all members for one without values of them."""
    full = (slice(None), *parts)
    advanced = [k for k, i in enumerate(parts) if _is_advanced(i)]
    arrays = [parts[k] for k in advanced if np.ndim(parts[k]) or is_mask(parts[k])]
    if not arrays or advanced[-1] - advanced[0] + 1 == len(advanced):
        return BatchIndex(full, None)
    # Between others stand slices: NumPy puts the axes of the arrays before the members' axis.
    count = len(np.broadcast_shapes(*(_shape_of(parts[k]) for k in advanced)))
    return BatchIndex(full, (count, *range(count)))


def _shape_of(i: Any) -> tuple[int, ...]:
    """Return the shape that a part of an index picks."""
    if not is_mask(i):
        return np.shape(i)
    return (int(np.count_nonzero(i)),)


def _each_its_own(parts: tuple[Any, ...], shape: tuple[int, ...], batch: Batch) -> BatchIndex:
    """Return the index of all members where they index with values of their own."""
    expanded: list[Any] = []  # masks as positions
    for i in parts:
        if is_mask(i):
            if np.ndim(i):
                expanded += list(np.nonzero(i))
            else:
                expanded += [None, np.zeros(int(bool(i)), int)]
        else:
            expanded.append(i)
    indexed = sum(map(_axes, expanded))
    # Every axis has a part, so that positions are known.
    missing = [slice(None)] * (len(shape) - indexed)
    at = next((k for k, i in enumerate(expanded) if i is Ellipsis), len(expanded))
    expanded[at : at + 1] = missing
    advanced = [k for k, i in enumerate(expanded) if _is_advanced(i)]
    count = max(_rank(expanded[k], batch) for k in advanced)
    numbers = np.arange(batch.size).reshape((-1,) + (1,) * count)
    indexes: list[Any] = []
    for i in expanded:
        if type(i) is Batched and i.batch is batch:
            lead = count - i.ndim
            i = i.raw.reshape((batch.size,) + (1,) * lead + i.shape) if lead else i.raw
        indexes.append(i)
    together = advanced[-1] - advanced[0] + 1 == len(advanced)
    first = advanced[0]
    full = (numbers, *indexes)
    if not together or not first or not count:
        # NumPy's own order, and the first axes are those of the arrays: the members' and theirs.
        return BatchIndex(full, None)
    # NumPy puts the axes of the arrays behind the members', one member's stand behind `first`.
    middle = tuple(range(count + 1, count + 1 + first))
    return BatchIndex(full, (0, *middle, *range(1, count + 1)))


def _rank(i: Any, batch: Batch) -> int:
    return i.ndim if type(i) is Batched and i.batch is batch else np.ndim(i)


def in_order(x: Any, index: BatchIndex) -> Any:
    """Return what indexing gives, with the members' axis first and those of a member in order."""
    if index.source is None:
        return x
    rest = tuple(range(len(index.source), x.ndim))
    return np.transpose(x, (*index.source, *rest))


def as_written(value: Any, index: BatchIndex, region: tuple[int, ...]) -> Any:
    """Return values of a member's `region`, of all members, in the order in which NumPy writes."""
    if index.source is None:
        return value
    ndim = len(region) + 1
    order = (*index.source, *range(len(index.source), ndim))
    back = tuple(sorted(range(ndim), key=lambda k: order[k]))
    return np.transpose(value, back)


def _like(i: Any) -> Any:
    """Return a part of an index that picks as much as one of members, or of a recording."""
    i = same_mask(i)
    if type(i) is Batched:
        return np.zeros(i.shape, int)
    return concrete_of(i) if isinstance(i, Symbolic) else i


def region_of(index: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of what a member's index picks, without picking it."""
    parts = tuple(map(_like, parts_of(index)))
    probe = np.broadcast_to(np.zeros((), np.int8), shape)
    if math.prod(shape) == 0 and any(np.ndim(i) for i in parts if i is not Ellipsis):
        probe = np.zeros(shape, np.int8)
    return probe[parts].shape  # type: ignore[no-any-return]
