"""Wrapping NumPy's functions so that they give ADArrays for plain arguments too.

Where an argument is an ADArray, NumPy dispatches to adarray by itself. What is added
here: results become ADArrays whatever the arguments are, and lists that hold traced
values, which NumPy would coerce, become ADArrays first.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.core.protocol import traced
from adarray.core.trace import Handle, placed
from adarray.ops import (
    creation,
    series,  # noqa: F401  (the bodies of numpy.polynomial)
)
from adarray.ops.borrow import corrected

# Kinds of dtype that ADArrays hold; strings, dates, records and objects stay NumPy's.
_NUMBERS = "biufc"

# Functions of a sequence of arrays: NumPy looks for ADArrays in it.
_OF_SEQUENCES = frozenset(
    {
        "concatenate", "concat", "stack", "block", "vstack", "row_stack", "hstack", "dstack",
        "column_stack", "select", "choose", "lexsort", "histogramdd", "histogram2d", "multi_dot",
        "gradient", "bmat", "piecewise", "einsum", "einsum_path", "copyto", "pad", "tensordot",
    }
)  # fmt: skip


# Functions for which the nesting of lists means something.
_NESTED = frozenset({"block", "bmat", "einsum_path", "copyto"})


def _as_it_is(x: Any) -> Any:
    return x


def lift(r: Any, args: tuple[Any, ...] = ()) -> Any:
    """Return a result of NumPy with its arrays of numbers as ADArrays.

    Parameters
    ----------
    r : any
    args : tuple
        Arguments of the call: an array among them, or a view of another array, is
        copied, since an ADArray's memory is its own.
    """
    if isinstance(r, (Handle, str, bytes)):
        return r
    if isinstance(r, np.ndarray):
        if r.dtype.kind not in _NUMBERS or type(r) is not np.ndarray:
            return r
        shared = r.base is not None or any(r is x for x in args)
        return ADArray(placed(r.copy("K") if shared else r))
    if isinstance(r, np.generic):
        return ADArray(r) if r.dtype.kind in _NUMBERS else r
    if isinstance(r, tuple):
        parts = [lift(x, args) for x in r]
        return type(r)(*parts) if hasattr(r, "_fields") else tuple(parts)
    if type(r) is list:
        return [lift(x, args) for x in r]
    return r


def _gathered(x: Any) -> Any:
    """Return a list with traced values in it as one ADArray, anything else as it is."""
    if isinstance(x, (list, tuple)) and creation.holds(x) and traced(list(x)):
        return creation.asarray(x)
    return x


def call_lifted(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call `function` and return its results as ADArrays."""
    r = function(*args, **kwargs)
    if isinstance(r, Handle):
        return r
    out = kwargs.get("out")
    if out is not None:
        return r  # the caller's own array
    return lift(r, (*args, *kwargs.values()))


def _gathered_inside(x: Any) -> Any:
    """Return a sequence of arrays with the lists of traced values in it as ADArrays."""
    return [_gathered(part) for part in x] if type(x) is list or type(x) is tuple else x


def lifted(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """Return a function that calls `function` and returns ADArrays."""
    known = name or getattr(function, "__name__", "")
    gather = _gathered
    if known in _OF_SEQUENCES:
        gather = _as_it_is if known in _NESTED else _gathered_inside

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(type(x) is list or type(x) is tuple for x in args):
            args = tuple(map(gather, args))
        if kwargs:
            kwargs = {k: gather(v) for k, v in kwargs.items()}
        return call_lifted(function, args, kwargs)

    return dressed(call, function, name)


def dressed(
    wrapper: Callable[..., Any], function: Callable[..., Any], name: str | None = None
) -> Callable[..., Any]:
    """Give `made` the name, documentation and signature of `function`."""
    functools.update_wrapper(wrapper, function, updated=())
    module = getattr(function, "__module__", None) or ""
    if module.partition(".")[0] == "numpy":
        wrapper.__module__ = f"adarray.{module}"  # where pickle finds it
    if name is not None:
        wrapper.__name__ = wrapper.__qualname__ = name
    return wrapper


class UFunc:
    """A NumPy ufunc with its methods, whose results are ADArrays."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc
        self.__name__ = ufunc.__name__
        self.__doc__ = ufunc.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the ufunc."""
        for x in args:
            if x.__class__ is list or x.__class__ is tuple:
                args = tuple(map(_gathered, args))
                break
        r = self._ufunc(*args, **kwargs)
        if isinstance(r, Handle) or kwargs.get("out") is not None or len(args) > self._ufunc.nin:
            return r  # where an output was given, the caller's own array
        return lift(r, args)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ufunc, name)
        if not callable(value) or name.startswith("_"):
            return value

        def method(*args: Any, **kwargs: Any) -> Any:
            if name != "at":
                args = tuple(map(_gathered, args))
            return call_lifted(value, args, kwargs)

        return dressed(method, value)

    def __repr__(self) -> str:
        return repr(self._ufunc)

    def __reduce__(self) -> Any:
        return (ufunc_of, (self._ufunc,))


@functools.cache
def ufunc_of(ufunc: np.ufunc) -> UFunc:
    """Return the one `UFunc` of a NumPy ufunc."""
    return UFunc(ufunc)


def wrapped(value: Any, name: str | None = None) -> Any:
    """Return a public object of NumPy as this namespace shows it."""
    if isinstance(value, np.ufunc):
        return ufunc_of(value)
    if isinstance(value, (type, types.ModuleType)) or not callable(value):
        return value
    return lifted(corrected(value) if isinstance(value, types.FunctionType) else value, name)


class Lifting:
    """``mgrid``, ``ogrid``: objects that make arrays when they are indexed."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getitem__(self, key: Any) -> Any:
        return lift(self._source[key])

    def __repr__(self) -> str:
        return repr(self._source)
