"""NumPy functions that write into their first argument.

Into an ADArray they work as the item assignments that they stand for; a traced
value written into a plain ndarray would be lost, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.op import WRITERS, composite
from adarray.core.inplace import plain_value
from adarray.core.protocol import concrete, plain, plain_array, traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle, is_weak
from adarray.ops import creation


def _target(name: str, function: Any, target: Any, values: Any, *args: Any) -> bool:
    """Return whether to write item by item; plain values go into plain arrays by NumPy.

    Raises
    ------
    TraceError
        If the target is plain and a value is traced.
    """
    if isinstance(target, Handle):
        if (
            function is not np.copyto
            and plain_value(target).dtype.kind in "iub"
            and not traced(values)
        ):
            # For NumPy's errors: Python's numbers must fit.
            args = tuple(creation.seen(x) if x is values else x for x in args)
            with np.errstate(all="ignore"):
                function(np.copy(concrete(target)), *concrete(args))
        return True
    if traced(values):
        raise leaves_graph(
            f"{name} into a plain ndarray of shape {np.shape(target)}",
            "make the array with np.zeros_like(x) or another function of a traced array",
        )
    function(target, *plain(args))
    return False


def _write(target: Any, values: Any, write: Callable[[Any, Any], None]) -> None:
    """Write into `target` what a NumPy function would: it writes the numbers of the values.

    So its rules for repeated, missing and surplus values hold, and its errors.
    """
    which = np.full(np.shape(target), -1)
    write(which, np.arange(values.size).reshape(values.shape))
    mask = which >= 0
    target[mask] = np.reshape(values, (-1,))[which[mask]]


def _numbers(values: Any, dtype: Any) -> Any:
    """Return what is written as an array: Python's numbers in `dtype`, others as they are."""
    if isinstance(values, np.ndarray) or traced(values):
        return creation.asanyarray(values)
    return creation.asarray(creation.seen(values), dtype)


def _check_casting(src: Any, dst: Any, casting: Any) -> None:
    """Raise NumPy's error if `src` must not be cast to the dtype of `dst`."""
    number = isinstance(src, (bool, int, float, complex)) and not isinstance(src, np.generic)
    source = (
        src
        if number
        else np.zeros(0 if np.ndim(plain(src)) else (), creation.asanyarray(src).dtype)
    )
    np.copyto(np.empty(0, dst.dtype), source, casting)


WRITERS.update((
    np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal,
))  # fmt: skip


@composite(np.copyto)
def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not _target("copyto", np.copyto, dst, src, src, casting, where):
        return
    if is_weak(src) and dst.dtype.kind in "iu" and np.result_type(plain(src)).kind == "i":
        src = concrete(creation.seen(src))  # Python's int, which the dtype must hold
    _check_casting(src, dst, casting)
    if where is True:
        dst[...] = creation.asanyarray(src)
    elif isinstance(plain(where), Symbolic):  # no positions that `jit` could rely on
        source = creation.asanyarray(src)  # where() would compute in a dtype that holds both
        if source.dtype != dst.dtype:
            source = source.astype(dst.dtype)
        dst[...] = np.where(where, source, dst)
    else:
        _write(
            dst,
            creation.asanyarray(src),
            lambda which, numbers: np.copyto(which, numbers, where=plain(where)),
        )


@composite(np.put)
def _put(a: Any, ind: Any, v: Any, mode: Any = "raise") -> None:
    if _target("put", np.put, a, v, ind, v, mode):
        _write(
            a, _numbers(v, a.dtype), lambda which, numbers: np.put(which, plain(ind), numbers, mode)
        )


@composite(np.place)
def _place(arr: Any, mask: Any, vals: Any) -> None:
    if _target("place", np.place, arr, vals, mask, vals):
        _write(
            arr,
            _numbers(vals, arr.dtype),
            lambda which, numbers: np.place(which, plain(mask), numbers),
        )


@composite(np.putmask)
def _putmask(a: Any, mask: Any, values: Any) -> None:
    if not _target("putmask", np.putmask, a, values, mask, values):
        return
    if isinstance(plain(mask), Symbolic):
        flat = _numbers(values, a.dtype).reshape(-1)
        a[...] = np.where(mask, flat[np.arange(a.size) % flat.size].reshape(a.shape), a)
    else:
        _write(
            a,
            _numbers(values, a.dtype),
            lambda which, numbers: np.putmask(which, plain(mask), numbers),
        )


@composite(np.put_along_axis)
def _put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1) -> None:
    if _target("put_along_axis", np.put_along_axis, arr, values, indices, values, axis):
        at = plain_array(indices)
        values = _numbers(values, arr.dtype)
        _write(arr, values, lambda which, numbers: np.put_along_axis(which, at, numbers, axis))


@composite(np.fill_diagonal)
def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    if _target("fill_diagonal", np.fill_diagonal, a, val, val, wrap):
        _write(
            a, _numbers(val, a.dtype), lambda which, numbers: np.fill_diagonal(which, numbers, wrap)
        )


def fill(a: Any, value: Any) -> None:
    """Write `value` into every element of `a`, as the ndarray method does."""
    a[...] = value


composite(fill)(fill)
