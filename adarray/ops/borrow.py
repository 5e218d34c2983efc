"""NumPy's own Python implementations, run over ADArrays.

Many NumPy functions are written in Python on top of others. Their bodies would
work on traced arrays, were it not for the calls by which NumPy coerces its
arguments (``asarray``) and makes room for results (``empty``). `borrow` runs such a
body with other globals: a dictionary that hands out the module's own names, except
that those functions let ADArrays pass, and that NumPy's private helpers are
borrowed in turn. Nothing of NumPy itself is changed; other callers see none of it.

A body that takes a short way for special values is not for borrowing: `numpy.gradient`
reads one step only where all are equal, and its derivative in the others would be lost.
A private helper that drops zeros can be replaced (`replace`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adarray.base.errors import UnsupportedFunctionError
from adarray.base.memory import duplicate
from adarray.base.op import composite
from adarray.core.protocol import plain
from adarray.core.trace import Handle, is_python_number
from adarray.ops import creation
from adarray.ops.common import composite_if_traced

# What Python and the warnings module read of a function's globals without
# asking for missing keys.
_MODULE_KEYS = ("__name__", "__package__", "__spec__", "__file__", "__builtins__")


class Overlay(dict[str, Any]):
    """The globals of a NumPy module, with the names replaced that stop ADArrays.

    A dict subclass, since Python asks only those for missing globals.
    """

    def __init__(self, module_globals: dict[str, Any]) -> None:
        super().__init__({k: module_globals[k] for k in _MODULE_KEYS if k in module_globals})
        self.module_globals = module_globals

    def __missing__(self, name: str) -> Any:
        value = replaced(self.module_globals[name])  # KeyError: Python looks among the builtins
        self[name] = value
        return value


class Namespace:
    """A NumPy module as borrowed bodies see it (``np`` in ``np.asarray``)."""

    def __init__(self, module: types.ModuleType) -> None:
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        value = replaced(getattr(self._module, name))
        self.__dict__[name] = value
        return value


class Converter:
    """Stands for NumPy's private ``_array_converter``: arguments as arrays, results wrapped."""

    def __init__(self, *arrays: Any) -> None:
        self.scalar_input = tuple(np.isscalar(a) for a in arrays)
        self._args = arrays
        self._arrays = tuple(creation.asanyarray(a) for a in arrays)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, i: int) -> Any:
        return self._arrays[i]

    def as_arrays(
        self,
        /,
        subok: bool = True,  # noqa: ARG002  (there are no subclasses)
        pyscalars: str = "convert",
    ) -> tuple[Any, ...]:
        """Return the arguments as arrays, Python numbers as they are if asked so."""
        if pyscalars == "convert":
            return self._arrays
        return tuple(
            x if is_python_number(x) else a for x, a in zip(self._args, self._arrays, strict=True)
        )

    def result_type(
        self, /, extra_dtype: Any = None, ensure_inexact: bool = False
    ) -> np.dtype[Any]:
        """Return the common dtype, in which Python numbers yield to arrays."""
        parts = [*self.as_arrays(pyscalars="preserve")]
        if extra_dtype is not None:
            parts.append(extra_dtype)
        dtype: np.dtype[Any] = np.result_type(*parts, *([0.0] if ensure_inexact else []))
        return dtype

    def wrap(self, arr: Any, /, to_scalar: bool | None = None) -> Any:  # noqa: ARG002
        """Return a result as an ADArray; it has one class, 0-d or not."""
        return Handle.array_class(arr) if isinstance(arr, np.ndarray) else arr


def _allocator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` such that it gives ADArrays, into which traced values can be written.

    Integers and truth values stay plain: they are positions, and carry no derivative.
    """

    def allocate(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if isinstance(out, Handle) or out.dtype.kind not in "fc":
            return out
        return Handle.array_class(out)

    return allocate


def _full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **kwargs: Any) -> Any:
    """As `numpy.full`, for a fill value that may be traced."""
    if not creation.holds(fill_value):
        return _allocator(np.full)(shape, fill_value, dtype, order, **kwargs)
    value = creation.asarray(fill_value)
    out = Handle.array_class(np.empty(shape, value.dtype if dtype is None else dtype, order))
    out[...] = value  # type: ignore[index]
    return out


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``atleast_nd`` for arguments that may be lists of traced values."""

    def convert(*arrays: Any) -> Any:
        return function(*map(creation.asanyarray, arrays))

    return convert


def _joiner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``concatenate`` or a relative for arrays some of which are lists of traced values."""

    def join(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        return function([creation.asanyarray(a) for a in arrays], *args, **kwargs)

    return join


class _LikeNdarray(type):
    """Makes ``isinstance(x, ndarray)`` hold for ADArrays in borrowed bodies."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x._plain if isinstance(x, Handle) else x, np.ndarray)  # no NumPy scalars


class _Ndarray(metaclass=_LikeNdarray):
    """Stands for `numpy.ndarray` in borrowed bodies, which only ask whether one is given."""


def _replacements() -> dict[int, Any]:
    """Return what stands for NumPy's functions in borrowed bodies, by identity."""
    replacements: dict[int, Any] = {
        id(getattr(np, name)): function for name, function in creation.CREATION.items()
    }
    for name in ("zeros", "empty", "ones", "zeros_like", "empty_like", "ones_like"):
        # What empty memory holds would be a constant of a recording, another one in each.
        make: Any = getattr(np, name.replace("empty", "zeros"))
        replacements[id(getattr(np, name))] = _allocator(make)
    replacements[id(np.full)] = _full
    function: Any
    for function in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
        replacements[id(function)] = _each(function)
    for function in (np.concatenate, np.stack, np.hstack, np.vstack, np.column_stack):
        replacements[id(function)] = _joiner(function)
    # np.block calls the undispatched function.
    replacements[id(getattr(np.concatenate, "__wrapped__", None))] = replacements[
        id(np.concatenate)
    ]
    replacements[id(np.broadcast)] = lambda *arrays: np.broadcast(*map(plain, arrays))
    replacements[id(np.r_)], replacements[id(np.c_)] = creation.r_, creation.c_
    replacements[id(np.ndarray)] = _Ndarray
    converter = getattr(np._core._multiarray_umath, "_array_converter", None)  # type: ignore[attr-defined]
    if converter is not None:
        replacements[id(converter)] = Converter
    return replacements


_REPLACEMENTS = _replacements()
_OVERLAYS: dict[int, Overlay] = {}
_CORRECTED: dict[Callable[..., Any], Callable[..., Any]] = {}
_BORROWED: dict[types.FunctionType, types.FunctionType] = {}


def replace(value: Any, stand_in: Any) -> None:
    """Make borrowed bodies find `stand_in` where NumPy has `value`, a private helper."""
    _REPLACEMENTS[id(value)] = stand_in


def correct(function: Callable[..., Any], body: Callable[..., Any]) -> None:
    """Make `borrowed` return `body` for a function whose own body is not right as it is."""
    _CORRECTED[function] = body


def corrected(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the body that stands for `function`, which is `function` itself for most."""
    return _CORRECTED.get(function, function)


def _is_numpy(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] == "numpy"


def replaced(value: Any) -> Any:
    """Return what a borrowed body finds in place of a global `value` of a NumPy module."""
    if id(value) in _REPLACEMENTS:
        return _REPLACEMENTS[id(value)]
    if isinstance(value, types.FunctionType) and _is_numpy(value.__globals__.get("__name__")):
        return over_adarrays(value)
    if isinstance(value, types.ModuleType) and _is_numpy(value.__name__):
        return Namespace(value)
    if type(value) is dict:  # tables of functions, such as the methods of quantile
        return {k: replaced(v) for k, v in value.items()}
    return value


def over_adarrays(function: types.FunctionType) -> types.FunctionType:
    """Return a Python function of NumPy's such that ADArrays pass through it."""
    clone = _BORROWED.get(function)
    if clone is None:
        space = function.__globals__
        overlay = _OVERLAYS.setdefault(id(space), Overlay(space))
        clone = types.FunctionType(
            function.__code__,
            overlay,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        clone.__kwdefaults__ = function.__kwdefaults__
        clone = _BORROWED.setdefault(function, clone)
    return clone


def _entered(x: Any, name: str = "") -> Any:
    """Return a plain array of numbers as an ADArray: it and its copies can take traced values.

    It has memory of its own: the caller may write into the array before the rules read it.
    """
    if type(x) is np.ndarray and x.dtype.kind in "fc" and name != "out":
        return Handle.array_class(duplicate(x))
    return x


def borrowed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's own implementation of `function`, to be run over ADArrays.

    Parameters
    ----------
    function : callable
        A function of NumPy's that is written in Python, with or without dispatch.

    Returns
    -------
    callable
        It has the signature of `function`. Where this NumPy has no implementation
        in Python, it raises `UnsupportedFunctionError` when called.
    """
    if function in _CORRECTED:
        return _CORRECTED[function]
    body = getattr(function, "_implementation", function)
    if isinstance(body, types.FunctionType):
        run = over_adarrays(body)

        @functools.wraps(run)
        def enter(*args: Any, **kwargs: Any) -> Any:
            return run(*map(_entered, args), **{k: _entered(v, k) for k, v in kwargs.items()})

        return enter
    name = function.__name__

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedFunctionError(
            f"{name}: NumPy {np.__version__} has no implementation of it in Python that could "
            "run over traced arrays; write it with other NumPy functions, or pass "
            "adarray.value_of(x) if no gradient should flow through it"
        )

    return refuse


def borrow(*functions: Callable[..., Any], views: bool = False) -> None:
    """Register NumPy's own implementations of `functions`.

    Parameters
    ----------
    *functions : callable
        Functions of NumPy's that dispatch.
    views : bool
        Whether results may share memory with arguments. If not, untraced ADArrays
        go to NumPy as plain arrays; a view of one must be made from the ADArray.
    """
    for function in functions:
        if views:
            composite(function)(borrowed(function))
        else:
            composite_if_traced(function)(borrowed(function))
