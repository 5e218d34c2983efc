"""Making arrays larger at their ends, and looking at them through sliding windows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Layout, Op, Opaque, register
from adarray.batching.layouts import padded, windows
from adarray.core.dispatch import apply
from adarray.core.protocol import plain, traced
from adarray.ops import creation
from adarray.ops.borrow import borrowed, correct, replace
from adarray.ops.common import arrayed, composite_if_traced, normalized_axes, s

_GATHERED = ("edge", "wrap", "reflect", "symmetric")


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """Return ``(before, after)`` of each axis."""
    if isinstance(pad_width, dict):
        widths: list[Any] = [pad_width.get(i, pad_width.get(i - ndim, 0)) for i in range(ndim)]
        return [(w, w) if isinstance(w, int) else (int(w[0]), int(w[1])) for w in widths]
    return [(int(a), int(b)) for a, b in np.broadcast_to(np.asarray(pad_width), (ndim, 2))]


def _pad_with_zeros(array: Any, pad_width: Any) -> Any:
    return np.pad(array, pad_width)


pad_zeros = register(
    Op(
        "pad",
        _pad_with_zeros,
        Opaque(),
        [
            lambda g, out, array, pad_width: g[
                tuple(
                    slice(low, low + n)
                    for (low, _), n in zip(_widths(pad_width, array.ndim), array.shape, strict=True)
                )
            ]
        ],
        jvp="linear",
        batch=padded,
        samples=lambda rng: [
            s(rng.normal(size=(3, 4)), 2),
            s(rng.normal(size=(3, 4)), ((1, 0), (0, 2))),
            s(rng.normal(size=3), (1, 2)),
        ],
        operands=("array",),
        params=("pad_width",),
    )
)


def _as_pairs(x: Any, ndim: int, as_index: bool = False) -> Any:
    """Stand for NumPy's private helper of that name, for values that may be traced."""
    if not traced(x):
        return _numpys_pairs(plain(x), ndim, as_index)
    pairs = np.broadcast_to(creation.asarray(x), (ndim, 2))
    return [(pair[0], pair[1]) for pair in pairs]


_numpys_pairs = np.lib._arraypad_impl._as_pairs  # type: ignore[attr-defined]
replace(_numpys_pairs, _as_pairs)


@composite_if_traced(np.pad)
def _pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """``np.pad``: zeros by an operation, repeated elements by gathering, the rest by NumPy.

    NumPy's body writes into views of the result, which costs more.
    """
    array = creation.asanyarray(array)
    values = kwargs.get("constant_values", 0)
    zeros = type(values) in (int, float) and values == 0 and not kwargs.keys() - {"constant_values"}
    if mode == "constant" and zeros:
        numbers = plain(pad_width)
        if not isinstance(numbers, (int, dict)) and np.asarray(numbers).dtype.kind != "i":
            raise TypeError("`pad_width` must be of integral type.")
        return apply(pad_zeros, (array,), {"pad_width": _widths(numbers, array.ndim)})
    if mode in _GATHERED and array.size and kwargs.get("reflect_type") != "odd":
        numbers = np.arange(array.size).reshape(array.shape)
        return np.reshape(array, (-1,))[np.pad(numbers, pad_width, mode=mode, **kwargs)]
    return borrowed(np.pad)(array, plain(pad_width), mode, **kwargs)


# -- sliding windows -----------------------------------------------------------------------


def _windows_vjp(g: Any, out: Any, x: Any, window_shape: Any, axis: Any = None) -> Any:
    """Add each place in the window, a shifted copy of the operand, back to where it was."""
    window = tuple(window_shape) if np.iterable(window_shape) else (window_shape,)
    axes = normalized_axes(axis, x.ndim)
    back = np.zeros_like(g, shape=x.shape)
    for offset in np.ndindex(*window):
        starts = [0] * x.ndim
        for at, k in zip(axes, offset, strict=True):
            starts[at] += k
        region = tuple(slice(k, k + n) for k, n in zip(starts, out.shape[: x.ndim], strict=True))
        back[region] += g[(..., *offset)]
    return back


def _windows_of(x: Any, window_shape: Any, axis: Any = None) -> Any:
    return np.lib.stride_tricks.sliding_window_view(arrayed(x), window_shape, axis)


sliding_window_view = register(
    Op(
        "sliding_window_view",
        np.lib.stride_tricks.sliding_window_view,
        Layout(readonly=True),
        [_windows_vjp],
        jvp="linear",
        samples=lambda rng: [
            s(rng.normal(size=6), 3),
            s(rng.normal(size=(4, 5)), (2, 3)),
            s(rng.normal(size=(4, 5)), 2, axis=1),
            s(rng.normal(size=(5, 4)), (2, 3), axis=(1, 0)),
            s(rng.normal(size=(5, 2)), (2, 2), axis=(0, 0)),
        ],
        operands=("x",),
        params=("window_shape", "axis"),
        signature="x, window_shape, axis=None, *, subok=False, writeable=False",
        evaluate=_windows_of,
        batch=windows,
        note="a read-only view, as in NumPy; overlapping windows must not be written to",
    )
)


@functools.wraps(np.lib.stride_tricks.as_strided)
def _as_strided(x: Any, *args: Any, **kwargs: Any) -> Any:
    if traced(x):
        raise NotDifferentiableError(
            "as_strided: operand 0 is traced, and strides of memory do not say which elements "
            "they reach; use np.lib.stride_tricks.sliding_window_view, np.broadcast_to or indexing"
        )
    return np.lib.stride_tricks.as_strided(plain(x), *args, **kwargs)


correct(np.lib.stride_tricks.as_strided, _as_strided)
