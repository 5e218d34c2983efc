"""Times of forward and backward passes on one backend."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import adarray
from adarray.bench.studies import (
    OPERATORS,
    RATE,
    network,
    network_loss,
    operands,
    parameters,
)
from adarray.runtime import current_mode

SAMPLE_S = 0.004  # of one sample, of several calls where they are short
SAMPLES = 5
LONG_S = 0.05  # of a call of which one sample must do
VERY_LONG_S = 2.0  # of a first call, so long that what it compiled does not count


class Row(NamedTuple):
    """One measured time.

    Parameters
    ----------
    study : {"threads", "sizes", "network"}
    name : str
        Operation, or ``"network"``.
    backend : str
    threads : int or None
        Of a block; None where they were chosen.
    n : int
        Rows and columns of a matrix, or the number of parameters.
    forward, backward : float
        Seconds; of the network's step, which is compiled as one, ``forward`` is all of it.
    """

    study: str
    name: str
    backend: str
    threads: int | None
    n: int
    forward: float
    backward: float


def wait() -> None:
    """Wait for the device, if the backend computes on one."""
    synchronize = getattr(current_mode().engine, "synchronize", None)
    if synchronize is not None:
        synchronize()


def seconds(call: Callable[[], Any]) -> float:
    """Return the median time of a call, of several in a row that are waited for at last."""

    def row(count: int) -> float:
        start = perf_counter()
        for _ in range(count):
            call()
        wait()
        return perf_counter() - start

    first = row(1)
    if first > VERY_LONG_S:
        return first
    once = row(1)
    if once > LONG_S:
        return once
    count = max(1, round(SAMPLE_S / max(once, 1e-7)))
    return statistics.median(row(count) for _ in range(SAMPLES)) / count


def operator(name: str, n: int, dtype: str) -> tuple[float, float]:
    """Return the times of an operation that is recorded, and of pulling a cotangent back."""
    f = OPERATORS[name].function
    xs = [adarray.array(x) for x in operands(OPERATORS[name], n, dtype)]
    y, pullback = adarray.vjp(f, *xs)
    g = adarray.array(np.cos(np.arange(y.size)).reshape(y.shape).astype(dtype))
    return seconds(lambda: adarray.vjp(f, *xs)), seconds(lambda: pullback(g))


def step(width: int, dtype: str) -> float:
    """Return the time of a compiled step of gradient descent."""
    weights, data = network(width, dtype)
    count = len(weights)
    state = [adarray.array(x) for x in weights]
    rest = [adarray.array(x) for x in data]
    g = adarray.value_and_grad(network_loss, argnums=tuple(range(count)))

    @adarray.jit
    def compiled(*arrays: Any) -> Any:
        value, slopes = g(*arrays)
        return value, [p - RATE * s for p, s in zip(arrays[:count], slopes, strict=True)]

    def call() -> None:
        state[:] = compiled(*state, *rest)[1]

    for _ in range(3):  # two runs are recorded
        call()
    return seconds(call)


def size_row(study: str, name: str, backend: str, threads: int | None, n: int, dtype: str) -> Row:
    """Measure an operation in the current `use` block."""
    return Row(study, name, backend, threads, n, *operator(name, n, dtype))


def network_row(backend: str, width: int, dtype: str) -> Row:
    """Measure a step of the network in the current `use` block."""
    count = parameters(width)
    return Row("network", "network", backend, None, count, step(width, dtype), 0.0)
