"""Plain arrays in intercepted code, which are ndarrays to everybody else.

What a function is given and does not differentiate cannot hold a traced value, and neither can
truth values and integers. Such an array stays an ndarray, which pandas, compiled code and other
libraries take. To client code its methods take traced arguments, as in ``X.dot(w)``, and what it
computes of it is an ADArray where a traced value may be written later: where it is a new array of
floating point numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from adarray.base.aval import PLAIN_ARRAYS, Symbolic
from adarray.base.runtime import MODE
from adarray.base.scope import SCOPE, UNINTERCEPTED, package_of
from adarray.core.inplace import plain_index
from adarray.core.loads import MethodLoad
from adarray.core.protocol import call_function, call_ufunc
from adarray.core.trace import Extras, Handle

_KINDS = "biufc"
_FLOAT = np.dtype(float)


class PlainArray(np.ndarray):
    """An ndarray whose methods take traced arguments, in code that is intercepted."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        args, options = opened(inputs), opened(kwargs)
        if _holds(args) or _holds(options):
            r = call_ufunc(ufunc, method, args, options)
        else:
            r = getattr(ufunc, method)(*args, **options)
        return self._settled(r, inputs, kwargs, sys._getframe(1))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        values, options = opened(args), opened(kwargs)
        if _holds(values) or _holds(options):
            r = call_function(func, values, options)
        else:
            r = func(*values, **options)
        return self._settled(r, args, kwargs, sys._getframe(1))

    def _settled(self, r: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Return a result as the code in `frame` gets it; the target, if one was given."""
        out = kwargs.get("out")
        if out is not None:
            targets = out if type(out) is tuple else (out,)
            return targets[0] if len(targets) == 1 and targets[0] is not None else r
        return settled(r, args) if is_client(frame) else r

    def __setitem__(self, key: Any, value: Any) -> None:
        if _holds(value):
            _handle(self)[_index(key)] = value  # which refuses traced ones
        else:
            np.ndarray.__setitem__(self, _index(key), value)

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int or type(key) is slice:
            return np.ndarray.__getitem__(self, key)
        r = base(self)[_index(key)]
        return settled(r, (self,)) if is_client(sys._getframe(1)) else r

    def __reduce_ex__(self, protocol: Any) -> Any:
        return base(self).__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(base(self))

    def __str__(self) -> str:
        return str(base(self))


PLAIN_ARRAYS.add(PlainArray)


def _enter(x: np.ndarray) -> Any:
    """Return a captured array as what its methods are taken of."""
    if x.dtype.kind not in _KINDS or not x.dtype.isnative:
        return x
    mode = MODE.get()
    if mode is not None and mode.recorder is not None:  # what is computed of plain arrays counts
        return mode.recorder.as_operands((x,))[0]
    return plain_data(x)


MethodLoad.enter.set(_enter)


def base(x: np.ndarray) -> np.ndarray:
    """Return the same memory as an array of NumPy's own class."""
    return np.ndarray.view(x, np.ndarray)


def plain_data(x: np.ndarray) -> Any:
    """Return an array for intercepted code that stands for the memory of `x`, or is it."""
    return np.ndarray.view(x, PlainArray)


def opened(x: Any) -> Any:
    """Return `x` with arrays of NumPy's own class in place of those in it."""
    kind = type(x)
    if kind is PlainArray:
        return base(x)
    if kind is tuple or kind is list:
        return kind(map(opened, x))
    return {k: opened(v) for k, v in x.items()} if kind is dict else x


def is_client(frame: FrameType) -> bool:
    """Whether the code in `frame` is intercepted now."""
    scope = SCOPE.get()
    if scope is None:
        return False
    package = package_of(frame.f_globals.get("__name__")) or "__main__"
    return package not in UNINTERCEPTED and scope.covers(package)


def settled(r: Any, arguments: Any = ()) -> Any:
    """Return a result as intercepted code gets it.

    Truth values, integers and what lies in the memory of a plain array among `given` stay plain;
    other arrays may be written into, and become ADArrays.
    """
    kind = type(r)
    if kind is np.ndarray or kind is PlainArray:
        mode = MODE.get()
        if r.dtype.kind not in _KINDS or not r.dtype.isnative:
            return base(r)
        if mode is not None and mode.symbolic:
            return Handle.array_class(base(r))
        if r.dtype.kind in "biu" or any(
            isinstance(x, np.ndarray) and np.may_share_memory(base(r), opened(x)) for x in arguments
        ):
            return plain_data(r)
        return Handle.array_class(base(r))
    if kind is Handle.array_class:
        return constant_data(r)
    if kind is tuple or kind is list:
        return kind(settled(x, arguments) for x in r)
    return r


def constant_data(r: Any) -> Any:
    """Return an ADArray of truth values or integers as plain data, which it is; others as given."""
    v = r._plain
    if r._node is not None or r._x is not None or getattr(v, "dtype", _FLOAT).kind not in "biu":
        return r
    if type(v) is np.ndarray:
        return plain_data(v.copy() if r._frozen else v)
    return v if isinstance(v, np.generic) and not isinstance(v, Symbolic) else r


def shown_to(r: Any, frame: FrameType) -> Any:
    """Return a result as the code in `frame` gets it, which may be intercepted."""
    return constant_data(r) if isinstance(r, Handle) and is_client(frame) else r


def _index(key: Any) -> Any:
    """Return an index with plain arrays in place of ADArrays."""
    return plain_index(key) if _holds(key) else opened(key)


def _handle(x: np.ndarray) -> Any:
    """Return an ADArray that stands for the memory of a plain array."""
    extras = Extras(borrowed=True) if x.dtype.kind in "fc" else None
    return Handle.array_class(base(x), None, extras)


def _holds(x: Any) -> bool:
    if isinstance(x, Handle):
        return True
    if type(x) is tuple or type(x) is list:
        return any(map(_holds, x))
    return type(x) is dict and any(map(_holds, x.values()))


def _method(name: str) -> Callable[..., Any]:
    """Return a method of ndarray as client code gets it: its arguments may be traced."""
    of_ndarray = getattr(np.ndarray, name)

    def method(self: np.ndarray, *args: Any, **kwargs: Any) -> Any:
        if _holds(args) or _holds(kwargs):
            r = getattr(_handle(self), name)(*opened(args), **opened(kwargs))
        else:
            r = of_ndarray(base(self), *opened(args), **opened(kwargs))
        out = kwargs.get("out")
        if out is not None:
            return out
        return settled(r, (self,)) if name in _COPIES or is_client(sys._getframe(1)) else r

    method.__name__ = name
    method.__qualname__ = f"ndarray.{name}"
    method.__doc__ = f"As `numpy.ndarray.{name}`."
    return method


# Called by the module `copy` for client code.
_COPIES = ("__copy__", "__deepcopy__")
# What says or changes something of the array itself, or makes no array.
_OWN = frozenset({"dump", "dumps", "getfield", "item", "resize", "setfield", "setflags", "tobytes",
                  "tofile", "tolist", "to_device", "view"})  # fmt: skip


def _install() -> None:
    for name in (*dir(np.ndarray), *_COPIES):
        public = name[0] != "_" and name not in _OWN
        if (public or name in _COPIES) and callable(getattr(np.ndarray, name)):
            setattr(PlainArray, name, _method(name))


_install()
