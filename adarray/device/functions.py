"""NumPy functions that read no values, or mean more than a library's counterpart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.device.values import on_device

if TYPE_CHECKING:
    from adarray.device.library import Library

SPECIAL: dict[Any, Callable[..., Any]] = {}

# Functions that return 0-d arrays where others return NumPy scalars.
ARRAY_RESULTS = {
    np.reshape, np.transpose, np.squeeze, np.broadcast_to, np.copy, np.zeros_like, np.ones_like,
    np.empty_like, np.full_like, np.broadcast_arrays, np.atleast_1d, np.expand_dims, np.moveaxis,
    np.swapaxes, np.ravel, np.flip, np.split, np.array_split, np.real, np.imag, np.diagonal,
    np.linalg.diagonal, np.meshgrid, np.where,
}  # fmt: skip

# Those of them that keep scalars scalars.
SCALAR_KEEPING = {np.real, np.imag}

# Functions whose results NumPy does not let anybody write into; and when.
READ_ONLY: dict[Any, Callable[[Any], bool]] = {
    np.diagonal: lambda _: True,
    np.linalg.diagonal: lambda _: True,
    np.diag: lambda a: a.ndim == 2,
    np.imag: lambda a: a.dtype.kind != "c",
}


def special(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated body, called with the library first."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            SPECIAL[function] = body
        return body

    return decorate


@special(np.shape)
def _shape(_: Library, a: Any) -> Any:
    return a.shape


@special(np.ndim)
def _ndim(_: Library, a: Any) -> Any:
    return a.ndim


@special(np.size)
def _size(_: Library, a: Any, axis: Any = None) -> Any:
    return NotImplemented if isinstance(axis, tuple) else a.size if axis is None else a.shape[axis]


@special(np.iscomplexobj)
def _iscomplexobj(_: Library, x: Any) -> bool:
    return bool(x.dtype.kind == "c")


@special(np.isrealobj)
def _isrealobj(_: Library, x: Any) -> bool:
    return bool(x.dtype.kind != "c")


def _typed(x: Any) -> Any:
    return x.dtype if on_device(x) else x


@special(np.result_type)
def _result_type(_: Library, *args: Any) -> Any:
    return np.result_type(*map(_typed, args))


@special(np.can_cast)
def _can_cast(_: Library, from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(_typed(from_), _typed(to), casting)


@special(np.may_share_memory, np.shares_memory)
def _may_share_memory(library: Library, a: Any, b: Any, max_work: Any = None) -> bool:  # noqa: ARG001
    if not on_device(a) or not on_device(b):
        return False
    return bool(a.library is b.library and library.overlap(a.raw, b.raw))


@special(np.broadcast_to)
def _broadcast_to(library: Library, array: Any, shape: Any, subok: bool = False) -> Any:  # noqa: ARG001
    raw = library.run(library.xp.broadcast_to, library.raw(array), shape)
    view = library.wrap(raw, False)
    view.flags.writeable = False  # its elements share memory
    return view


@special(np.copy)
def _copy(library: Library, a: Any, order: Any = "K", subok: bool = False) -> Any:  # noqa: ARG001
    return library.wrap(library.copied(a.raw, order), False)


@special(np.astype)
def _astype(
    _: Library,
    x: Any,
    dtype: Any,
    /,
    *,
    copy: bool = True,
    device: Any = None,  # noqa: ARG001
) -> Any:
    return x.astype(dtype, copy=copy)


@special(np.reshape)
def _reshape(
    library: Library, a: Any, /, shape: Any = None, order: Any = "C", *, copy: bool | None = None,
    newshape: Any = None,
) -> Any:  # fmt: skip
    shape = newshape if shape is None else shape
    shape = tuple(map(int, shape)) if isinstance(shape, (tuple, list)) else int(shape)
    if order == "A":
        order = "F" if a.flags.fnc else "C"
    raw = library.run(a.raw.reshape, shape, order=order)
    if copy and raw.base is not None:
        raw = library.run(raw.copy)
    reshaped = library.wrap(raw, False)
    reshaped.flags.writeable = a.flags.writeable or raw.base is None or a.scalar
    return reshaped


@special(np.copyto)
def _copyto(
    library: Library, dst: Any, src: Any, casting: Any = "same_kind", where: Any = True
) -> Any:
    source = src.dtype if hasattr(src, "dtype") else src
    if hasattr(source, "kind") and not np.can_cast(source, dst.dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {source!r} to {dst.dtype!r} according to the rule "
            f"{casting!r}"
        )
    if not on_device(dst):  # an array of the host takes a copy
        np.copyto(dst, library.plain(src), casting, library.plain(where))
    elif where is True:
        dst[...] = src
    else:
        dst[...] = np.where(where, src, dst)
    return None


@special(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(
    library: Library, x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False,
    writeable: bool = False,
) -> Any:  # fmt: skip
    model = np.broadcast_to(np.empty((), x.dtype), x.shape)  # takes no memory
    shape = np.lib.stride_tricks.sliding_window_view(
        model, window_shape, axis, subok=subok, writeable=False
    ).shape
    axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    strides = (*x.strides, *(x.strides[a] for a in axes))
    raw = library.run(library.xp.lib.stride_tricks.as_strided, x.raw, shape, strides)
    raw = raw.view()  # CuPy's does not say that the memory belongs to another array
    windows = library.wrap(raw, False)
    windows.flags.writeable = writeable and x.flags.writeable
    return windows


@special(np.interp)
def _interp(library: Library, x: Any, xp: Any, fp: Any, *rest: Any, **more: Any) -> Any:
    """``np.interp``, which computes in float64 whatever the operands are."""
    wide = np.complex128 if np.iscomplexobj(fp) else np.float64
    values = [
        library.place(np.asarray(a) if isinstance(a, (list, tuple)) else a) for a in (x, xp, fp)
    ]
    operands = [
        a.astype(d, casting="safe", copy=False) if on_device(a) else a
        for a, d in zip(values, (np.float64, np.float64, wide), strict=True)
    ]
    return library.call(np.interp, (*operands, *rest), more)


@special(np.sinc)
def _sinc(_: Library, x: Any) -> Any:
    """``np.sinc`` step by step: where pi x is rounded shows near the zeros."""
    z = math.pi * x
    z = np.where(z, z, np.finfo(z.dtype).eps if z.dtype.kind == "f" else 1e-20)
    return np.sin(z) / z


@special(np.array2string, np.array_repr, np.array_str)
def _text(library: Library, a: Any, *args: Any, **kwargs: Any) -> Any:
    return np.array2string(library.plain(a), *args, **kwargs)
