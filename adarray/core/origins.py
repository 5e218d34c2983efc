"""Where the arrays lie in memory that a transform was given.

What stands for them in the function lies elsewhere, and a write into it makes it lie elsewhere
again. Code that asks which arrays share memory, or what an array is a view of, is answered by the
arrays of the caller.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from adarray.base.redirecting import Noted
from adarray.core.dispatch import replay
from adarray.core.trace import Handle, root_of

_origins = Noted()  # of the handles that a function gets


def note_origin(handle: Handle, given: np.ndarray | Handle) -> None:
    """Note what the caller passed, if it is a view: an array with memory of its own shares none."""
    if isinstance(given, Handle):
        lies = origin_of(given)
        if lies is not None:
            _origins.note(handle, lambda: lies)
    elif given.base is not None:
        _origins.note(handle, weakref.ref(given))


def origin_of(x: Handle) -> np.ndarray | None:
    """Return an array that lies where `x` would without transforms; None if nothing is known."""
    root = root_of(x)
    found = _origins.get(root)
    lies: Any = None if found is None else found()
    if lies is None or root is x or x._x is None:
        return lies  # type: ignore[no-any-return]
    made = replay(lies, x._x.steps)
    return made if isinstance(made, np.ndarray) else None
