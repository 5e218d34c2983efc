"""Memory as an array: ``np.ndarray(shape, buffer=x)``, and what nobody has written into yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.runtime import MODE
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import concrete
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle


def empty(*args: Any, **kwargs: Any) -> Any:
    """As `numpy.empty`; zeros where a run is recorded."""
    return _unwritten(np.empty(*args, **kwargs))


def _unwritten(x: np.ndarray) -> np.ndarray:
    """Return an array that nobody has written into; where a run is recorded, zeros.

    What the memory happens to hold would be a constant of the recording, another one in each.
    """
    mode = MODE.get()
    if mode is None or not mode.symbolic or x.dtype.kind not in "biufc":
        return x
    rows = x.flags.c_contiguous or not x.flags.f_contiguous
    return np.zeros(x.shape, x.dtype, "C" if rows else "F")


def ndarray(
    shape: Any,
    dtype: Any = float,
    buffer: Any = None,
    offset: int = 0,
    strides: Any = None,
    order: Any = None,
) -> Any:
    """As `numpy.ndarray`; a view of the buffer where that is an ADArray.

    Raises
    ------
    TraceError
        If the elements are not those of a slice of the buffer.
    """
    if not isinstance(buffer, Handle):
        plain = np.ndarray(shape, dtype, buffer, offset, strides, order)
        return _unwritten(plain) if buffer is None and strides is None else plain
    memory = concrete(sync_if_view(buffer))
    plain = np.ndarray(shape, dtype, np.asarray(memory), offset, strides, order)  # its errors
    flat: Any = buffer
    if memory.ndim != 1:
        flat = (flat if memory.flags.c_contiguous else flat.T).reshape(-1)
    if plain.dtype != memory.dtype:
        flat = flat.view(plain.dtype)
    size = plain.itemsize
    first, offcut = divmod(offset, size)
    if offcut:
        raise leaves_graph(
            f"ndarray: offset={offset} with elements of {size} bytes", "begin at an element"
        )
    if plain.flags.c_contiguous:
        return flat[first : first + plain.size].reshape(plain.shape)
    if plain.flags.f_contiguous:
        return flat[first : first + plain.size].reshape(plain.shape[::-1]).T
    if plain.ndim == 1 and plain.strides[0] and plain.strides[0] % size == 0:
        step = plain.strides[0] // size
        end = first + step * plain.size
        return flat[first : end if end >= 0 else None : step]
    raise leaves_graph(
        f"ndarray: strides={strides}", "take a slice of the array in place of its memory"
    )
