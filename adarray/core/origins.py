"""Where a transform's inputs lie in the caller's memory.

Their stand-ins in the function lie elsewhere, and move again when they are written. Code that asks
which arrays share memory, or what an array is a view of, gets the answer for the arrays of the
caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.levels import INPUTS
from adarray.core.dispatch import replay
from adarray.core.trace import Handle, root_of


def origin_of(x: Handle) -> np.ndarray | None:
    """Return an array that lies where `x` would without transforms; None if nothing is known.

    An array that owns its memory is not looked for: it shares it with its own views alone.
    """
    root = root_of(x)
    lies: Any = None
    for inputs in tuple(INPUTS.values()):
        for _, original, handle, _ in inputs:
            if handle is root:
                lies = origin_of(original) if isinstance(original, Handle) else original
    if lies is None or lies.base is None:
        return None
    if root is x or x._x is None:
        return lies  # type: ignore[no-any-return]
    out = replay(lies, x._x.steps)
    return out if isinstance(out, np.ndarray) else None
