"""Plain arrays that a derivative rule has saved must not change before it runs.

A small array is copied. A big one is made read-only, together with the array
that owns its memory, until the last node that saved it is gone; a later write
through either raises NumPy's "assignment destination is read-only". Memory can
also be written through views that were made before, which NumPy cannot enumerate;
a fingerprint of sampled elements, compared when the rule runs, catches that.
"""

from __future__ import annotations

import functools
import threading
import weakref
from contextvars import ContextVar, Token
from typing import Any

import numpy as np

from adarray.aval import Symbolic
from adarray.device import is_device
from adarray.errors import TraceError

COPY_LIMIT = 1 << 18  # bytes; up to here a copy costs little beside the operation that reads it
SAMPLES = 256

_lock = threading.RLock()
# id of the owning array -> [number of guards, arrays made read-only, owner first]
_protected: dict[int, tuple[list[int], list[np.ndarray]]] = {}

# The guards made in the outermost trace of this context.
_made: ContextVar[list[weakref.ref[Guard]] | None] = ContextVar("adarray_guards", default=None)


def watch() -> Token[list[weakref.ref[Guard]] | None]:
    """Start to note the guards that are made in this context."""
    return _made.set([])


def unwatch(token: Token[list[weakref.ref[Guard]] | None], failed: bool) -> None:
    """End what `watch` began; release the guards made meanwhile if the trace failed.

    The nodes that hold them may live on in the frames of the exception's
    traceback, and the arrays must not stay read-only with them.
    """
    if failed:
        for ref in _made.get() or ():
            guard = ref()
            if guard is not None:
                guard.release()
    _made.reset(token)


def keep_plain(value: Any) -> tuple[Any, Guard | None]:
    """Return `value` as a node may save it, and the guard to hold with it."""
    if type(value) is not np.ndarray and (
        not isinstance(value, np.ndarray) or isinstance(value, Symbolic) or is_device(value)
    ):
        return value, None
    if type(value) is not np.ndarray:
        value = np.asarray(value)  # memory maps and the like: the rules want plain semantics
    if value.nbytes <= COPY_LIMIT:
        return value.copy("K"), None
    return value, Guard(value)


@functools.lru_cache(maxsize=64)
def _positions(size: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, SAMPLES).astype(np.intp))


def _fingerprint(value: np.ndarray) -> bytes:
    positions = _positions(value.size)
    if value.flags.c_contiguous:  # `flat` takes five times as long
        return value.reshape(-1).take(positions).tobytes()
    if value.flags.f_contiguous:
        return value.T.reshape(-1).take(positions).tobytes()
    sample: np.ndarray = value.flat[positions]
    return sample.tobytes()


def guarded(value: np.ndarray) -> bool:
    """Whether a guard, and not its owner, made the array read-only."""
    with _lock:
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        entry = _protected.get(id(owner))
        return entry is not None and any(a is value for a in entry[1][1:])


class Guard:
    """Holds a big plain array read-only while it lives."""

    __slots__ = ("__weakref__", "fingerprint", "key", "value")

    def __init__(self, value: np.ndarray) -> None:
        chain = [value]
        while isinstance(chain[-1].base, np.ndarray):
            chain.append(chain[-1].base)
        chain.reverse()
        self.key: int | None = id(chain[0])
        self.value = value
        self.fingerprint = _fingerprint(value)
        with _lock:
            # The owner is always listed first: that keeps its id from being reused.
            count, arrays = _protected.setdefault(self.key, ([0], [chain[0]]))
            count[0] += 1
            for array in chain:
                if array.flags.writeable:
                    array.flags.writeable = False
                    arrays.append(array)
        made = _made.get()
        if made is not None:
            made.append(weakref.ref(self))

    def check(self, op: str) -> None:
        """Raise if the array was changed through a view made before.

        Raises
        ------
        TraceError
            If sampled elements differ from those that the operation read.
        """
        if _fingerprint(self.value) != self.fingerprint:
            raise TraceError(
                f"{op}: an operand of shape {self.value.shape} was changed after the operation "
                "read it, through a view of its memory; pass a copy (operand.copy()) to the "
                "operation, or change it after the gradient is taken"
            )

    def release(self) -> None:
        """Make the array writeable again if this was its last guard."""
        with _lock:
            key, self.key = self.key, None
            if key is None or key not in _protected:
                return
            count, arrays = _protected[key]
            count[0] -= 1
            if count[0] == 0:
                del _protected[key]
                for array in arrays[1:]:
                    array.flags.writeable = True

    def __del__(self) -> None:
        self.release()
