"""The order in which NumPy's generators visit the elements of an array.

It is the order in which the array lies in memory; what is drawn for arrays elsewhere has to follow
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def drawn_into(out: Any, method: str, draw: Callable[[tuple[int, ...]], Any]) -> Any:
    """Return ``draw(shape)`` with the elements where ``method(out=out)`` puts them.

    Raises
    ------
    ValueError
        If `out` does not lie in memory as NumPy asks of it.
    """
    flags = out.flags
    if flags.c_contiguous:
        return draw(out.shape)
    if flags.f_contiguous and method != "standard_gamma":
        return np.transpose(draw(out.shape[::-1]))
    kind = "C-contiguous" if method == "standard_gamma" else "contiguous"
    raise ValueError(
        f"{method}: the argument out is not {kind}; draw without it, and assign the result"
    )


def numbered(x: Any, out: Any = None) -> np.ndarray:
    """Return the positions of the elements of `x`, in what `permuted` would shuffle.

    This is a copy of `x` that keeps its order in memory, or `out`.

    Raises
    ------
    ValueError
        If they have different shapes.
    """
    if out is not None and out.shape != x.shape:
        raise ValueError(
            f"permuted: the argument out has shape {out.shape}, and x {x.shape}; pass an array of "
            "the same shape"
        )
    if out is None or out.flags.c_contiguous or out.flags.f_contiguous:
        y = x if out is None else out
        # Only shape and strides are looked at.
        like = np.lib.stride_tricks.as_strided(np.empty(0, np.intp), y.shape, y.strides)
        result = np.empty_like(like)
    else:
        result = np.empty(x.shape, np.intp)
    result[...] = np.arange(result.size).reshape(result.shape)
    return result
