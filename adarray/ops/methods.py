"""Methods of ndarray that no NumPy function stands for, or whose signature differs."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from adarray.base.op import FUNCTIONS, Layout, Op, composite, register
from adarray.batching.layouts import looked_at
from adarray.core.dispatch import apply
from adarray.core.inplace import assign, move, sync_if_view
from adarray.core.protocol import followed, plain, traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle, root_of
from adarray.ops.common import as_operand

_TYPE = type  # `view` has an argument of this name
_RAW = "the bytes of a traced array have no derivative; use astype for another dtype"


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Return elements of `choices` picked by the integers in `a`, as the ndarray method does."""
    return np.choose(a, choices, out=out, mode=mode)  # type: ignore[call-overload]


def _is_view(a: Any) -> bool:
    return root_of(sync_if_view(a)) is not a


def resize(a: Any, *new_shape: Any, refcheck: bool = True) -> None:
    """Give `a` another size in place: elements are cut off, or zeros are appended.

    Raises
    ------
    ValueError
        If `a` is a view, or a leaf of ``backward()``.
    """
    shape = new_shape[0] if len(new_shape) == 1 else new_shape
    if shape is None or shape == ():
        return
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    if any(n < 0 for n in shape):
        raise ValueError("negative dimensions are not allowed")
    if _is_view(a) or (a._x is not None and a._x.slot is not None):
        raise ValueError("cannot resize this array: it does not own its data")
    n = int(np.prod(shape, dtype=int))
    # NumPy keeps the elements where they are in memory.
    order = "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"
    flat = a.reshape(-1, order=order)[:n]
    if n > a.size:
        flat = np.concatenate([flat, np.zeros(n - a.size, a.dtype)])
    move(a, flat.reshape(shape, order=order).copy(order))


def setflags(a: Any, write: Any = None, align: Any = None, uic: Any = None) -> None:
    """Set the flags of the values' memory, as the ndarray method does."""
    if not _is_view(a) and a._frozen and write is not None:
        move(a, a.copy())
    flags = {"write": write, "align": align, "uic": uic}
    a._plain.setflags(**{k: v for k, v in flags.items() if v is not None})


def _view(a: Any, dtype: Any) -> Any:
    return a.view(dtype)


VIEW = register(
    Op(
        "view",
        _view,
        Layout(),
        [None],
        samples=lambda rng: [],
        operands=("a",),
        params=("dtype",),
        batch=looked_at,
        zero_d=as_operand,
        note="an untraced array only; of the same dtype, a view of any array",
    )
)


def view(a: Any, dtype: Any = None, type: Any = None) -> Any:
    """Return a view of `a`, of untraced arrays also in another dtype.

    Raises
    ------
    TraceError
        If a traced array is asked for in another dtype.
    TypeError
        If another type of array is asked for.
    """
    for cls in (dtype, type):
        if isinstance(cls, _TYPE) and issubclass(cls, (np.ndarray, Handle)):
            if cls is not np.ndarray and not issubclass(cls, Handle):
                raise TypeError(
                    f"view: type {cls.__name__}; an ADArray is viewed as an ADArray only, "
                    "pass x.numpy() to code that needs another class"
                )
            dtype = None if cls is dtype else dtype
    if dtype is None or np.dtype(dtype) == a.dtype:
        return apply(FUNCTIONS[operator.getitem], (a,), {"index": Ellipsis})
    if traced(a):
        raise leaves_graph(f"view as {np.dtype(dtype)}", _RAW)
    return apply(VIEW, (a,), {"dtype": np.dtype(dtype)})


def byteswap(a: Any, inplace: bool = False) -> Any:
    """Return the values with the order of their bytes swapped; of untraced arrays."""
    if followed(a):
        raise leaves_graph("byteswap", _RAW)
    swapped = type(a)(sync_if_view(a)._plain.byteswap())
    return assign(a, swapped) if inplace else swapped


def getfield(a: Any, dtype: Any, offset: int = 0) -> Any:
    """Return a field of an untraced structured array, as a copy."""
    if followed(a):
        raise leaves_graph("getfield", _RAW)
    return type(a)(np.array(sync_if_view(a)._plain.getfield(dtype, offset)))


def setfield(a: Any, val: Any, dtype: Any, offset: int = 0) -> None:
    """Write a field of an untraced structured array."""
    if followed(a) or followed(val):
        raise leaves_graph("setfield", _RAW)
    fresh = np.array(sync_if_view(a)._plain)
    fresh.setfield(val._plain if isinstance(val, Handle) else val, dtype, offset)
    assign(a, type(a)(fresh))


def _file_writer(function: Any) -> Any:
    """Return a body for a function that writes arrays into a file."""

    def write(*args: Any, **kwargs: Any) -> Any:
        if traced(args) or traced(kwargs):
            raise leaves_graph(function.__name__, "save x.numpy()")
        return function(*plain(args), **plain(kwargs))

    return write


for _writer in (np.save, np.savez, np.savez_compressed, np.savetxt):
    composite(_writer)(_file_writer(_writer))


METHODS: dict[str, Any] = {
    "choose": choose, "resize": resize, "setflags": setflags,
    "view": view, "byteswap": byteswap, "getfield": getfield, "setfield": setfield,
}  # fmt: skip
for _function in METHODS.values():
    composite(_function)(_function)
