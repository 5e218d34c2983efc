"""A three-layer network in plain NumPy: two rectified layers and a softmax.

Nothing here knows that it will be differentiated.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

Layer = dict[str, np.ndarray]


def init(sizes: list[int], rng: np.random.Generator, dtype: Any = np.float32) -> list[Layer]:
    """Return layers of random weights (He et al., 2015) and zero biases."""
    return [
        {
            "weight": (rng.normal(size=(m, n)) * np.sqrt(2 / m)).astype(dtype),
            "bias": np.zeros(n, dtype),
        }
        for m, n in pairwise(sizes)
    ]


def forward(layers: list[Layer], x: np.ndarray) -> np.ndarray:
    """Return the scores of every class, shape (samples, classes)."""
    for layer in layers[:-1]:
        x = np.maximum(x @ layer["weight"] + layer["bias"], 0)
    return x @ layers[-1]["weight"] + layers[-1]["bias"]


def loss(layers: list[Layer], x: np.ndarray, labels: np.ndarray) -> Any:
    """Return the mean cross-entropy of the softmax of the scores."""
    scores = forward(layers, x)
    scores -= np.max(scores, axis=1, keepdims=True)
    log_norm = np.log(np.sum(np.exp(scores), axis=1))
    return np.mean(log_norm - scores[np.arange(len(labels)), labels])


def accuracy(layers: list[Layer], x: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of samples whose highest score is that of their label."""
    return float(np.mean(np.argmax(forward(layers, x), axis=1) == labels))


def zeros_like(layers: list[Layer]) -> list[Layer]:
    """Return layers of zeros, for the velocities of `sgd_step`."""
    return [{name: np.zeros_like(a) for name, a in layer.items()} for layer in layers]


def sgd_step(
    layers: list[Layer],
    gradient: list[Layer],
    velocity: list[Layer],
    rate: float,
    momentum: float = 0.9,
) -> None:
    """Move the layers against the gradient, with momentum, in place."""
    for layer, g, v in zip(layers, gradient, velocity, strict=True):
        for name in layer:
            v[name] *= momentum
            v[name] -= rate * g[name]
            layer[name] += v[name]
