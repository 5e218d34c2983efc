"""Functions of the user that SciPy calls, whose closures may hold traced values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from adarray.base.runtime import MODE, Mode, current_mode
from adarray.core.protocol import plain
from adarray.core.trace import Handle
from adarray.ops.creation import asarray
from adarray.scipy._drop_in import holds


@contextmanager
def unrecorded() -> Iterator[None]:
    """Compute without recording: for values only."""
    mode = current_mode()
    token = MODE.set(Mode(mode.engine, False, mode.name))
    try:
        yield
    finally:
        MODE.reset(token)


def recording() -> bool:
    """Whether operations are recorded."""
    mode = MODE.get()
    return mode is None or mode.record


class Plainly:
    """A user's function as SciPy may call it: plain values in, plain values out.

    Attributes
    ----------
    seen : bool
        Whether the function has returned an ADArray, so that a derivative may flow
        through something that it uses.

    Notes
    -----
    Its calls are recorded until one has shown that: values of which nothing is recorded may
    become Python's numbers on the way, by ``math.exp``, ``float`` or ``item``.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
        self.function = function
        self.args = plain(args)
        self.seen = holds(args)

    def __call__(self, *xs: Any) -> Any:
        if self.seen:
            with unrecorded():
                r = self.function(*xs, *self.args)
        else:
            r = self.function(*xs, *self.args)
        if not holds(r):
            return r
        self.seen = True
        return plain(r) if isinstance(r, (Handle, tuple)) else plain(asarray(r))


def corrected(x: Any, expected: Any) -> Any:
    """Return `x` with the value `expected`: the difference counts as a constant."""
    return x + np.asarray(expected - plain(x), plain(x).dtype)
