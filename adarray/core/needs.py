"""Whether a function needs interception, or NumPy's protocols show all that it does.

Code that only calls functions which NumPy dispatches, with arrays and numbers, computes the
same in `adarray.intercept` as outside of it, where it costs nothing. That is read off its
bytecode, instruction by instruction: what is not known to be harmless needs interception.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from adarray.base.op import WRITERS
from adarray.base.scope import client_of, package_of
from adarray.core.trace import Handle

# Of ndarrays: what takes no array and gives none that is shared.
_ATTRIBUTES = frozenset({
    "T", "mT", "shape", "ndim", "size", "dtype", "real", "imag",
    "sum", "mean", "prod", "std", "var", "min", "max", "argmin", "argmax", "cumsum", "cumprod",
    "all", "any", "conj", "conjugate", "ravel", "reshape", "squeeze", "transpose", "swapaxes",
    "trace", "diagonal",
})  # fmt: skip
_BUILTINS = frozenset({
    "abs", "enumerate", "len", "max", "min", "range", "reversed", "sum", "zip",
})  # fmt: skip
_INSTRUCTIONS = frozenset({
    "BINARY_OP", "BINARY_SLICE", "BINARY_SUBSCR", "BUILD_SLICE", "BUILD_TUPLE", "CACHE", "CALL",
    "CALL_KW", "COMPARE_OP", "COPY", "COPY_FREE_VARS", "DELETE_FAST", "END_FOR", "EXTENDED_ARG",
    "FOR_ITER", "GET_ITER", "IS_OP", "JUMP_BACKWARD", "JUMP_FORWARD", "JUMP_IF_FALSE_OR_POP",
    "JUMP_IF_TRUE_OR_POP", "KW_NAMES", "LOAD_ATTR", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST",
    "LOAD_FAST_AND_CLEAR", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_METHOD",
    "NOP", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_TRUE",
    "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "POP_JUMP_IF_TRUE", "POP_TOP",
    "PRECALL", "PUSH_NULL", "RESUME", "RETURN_CONST", "RETURN_VALUE", "STORE_FAST",
    "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "SWAP", "TO_BOOL", "UNARY_INVERT",
    "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_POSITIVE", "UNPACK_SEQUENCE",
})  # fmt: skip
# What may come behind a tuple that is no argument: an index, a result, names.
_AFTER_TUPLE = frozenset({"BINARY_SUBSCR", "RETURN_VALUE", "UNPACK_SEQUENCE"})
_TAKES_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "RESUME"})
_NULL_FIRST = sys.version_info < (3, 13)  # the NULL of a call lies below the function

_NUMBERS = (np.generic, float, int, complex, str, bytes, types.NoneType, np.dtype, slice, range)
_DATA = (Handle, np.ndarray, *_NUMBERS)
_UNKNOWN = object()


def needs_interception(f: types.FunctionType, code: types.CodeType) -> bool:
    """Whether a function may do what NumPy's protocols do not show, itself.

    Parameters
    ----------
    f : function
        What it calls is not looked into.
    code : code
        As the user wrote it.
    """
    if code.co_flags & _SUSPENDS or any(type(c) is tuple and "out" in c for c in code.co_consts):
        return True
    steps = [i for i in dis.get_instructions(code) if i.opname not in _SKIPPED]
    names = _Bindings(f, code)
    loaded: object = _UNKNOWN  # what the instruction before has pushed
    for at, step in enumerate(steps):
        name = step.opname
        if name not in _INSTRUCTIONS:
            return True
        if _is_module(loaded) and name not in _TAKES_ATTRIBUTE:
            return True  # the module is passed on
        if name in ("LOAD_GLOBAL", "LOAD_DEREF"):
            loaded = names.value(step.argval, name == "LOAD_DEREF")
            known = _is_module(loaded) or _is_harmless(loaded)
        elif name not in _TAKES_ATTRIBUTE:
            loaded, known = _UNKNOWN, names.is_harmless(steps, at)
        elif _is_module(loaded):
            loaded = vars(_plain(loaded)).get(step.argval)
            known = _is_module(loaded) or _is_harmless(loaded)
        else:
            loaded, known = _UNKNOWN, step.argval in _ATTRIBUTES
        if not known:
            return True
    return False


def dispatches(f: object) -> bool:
    """Whether a callable is adarray's, or a dispatching function of NumPy."""
    kind = type(f)
    return (
        kind is np.ufunc
        or hasattr(kind, "_implementation")
        or package_of(kind.__module__) == "adarray"
    )


class _Bindings:
    """What the names in a function are bound to."""

    def __init__(self, f: types.FunctionType, code: types.CodeType) -> None:
        self._globals = f.__globals__
        self._cells = dict(zip(code.co_freevars, f.__closure__ or (), strict=False))

    def value(self, name: str, is_cell: bool) -> object:
        """Return what a name is bound to, `_UNKNOWN` if it is unbound."""
        if is_cell:
            try:
                return self._cells[name].cell_contents
            except (KeyError, ValueError):  # of its own, for functions in it; not assigned yet
                return _UNKNOWN
        value = self._globals.get(name, _UNKNOWN)
        if value is _UNKNOWN and name in _BUILTINS:
            return getattr(builtins, name)
        return value

    def is_harmless(self, steps: list[dis.Instruction], at: int) -> bool:
        """Whether an instruction that loads no name does the same in interception."""
        step = steps[at]
        if step.opname == "BUILD_TUPLE":
            return steps[at + 1].opname in _AFTER_TUPLE
        if step.opname == "BINARY_OP":
            return not step.argrepr.endswith("=")  # into an array, perhaps
        return step.opname != "PUSH_NULL" or self._calls(steps, at)

    def _calls(self, steps: list[dis.Instruction], at: int) -> bool:
        """Whether the NULL at a place is for a call of a global or of what a function captured."""
        if _NULL_FIRST:
            loads: Iterator[dis.Instruction] = iter(steps[at + 1 :])
        else:
            loads = reversed(steps[:at])
        for i in loads:
            if i.opname in ("LOAD_GLOBAL", "LOAD_DEREF"):
                value = self.value(i.argval, i.opname == "LOAD_DEREF")
                return _is_module(value) or callable(value)
            if _NULL_FIRST or i.opname != "LOAD_ATTR":
                return False
        return False


def _plain(module: object) -> object:
    """Return the module for which another may stand."""
    of = getattr(type(module), "_adarray_original", None)
    return module if of is None else of(module)


def _is_module(value: object) -> bool:
    """Whether a value is NumPy or a module of it whose functions dispatch."""
    return issubclass(type(value), types.ModuleType) and _plain(value) in _MODULES


_MODULES = (np, np.linalg, np.fft)


def _is_harmless(value: Any) -> bool:
    """Whether a value does the same in interception, however it is used."""
    kind = type(value)
    of = getattr(kind, "_adarray_original", None)
    if of is not None:  # what interception put in the place of a function
        value = of(value)
        kind = type(value)
    if kind is types.FunctionType:
        return bool(client_of(value.__globals__))
    return (
        kind is np.ufunc
        or (hasattr(kind, "_implementation") and value not in WRITERS)
        or any(value is getattr(builtins, n) for n in _BUILTINS)
        or issubclass(kind, _DATA)
        or (kind in (list, tuple, dict) and _is_data(value))
    )


def _is_data(x: Collection[object]) -> bool:
    items = (*x, *x.values()) if type(x) is dict else x
    return len(items) <= 64 and all(issubclass(type(i), _DATA) for i in items)
