"""NumPy's namespace with ADArrays: ``import adarray.numpy as np``.

Every public name of NumPy is here. Functions that make arrays make ADArrays, other
functions return ADArrays for any arguments, lists of traced values become arrays, and
buffers can be written into:

>>> import adarray
>>> import adarray.numpy as np
>>> def f(x):
...     y = np.zeros(3)
...     y[1] = x[0] * x[1]
...     return np.sum(np.array([y[1], 2.0, x[0]]))
>>> adarray.grad(f)(np.array([2.0, 3.0]))
ADArray([4., 2.])

It is the namespace that ``x.__array_namespace__()`` of an ADArray gives: the array
API standard, version 2024.12, with its extensions `linalg` and `fft`.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as _np

from adarray.numpy import _classes, _creation, _info, _lift, _modules, _standard
from adarray.ops import creation as _ops_creation

__array_api_version__ = "2024.12"
__version__ = _np.__version__
__array_namespace_info__ = _info.__array_namespace_info__

_OWN: dict[str, Any] = {
    **_creation.FUNCTIONS,
    **_standard.FUNCTIONS,
    **{
        c.__name__: c
        for c in (
            _classes.ndarray, _classes.ufunc, _classes.finfo, _classes.iinfo, _classes.ndenumerate,
            _classes.vectorize,
        )
    },
    "r_": _lift.Lifting(_ops_creation.r_),
    "c_": _lift.Lifting(_ops_creation.c_),
    "mgrid": _lift.Lifting(_np.mgrid),
    "ogrid": _lift.Lifting(_np.ogrid),
}  # fmt: skip

# Modules of this package that stand for NumPy's of the same name; `special` is SciPy's.
_OWN_MODULES = frozenset({"linalg", "fft", "random"})
_MIRRORS = {name: _modules.ModuleMirror(name, wrap) for name, wrap in _modules.MIRRORS.items()}


def _lookup(name: str) -> Any:
    if name in _OWN:
        return _OWN[name]
    if name in _OWN_MODULES or (name == "special" and importlib.util.find_spec("scipy")):
        return importlib.import_module(f"{__name__}.{name}")
    if name in _MIRRORS and _modules.MIRRORS[name] is not _modules.unchanged:
        return _MIRRORS[name]
    if name == "poly1d":
        return _modules.class_over_adarrays(_np.poly1d)
    if name.startswith("_"):
        raise AttributeError(f"module 'numpy' has no attribute {name!r}")
    return _lift.wrapped(getattr(_np, name), name)


def __getattr__(name: str) -> Any:
    try:
        value = _lookup(name)
    except AttributeError as error:  # it may name what to use in place of a removed name
        text = str(error).replace("module 'numpy'", f"module {__name__!r}")
        raise AttributeError(text, name=name) from None
    globals()[name] = value
    return value


__all__ = sorted(
    {n for n in _np.__all__ if not n.startswith("_")}
    | {n for n in _OWN if not n.startswith("_")}
    | {*_OWN_MODULES, "lib", "emath", "polynomial", "testing"}
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *(n for n in dir(_np) if not n.startswith("_"))})
