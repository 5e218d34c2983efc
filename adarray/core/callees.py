"""Which function a frame was calling where an error arose, read off its code.

An ADArray that is asked for an integer cannot know by whom: ``range(x)`` refuses a float, while
``time.sleep(x)`` takes one and asks only what is none. What is called is looked up as the code
finds it, and compared as an object; its name says nothing, since any expression may lead to it.
"""

from __future__ import annotations

import collections
import dis
import math
import operator
import sys
import types
from typing import Any

import numpy as np

from adarray.base.scope import package_of

# Instructions that ask indices and factors for integers.
_INDEXING = frozenset({
    "BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "BINARY_SLICE", "STORE_SLICE", "BINARY_OP",
})  # fmt: skip
_VARIABLES = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF")
_BESIDES = frozenset({"PUSH_NULL", "NOP", "CACHE", "EXTENDED_ARG"})
# Classes whose instances and methods ask for integers and for nothing else, and functions.
_CLASSES = frozenset({
    range, bytes, bytearray, memoryview, slice, int, list, tuple, str, collections.deque,
})  # fmt: skip
_MADE = frozenset({range, bytes, bytearray})
_FUNCTIONS = (chr, hex, oct, bin, round, divmod, pow)
_MODULES = frozenset({math.__name__, operator.index.__module__, "numpy"})
_CALLING = frozenset({"call", "methodcaller", "vectorize", "frompyfunc", "fromiter", "piecewise",
                      "apply_along_axis", "apply_over_axes", "fromfunction"})  # fmt: skip


def asks_for_integer(frame: types.FrameType, at: int) -> bool:
    """Whether what a frame does at an instruction refuses floats, as far as its code tells."""
    code = frame.f_code
    instructions = [i for i in dis.get_instructions(code) if i.offset <= at]
    name = instructions[-1].opname
    if name in _INDEXING:
        return True
    if not name.startswith(("CALL", "PRECALL")) or name == "CALL_FUNCTION_EX":
        return False
    try:
        return _refuses_floats(*_callee(frame, instructions))
    except LookupError:  # some other expression
        return False


def _callee(frame: types.FrameType, instructions: list[dis.Instruction]) -> tuple[Any, str]:
    """Return what the last instruction calls: an object, or one and the name of its method."""
    call = instructions[-1].positions
    if call is None or call.lineno is None:
        raise LookupError
    start, end = (call.lineno, call.col_offset), (call.end_lineno, call.end_col_offset)
    chain = []
    for i in instructions:
        p = i.positions
        if (
            p is not None
            and (p.lineno, p.col_offset) == start
            and (p.end_lineno, p.end_col_offset) != end
            and i.opname not in _BESIDES
        ):
            chain.append(i)
    if not chain:
        raise LookupError
    if chain[0].opname.startswith("BUILD_LIST") and len(chain) == 2:
        return [], chain[1].argval
    if not chain[0].opname.startswith(_VARIABLES) or type(chain[0].argval) is not str:
        raise LookupError
    x, method = _variable(frame, chain[0].argval), ""
    for i in chain[1:]:
        if method or i.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            raise LookupError
        if isinstance(x, types.ModuleType):
            x = vars(sys.modules.get(x.__name__, x))[
                i.argval
            ]  # of a stand-in, that of the original
        else:
            method = i.argval
    return x, method


def _variable(frame: types.FrameType, name: str) -> Any:
    for space in (frame.f_locals, frame.f_globals, frame.f_builtins):
        try:
            return space[name]
        except KeyError:
            continue
    raise LookupError


def _refuses_floats(x: Any, method: str) -> bool:
    if method:
        return (x if isinstance(x, type) else type(x)) in _CLASSES
    x = getattr(x, "_adarray_of", x)  # of a stand-in
    if isinstance(x, type):
        return x in _MADE
    if any(x is f for f in _FUNCTIONS):
        return True
    known = isinstance(x, (types.BuiltinFunctionType, types.FunctionType, np.ufunc))
    name = getattr(x, "__name__", "")
    return known and name not in _CALLING and package_of(getattr(x, "__module__", "")) in _MODULES
