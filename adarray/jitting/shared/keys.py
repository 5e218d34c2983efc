"""What is compared of recordings: keys of calls, equal if and only if the calls are.

Symbols become numbers, arrays their contents, and Python objects what they are by value;
objects without a value are compared by identity.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from adarray.base.recording import Call, Guard, Symbol
from adarray.base.redirecting import original_of
from adarray.base.transformed import Transformed
from adarray.device import host
from adarray.jitting.shared.constants import first_of, uniform_key

Numbers = Mapping[int, Hashable]

_BY_VALUE = (str, bytes, np.dtype)
_FLOAT = struct.Struct("<d").pack


class Same:
    """An object as part of a key: equal to itself only, and kept alive."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)

    def __repr__(self) -> str:
        return f"<{type(self.of).__name__} {getattr(self.of, '__name__', '')}>"


class HashedKey:
    """A long key that is hashed once: tuples are hashed again each time."""

    __slots__ = ("_hash", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self._hash = hash(key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, HashedKey) and self._hash == other._hash and self.key == other.key

    def __hash__(self) -> int:
        return self._hash


def digest(array: np.ndarray) -> bytes:
    """Return a fingerprint of all bytes of an array."""
    plain = np.ascontiguousarray(array)
    return hashlib.blake2b(plain.reshape(-1).view(np.uint8).data, digest_size=16).digest()


def array_key(array: np.ndarray) -> Hashable:
    """Return the key of an array: dtype, shape and contents."""
    if array.dtype.hasobject:
        return Same(array)
    first = first_of(array) if array.size > 1 else None
    if first is not None:
        return uniform_key(array, first)
    array = host(array)
    return ("array", array.dtype.str, array.shape, digest(array))


def value_key(x: Any, numbers: Numbers) -> Hashable:
    """Return the key of an argument, a parameter or a result that is no symbol as well.

    Parameters
    ----------
    x : any
        May hold symbols, in tuples, lists, dicts and slices.
    numbers : mapping
        From the identity of a symbol to what stands for it.
    """
    kind = type(x)
    if kind is Symbol:
        return ("symbol", numbers[id(x)])
    if kind is bool or kind is int or x is None:
        return (kind, x)
    if kind is float:
        return (kind, _FLOAT(x))
    if kind is complex:
        return (kind, _FLOAT(x.real), _FLOAT(x.imag))
    if kind is tuple or kind is list:
        return (kind, *[value_key(i, numbers) for i in x])
    if kind is dict:
        return (kind, *[(k, value_key(v, numbers)) for k, v in x.items()])
    if kind is slice or kind is range:  # of ranges, equal ones may have other bounds
        return (kind, *[value_key(i, numbers) for i in (x.start, x.stop, x.step)])
    if isinstance(x, np.ndarray):
        return array_key(x)
    if isinstance(x, np.generic):
        return (kind, x.dtype.str, x.tobytes())
    if isinstance(x, _BY_VALUE):
        return (kind, x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return (kind, *[value_key(i, numbers) for i in x])
    parts = getattr(kind, "adarray_parts", None)
    if parts is not None:  # an object that operations have as a parameter
        return (kind, value_key(parts(x), numbers))
    return function_key(x, numbers)


def function_key(x: Any, numbers: Numbers) -> Hashable:
    """Return the key of a function: partials, methods and closures by what they hold."""
    kind: Any = type(x)
    if kind is Transformed:
        return function_key(x._call, numbers)
    if kind is functools.partial:
        return (kind, function_key(x.func, numbers), value_key(x.args, numbers),
                value_key(x.keywords, numbers))  # fmt: skip
    if kind is types.MethodType:
        return (kind, Same(x.__func__), Same(x.__self__))
    if kind is types.BuiltinMethodType and isinstance(x.__self__, np.ufunc):
        return (kind, x.__name__, Same(x.__self__))  # a new object each time it is asked for
    if kind is types.FunctionType and (x.__closure__ or x.__defaults__):
        contents = [_contents(cell) for cell in x.__closure__ or ()]
        # Functions that hold others, which may hold them: those are compared by identity.
        parts = [Same(v) if callable(v) else value_key(v, numbers) for v in contents]
        return (kind, original_of(x.__code__), value_key(x.__defaults__, numbers), *parts)
    if kind is types.FunctionType:
        return (kind, original_of(x.__code__), Same(x.__globals__))
    return Same(x)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return cell


def call_key(call: Call, numbers: Numbers) -> Hashable:
    """Return the key of a recorded call."""
    results = tuple((s.shape, s.dtype.str, s.weak) for s in call.results)
    what = Same(call.op) if call.op is not None else function_key(call.function, numbers)
    errors = None if call.errors is None else tuple(call.errors.values())
    return (what, value_key(call.args, numbers), value_key(call.params, numbers), results, errors)


def same_value(x: Any, numbers: Numbers, y: Any, others: Numbers) -> bool:
    """Whether two values of two recordings have equal keys, mostly without making them."""
    kind = type(x)
    if kind is not type(y):
        return False
    if kind is Symbol:
        return numbers[id(x)] == others[id(y)]
    if kind is int or kind is str or kind is bool or x is None:
        return bool(x == y)
    if kind is tuple or kind is list:
        return len(x) == len(y) and all(map(_pairwise(numbers, others), x, y))
    if kind is dict:
        return list(x) == list(y) and all(map(_pairwise(numbers, others), x.values(), y.values()))
    return bool(value_key(x, numbers) == value_key(y, others))


def _pairwise(numbers: Numbers, others: Numbers) -> Callable[[Any, Any], bool]:
    return lambda x, y: same_value(x, numbers, y, others)


def same_call(a: Call, numbers: Numbers, b: Call, others: Numbers) -> bool:
    """Whether two recorded calls have equal keys."""
    if a.op is not b.op or len(a.results) != len(b.results) or a.errors != b.errors:
        return False
    for s, t in zip(a.results, b.results, strict=True):
        if s.shape != t.shape or s.dtype != t.dtype or s.weak != t.weak:
            return False
    if not same_value(a.args, numbers, b.args, others):
        return False
    if (a.params or b.params) and not same_value(a.params, numbers, b.params, others):
        return False
    return a.op is not None or function_key(a.function, numbers) == function_key(b.function, others)


def guard_key(guard: Guard | None, numbers: Numbers) -> Hashable:
    """Return the key of a guard, without its outcome."""
    if guard is None:
        return None
    if guard.call is not None:
        what = function_key(guard.call.function, numbers)
        args = value_key((guard.call.args, guard.call.params), numbers)
        return (guard.kind, what, args)
    return (guard.kind, value_key(guard.symbol, numbers))


def outcome_key(kind: str, outcome: Any) -> Hashable:
    """Return the key of the outcome of a guard."""
    if kind == "bool":
        return bool(outcome)
    if kind in ("index", "int"):
        return int(outcome)
    if kind == "float":
        return _FLOAT(outcome)
    if kind == "complex":
        return (_FLOAT(outcome.real), _FLOAT(outcome.imag))
    return tuple((tuple(shape), np.dtype(dtype).str) for shape, dtype in outcome)


def symbols_in(x: Any) -> list[Symbol]:
    """Return the symbols in an argument, in order."""
    kind = type(x)
    if kind is Symbol:
        return [x]
    if isinstance(x, (tuple, list)):
        return [s for i in x for s in symbols_in(i)]
    if kind is dict:
        return [s for i in x.values() for s in symbols_in(i)]
    if kind is slice:
        return [s for i in (x.start, x.stop, x.step) for s in symbols_in(i)]
    return []


def replace_symbols(x: Any, values: Any) -> Any:
    """Return `x` with each symbol replaced by ``values(symbol)``."""
    kind = type(x)
    if kind is Symbol:
        return values(x)
    if kind is tuple or kind is list:
        return kind([replace_symbols(i, values) for i in x])
    if kind is dict:
        return {k: replace_symbols(v, values) for k, v in x.items()}
    if kind is slice:
        return slice(*[replace_symbols(i, values) for i in (x.start, x.stop, x.step)])
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind(*[replace_symbols(i, values) for i in x])
    return x
