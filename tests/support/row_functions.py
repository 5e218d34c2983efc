"""Functions that go over the rows of a matrix several times.

For tests of rows in shared memory and in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def cross_entropy(z: Any, labels: Any) -> Any:
    z = z - np.max(z, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(z), axis=1)) - z[np.arange(len(labels)), labels])


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    c = x - np.mean(x, axis=1, keepdims=True)
    v = np.mean(c * c, axis=1, keepdims=True)
    return np.sum(np.tanh(c / np.sqrt(v + 1e-5) * scale + shift) ** 2)


def masked(x: Any, mask: Any, weights: Any) -> Any:
    inside = np.where(mask, x, 0)
    return inside * weights - np.sum(inside * weights, axis=1, keepdims=True)


def weighted_norm(x: Any, scale: Any, shift: Any, weights: Any) -> Any:
    m, v = np.mean(x, axis=1, keepdims=True), np.var(x, axis=1, keepdims=True)
    return np.sum(((x - m) / np.sqrt(v + 1e-5) * scale + shift) * weights)


def norm(x: Any) -> Any:
    c = x - np.mean(x, axis=1, keepdims=True)
    return np.sum(np.tanh(c / np.sqrt(np.mean(c * c, axis=1, keepdims=True) + 1e-5)))


def scaled_squares(x: Any, scale: Any, shift: Any) -> Any:
    c = x - np.mean(x, axis=1, keepdims=True)
    v = np.mean(c * c, axis=1, keepdims=True)
    return np.sum((c / np.sqrt(v + 1e-5) * scale + shift) ** 2)
