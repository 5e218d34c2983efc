"""Methods of labelled arrays that convert what they hold: ``interp`` of xarray.

xarray hands traced arrays on to NumPy's functions, but interpolates by classes of SciPy, which want
plain ones. So the values are interpolated by our own, one axis after the other, and the labels by
xarray.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adarray.base.errors import UnsupportedFunctionError, user_line
from adarray.base.frames import is_labelled
from adarray.core.loads import MethodLoad
from adarray.core.protocol import concrete, followed
from adarray.core.trace import Handle

_METHODS = ("linear", "nearest", "zero", "slinear", "quadratic", "cubic")


def interpolating(x: Any) -> Callable[..., Any] | None:
    """Return the method ``interp`` of a DataArray; None for other objects."""
    return functools.partial(_interp, x) if is_labelled(x) and hasattr(x, "coords") else None


def _interp(
    x: Any,
    coords: Mapping[Any, Any] | None = None,
    method: Any = "linear",
    assume_sorted: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    **coords_kwargs: Any,
) -> Any:
    """``x.interp(coords, method)``: values, and new coordinates, may be traced."""
    new = {**(coords or {}), **coords_kwargs}
    data, points = x.data, {name: _points(c) for name, c in new.items()}
    if not (followed(data) or followed(list(points.values()))):
        return x.interp(coords, method, assume_sorted, kwargs, **coords_kwargs)
    plain = x.copy(data=concrete(data)).interp(
        {name: concrete(c) if followed(c) else c for name, c in new.items()},
        method, assume_sorted, kwargs,
    )  # fmt: skip
    interp1d = importlib.import_module("adarray.scipy.interpolate").interp1d
    if method not in _METHODS:
        raise _refused(f"method {method!r}", f"take one of {', '.join(_METHODS)}")
    axes = list(x.dims)
    for name, at in points.items():
        old = np.asarray(x[name].data)
        dims = tuple(getattr(new[name], "dims", (name,)))
        if np.ndim(at) > 1 or (dims[:1] != (name,) and dims[:1] and dims[0] in axes):
            raise _refused(f"points along {dims}", "interpolate along one dimension at a time")
        if old.dtype.kind not in "iuf" or np.result_type(at).kind not in "iuf":
            raise _refused(f"the coordinate {name!r} of {old.dtype}", "take numbers")
        options = {"bounds_error": False, "assume_sorted": assume_sorted, **(kwargs or {})}
        axis = axes.index(name)
        data = interp1d(old, data, method, axis, **options)(at)
        axes[axis : axis + 1] = dims if np.ndim(at) else ()
    data = np.transpose(data, [axes.index(name) for name in plain.dims])
    if not np.allclose(concrete(data), plain.data, equal_nan=True):
        raise _refused("values that xarray interpolates in another way", "use np.interp")
    return plain.copy(data=data)


def _points(x: Any) -> Any:
    """Return new coordinates as an array."""
    if isinstance(x, Handle):
        return x
    return x.data if is_labelled(x) else np.asarray(x)


def _refused(what: str, advice: str) -> UnsupportedFunctionError:
    _, _, where = user_line()
    return UnsupportedFunctionError(
        f"xarray DataArray.interp over traced values: {what} cannot be differentiated; {advice}, "
        f"or compute with .data{where}"
    )


MethodLoad.special["interp"] = interpolating
