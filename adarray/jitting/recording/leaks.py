"""Recorded values hidden inside of results.

Results are taken apart as arguments are: tuples, lists, dicts, dataclasses. Inside of any
other object, of a generator or of a returned function, a recorded value would leave
the recording.
"""

from __future__ import annotations

import gc
import types
from typing import Any

import numpy as np

from adarray.core.trace import Handle
from adarray.jitting.shared.symbolic import Traced, UntraceableError

_MOST = 10_000  # objects that are searched
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.generic, np.dtype)
_OPAQUE = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)


def refuse_leaks(x: Any) -> None:
    """Raise an error if a leaf of a result holds a recorded value somewhere inside.

    Raises
    ------
    UntraceableError
    """
    if isinstance(x, _PLAIN) or (type(x) is np.ndarray and not x.dtype.hasobject):
        return
    seen: set[int] = {id(x)}
    objects = [x]
    for obj in objects:
        if type(obj) is Traced or (isinstance(obj, Handle) and type(obj._plain) is Traced):
            raise UntraceableError(
                f"jit: a result is a {type(x).__name__}, inside of which a computed value would be "
                "hidden; return arrays, in tuples, lists, dicts or dataclasses"
            )
        if len(objects) > _MOST:
            return
        for part in _parts(obj):
            if id(part) not in seen and not isinstance(part, (*_PLAIN, *_OPAQUE)):
                seen.add(id(part))
                objects.append(part)


def _parts(x: Any) -> list[Any]:
    """Return the objects that one refers to; of a function not its globals."""
    if isinstance(x, types.FunctionType):
        return [x.__closure__, x.__defaults__, x.__kwdefaults__, x.__dict__]
    if isinstance(x, np.ndarray):
        return list(x.flat) if x.dtype.hasobject and x.size <= _MOST else []
    return gc.get_referents(x)
