"""Lending the memory of ADArrays to C code, other packages and ``np.asarray(x)``.

Others may write into memory that they hold, unseen. As in NumPy, they get the memory itself, if
the array is not traced: each side sees what the other writes. While somebody holds
it, the ADArray is *lent*, and is treated as one that stands for a user's memory: nodes save
copies of it or guard it, it is written in place, and traced values, which would be missing
there, are refused. A buffer that a node has saved is never lent: the ADArray moves to a copy
first.
"""

from __future__ import annotations

import weakref
from types import FrameType
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.runtime import MODE
from adarray.core.dispatch import replay
from adarray.core.inplace import own_buffer, sync_if_view
from adarray.core.mirrors import mirrored
from adarray.core.trace import Handle, Loan, extras, root_of
from adarray.device import is_device


def lend(x: Handle, to: FrameType | None = None, forever: bool = False) -> np.ndarray:
    """Return the memory of an ADArray that is not traced, as a plain array.

    Parameters
    ----------
    x : ADArray
    to : frame, optional
        The code that asks for it, if that is not adarray itself.
    forever : bool
        Whether somebody may keep the address alone, by which nothing tells for how long.

    Returns
    -------
    ndarray
        A view; NumPy scalars and Python numbers, and values on a device, have no memory that
        could be shared, and are copied. The copy from a device is kept equal to what is there, both
        ways (`adarray.core.mirrors`).
    """
    v = sync_if_view(x)._plain
    if type(v) is not np.ndarray:
        if is_device(v):
            whole = mirrored(root_of(x))
            return whole if x._x is None or root_of(x) is x else replay(whole, x._x.steps)
        if not isinstance(v, np.ndarray) or isinstance(v, Symbolic):
            return np.array(v)
    root = root_of(x)
    mode = MODE.get()
    if mode is not None and mode.recorder is not None:
        mode.recorder.lend(root._plain, to)
    if root._frozen:
        own_buffer(root)
    more = extras(root)
    if forever:
        more.borrowed = True
    if more.borrowed:  # the memory of a plain array
        own: Any = sync_if_view(x)._plain
        return own[...]  # type: ignore[no-any-return]
    loan = more.loan() if more.loan is not None else None
    if loan is None:
        loan = Loan(root._plain)
        more.loan = weakref.ref(loan)
    memory = np.asarray(loan)
    if root is x or x._x is None:
        return memory
    lent: np.ndarray = replay(memory, x._x.steps)
    return lent


def lent(x: object) -> Any:
    """Return `x` with the ADArrays in it replaced by their memory, for code that may keep it."""
    if isinstance(x, Handle):
        return lend(x) if isinstance(sync_if_view(x)._plain, np.ndarray) else x._plain
    if isinstance(x, tuple):
        return type(x)(*map(lent, x)) if hasattr(x, "_fields") else tuple(map(lent, x))
    if isinstance(x, list):
        return [lent(i) for i in x]
    if isinstance(x, dict):
        return {k: lent(v) for k, v in x.items()}
    return x
