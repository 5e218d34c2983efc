"""The ufuncs of `scipy.special`, with ADArrays; needs SciPy.

NumPy has no such module. SciPy looks for one in the namespace of its arguments when it
is in array-API mode, and would coerce ADArrays if it found none.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as _np
import scipy.special as _special

from adarray.numpy import _lift

importlib.import_module("adarray.scipy.special")  # registers the derivative rules

# Functions of Python over ufuncs; SciPy's others coerce.
_PYTHON = ("zeta",)


def __getattr__(name: str) -> Any:
    # In array-API mode SciPy's own names are wrappers that would call these again.
    function = getattr(_special, name, None)
    function = inspect.unwrap(function) if callable(function) else None
    if name in _PYTHON and function is not None:
        globals()[name] = _lift.lifted(function)
        return globals()[name]
    if name.startswith("__") or not isinstance(function, _np.ufunc):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = ufunc = _lift.ufunc_of(function)
    return ufunc


def __dir__() -> list[str]:
    members = {n: getattr(_special, n) for n in dir(_special) if not n.startswith("_")}
    return [
        n for n, f in members.items() if callable(f) and isinstance(inspect.unwrap(f), _np.ufunc)
    ]
