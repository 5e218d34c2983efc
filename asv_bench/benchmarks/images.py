"""Convolutions of images, and their gradients: by backend and size."""

from __future__ import annotations

from typing import Any

import numpy as np

import adarray
from adarray.ops.nn import conv2d

from .common import DTYPES, ENGINES, OnEngine, uniform, warm

# Images, channels, height, width; channels of the result, window, stride, padding.
SIZES = {
    "28 of 1": (8, 1, 28, 28, 32, 3, 1, 1),
    "56 of 64": (8, 64, 56, 56, 64, 3, 1, 1),
    "14 of 256": (8, 256, 14, 14, 256, 3, 1, 1),
    "7 of 512": (8, 512, 7, 7, 512, 3, 1, 1),
    "224 of 3": (8, 3, 224, 224, 32, 3, 2, 1),
}


class Convolution(OnEngine):
    """A convolution of plain arrays, and one with both gradients."""

    params = (ENGINES, tuple(SIZES), DTYPES)
    param_names = ("engine", "size", "dtype")
    timeout = 120

    def setup(self, engine: str, size: str, dtype: str) -> None:
        """Make images and weights, and run once."""
        self.enter(engine)
        n, c, h, w, o, k, stride, padding = SIZES[size]
        self.args = uniform((n, c, h, w), -1, 1, dtype), uniform((o, c, k, k), -1, 1, dtype, 1)
        self.call = lambda x, v: conv2d(x, v, stride, padding)
        self.gradients = adarray.grad(lambda x, v: np.sum(self.call(x, v)), (0, 1))
        warm(self.gradients, *self.args)

    def time_value(self, *_: Any) -> None:
        """Compute."""
        self.call(*self.args)

    def time_gradients(self, *_: Any) -> None:
        """Compute with the gradients of images and weights."""
        self.gradients(*self.args)
