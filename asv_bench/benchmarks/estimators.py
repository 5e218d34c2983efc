"""Estimates without backpropagation, compiled: by backend, beside forward passes and gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import adarray
from adarray.estimators import evolution_strategies, likelihood_ratio, noise_site

from .common import ENGINES, LARGE, OnEngine, uniform, warm

COPIES = 1024 if LARGE else 128
WIDTHS = (512, 512, 512, 10) if LARGE else (128, 128, 10)
SAMPLES = 4


def losses(w: Any, x: Any, y: Any) -> Any:
    """Return squared errors of a network with rectified layers."""
    for k, m in enumerate(w):
        v = noise_site(x @ m, f"layer {k}")
        x = np.maximum(v, 0.0)
    return np.sum((v - y) ** 2, axis=1)


WAYS: dict[str, Any] = {
    "layerwise": lambda: likelihood_ratio(losses, copies=COPIES, credit="rows"),
    "layerwise hadamard": lambda: likelihood_ratio(
        losses, copies=COPIES, credit="rows", directions="hadamard"
    ),
    "full": lambda: likelihood_ratio(losses, copies=COPIES, credit="rows", mode="full"),
    "rank 1": lambda: evolution_strategies(losses, copies=COPIES, rank=1),
}


class Estimators(OnEngine):
    """Estimates, their noise, and what they replace."""

    params = (ENGINES, tuple(WAYS))
    param_names = ("engine", "way")
    timeout = 120

    def setup(self, engine: str, way: str) -> None:
        """Make a network and compile."""
        self.enter(engine)
        self.w = [uniform(s, -0.1, 0.1, "float32", k) for k, s in enumerate(pairwise(WIDTHS))]
        self.one = (
            uniform((SAMPLES, WIDTHS[0]), -1, 1, "float32"),
            uniform((SAMPLES, WIDTHS[-1]), -1, 1, "float32"),
        )
        self.all = tuple(np.tile(a, (COPIES, 1)) for a in self.one)
        self.estimator = WAYS[way]()
        self.rng = np.random.default_rng(0)
        self.evaluate = adarray.jit(lambda noise, *args: self.estimator.evaluate(noise, *args)[:2])
        self.forward = adarray.jit(losses)
        self.exact = adarray.jit(adarray.grad(lambda *args: np.mean(losses(*args))))
        self.noise = self.estimator.draw(self.w, *self.one, rng=self.rng)
        warm(self.evaluate, self.noise, self.w, *self.one)
        for f in (self.forward, self.exact):
            warm(f, self.w, *self.all)

    def time_estimate(self, *_: Any) -> None:
        """Evaluate all copies and their estimate."""
        self.evaluate(self.noise, self.w, *self.one)

    def time_draw(self, *_: Any) -> None:
        """Draw noise."""
        self.estimator.draw(self.w, *self.one, rng=self.rng)

    def time_forward(self, *_: Any) -> None:
        """Evaluate as many samples as all copies do, with the same weights."""
        self.forward(self.w, *self.all)

    def time_gradient(self, *_: Any) -> None:
        """Differentiate the loss of as many samples."""
        self.exact(self.w, *self.all)
