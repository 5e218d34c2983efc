"""Differentiating and training the network on one backend."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

import numpy as np

import adarray
from adarray.demo import network
from adarray.demo.data import Digits

CHECK_STEP = 1e-5  # of the differences, along directions of length one
CHECK_LIMIT = 1e-5  # relative; differences of float64 reach about 1e-8 here
CHECK_SAMPLES = 32


class Progress(Protocol):
    """What shows how far the training is: `adarray.demo.report.progress` makes one."""

    def __call__(self, steps: Iterable[Any], total: int, title: str) -> Iterable[Any]:
        """Return `steps`, shown while they are consumed."""


@dataclass
class Run:
    """One backend's training.

    Attributes
    ----------
    backend : str
    gradient_error : float
        Relative error of the gradient against central differences.
    losses : list of float
        Loss of every step.
    forward, backward : list of float
        Seconds of every step: the loss, recorded; the gradient of all layers.
    accuracy : float
        Fraction of test samples recognised.
    """

    backend: str
    gradient_error: float
    losses: list[float] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    accuracy: float = 0.0

    @property
    def forward_ms(self) -> float:
        """Median milliseconds of the forward pass."""
        return median(self.forward) * 1e3

    @property
    def backward_ms(self) -> float:
        """Median milliseconds of the backward pass."""
        return median(self.backward) * 1e3


def gradient_error(sizes: list[int], digits: Digits, seed: int, directions: int = 4) -> float:
    """Compare the gradient of the network's loss with central differences, in float64.

    Returns
    -------
    float
        The largest relative error along random directions.
    """
    rng = np.random.default_rng(seed)
    layers = network.init(sizes, rng, np.float64)
    x = digits.x_train[:CHECK_SAMPLES].astype(np.float64)
    labels = digits.y_train[:CHECK_SAMPLES]
    _, gradient = adarray.value_and_grad(network.loss)(layers, x, labels)
    worst = 0.0
    for _ in range(directions):
        direction = [{k: rng.normal(size=a.shape) for k, a in one.items()} for one in layers]
        length = np.sqrt(_inner(direction, direction))
        ahead, behind = (
            network.loss(_moved(layers, direction, step / length), x, labels)
            for step in (CHECK_STEP, -CHECK_STEP)
        )
        expected = (ahead - behind) / (2 * CHECK_STEP)
        got = _inner(gradient, direction) / length
        worst = max(worst, abs(got - expected) / max(abs(got), abs(expected)))
    return worst


def _inner(a: list[network.Layer], b: list[network.Layer]) -> float:
    return float(sum(np.vdot(p[k], q[k]) for p, q in zip(a, b, strict=True) for k in p))


def _moved(
    layers: list[network.Layer], direction: list[network.Layer], by: float
) -> list[network.Layer]:
    return [{k: p[k] + by * d[k] for k in p} for p, d in zip(layers, direction, strict=True)]


def train(
    backend: str, digits: Digits, hidden: int, epochs: int, seed: int, progress: Progress
) -> Run:
    """Train the network with gradients computed on `backend`.

    Every backend gets the same first weights and the same batches.

    Raises
    ------
    BackendError
        If the backend cannot work here.
    ArithmeticError
        If the gradient disagrees with central differences.
    """
    sizes = [digits.x_train.shape[1], hidden, hidden, 10]
    with adarray.use(backend):
        run = Run(backend, gradient_error(sizes, digits, seed))
        if not run.gradient_error < CHECK_LIMIT:
            raise ArithmeticError(
                f"demo: on backend {backend!r} the gradient differs from central differences by "
                f"{run.gradient_error:.1e} (relative), more than {CHECK_LIMIT:.0e}"
            )
        rng = np.random.default_rng(seed)
        layers = network.init(sizes, rng)
        velocity = network.zeros_like(layers)
        n = len(digits.y_train) // digits.batch
        batches = _batches(len(digits.y_train), digits.batch, epochs, rng)
        for rows, done in progress(batches, n * epochs, backend):
            gradient = _step(layers, digits.x_train[rows], digits.y_train[rows], run)
            # The step falls along a half cosine, to zero at the end.
            rate = digits.rate * 0.5 * (1 + np.cos(np.pi * done))
            network.sgd_step(layers, gradient, velocity, rate)
        run.accuracy = network.accuracy(layers, digits.x_test, digits.y_test)
    return run


def _batches(samples: int, batch: int, epochs: int, rng: np.random.Generator) -> Iterable[Any]:
    """Yield the rows of every batch, and the fraction of the training done before it."""
    n = samples // batch
    for epoch in range(epochs):
        order = rng.permutation(samples)
        for k in range(n):
            yield order[k * batch : (k + 1) * batch], (epoch * n + k) / (epochs * n)


def _step(
    layers: list[network.Layer], x: np.ndarray, labels: np.ndarray, run: Run
) -> list[network.Layer]:
    """Return the gradient of one batch, and note its loss and how long both passes took.

    This is ``value_and_grad(network.loss)(layers, x, labels)``, cut in two so
    that the passes can be timed.
    """
    start = time.perf_counter()
    value, pullback = adarray.vjp(lambda inner: network.loss(inner, x, labels), layers)
    between = time.perf_counter()
    (gradient,) = pullback(np.float32(1))
    end = time.perf_counter()
    run.losses.append(float(value))
    run.forward.append(between - start)
    run.backward.append(end - between)
    return gradient  # type: ignore[no-any-return]
