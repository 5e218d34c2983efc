"""Classes of NumPy that know ADArrays: `ndarray`, `ufunc`, `finfo`, `iinfo`, `ndenumerate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.core.protocol import followed, plain
from adarray.numpy._lift import UFunc, call_lifted
from adarray.ops import buffers, creation, functional


class _ArrayType(type):
    """Makes ``isinstance(x, ndarray)`` true for ADArrays and for NumPy's arrays."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (ADArray, np.ndarray))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (ADArray, np.ndarray))

    def __call__(cls, *args: Any, **kwargs: Any) -> ADArray:
        """Make an array of uninitialised memory, or a view of the array ``buffer=``."""
        return call_lifted(buffers.ndarray, args, kwargs)  # type: ignore[no-any-return]

    def __getattr__(cls, name: str) -> Any:
        return getattr(ADArray, name)

    def __dir__(cls) -> list[str]:
        return dir(ADArray)


class ndarray(metaclass=_ArrayType):  # noqa: N801  (NumPy's name)
    """The type of arrays: `ADArray`, and NumPy's own where one takes part."""

    def __class_getitem__(cls, item: Any) -> Any:
        return np.ndarray[item]

    def __init_subclass__(cls) -> None:
        raise TypeError(
            "adarray.numpy.ndarray: cannot be subclassed; keep an ADArray in an attribute, or "
            "subclass numpy.ndarray for arrays that are not differentiated"
        )


class _UFuncType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (UFunc, np.ufunc))


class ufunc(metaclass=_UFuncType):  # noqa: N801
    """The type of universal functions."""


class _InfoType(type):
    """Limits of a dtype, asked for by the dtype or by an array of it (the array API)."""

    numpy: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.numpy)

    def __call__(cls, dtype: Any) -> Any:
        """Return NumPy's object for the dtype of the argument."""
        return cls.numpy(dtype.dtype if isinstance(dtype, (ADArray, np.ndarray)) else dtype)


class finfo(metaclass=_InfoType):  # noqa: N801
    """Limits of a floating dtype, given as a dtype or an array."""

    numpy = np.finfo


class iinfo(metaclass=_InfoType):  # noqa: N801
    """Limits of an integer dtype, given as a dtype or an array."""

    numpy = np.iinfo


class ndenumerate:  # noqa: N801
    """Iterate over pairs of index and element; traced, if the array is.

    Parameters
    ----------
    arr : array_like
    """

    def __init__(self, arr: Any) -> None:
        self._array = creation.asarray(arr)
        self._indices = np.ndindex(self._array.shape)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        return self

    def __next__(self) -> tuple[tuple[int, ...], Any]:
        """Return the next pair."""
        index = next(self._indices)
        return index, self._array[index]


class vectorize(functional.TracedVectorize):  # noqa: N801
    """As `numpy.vectorize`; the function gets traced elements where an argument is traced."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function to each element of the broadcast arguments."""
        if not (followed(args) or followed(kwargs)):
            return call_lifted(super().__call__, plain(args), plain(kwargs))
        return super().__call__(*args, **kwargs)
