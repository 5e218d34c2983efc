"""Host copies of ADArrays on a device, held by other code.

NumPy would hand out the memory itself. So writes into the array show in the copy for as long as
it is held, and writes into the copy reach the device as soon as the array is read again. The copy
is not read-only: f2py's functions would write into another one.
"""

from __future__ import annotations

import weakref

import numpy as np

from adarray.base.memory import duplicate, strided, strides_like
from adarray.core.trace import Handle, Loan, extras
from adarray.device import host


class Mirror:
    """A copy on the host.

    Attributes
    ----------
    memory : ndarray
        What others hold.
    """

    __slots__ = ("_device", "_loan", "memory")

    def __init__(self, root: Handle) -> None:
        v = root._plain
        strides = None if v.flags.c_contiguous else strides_like(v.shape, v.strides, v.itemsize)
        self.memory = np.empty(v.shape, v.dtype)
        if strides is not None:
            self.memory = strided(v.shape, strides, v.dtype)
        self._loan: weakref.ref[Loan] | None = None
        self.fill(root)

    def lend(self) -> np.ndarray:
        """Return the copy, as an array whose lifetime is known."""
        loan = self._loan() if self._loan is not None else None
        if loan is None:
            loan = Loan(self.memory)
            self._loan = weakref.ref(loan)
        return np.asarray(loan)

    def is_lent(self) -> bool:
        """Whether others still hold it."""
        return self._loan is not None and self._loan() is not None

    def fill(self, root: Handle) -> None:
        """Copy the values from the device."""
        self.memory[...] = host(root._plain)
        self._device = self.memory.tobytes()

    def written(self) -> bool:
        """Whether somebody wrote into it."""
        return self.memory.tobytes() != self._device


def is_mirrored(root: Handle) -> bool:
    """Whether others hold a copy on the host."""
    return root._x is not None and root._x.mirror is not None and root._x.mirror.is_lent()


def mirrored(root: Handle) -> np.ndarray:
    """Return a copy on the host that is kept equal to what the device holds."""
    absorb(root)
    more = extras(root)
    if more.mirror is None:
        more.mirror = Mirror(root)
    copy: np.ndarray = more.mirror.lend()
    return copy


def absorb(root: Handle) -> None:
    """Write on the device what was written into the copy that others hold, or held."""
    mirror = root._x.mirror if root._x is not None else None
    if mirror is None:
        return
    if not is_mirrored(root):
        root._x.mirror = None  # type: ignore[union-attr]
    if mirror.written():
        v = duplicate(root._plain)  # rules may have saved the old values
        v[...] = mirror.memory
        root._plain, root._frozen = v, False
        mirror.fill(root)


def reflect(root: Handle) -> None:
    """Write what the device holds into the copy that others hold."""
    if is_mirrored(root):
        root._x.mirror.fill(root)  # type: ignore[union-attr]
