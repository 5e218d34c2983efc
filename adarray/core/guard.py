"""Plain arrays that a derivative rule has saved must not change before it runs.

A small array is copied. A big one is made read-only, together with the array
that owns its memory, until the last node that saved it is gone; a later write
through either raises NumPy's "assignment destination is read-only". Memory can
also be written through views that were made before, which NumPy cannot enumerate:
it is sealed (see `adarray.base.seals`), and the rule asks whether anybody wrote to it.
Where memory cannot be sealed, the rule reads a copy. What an expression made for an
operator alone, as ``1 - y`` in ``x * (1 - y)``, is kept as it is: nobody else knows it.
"""

from __future__ import annotations

import dis
import sys
import weakref
from contextvars import ContextVar, Token
from sys import getrefcount
from types import CodeType, FrameType

import numpy as np
from numpy._core.multiarray import get_handler_name
from numpy.lib.array_utils import byte_bounds

from adarray.base import protection, seals
from adarray.base.aval import Symbolic
from adarray.base.errors import TraceError
from adarray.base.memory import duplicate, stand_in
from adarray.base.types import ArrayValue
from adarray.device import is_device

COPY_LIMIT = 1 << 18  # bytes; up to here a copy costs little beside the operation that reads it
# Bytes between the elements of a view, of those that it spans, up to which it is sealed with
# them: a write to another column of the same rows is taken for one to the view.
GAPS = 1 / 8

# The guards made in the outermost trace of this context.
_new_guards: ContextVar[list[weakref.ref[WriteGuard]] | None] = ContextVar(
    "adarray_guards", default=None
)


def watch() -> Token[list[weakref.ref[WriteGuard]] | None]:
    """Start to collect the guards made in this context."""
    return _new_guards.set([])


def unwatch(token: Token[list[weakref.ref[WriteGuard]] | None], failed: bool) -> None:
    """End what `watch` began; release the guards made meanwhile if the trace failed.

    The nodes that hold them may live on in the frames of the exception's
    traceback, and the arrays must not stay read-only with them.
    """
    if failed:
        for ref in _new_guards.get() or ():
            guard = ref()
            if guard is not None:
                guard.release()
    _new_guards.reset(token)


# Functions that Python's operators call, with the references to a plain operand that each holds,
# and the C code above it.
CALLED_BY_OPERATORS: dict[CodeType, int] = {}
_OPERATOR = dis.opmap["BINARY_OP"]
# Later versions of Python, and those without the interpreter's lock, do not count all references.
_COUNTED = sys.implementation.name == "cpython" and (
    sys.version_info < (3, 14) and getattr(sys, "_is_gil_enabled", lambda: True)()
)


def keep_plain(
    value: object, layout: bool = False, references: int = 0
) -> tuple[object, WriteGuard | None]:
    """Return `value` as a node may save it, and the guard to hold with it.

    With `layout`, its elements lie in memory as they did, for user code that looks at it. The
    caller holds `references` references to the value. Where it was called by the function of an
    operator, a temporary array, which nobody else can write into, needs no guard and no copy.
    """
    if type(value) is not np.ndarray:
        if not isinstance(value, np.ndarray) or isinstance(value, Symbolic) or is_device(value):
            return value, None
        value = np.asarray(value)  # memory maps and the like: the rules want plain semantics
    if value.nbytes <= COPY_LIMIT:
        return stand_in(value) if layout else value.copy("K"), None
    if (
        references
        and getrefcount(value) - references - 3
        <= CALLED_BY_OPERATORS.get(sys._getframe(2).f_code, -9)
        and _is_temporary(value, sys._getframe(2).f_back)
    ):
        return value, None
    guard = WriteGuard(value)
    return (value if guard is None else guard.value), guard


def _is_temporary(value: np.ndarray, code: FrameType | None) -> bool:
    """Whether the only reference is that of an operator in the running `code`."""
    if not _COUNTED or code is None or code.f_code.co_code[code.f_lasti] != _OPERATOR:
        return False
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
        if getrefcount(owner) > 3:  # of the view, here, and the argument
            return False
    return owner.flags.owndata and get_handler_name(owner) == "default_allocator"


def _sealed(value: np.ndarray) -> tuple[np.ndarray, seals.Seal | None]:
    """Return an array with the present contents of `value`, and the seal that tells of changes."""
    if value.dtype.hasobject:
        return value.copy("K"), None
    if value.flags.forc:
        low, high = seals.bounds(value)
    else:
        low, high = byte_bounds(value)
        if high - low > value.nbytes * (1 + GAPS):
            return duplicate(value), None
    owner = protection.owner_of(value)
    own = owner.flags.owndata and get_handler_name(owner) == "default_allocator"
    seal = seals.seal(low, high, own)
    if seal is not None:
        return value, seal
    # All bytes once, also where elements share them: broadcast arrays and sliding windows.
    block = np.empty(high - low, np.uint8)
    start = value.__array_interface__["data"][0] - low
    out: np.ndarray = np.ndarray(value.shape, value.dtype, block, start, value.strides)
    np.copyto(block, np.asarray(_Memory(low, high, value)))
    return out, None


class _Memory:
    """The bytes from one address to another, as NumPy's array interface names them."""

    def __init__(self, low: int, high: int, keep: np.ndarray) -> None:
        self.keep = keep
        self.__array_interface__ = {
            "shape": (high - low,), "typestr": "|u1", "data": (low, True), "version": 3,
        }  # fmt: skip


def guarded(value: ArrayValue) -> bool:
    """Whether a guard, and not its owner, made the array read-only."""
    with protection.lock:
        entry = protection.protected.get(id(protection.owner_of(value)))
        return entry is not None and any(a is value for a in entry[1][1:])


class WriteGuard:
    """Holds a big plain array read-only while it lives.

    Attributes
    ----------
    value : ndarray
        What rules may read: the array, or a copy of it.
    """

    __slots__ = ("__weakref__", "key", "seal", "value")

    def __init__(self, value: np.ndarray) -> None:
        self.value = value
        self.key: int | None = None
        self.seal: seals.Seal | None = None
        with protection.lock:
            self.key = protection.protect(value)
            self.seal = seal = seals.find(value)
            if seal is not None:
                seal.users = 1
        if seal is None:
            self.value, self.seal = _sealed(value)
        guards = _new_guards.get()
        if guards is not None:
            guards.append(weakref.ref(self))

    def check(self, op: str) -> None:
        """Raise if the array was changed through a view made before.

        Raises
        ------
        TraceError
            If anything was written to the memory that the operation read.
        """
        seal = self.seal
        if seal is None or not seal.changed():
            return
        why = (
            "was read before this process was forked, and whether it has changed is not known"
            if seal.forked
            else "was written to after the operation read it, through a view of its memory"
        )
        raise TraceError(
            f"{op}: an operand of shape {self.value.shape} {why}; pass a copy (operand.copy()) to "
            "the operation, or change it after the gradient is taken"
        )

    def release(self) -> None:
        """Make the array writeable again if this was its last guard."""
        with protection.lock:
            key = self.key
            if key is None:
                return
            self.key = None
            seal, self.seal = self.seal, None
            if seal is not None:
                seal.end()
            protection.unprotect(key)

    def __del__(self) -> None:
        if self.key is not None and protection is not None:  # at the end of the process
            self.release()
