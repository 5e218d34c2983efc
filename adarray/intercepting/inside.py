"""What NumPy's names do inside of `adarray.intercept`.

There, arrays are ADArrays from the moment a NumPy function of client code returns
them, traced or not, so that traced values can be written into them and their
methods can meet traced values. NumPy scalars stay what they are: immutable.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.arrays.plainarrays import constant_data, opened, plain_data
from adarray.base.op import ALIKE, WRITERS
from adarray.base.runtime import MODE
from adarray.core.lending import lent
from adarray.core.protocol import concrete, finish, followed, on_plain, plain, traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Extras, Handle
from adarray.ops import buffers, creation
from adarray.ops.borrow import borrowed


def adopt(r: Any, args: tuple[Any, ...] = (), foreign: bool = False) -> Any:
    """Return the result `r` of a NumPy function with ADArrays in place of its arrays.

    Parameters
    ----------
    r : any
        Arrays, or tuples and lists of them. Arrays of other things than numbers,
        subclasses of ndarray and everything else stay as they are.
    args : tuple
        Plain arrays whose memory a result may share: the ADArray then stands for
        that memory, and its owner's elements change with it.
    foreign : bool
        Whether another object may own the memory of a result, such as a data frame.
    """
    kind = type(r)
    if kind is np.ndarray:
        if r.dtype.kind not in "biufc" or not r.dtype.isnative:
            return r
        if foreign or (r.dtype.kind in "biu" and not _records()):
            return enter(r)
        if r.base is not None or any(r is g for g in args):
            return enter(r) if _shares(r, args) else Handle.array_class(r)
        return Handle.array_class(r)
    if kind is tuple or kind is list:
        return kind(adopt(x, args, foreign) for x in r)
    if kind is Handle.array_class:
        return constant_data(r)
    if isinstance(r, tuple) and hasattr(r, "_fields"):
        parts = [adopt(x, args, foreign) for x in r]
        if all(a is b for a, b in zip(parts, r, strict=True)):
            return r
        try:
            return kind(*parts)
        except TypeError:  # SciPy's tuples have fields that are no items
            return r
    return r


def _shares(r: np.ndarray, args: tuple[Any, ...]) -> bool:
    owner: Any = r
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.base is not None:  # memory of a buffer, a file, a C library
        return True
    return any(isinstance(g, np.ndarray) and np.may_share_memory(r, g) for g in args)


def enter(x: Any) -> Any:
    """Return a plain array of numbers as what stands for its memory in intercepted code."""
    if type(x) is not np.ndarray or x.dtype.kind not in "biufc" or not x.dtype.isnative:
        return x
    return Handle.array_class(x, None, Extras(borrowed=True)) if _records() else plain_data(x)


def _records() -> bool:
    mode = MODE.get()
    return mode is not None and mode.symbolic


class Entered:
    """The arguments of a call with their plain arrays as ADArrays.

    Lists and dictionaries with arrays in them are passed as copies. What the function
    changes in a copy is changed in the caller's own by `give_back`.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}  # id of handle -> both
        self._copies: dict[int, tuple[Any, Any]] = {}  # id of copy -> (copy, the caller's)
        self._before: list[tuple[Any, Any, Any]] = []  # (copy, the caller's, its items)

    def tree(self, x: Any) -> Any:
        """Return `x` with ADArrays in place of plain arrays; itself if there are none."""
        kind = type(x)
        if kind is np.ndarray:
            array = enter(x)
            self._arrays[id(array)] = array, x
            return array
        if kind is list or kind is tuple:
            parts = [self.tree(i) for i in x]
            if all(a is b for a, b in zip(parts, x, strict=True)):
                return x
            return self._copied(x, parts) if kind is list else tuple(parts)
        if kind is dict:
            items = {k: self.tree(v) for k, v in x.items()}
            return x if all(items[k] is x[k] for k in x) else self._copied(x, items)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return kind(*map(self.tree, x))
        return x

    def _copied(self, own: Any, copy: Any) -> Any:
        self._copies[id(copy)] = copy, own
        self._before.append((copy, own, copy.copy()))
        return copy

    def _restored(self, x: Any) -> Any:
        """Return the caller's object for an ADArray or a copy that was passed."""
        return self._arrays.get(id(x), self._copies.get(id(x), (x, x)))[1]

    def give_back(self) -> None:
        """Change the caller's lists and dictionaries as the function changed the copies."""
        for copy, own, before in self._before:
            if len(copy) == len(before) and (
                all(a is b for a, b in zip(copy, before, strict=True))
                if type(copy) is list
                else all(k in before and before[k] is v for k, v in copy.items())
            ):
                continue
            if type(own) is list:
                own[:] = map(self._restored, copy)
            else:
                restored = {k: self._restored(v) for k, v in copy.items()}
                own.clear()
                own.update(restored)


# Objects that own no memory of an array.
_OWNLESS = (Handle, np.ndarray, np.generic, str, int, float, complex, type(None), type, np.dtype,
            list, tuple, dict, set, range, slice, np.random.Generator, types.FunctionType,
            types.GeneratorType)  # fmt: skip
# Functions that take a sequence of arrays, and dispatch on its items.
_SEQUENCES = frozenset(
    {
        "concatenate", "concat", "stack", "hstack", "vstack", "row_stack", "dstack",
        "column_stack", "select", "choose", "piecewise", "lexsort", "multi_dot",
        "ravel_multi_index", "histogramdd",
    }
)  # fmt: skip


class Inside:
    """A NumPy function as it is inside: arguments and results are ADArrays.

    Parameters
    ----------
    function : callable
        Computes; NumPy's own where that dispatches.
    convert : callable, optional
        What to do with the arguments if one is a list with ADArrays in it.
    """

    __slots__ = ("convert", "function")

    def __init__(
        self, function: Callable[..., Any], convert: Callable[[Any], Any] | None = None
    ) -> None:
        self.function = function
        self.convert = convert

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if not kwargs and self.convert is not None:  # nearly all calls, without what follows
            for x in args:
                if type(x) not in _DISPATCHED:
                    break
            else:
                r = self.function(*args)
                if type(r) is Handle.array_class:
                    return r if r._node is not None else constant_data(r)
                return adopt(r)
        mode = MODE.get()
        if mode is not None and mode.recorder is not None:
            recorder = mode.recorder  # what is computed of plain arrays counts too
            args = recorder.as_operands(args)
            kwargs = {k: recorder.as_operands((v,))[0] for k, v in kwargs.items()}
        arrays = tuple(opened(x) for x in args if isinstance(x, np.ndarray))
        for x in args:
            if type(x) is list or type(x) is tuple:
                if self.convert is not None and creation.holds(x):
                    args = tuple(map(self.convert, args))
                    break
                arrays += tuple(opened(i) for i in x if isinstance(i, np.ndarray))
            elif type(x) is deque and creation.holds(list(x)):
                return self(*(list(y) if type(y) is deque else y for y in args), **kwargs)
        if kwargs:
            arrays += tuple(opened(x) for x in kwargs.values() if isinstance(x, np.ndarray))
            if self.convert is not None:
                kwargs = {k: v if k in _METADATA else self.convert(v) for k, v in kwargs.items()}
            out = kwargs.get("out")
            if out is not None:
                r = self.function(*args, **kwargs)
                # The caller's own array, or the ADArray that it gave.
                return r if r is out or (type(out) is tuple and len(out) == 1) else adopt(r, arrays)
        r = self.function(*opened(args), **opened(kwargs))
        if type(r) is Handle.array_class:
            return constant_data(r)
        return adopt(r, arrays, self._is_foreign(args))

    def _is_foreign(self, args: tuple[Any, ...]) -> bool:
        """Whether an argument may own the memory of the result, and is no array."""
        if all(isinstance(x, _OWNLESS) for x in args):
            return False
        return self.function not in ALIKE

    def attribute(self, name: str, value: Any) -> Any:
        """Return the attribute `name` of a ufunc, whose value is `value`."""
        if name == "at":
            return Inside(value)  # a tuple is an index there, not an array
        if name in ("reduce", "accumulate", "reduceat", "outer"):
            return Inside(value, stacked)
        return value


# What NumPy's protocols see, or what needs no search: numbers.
_DISPATCHED = frozenset({Handle.array_class, float, int, np.float64, bool})
# Keyword arguments that hold no arrays of values.
_METADATA = frozenset({"axis", "axes", "shape", "dtype", "out", "sizes", "newshape"})


def stacked(x: Any) -> Any:
    """Return a list with ADArrays in it as one array, which is what NumPy would make of it."""
    if (type(x) is list or type(x) is tuple) and creation.holds(x):
        try:
            return creation.join(x)
        except ValueError:  # ragged: several arguments in one, such as the bins of each axis
            return x
    return x


def stacked_items(x: Any) -> Any:
    """Return a list of arrays with its items stacked: NumPy looks for ADArrays among them."""
    return type(x)(map(stacked, x)) if type(x) is list or type(x) is tuple else x


def plain_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, which does not dispatch, for ADArrays that are not traced.

    Traced ones reach it as they are, and raise `TraceError` where it converts them.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if traced(args) or traced(kwargs):
            return function(*args, **kwargs)
        if followed(args) or followed(kwargs):
            r = on_plain(function, args, kwargs)
            refuse_shared(function.__name__, concrete(r), concrete(args))
            return finish(r, None, function.__name__)
        return function(*lent(args), **lent(kwargs))

    return call


def refuse_shared(name: str, r: Any, args: tuple[Any, ...]) -> None:
    """Raise if a result that `jit` has recorded lies in the memory of an argument.

    Raises
    ------
    TraceError
    """
    arrays = [x for x in args if isinstance(x, np.ndarray)]
    if isinstance(r, np.ndarray) and any(np.may_share_memory(r, x) for x in arrays):
        raise leaves_graph(
            f"{name}: what is written into the memory of its argument is not recorded",
            "use a view or a copy of the array",
        )


def borrowed_if_traced(function: types.FunctionType) -> Callable[..., Any]:
    """Return a Python function of NumPy's that does not dispatch, for ADArrays too."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if followed(args) or followed(kwargs):
            return borrowed(function)(*args, **kwargs)
        return function(*lent(args), **lent(kwargs))

    return call


def _values(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that only reads values and returns nothing differentiable."""

    @functools.wraps(function)
    def read(*args: Any, **kwargs: Any) -> Any:
        mode = MODE.get()
        recorder = mode.recorder if mode is not None else None
        if recorder is not None and (followed(args) or followed(kwargs)):
            return recorder.check(function, plain(args), plain(kwargs))
        return function(*plain(args), **plain(kwargs))

    return read


def scalar_type(cls: Any) -> Callable[..., Any]:
    """Return the call ``np.float64(x)`` for an `x` that may be traced."""

    def convert(*args: Any, **kwargs: Any) -> Any:
        r = cls(*concrete(args), **concrete(kwargs))
        if len(args) != 1 or not followed(args):
            return adopt(r)
        if np.dtype(cls).kind in "fc":
            converted = creation.asarray(args[0], dtype=cls)
        else:  # as ``x.astype(int)``: steps, whose derivative is zero
            converted = np.astype(args[0], cls)
        converted = np.reshape(converted, np.shape(r))
        if converted.ndim:
            return converted
        # NumPy makes a scalar.
        return adopt(
            np.logical_and(converted, True) if converted.dtype == bool else np.positive(converted)
        )

    return convert


def _ndenumerate(arr: Any) -> Any:
    x = creation.asarray(arr)
    return ((index, x[index]) for index in np.ndindex(*np.shape(x)))


def _nditer(op: Any, /, *args: Any, **kwargs: Any) -> Any:
    if followed(op):
        raise leaves_graph(
            "np.nditer",
            "loop over x.flat or np.ndenumerate(x) to read, and write x[index] = ... for elements",
        )
    iterator: Any = np.nditer
    return iterator(op, *args, **kwargs)


def _frompyfunc(func: Any, /, nin: int, nout: int, **kwargs: Any) -> Callable[..., Any]:
    """Return a ufunc of Python's; traced arguments go through `func` one by one."""
    ufunc = np.frompyfunc(func, nin, nout, **kwargs)

    @functools.wraps(func)
    def call(*args: Any, **options: Any) -> Any:
        if followed(args):
            return adarray_vectorize()(func)(*args, **options)
        return adopt(ufunc(*plain(args), **plain(options)))

    return call


def adarray_vectorize() -> Any:
    """Return the class that applies Python functions to traced arrays."""
    return importlib.import_module("adarray.numpy").vectorize


def _fromiter(*args: Any, **kwargs: Any) -> Any:
    """Return the items of an iterator as an array; NumPy's function does not dispatch."""
    return importlib.import_module("adarray.numpy").fromiter(*args, **kwargs)


def random_function(name: str) -> Callable[..., Any]:
    """Return a function of `numpy.random` whose draws follow traced parameters."""
    return getattr(importlib.import_module("adarray.numpy.random"), name)  # type: ignore[no-any-return]


def _isscalar(element: Any) -> bool:
    if isinstance(element, Handle):
        return not isinstance(plain(element), np.ndarray)
    return bool(np.isscalar(element))


class Indexed:
    """``np.mgrid[...]`` and the like: results are ADArrays."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __getitem__(self, key: Any) -> Any:
        return adopt(self.of[key])


OBJECTS: dict[int, Any] = {
    id(np.r_): Indexed(creation.r_),
    id(np.c_): Indexed(creation.c_),
    id(np.mgrid): Indexed(np.mgrid),
    id(np.ogrid): Indexed(np.ogrid),
}
_SPECIAL: dict[int, Callable[..., Any]] = {
    id(np.isscalar): _isscalar,
    id(np.frompyfunc): _frompyfunc,
    id(np.fromiter): _fromiter,
    id(np.empty): Inside(plain_first(buffers.empty)),
    **{id(getattr(np, n)): Inside(f) for n, f in creation.CREATION.items()},
}


def _is_dispatcher(value: Any) -> bool:
    return hasattr(value, "_implementation")


def inside_function(value: Any) -> Callable[..., Any] | None:
    """Return the function that replaces NumPy's `value` inside; None if nothing does."""
    special = _SPECIAL.get(id(value))
    if special is not None:
        return special
    name = getattr(value, "__name__", "")
    if isinstance(value, np.ufunc):
        return Inside(value, stacked)
    if _is_dispatcher(value):
        # `block` takes a nest of arrays; what is written NumPy converts number by number.
        if name == "block" or (value in WRITERS and value is not np.copyto):
            return Inside(value)
        return Inside(value, stacked_items if name in _SEQUENCES else stacked)
    if isinstance(value, types.FunctionType):
        module = value.__module__ or ""
        if module.startswith("numpy.testing"):
            return _values(value)
        return Inside(borrowed_if_traced(value))
    if isinstance(value, (types.BuiltinFunctionType, types.MethodType)):
        return Inside(plain_first(value))
    return None


def inside_class(value: type) -> Callable[..., Any] | None:
    """Return the function that calling NumPy's class `value` runs inside; None if it stays."""
    if issubclass(value, np.generic) and issubclass(value, (np.number, np.bool_)):
        return scalar_type(value)
    if value is np.ndarray:
        return Inside(buffers.ndarray)
    if value is np.ndenumerate:
        return _ndenumerate
    if value is np.nditer:
        return _nditer
    if value in (np.random.Generator, np.random.RandomState):
        return random_function(value.__name__)
    return None
