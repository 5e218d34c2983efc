"""Differentiating and training the network on one backend."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import numpy as np

import adarray
from adarray.demo import network
from adarray.demo.data import Digits
from adarray.jitting import JitWarning

CHECK_STEP = 1e-5  # of the differences, along directions of length one
CHECK_LIMIT = 1e-5  # relative; differences of float64 reach about 1e-8 here
CHECK_SAMPLES = 32
WARM = 3  # calls before times count: two are recorded by `jit`, the third is compiled
SAMPLE_S = 0.15  # for each size of the network


class TrainingProgress(Protocol):
    """A progress bar, such as `adarray.demo.report.progress`."""

    def __call__(self, steps: Iterable[Any], total: int, title: str) -> Iterable[Any]:
        """Return `steps`, shown while they are consumed."""


@dataclass
class TrainingRun:
    """One training.

    Attributes
    ----------
    backend : str
    compiled : bool
        Whether the gradient was compiled by `adarray.jit`.
    gradient_error : float
        Relative error of the gradient against central differences.
    losses : list of float
        Loss of every step.
    seconds : list of float
        Time of every step's loss and gradient.
    accuracy : float
        Fraction of test samples recognised.
    sizes : dict of int to float
        Least seconds of loss and gradient, by hidden units.
    """

    backend: str
    compiled: bool
    gradient_error: float
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    sizes: dict[int, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"{self.backend}, jit" if self.compiled else self.backend

    @property
    def gradient_ms(self) -> float:
        """Milliseconds of the fastest step's loss and gradient.

        Slower ones also wait for whatever else the machine does.
        """
        return min(self.seconds) * 1e3


def gradient_error(
    sizes: list[int], digits: Digits, seed: int, directions: int = 4, compiled: bool = False
) -> float:
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
    value_and_grad = _gradient(compiled)
    for _ in range(WARM if compiled else 1):
        _, gradient = value_and_grad(layers, x, labels)
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
    backend: str,
    digits: Digits,
    hidden: int,
    epochs: int,
    seed: int,
    progress: TrainingProgress,
    compiled: bool = False,
) -> TrainingRun:
    """Train the network with gradients computed on `backend`.

    Every training starts from the same weights and takes the same batches.

    Raises
    ------
    BackendError
        If the backend cannot work here.
    JitWarning
        If the gradient is to be compiled, and cannot be here.
    ArithmeticError
        If the gradient disagrees with central differences.
    """
    with adarray.use(backend), warnings.catch_warnings():
        warnings.simplefilter("error", JitWarning)  # no uncompiled time in a row of jit's
        value_and_grad = _gradient(compiled)
        sizes = [digits.x_train.shape[1], hidden, hidden, 10]
        run = TrainingRun(backend, compiled, gradient_error(sizes, digits, seed, compiled=compiled))
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
        for rows, done in progress(batches, n * epochs, run.name):
            x, labels = digits.x_train[rows], digits.y_train[rows]
            start = perf_counter()
            value, gradient = value_and_grad(layers, x, labels)
            run.seconds.append(perf_counter() - start)
            run.losses.append(float(value))
            # The step falls along a half cosine, to zero at the end.
            rate = digits.rate * 0.5 * (1 + np.cos(np.pi * done))
            network.sgd_step(layers, gradient, velocity, rate)
        run.accuracy = network.accuracy(layers, digits.x_test, digits.y_test)
    return run


def _gradient(compiled: bool) -> Callable[..., Any]:
    gradient = adarray.value_and_grad(network.loss)
    return adarray.jit(gradient) if compiled else gradient


def forward_seconds(digits: Digits, hidden: int) -> float:
    """Return the least time of the loss of one batch as NumPy computes it, without adarray."""
    return _seconds(network.loss, digits, hidden)


def gradient_seconds(run: TrainingRun, digits: Digits, hidden: int) -> float:
    """Return the least time of loss and gradient of one batch, computed as in `run`."""
    with adarray.use(run.backend):
        return _seconds(_gradient(run.compiled), digits, hidden)


def _seconds(f: Callable[..., Any], digits: Digits, hidden: int) -> float:
    sizes = [digits.x_train.shape[1], hidden, hidden, 10]
    layers = network.init(sizes, np.random.default_rng(0))
    x, labels = digits.x_train[: digits.batch], digits.y_train[: digits.batch]
    for _ in range(WARM):
        f(layers, x, labels)
    least = float("inf")
    until = perf_counter() + SAMPLE_S
    while least == float("inf") or perf_counter() < until:
        start = perf_counter()
        f(layers, x, labels)
        least = min(least, perf_counter() - start)
    return least


def _batches(samples: int, batch: int, epochs: int, rng: np.random.Generator) -> Iterable[Any]:
    """Yield the rows of every batch, and the fraction of the training done before it."""
    n = samples // batch
    for epoch in range(epochs):
        order = rng.permutation(samples)
        for k in range(n):
            yield order[k * batch : (k + 1) * batch], (epoch * n + k) / (epochs * n)
