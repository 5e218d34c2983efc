"""``x.shape = ...``: the same ADArray, with another shape.

In NumPy, views of `x` and `x` go on sharing memory. So what `x` was becomes a handle of its own,
of which `x` is a view from now on, as all other views of it are.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from adarray.base.levels import INPUTS
from adarray.core.protocol import call_function
from adarray.core.trace import Extras, Handle, is_borrowed, root_of


def may_be_reshaped(x: Handle) -> bool:
    """Whether nobody but the function knows the array: it is no argument, and nobody else's."""
    if root_of(x) is not x:
        return True
    if any(handle is x for inputs in tuple(INPUTS.values()) for _, _, handle, _ in inputs):
        return False
    extra = x._x
    if extra is not None and (extra.slot is not None or extra.mirror or extra.peers is not None):
        return False
    return type(x) is Handle.array_class and not is_borrowed(x)


def reshape_in_place(x: Handle, shape: Any, alone: bool) -> bool:
    """Give an array another shape; return False if that takes a copy.

    Parameters
    ----------
    x : Handle
        An array that `may_be_reshaped`.
    shape : int or tuple of int
    alone : bool
        Whether it surely has no views.
    """
    is_view = root_of(x) is not x
    source = x if is_view else type(x)(x._plain, x._node, x._x, x._frozen)
    result = call_function(np.reshape, (source, shape), {})
    if root_of(result) is not root_of(source) or result is source:
        return False
    if not is_view and not alone:
        for holder in gc.get_referrers(x):
            if isinstance(holder, Extras) and holder.base is x:
                holder.base = source
    x._plain, x._node, x._x, x._frozen = (
        result._plain, result._node, result._x, result._frozen,
    )  # fmt: skip
    return True
