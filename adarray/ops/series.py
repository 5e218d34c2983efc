"""Functions of `numpy.polynomial`: bodies of theirs that run over traced arrays.

They do not dispatch: `adarray.numpy` and intercepted code call the bodies, and import
this module, which brings `numpy.polynomial`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.core.protocol import finish, plain, traced
from adarray.core.trace import Handle
from adarray.ops.borrow import borrowed, correct, replace


def _keep_zeros(seq: Any) -> Any:
    """Stand for ``trimseq``: a coefficient that is zero may still have a derivative."""
    return seq if traced(seq) else np.polynomial.polyutils.trimseq(plain(seq))


replace(np.polynomial.polyutils.trimseq, _keep_zeros)


def _as_series(alist: Any, trim: bool = True) -> list[Any]:
    """Stand for ``as_series``: if one is traced, all can be written into."""
    series: list[Any] = borrowed(np.polynomial.polyutils.as_series)(alist, trim)
    if not traced(series):
        return series
    return [x if isinstance(x, Handle) else Handle.array_class(x) for x in series]


replace(np.polynomial.polyutils.as_series, _as_series)


# Ends of the names of functions whose results are the coefficients of a series.
_COEFFICIENTS = ("add", "sub", "mul", "mulx", "div", "pow", "fromroots")


def _series(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the body of a function of series, with results as long as NumPy's."""
    body, name = borrowed(function), function.__name__

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not (traced(args) or traced(kwargs)):
            return finish(function(*plain(args), **plain(kwargs)), None, name)
        out = body(*args, **kwargs)
        if not name.endswith(_COEFFICIENTS) or name.endswith("valfromroots"):
            return out
        numpys = function(*plain(args), **plain(kwargs))
        if isinstance(out, tuple):
            return tuple(a[: len(b)] for a, b in zip(out, numpys, strict=True))
        return out[: len(numpys)]

    return run


def _plain_functions(module: types.ModuleType) -> list[Callable[..., Any]]:
    """Return the public functions of a module of series, its class left out."""
    named = (getattr(module, name) for name in module.__all__)
    return [f for f in named if isinstance(f, types.FunctionType)]


for _module in (
    np.polynomial.polynomial, np.polynomial.chebyshev, np.polynomial.legendre,
    np.polynomial.hermite, np.polynomial.hermite_e, np.polynomial.laguerre,
):  # fmt: skip
    for _function in _plain_functions(_module):
        correct(_function, _series(_function))
