"""Making arrays from what may hold ADArrays: `array`, `asarray` and their relatives.

NumPy's own functions coerce, which a traced value cannot follow. These have NumPy's
names and signatures and keep it: they return an ADArray where the argument is one or
holds one in nested lists, and exactly NumPy's result for anything else. They are
what `adarray.array`, `adarray.numpy` and rebound modules call.
"""

from __future__ import annotations

import inspect
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import NotDifferentiableError
from adarray.base.op import composite, dynamic
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import call_function, concrete, finish, followed, plain, traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle, is_weak, root_of

_FAN = 64  # arrays joined by one operation: its reverse rule looks at all for each of them
_ORDERS = {"C": "c_contiguous", "F": "f_contiguous"}
_SCALARS = {bool, int, float, complex, str, np.bool, np.int64, np.float32, np.float64}


def _is_sequence(obj: Any) -> bool:
    """Whether NumPy would look into `obj` for elements, and it may hold ADArrays."""
    if isinstance(obj, (list, tuple)):
        return True
    return isinstance(obj, (Sequence, deque)) and not isinstance(obj, (str, bytes, range))


def holds(obj: Any) -> bool:
    """Whether `obj` is an ADArray or a nested sequence with one in it."""
    if isinstance(obj, Handle):
        return True
    if isinstance(obj, np.ndarray):
        return obj.dtype.kind == "O" and any(isinstance(x, Handle) for x in obj.flat)
    if not _is_sequence(obj) or _SCALARS.issuperset(map(type, obj)):
        return False
    return any(map(holds, obj))


def _plain_nested(obj: Any) -> Any:
    """Return nested sequences with plain values in place of ADArrays, as lists."""
    if isinstance(obj, Handle):
        return concrete(obj)
    return [_plain_nested(x) for x in obj] if _is_sequence(obj) else obj


def _traced_parts(obj: Any, depth: int, shape: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
    """Yield ``(traced array or None, number of elements)`` in the order of the elements."""
    if isinstance(obj, Handle) and followed(obj):
        yield obj, int(np.prod(shape[depth:], dtype=int))
    elif _is_sequence(obj) and _any_followed(obj):
        for x in obj:
            yield from _traced_parts(x, depth + 1, shape)
    else:
        yield None, int(np.prod(shape[depth:], dtype=int))


def join(obj: Any, dtype: Any = None, name: str = "array") -> Any:
    """Return the ADArray that nested sequences of ADArrays and numbers make.

    Parameters
    ----------
    obj : sequence
    dtype : dtype, optional
        By NumPy's promotion among the elements if not given.
    name : str
        Name of the calling function, for errors.

    Returns
    -------
    ADArray
        With NumPy's shape and dtype; NumPy's errors for ragged sequences.
    """
    if dtype is not None and np.dtype(dtype).kind in "iub":
        obj = seen(obj)
    # NumPy makes the array of the values first: it settles shape, dtype and errors.
    values = np.array(_plain_nested(obj), dtype=dtype)
    if not _any_followed(obj):
        return Handle.array_class(values)
    if traced(obj):
        _check_dtype(values.dtype, name)
    flat, start = values.reshape(-1), 0
    parts: list[Any] = []
    plain_from = 0
    for part, size in _traced_parts(obj, 0, values.shape):
        if part is not None:
            if start > plain_from:
                parts.append(flat[plain_from:start])
            parts.append(part)
            plain_from = start + size
        start += size
    if start > plain_from:
        parts.append(flat[plain_from:start])
    out = np.reshape(_concatenate_flat(parts), values.shape)
    return out if out.dtype == values.dtype else call_function(np.astype, (out, values.dtype), {})


def seen(obj: Any) -> Any:
    """Return nested sequences with Python looking at the numbers that `jit` records in them.

    NumPy refuses numbers that a dtype of integers does not hold.
    """
    if _is_sequence(obj):
        return [seen(x) for x in obj]
    v: Any = sync_if_view(obj)._plain if isinstance(obj, Handle) else None
    if v is None or not isinstance(v, Symbolic):
        return obj
    v = cast(Any, v)
    if v.shape != () or v.dtype.kind not in "biuf":
        return obj
    number: Any = float(v) if v.dtype.kind == "f" else operator.index(v)
    return number if is_weak(obj) else v.dtype.type(number)


def _any_followed(obj: Any) -> bool:
    if isinstance(obj, Handle):
        return followed(obj)
    return _is_sequence(obj) and any(map(_any_followed, obj))


def _concatenate_flat(parts: list[Any]) -> Any:
    """Join the elements of all parts, in a tree: linear time in their number."""
    while len(parts) > _FAN:
        parts = [np.concatenate(parts[i : i + _FAN], axis=None) for i in range(0, len(parts), _FAN)]
    return np.concatenate(parts, axis=None)


def _check_dtype(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "fc":
        raise leaves_graph(
            f"{name} with dtype={dtype}", "only floating point and complex dtypes carry gradients"
        )


def _of_handle(
    x: Handle, name: str, dtype: Any, copy: bool | None, order: Any, fresh: bool = False
) -> Any:
    """Convert one ADArray; `fresh` asks for a copy whatever `copy` says."""
    source = sync_if_view(x)._plain
    have = np.result_type(source)
    to = have if dtype is None else np.dtype(dtype)
    if traced(x):
        _check_dtype(to, name)
    out: Any = x
    if to != have and is_weak(x) and to.kind in "iu" and not np.can_cast(have, to):
        # NumPy refuses Python's numbers that the dtype does not hold.
        out = Handle.array_class(np.array(concrete(seen(x)), to))
        copied = True
    elif to != have:
        out = call_function(np.astype, (x, to), {})
        copied = True
    else:
        copied = False
    order = "K" if order is None else order.upper()
    flags = getattr(out._plain, "flags", None)
    reordered = order in _ORDERS and not getattr(flags, _ORDERS[order], True)
    if copy is False and (copied or reordered):
        raise ValueError(
            f"{name}: copy=False, and a copy is needed for this dtype or order; pass copy=None"
        )
    # A NumPy scalar or Python number becomes a zero-dimensional array, as in NumPy.
    scalar = not isinstance(out._plain, np.ndarray)
    if reordered or scalar or ((copy or fresh) and not copied):
        out = call_function(np.copy, (out,), {"order": order})
    return out


def _convert(
    obj: Any, name: str, dtype: Any, copy: bool | None, order: Any, fresh: bool = False
) -> Any:
    """Return an ADArray from an ADArray or a sequence that holds one."""
    if isinstance(obj, Handle):
        return _of_handle(obj, name, dtype, copy, order, fresh)
    if copy is False:
        raise ValueError(f"{name}: copy=False, and a sequence cannot be joined without a copy")
    if isinstance(obj, np.ndarray):
        obj = obj.tolist()
    out = join(obj, dtype, name)
    if order is not None and order.upper() == "F" and out.ndim > 1:
        out = call_function(np.copy, (out,), {"order": "F"})
    return out


def _keeps_objects(obj: Any, dtype: Any) -> bool:
    """Whether NumPy would copy an array of objects as it is, the ADArrays in it included."""
    return isinstance(obj, np.ndarray) and (dtype is None or np.dtype(dtype).kind == "O")


def _takes_part(obj: Any, dtype: Any, like: Any) -> bool:
    """Whether the result is an ADArray made by us."""
    if isinstance(like, Handle):
        return True
    return holds(obj) and not _keeps_objects(obj, dtype)


def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
    like: Any = None,
) -> Any:
    """As `numpy.array`; an ADArray if one is anywhere in `object`.

    Parameters
    ----------
    object : array_like, ADArray, or nested sequences of both
    dtype, copy, order, subok, ndmin, ndmax, like
        As in NumPy; `ndmax` needs a NumPy that has it.

    Returns
    -------
    ADArray or ndarray

    Raises
    ------
    TraceError
        If a traced value would become an integer, a truth value or an object.
    """
    options: dict[str, Any] = {"dtype": dtype, "copy": copy, "order": order, "subok": subok}
    if ndmax:
        options["ndmax"] = ndmax
    if not _takes_part(object, dtype, like):
        return np.array(object, ndmin=ndmin, **options, **_like(like))
    if not holds(object):
        return finish(np.array(object, ndmin=ndmin, **options), None, "array")
    if ndmax:
        raise NotDifferentiableError(
            f"array: the argument ndmax={ndmax} does not go with ADArrays; leave it out"
        )
    out = _convert(object, "array", dtype, copy, order)
    if out.ndim < ndmin:
        out = np.reshape(out, (1,) * (ndmin - out.ndim) + out.shape)
    return out


def _like(like: Any) -> dict[str, Any]:
    return {} if like is None else {"like": like}


def _device(device: Any) -> dict[str, Any]:
    if device not in (None, "cpu"):
        raise ValueError(f'Device not understood. Only "cpu" is allowed, but received: {device}')
    return {}


def _may_share(r: Any, a: Any) -> bool:
    return isinstance(a, np.ndarray) and np.may_share_memory(r, a)


def _like_ours(r: np.ndarray, a: Any, name: str) -> Any:
    """Return `r`, made of the plain `a` with ``like=``, with memory of its own.

    The rules read it later, when its owner may have written into it.
    """
    return finish(r.copy("K") if _may_share(r, a) else r, None, name)


def asarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: Any = None,
    copy: bool | None = None,
    like: Any = None,
) -> Any:
    """As `numpy.asarray`; an ADArray if one is anywhere in `a`, itself where no copy is needed."""
    if not _takes_part(a, dtype, like):
        return np.asarray(a, dtype, order, device=device, copy=copy, **_like(like))
    _device(device)
    if not holds(a):
        return _like_ours(np.asarray(a, dtype, order, copy=copy), a, "asarray")
    return _convert(a, "asarray", dtype, copy, order)


def asanyarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: Any = None,
    copy: bool | None = None,
    like: Any = None,
) -> Any:
    """As `numpy.asanyarray`; an ADArray if one is anywhere in `a`."""
    if not _takes_part(a, dtype, like):
        # NumPy 2.0 has neither of the two keywords.
        options: Any = {k: v for k, v in (("device", device), ("copy", copy)) if v is not None}
        return np.asanyarray(a, dtype, order, **options, **_like(like))
    _device(device)
    if not holds(a):
        return _like_ours(np.asarray(a, dtype, order, copy=copy), a, "asanyarray")
    return _convert(a, "asanyarray", dtype, copy, order)


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """As `numpy.ascontiguousarray`; an ADArray if one is anywhere in `a`."""
    return _ordered(np.ascontiguousarray, a, dtype, "C", like)


def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """As `numpy.asfortranarray`; an ADArray if one is anywhere in `a`."""
    return _ordered(np.asfortranarray, a, dtype, "F", like)


def _ordered(function: Callable[..., Any], a: Any, dtype: Any, order: str, like: Any) -> Any:
    if not _takes_part(a, dtype, like):
        return function(a, dtype, **_like(like))
    if not holds(a):
        return _like_ours(function(a, dtype), a, function.__name__)
    out = _convert(a, function.__name__, dtype, None, order)
    return np.reshape(out, (1,)) if order == "C" and out.ndim == 0 else out  # as NumPy does


def asarray_chkfinite(a: Any, dtype: Any = None, order: Any = None) -> Any:
    """As `numpy.asarray_chkfinite`; an ADArray if one is anywhere in `a`.

    Raises
    ------
    ValueError
        If a value is infinite or not a number.
    """
    if not _takes_part(a, dtype, None):
        return np.asarray_chkfinite(a, dtype, order)
    out = _convert(a, "asarray_chkfinite", dtype, None, order)
    np.asarray_chkfinite(plain(out))
    return out


def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    """As `numpy.require`; an ADArray, which is always aligned and writeable, if `a` has one."""
    if not _takes_part(a, dtype, like):
        return np.require(a, dtype, requirements, **_like(like))
    if not holds(a):
        return _like_ours(np.require(a, dtype, requirements), a, "require")
    np.require(np.zeros(1), None, requirements)  # NumPy's errors for names it does not know
    wanted = {r.upper() for r in (requirements or ())}
    order = next((o for o, names in _ORDER_NAMES.items() if wanted & names), None)
    fresh = False
    if isinstance(a, Handle):
        v = sync_if_view(a)._plain
        fresh = bool(wanted & {"O", "OWNDATA"}) and root_of(a) is not a
        flags = getattr(v, "flags", None)  # a traced Python number has none
        fresh |= bool(wanted & {"W", "WRITEABLE"}) and flags is not None and not flags.writeable
    return _convert(a, "require", dtype, None, order, fresh)


_ORDER_NAMES = {
    "C": {"C", "C_CONTIGUOUS", "CONTIGUOUS"},
    "F": {"F", "F_CONTIGUOUS", "FORTRAN"},
}


def copy(a: Any, order: Any = "K", subok: bool = False) -> Any:
    """As `numpy.copy`; an ADArray if one is anywhere in `a`."""
    if not _takes_part(a, None, None):
        return np.copy(a, order, subok)  # type: ignore[call-overload]
    return _convert(a, "copy", None, True, order)


dynamic(np.arange)

CREATION: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        array, asarray, asanyarray, ascontiguousarray, asfortranarray, asarray_chkfinite, require,
        copy,
    )
}  # fmt: skip


def _wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with an ADArray as result: what NumPy calls for ``like=x``."""

    def body(*args: Any, **kwargs: Any) -> Any:
        r = function(*args, **kwargs)
        return r if isinstance(r, Handle) else _like_ours(r, args[0], function.__name__)

    body.__name__ = function.__name__
    body.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return body


def _of_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``zeros`` or a relative, whose arguments are plain, for ``like=x``."""

    def make(*args: Any, **kwargs: Any) -> Any:
        if traced(args) or traced(kwargs):
            raise leaves_graph(
                f"{function.__name__} with like=", "take the function of adarray.numpy"
            )
        return finish(function(*plain(args), **plain(kwargs)), None, function.__name__)

    return make


for _name, _function in CREATION.items():
    if _name != "copy":  # an operation has it
        composite(getattr(np, _name))(_wrapping(_function))
for _name in (
    "zeros", "ones", "empty", "full", "arange", "eye", "identity", "tri", "fromfile", "fromiter",
    "fromstring", "fromfunction", "frombuffer", "loadtxt", "genfromtxt",
):  # fmt: skip
    composite(getattr(np, _name))(_of_plain(getattr(np, _name)))


class Joiner:
    """``r_`` and ``c_``: NumPy's concatenation by indexing, which joins ADArrays too.

    Parameters
    ----------
    numpy : object
        `numpy.r_` or `numpy.c_`, which does it where there is no ADArray.
    """

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy

    def __repr__(self) -> str:
        return f"<adarray {type(self._numpy).__name__}>"

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if not any(holds(p) or _traced_slice(p) for p in parts):
            return self._numpy[key]
        axis, ndmin, trans1d = self._numpy.axis, self._numpy.ndmin, self._numpy.trans1d
        if isinstance(parts[0], str):
            axis, ndmin, trans1d = _directive(parts[0], axis, ndmin, trans1d)
        shown = self._numpy[tuple(_plain_part(p) for p in parts)]
        arrays = [_part(p, ndmin, trans1d) for p in parts if not isinstance(p, str)]
        out = np.concatenate(arrays, axis=axis)
        same = out.dtype == shown.dtype
        return out if same else call_function(np.astype, (out, shown.dtype), {})


def _traced_slice(part: Any) -> bool:
    return isinstance(part, slice) and any(
        isinstance(x, Handle) for x in (part.start, part.stop, part.step)
    )


def _plain_part(part: Any) -> Any:
    if isinstance(part, slice):
        return slice(*map(plain, (part.start, part.stop, part.step)))
    return _plain_nested(part) if holds(part) else part


def _directive(text: str, axis: int, ndmin: int, trans1d: int) -> tuple[int, int, int]:
    """Read the string that may come first: ``"axis"``, ``"axis,ndmin"``, ``"axis,ndmin,pos"``."""
    if text in ("r", "c"):
        raise NotDifferentiableError(
            f"r_: the string {text!r} makes a numpy.matrix, which ADArray is not; use "
            "np.concatenate or np.block"
        )
    numbers = [int(x) for x in text.split(",")]
    return tuple((*numbers, *(axis, ndmin, trans1d)[len(numbers) :])[:3])  # type: ignore[return-value]


def _part(part: Any, ndmin: int, trans1d: int) -> Any:
    """Return one item of ``r_[...]`` as an array of at least `ndmin` dimensions."""
    if isinstance(part, slice):
        start, stop, step = (0 if part.start is None else part.start), part.stop, part.step
        step = 1 if step is None else step
        if isinstance(step, complex):
            x: Any = np.linspace(start, stop, int(abs(step)))
        else:
            count = len(np.arange(*map(plain, (start, stop, step))))
            x = start + step * np.arange(count)
    else:
        x = array(part, copy=None)
    if x.ndim >= ndmin:
        return x
    extra = ndmin - x.ndim
    at = min(trans1d + extra + 1 if trans1d < 0 else trans1d, extra)
    return np.reshape(x, (1,) * at + x.shape + (1,) * (extra - at))


r_ = Joiner(np.r_)
c_ = Joiner(np.c_)
