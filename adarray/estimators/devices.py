"""Arrays of a device, as their own library makes them, among the arguments of an estimator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.levels import LEVEL
from adarray.device import KINDS, adopt, is_device
from adarray.transforms.inputs import closed_tree, mirrored
from adarray.transforms.tree import flatten

_F = TypeVar("_F", bound=Callable[..., Any])


def adopted(x: Any) -> Any:
    """Return an array of a device as an ADArray, and everything else as it is."""
    return ADArray(adopt(x)) if type(x) in KINDS else x


def adopted_tree(tree: Any) -> Any:
    """Apply `adopted` to every leaf of a nest."""
    leaves, rebuild = flatten(tree)
    return rebuild([adopted(x) for x in leaves])


def _place_of(x: Any) -> Callable[[Any], Any] | None:
    """Return a function that moves arrays to the device of `x`; None if `x` is on the host."""
    v = adopt(x) if type(x) in KINDS else getattr(x, "_plain", None)
    return v.library.place if is_device(v) else None


def of_devices(evaluate: _F) -> _F:
    """Let a method ``evaluate(self, noise, *args)`` take arrays of a device.

    CuPy's operators do not know ADArrays, so that the function gets none but these. Results are of
    the kind of the arguments.
    """

    @functools.wraps(evaluate)
    def call(self: Any, noise: Any, *args: Any, sigma: Any = None) -> Any:
        leaves = flatten(args)[0]
        drawn, rebuild = flatten(noise)
        place = next((p for p in map(_place_of, (*leaves, *drawn)) if p is not None), None)
        if place is None:
            return evaluate(self, noise, *args, sigma=sigma)
        args, sigma = adopted_tree((args, sigma))
        # By a generator of NumPy, maybe.
        noise = rebuild([ADArray(place(x)) if type(x) is np.ndarray else adopted(x) for x in drawn])
        return closed_tree(evaluate(self, noise, *args, sigma=sigma), LEVEL.get(), mirrored(leaves))

    return call  # type: ignore[return-value]
