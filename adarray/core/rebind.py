"""``plain += traced``: when the caller's name may be rebound to the result.

NumPy is asked to write into a plain ndarray, which cannot hold a traced value. For
an in-place operator on a name whose array nobody else holds, handing back the
result does the same as far as the program can tell: Python stores what the
operator returns under that name. In every other case the write is refused.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import numpy as np

from adarray.core.refusals import leaves_graph, refuse_whole_numbers
from adarray.core.trace import Handle, leaf

INTO_PLAIN = (
    "make the array with np.zeros_like(x) or another function of a traced array, "
    "or write `y = y + x` in place of `y += x`"
)
# Kind of name -> references that an array with one holder shows in `rebind_plain`.
_holders: dict[str, int] = {}
_measuring = threading.local()


def rebind_plain(out: np.ndarray, result: Handle, name: str) -> Handle:
    """Return `result` for ``out op= traced`` if the caller's name may be rebound to it.

    Parameters
    ----------
    out : ndarray
        The array that NumPy was asked to write into.
    result : ADArray
        What would be written.
    name : str
        Name of the operation, for the error.

    Raises
    ------
    TraceError
        Unless the calling instruction is an in-place operator on a plain name and
        `out` is no view and has no other holder.
    """
    count = sys.getrefcount(out)
    # rebind_plain <- finish <- slow ufunc path <- __array_ufunc__ <- the caller
    kind = _target_kind(sys._getframe(4))
    if kind is not None and getattr(_measuring, "counts", None) is not None:
        _measuring.counts[kind] = count
        return result
    if kind is not None and out.base is None and out.flags.owndata:
        if not _holders:
            _calibrate(type(result))
        if count <= _holders[kind]:
            return result
    refuse_whole_numbers(out.dtype)
    raise leaves_graph(f"{name} into a plain ndarray of shape {out.shape}", INTO_PLAIN)


def _target_kind(frame: FrameType) -> str | None:
    """Return ``"fast"`` or ``"name"`` if `frame` is at ``name op= value``, else None."""
    import dis  # for this rare case only

    at_operator = False
    for instruction in dis.get_instructions(frame.f_code):
        if at_operator and instruction.opname not in ("CACHE", "EXTENDED_ARG"):
            if instruction.opname.startswith("STORE_FAST"):
                return "fast"
            if instruction.opname in ("STORE_NAME", "STORE_GLOBAL", "STORE_DEREF"):
                return "name"
            return None
        if instruction.offset == frame.f_lasti:
            if instruction.opname != "BINARY_OP" or not instruction.argrepr.endswith("="):
                return None
            at_operator = True
    return None


def _calibrate(cls: type[Handle]) -> None:
    """Learn how many references an array with one holder shows.

    The number depends on how the interpreter holds operands during an
    instruction, so it is measured through the very same calls.
    """
    x = leaf(cls, np.ones(1), 0, "calibration")

    def fast() -> None:
        y: Any = np.zeros(1)
        y += x

    _measuring.counts = {}
    try:
        fast()
        exec("y += x", {"y": np.zeros(1), "x": x})
        _holders.update(_measuring.counts)
    finally:
        _measuring.counts = None
