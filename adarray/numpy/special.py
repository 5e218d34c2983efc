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
    found = getattr(_special, name, None)
    found = inspect.unwrap(found) if callable(found) else None
    if name in _PYTHON and found is not None:
        globals()[name] = _lift.lifted(found)
        return globals()[name]
    if name.startswith("__") or not isinstance(found, _np.ufunc):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = made = _lift.ufunc_of(found)
    return made


def __dir__() -> list[str]:
    found = {n: getattr(_special, n) for n in dir(_special) if not n.startswith("_")}
    return [n for n, f in found.items() if callable(f) and isinstance(inspect.unwrap(f), _np.ufunc)]
