"""Random convolutions by slices: sums of shifted slices times scalars, and what is around them.

For tests of plans for GPUs and of results there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Convolution(NamedTuple):
    """A function of an image, weights and a narrow array, and arguments of it."""

    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]
    taps: int


def convolve(a: Any, w: Any, steps: tuple[int, ...]) -> Any:
    """Return the sum of the slices of the last axes, each times one weight."""
    total: Any = 0.0
    lengths = [
        n - (k - 1) * s
        for n, k, s in zip(a.shape[a.ndim - w.ndim :], w.shape, steps, strict=True)
    ]  # fmt: skip
    for place in np.ndindex(w.shape):
        cuts = tuple(slice(i * s, i * s + n) for i, s, n in zip(place, steps, lengths, strict=True))
        total = total + w[place] * a[(..., *cuts)]
    return total


def _before(choice: random.Random, ndim: int) -> Callable[[Any, Any], Any]:
    """Return what is done to the image first."""
    one, other = choice.sample(range(ndim), 2) if ndim > 1 else (0, 0)
    return choice.choice((
        lambda x, _: x,
        lambda x, y: np.maximum(x, y),
        lambda x, y: np.tanh(x) * y,
        lambda x, y: np.swapaxes(np.exp(-x * x) * y, one, other),
        lambda x, y: x - np.mean(x, axis=-1, keepdims=True) + y,
    ))  # fmt: skip


def _after(choice: random.Random) -> Callable[[Any], Any]:
    """Return what the sum is used for."""
    return choice.choice((
        lambda a: np.mean(a * a),
        lambda a: np.sum(np.tanh(a)),
        lambda a: np.mean((a / np.sqrt(np.mean(a * a, axis=-1, keepdims=True) + 0.1)) ** 3),
        lambda a: np.mean(np.maximum(np.swapaxes(a, 0, -1), 0.1) ** 2),
        lambda a: np.mean(a * a) + np.max(a),
    ))  # fmt: skip


def random_convolution(seed: int, most: int = 12, long: int = 300) -> Convolution:
    """Return the convolution of a seed; one axis of some has up to `long` elements."""
    choice = random.Random(seed)
    ndim = choice.randint(1, 4)
    window = tuple(choice.randint(1, 3) for _ in range(choice.randint(1, min(ndim, 3))))
    steps = tuple(choice.choice((1, 1, 2)) for _ in window)
    shape = [choice.randint(7, most) for _ in range(ndim)]
    if choice.random() < 0.5:
        shape[choice.randrange(ndim)] = choice.randint(long // 2, long)
    dtype = choice.choice((np.float32, np.float32, np.float64))
    before, after, twice = _before(choice, ndim), _after(choice), choice.random() < 0.3

    def function(x: Any, w: Any, y: Any) -> Any:
        a = before(x, y)
        c = convolve(a, w, steps)
        if twice:
            c = convolve(np.tanh(c), w, (1,) * w.ndim) + np.sum(a)
        return after(c)

    rng = np.random.default_rng(seed)
    narrow = (*(n if choice.random() < 0.5 else 1 for n in shape[:-1]), 1)
    shapes = (tuple(shape), window, narrow)
    arguments = tuple(rng.normal(size=s).astype(dtype) for s in shapes)
    return Convolution(function, arguments, int(np.prod(window)))
