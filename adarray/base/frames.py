"""Labelled objects of pandas as operands: adarray computes with the arrays of their values.

A Series or DataFrame cannot hold traced values. Beside an ADArray it is what ``to_numpy()`` gives,
in any order of the operands: pandas leaves its operators to objects of a higher priority than its
own, and calls that priority ``__pandas_priority__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard

import numpy as np

from adarray.base.errors import DTypeError, UnsupportedFunctionError, user_line
from adarray.base.levels import has_met, meet
from adarray.base.types import Operands, Params

if TYPE_CHECKING:
    import numpy.typing as npt

# Above that of DataFrame, 4000.
PRIORITY = 10_000


class Labelled(Protocol):
    """An object of pandas or xarray that holds an array; an ADArray may be in its place."""

    data: np.ndarray

    def to_numpy(self) -> np.ndarray:
        """Return the array."""


def is_frame(x: object) -> TypeGuard[Labelled]:
    """Whether `x` is a Series, DataFrame, Index or extension array of pandas."""
    return hasattr(type(x), "__pandas_priority__") and hasattr(x, "to_numpy")


def is_labelled(x: object) -> TypeGuard[Labelled]:
    """Whether `x` is a DataArray or Variable of xarray, which computes by itself except here.

    That is in NumPy's functions that are no ufuncs: it leaves those to NumPy, which converts it.
    """
    return hasattr(type(x), "dims") and hasattr(x, "to_numpy")


def unframed(x: Labelled, name: str) -> np.ndarray:
    """Return the values of an object of pandas or xarray that is an operand of `name`.

    Raises
    ------
    DTypeError
        If they are not numbers, or numbers of several kinds that have no dtype in common.
    """
    values = x.data if is_labelled(x) else x.to_numpy()
    if hasattr(values, "__array_function__") and not isinstance(values, np.ndarray):
        return values  # an ADArray
    if not is_labelled(x):
        meet(values.shape)
    if values.dtype.kind == "O":
        values = _numbers(values)
    if values.dtype.kind in "biufc":
        return values
    kind = type(x).__name__
    dtypes: npt.ArrayLike = getattr(x, "dtypes" if hasattr(x, "dtypes") else "dtype")
    names = ", ".join(sorted({str(d) for d in np.ravel(dtypes)}))
    _, _, where = user_line()
    raise DTypeError(
        f"{name}: an operand is a {kind} of dtype {names}; adarray computes on arrays of "
        f"numbers: select the columns that hold numbers, or pass .to_numpy(dtype=float){where}"
    )


def _numbers(values: np.ndarray) -> np.ndarray:
    """Return mixed truth values and numbers as floating-point numbers; other values unchanged."""
    if all(isinstance(v, (bool, int, float, np.number, np.bool_)) for v in values.flat):
        return values.astype(float)
    return values


# Methods by which pandas reduces a DataFrame column by column, and those that divide by n - 1.
REDUCING = frozenset({"sum", "mean", "max", "min", "prod", "any", "all", "std", "var"})
DEVIATING = frozenset({"std", "var"})


def refuse_pandas_method(name: str, shape: tuple[int, ...], args: Operands, kwargs: Params) -> None:
    """Raise if pandas' method of the same name would do something else than NumPy's.

    Arrays are told by their shape: operations of pandas keep it.

    Raises
    ------
    UnsupportedFunctionError
        If a Series or DataFrame of this shape was an operand in the trace, and the call does not
        say what it means.
    """
    columns = len(shape) == 2 and not args and "axis" not in kwargs
    divides = name in DEVIATING and len(args) < 3 and not {"ddof", "correction"} & kwargs.keys()
    if not (columns or divides) or not has_met(shape):
        return
    _, _, where = user_line()
    what, fix = ("divides by n - 1, NumPy by n", "ddof=1") if divides else (
        "reduces each column, NumPy all of them at once", "axis=0 or axis=None")  # fmt: skip
    raise UnsupportedFunctionError(
        f"{name}: an array of shape {shape}, which a pandas object in this computation has, too; "
        f"pandas {what}: pass {fix}, or call np.{name}{where}"
    )
