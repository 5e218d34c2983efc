"""Whether one recorded run proves a path, so that no second one has to agree with it.

A second run shows what the walk over captured state does not: state that a library keeps to itself,
arrays that others own, objects that each run creates anew. Where all code that a function can
reach has been read, and all of it gives the same for the same arguments, there is nothing to show.
Everything here is a list of what is known; what is on no list takes two runs.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections import namedtuple
from typing import Any

import numpy as np

from adarray.base.op import FUNCTIONS, Op
from adarray.base.recording import Call, Recording, Symbol
from adarray.base.redirecting import original_of
from adarray.base.scope import package_of
from adarray.custom import REGISTERED
from adarray.jitting.captures.kinds import ASSIGNING, INDIRECT, WRAPPERS, imports_in, is_ours
from adarray.jitting.captures.objects import CapturedObject
from adarray.jitting.captures.walk import CaptureWalk

# Kinds whose state and code the walk has read: it is compared in each call, or an input.
_READ = frozenset({"array", "adarray", "device", "scalar", "function", "method", "partial",
                   "sequence", "mapping", "instance", "class", "module", "jitted", "transformed",
                   "whole"})  # fmt: skip
# Builtins that give the same for the same arguments, and exceptions.
_BUILTINS = frozenset({
    "abs", "all", "any", "bool", "bytes", "callable", "chr", "classmethod", "complex", "dict",
    "divmod", "enumerate", "filter", "float", "int", "isinstance", "issubclass", "iter", "len",
    "list", "map", "max", "min", "next", "ord", "pow", "property", "range", "reversed", "round",
    "slice", "sorted", "staticmethod", "sum", "super", "tuple", "zip",
})  # fmt: skip
# Modules of such functions, and NumPy's of which that is true. Of SciPy, operations with a record.
_PURE = frozenset({"math", "cmath", "operator", "_operator", "functools", "itertools", "typing"})
_OF_NUMPY = frozenset({"numpy", "numpy.linalg", "numpy.fft", "numpy.exceptions"})
# What of these is not: it sets or tells what others set, calls any code, or keeps a state.
_STATEFUL = frozenset({
    "seterr", "seterrcall", "seterrobj", "setbufsize", "set_printoptions", "set_string_function",
    "printoptions", "frompyfunc", "vectorize", "nditer", "nested_iters", "memmap", "test", "info",
    "show_config", "show_runtime", "lru_cache", "cache", "cached_property", "singledispatch",
    "singledispatchmethod", "attrgetter", "methodcaller", "get_type_hints", "get_overloads",
})  # fmt: skip
# What reads a field of a named tuple, whose elements the walk has read.
_FIELD = type(vars(namedtuple("_Named", "field"))["field"])
_CLASSES = (np.generic, np.dtype, np.errstate, np.finfo, np.iinfo, np.ndindex, np.ndenumerate)
# What computes arrays and indices from the index in brackets, by its class's code alone.
_INDEXED = (np.mgrid, np.ogrid, np.r_, np.c_, np.s_, np.index_exp)
# Names by which code reads what no name leads to: any attribute, frames, addresses, and what
# Python keeps of objects; of those with underscores, the ones that do none of it.
_ANYTHING = INDIRECT | ASSIGNING | {
    "ctypes", "gi_frame", "cr_frame", "ag_frame", "tb_frame", "f_back", "f_locals", "f_globals",
    "f_builtins", "mro", "with_traceback",
}  # fmt: skip
_ORDINARY = frozenset({
    "__init__", "__post_init__", "__call__", "__name__", "__len__", "__getitem__", "__setitem__",
    "__iter__", "__enter__", "__exit__", "__eq__", "__match_args__",
})  # fmt: skip
# Instructions that order objects by their addresses, or write those as text, and that run code of
# a class which no name leads to.
_UNSEEN = frozenset({
    "BUILD_SET", "SET_ADD", "SET_UPDATE", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC",
    "CONVERT_VALUE", "BUILD_TEMPLATE", "BUILD_INTERPOLATION", "LOAD_BUILD_CLASS",
})  # fmt: skip


def unproven_code(walk: CaptureWalk) -> str:
    """Return why code may do something else in the next run with the same state; "" if not.

    Parameters
    ----------
    walk : CaptureWalk
        Whose state is compared in each call.
    """
    names = sorted(x for x in walk.names if x in _ANYTHING or _is_special(x))
    if names:
        return f"its code has the name {names[0]}, which may lead to anything"
    if walk.growing:
        return "it appends to a list that it captured"
    for obj in walk.order:
        if not _is_read(obj):
            return f"what {obj.name} does is not known to be the same in each run"
        if obj.kind == "function" and not is_ours(obj.value.__globals__.get("__name__")):
            code = original_of(obj.value.__code__)
            instruction = _unseen(code)
            if instruction:
                return f"{obj.name} has an instruction {instruction}, which may do anything"
            imported = sorted(x for x in imports_in(code) if not _is_pure_module(x))
            if imported:  # which the walk sees from the second run on
                return f"{obj.name} imports {imported[0]}"
    return ""


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in _ORDINARY


def _is_read(obj: CapturedObject) -> bool:
    x = obj.value
    if obj.kind == "opaque":
        return _is_pure(x)
    if isinstance(x, WRAPPERS):
        return False
    return obj.kind in _READ or x is NotImplemented


def _is_pure(x: Any) -> bool:
    """Whether code of a library gives the same for the same arguments."""
    if isinstance(x, types.ModuleType):
        return _is_pure_module(x.__name__)
    if _is_operation(x) or type(x) is _FIELD or any(x is y for y in _INDEXED):
        return True
    module, name = getattr(x, "__module__", None), getattr(x, "__name__", "")
    if name in _STATEFUL:
        return False
    if isinstance(x, type) and package_of(module) == "numpy":
        return issubclass(x, _CLASSES) or x is np.ndarray
    if module == "builtins":
        error = isinstance(x, type) and issubclass(x, Exception)
        return vars(builtins).get(name) is x and (error or name in _BUILTINS)
    if isinstance(x, np.ufunc):
        return getattr(np, name, None) is x
    return module in _PURE or module in _OF_NUMPY or _is_of_ours(module)


def _is_pure_module(name: str) -> bool:
    package = package_of(name)
    return package in _PURE or package in ("numpy", "scipy", "adarray")


def _is_operation(x: Any) -> bool:
    """Whether an object is the function of one of our own operation records."""
    try:
        return x in FUNCTIONS and id(x) not in REGISTERED
    except TypeError:  # it has no hash
        return False


def _is_of_ours(module: Any) -> bool:
    return is_ours(module) and "random" not in module and "estimators" not in module


@functools.lru_cache(maxsize=4096)
def _unseen(code: types.CodeType) -> str:
    """Return the name of such an instruction in code, or in what is nested there; "" if none."""
    names = [i.opname for i in dis.get_instructions(code) if i.opname in _UNSEEN]
    names += [_unseen(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    return next(filter(None, names), "")


# -- what was recorded ---------------------------------------------------------------------------


def unproven_recording(recording: Recording) -> str:
    """Return which part of a recording is an object that the next run may have another of.

    That is what is compared by identity, or belongs to somebody: "" if there is none.
    """
    for event in recording.events:
        call = event if isinstance(event, Call) else event.call
        if call is not None and not (_is_known(call) and _are_plain((call.args, call.params))):
            return f"{call!r} has a function or an object that each run may have another of"
    for x in recording.outputs:
        if not _is_plain(x) or isinstance(x, np.ndarray):
            return f"a result of type {type(x).__name__} may be another object in each run"
    return ""


def _is_known(call: Call) -> bool:
    """Whether what a call computes depends on its arguments alone."""
    if call.op is not None:
        return _is_plain(call.op)
    f: Any = call.function
    owner = getattr(f, "__self__", None)
    if isinstance(owner, np.ufunc):  # a method such as reduce
        return _is_pure(owner)
    return not getattr(f, "__closure__", None) and _is_pure(f)


_PLAIN = frozenset({Symbol, bool, int, float, complex, str, bytes, type(None), type(Ellipsis)})


def _are_plain(x: Any) -> bool:
    """Whether all parts of arguments are plain."""
    kind = type(x)
    if kind in _PLAIN:
        return True
    if kind is tuple or kind is list or (isinstance(x, tuple) and is_ours(kind.__module__)):
        return all(map(_are_plain, x))
    if kind is dict:
        return all(map(_are_plain, x.values()))
    if kind is slice or kind is range:
        return _are_plain((x.start, x.stop, x.step))
    parts = getattr(kind, "adarray_parts", None)
    return _is_plain(x) if parts is None else _are_plain(parts(x))


def _is_plain(x: Any) -> bool:
    """Whether a value is compared by what it is, such as a number, or is there in each run."""
    if type(x) is np.ndarray:
        return x.dtype.kind in "biufc"
    if isinstance(x, Op):
        return id(x.numpy) not in REGISTERED
    if isinstance(x, type):
        return issubclass(x, np.generic) or x in (bool, int, float, complex)
    if isinstance(x, np.ufunc):
        return _is_pure(x)
    return type(x) in _PLAIN or isinstance(x, (np.generic, np.dtype))
