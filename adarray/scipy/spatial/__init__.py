"""Drop-in for `scipy.spatial`: distances that differentiate, in `distance` and here."""

from __future__ import annotations

import importlib
from typing import Any

import scipy.spatial

from adarray.scipy._drop_in import fill_in, instead_of
from adarray.scipy.spatial._metrics import between, minkowski


@instead_of(scipy.spatial.minkowski_distance)
def minkowski_distance(x: Any, y: Any, p: Any = 2.0) -> Any:
    return minkowski(x, y, p)


@instead_of(scipy.spatial.distance_matrix)
def distance_matrix(x: Any, y: Any, p: Any = 2.0) -> Any:
    return between(x, y, lambda u, v: minkowski(u, v, p))


_getattr, _names, __all__ = fill_in(globals(), scipy.spatial)


def __getattr__(name: str) -> Any:
    """Return another member of `scipy.spatial`, which refuses traced arguments."""
    if name == "distance":
        return importlib.import_module("adarray.scipy.spatial.distance")
    return _getattr(name)


def __dir__() -> list[str]:
    return _names()
