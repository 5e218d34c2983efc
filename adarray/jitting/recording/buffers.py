"""In-place writes of a recorded run, at the cost of what is written.

A `Traced` value never changes: a write makes another one. Copying the array for each would make a
loop that fills it quadratic. So the array itself goes on to the new value, and the old one notes
what was there (as in Baker's arrays): it is restored if somebody reads it after all, such as the
rule of an operation that saved it. Arrays that are views of the same memory are found by their
``base``, and keep what they held in the same way, small ones by a copy.

References
----------
- H. G. Baker, "Shallow binding makes functional arrays fast", ACM SIGPLAN Notices 26(8), 1991.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from adarray.base.memory import duplicate
from adarray.base.types import Function
from adarray.jitting.shared.symbolic import Traced

_SMALL = 1 << 12  # bytes of a view that is copied rather than restored later


class Overwritten:
    """What a write has replaced.

    Parameters
    ----------
    following : Traced
        The value that has the array now.
    region : callable
        Returns the view of an array like that one into which was written.
    index : any
    elements : ndarray or NumPy scalar
        What was there.
    """

    __slots__ = ("elements", "following", "index", "region")

    def __init__(self, following: Traced, region: Function, index: Any, elements: Any) -> None:
        self.following = following
        self.region = region
        self.index = index
        self.elements = elements

    def restored(self) -> np.ndarray:
        """Return a copy of the array as it was before."""
        undone: list[Overwritten] = []
        step: Any = self
        while type(step) is Overwritten:
            undone.append(step)
            following, step = step.following, step.following.later
        array: np.ndarray = duplicate(following.value, exactly=True)
        for write in reversed(undone):
            write.region(array)[write.index] = write.elements
        return array


class PartOf:
    """A view of an array that was overwritten since.

    Parameters
    ----------
    whole : Traced
        The array as the view shows it, whose elements lie side by side.
    view : ndarray
    """

    __slots__ = ("_form", "_offset", "_strides", "_whole", "_writeable")

    def __init__(self, whole: Traced, view: np.ndarray) -> None:
        self._whole = whole
        self._form = view.shape, view.dtype
        self._strides = view.strides
        self._offset = _address(view) - _address(whole.value)
        self._writeable = view.flags.writeable

    def restored(self) -> np.ndarray:
        """Return a copy of the view: later writes may change the array."""
        memory = self._whole.value.ravel("K").view(np.uint8)
        shape, dtype = self._form
        view: np.ndarray = duplicate(
            np.ndarray(shape, dtype, memory, self._offset, self._strides), exactly=True
        )
        view.flags.writeable = self._writeable
        return view


def _address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


class Buffers:
    """The arrays that writes of one recording have made, which later writes may change."""

    def __init__(self) -> None:
        self._owners: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
        self._whole: dict[int, weakref.ref[Traced]] = {}  # what has an array now
        self._views: dict[int, list[weakref.ref[Traced]]] = {}

    def note(self, result: Traced) -> None:
        """Take in a result, which may be a view of such an array."""
        owner = self._owner_of(result.value)
        if owner is not None:
            self._views[id(owner)].append(weakref.ref(result))

    def may_write(self, x: Traced) -> bool:
        """Whether an array is one that a write of this recording has made, as it is now."""
        owner = self._owner_of(x.value)
        return owner is not None and self._whole[id(owner)]() is x

    def add(self, written: Traced) -> None:
        """Take in the result of a write: a new array, or that of the value before."""
        owner = _owner(written.value)
        self._owners[id(owner)] = owner
        self._whole[id(owner)] = weakref.ref(written)
        self._views[id(owner)] = []

    def write(self, old: Traced, region: Function, index: Any, value: Any) -> Any:
        """Write into the array of `old`, and return what was there.

        Raises
        ------
        Exception
            NumPy's own, with nothing changed.
        """
        target = region(old.value)
        elements = target[index]
        elements = elements.copy() if isinstance(elements, np.ndarray) else elements
        if isinstance(value, np.ndarray) and np.may_share_memory(value, old.value):
            value = value.copy("K")
        self._keep_views(old, elements.nbytes)
        try:
            target[index] = value
        except Exception:
            target[index] = elements
            raise
        return elements

    def _keep_views(self, old: Traced, written: int) -> None:
        """Have the views of an array keep what they show."""
        owner = id(_owner(old.value))
        contiguous = old.value.flags.forc
        for reference in self._views[owner]:
            view = reference()
            if view is None or view is old or view.later is not None:
                continue
            if contiguous and view.value.nbytes > max(written, _SMALL):
                view.recall(PartOf(old, view.value))
            else:
                writeable = view.value.flags.writeable
                view.value = duplicate(view.value, exactly=True)
                view.value.flags.writeable = writeable
        self._views[owner] = []

    def _owner_of(self, x: Any) -> np.ndarray | None:
        """Return the array that owns the memory of a value, if a write has made it."""
        if type(x) is not np.ndarray or not self._owners:
            return None
        owner = _owner(x)
        return owner if self._owners.get(id(owner)) is owner else None


def _owner(x: np.ndarray) -> np.ndarray:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x
