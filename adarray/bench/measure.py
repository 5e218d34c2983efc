"""Times of forward and backward passes on one backend."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import adarray
from adarray.base.runtime import current_mode
from adarray.bench.studies import (
    NUMPY,
    OPERATORS,
    RATE,
    drawn,
    network,
    network_loss,
    operands,
    parameters,
)

SAMPLE_S = 0.004  # of one sample, of several calls where they are short
SAMPLES = 5
ONCE_S = 3.0  # of a first call, so long that what it warmed up does not count
# Steps of the network before it is timed: two are recorded, and where results lie settles.
RECORDED, WARM, WARM_S = 3, 16, 0.2


class Measurement(NamedTuple):
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
        Seconds; of the network's step, which is compiled as one, ``forward`` is all of it. NumPy
        by itself has no backward pass: its rows have the function's time, and 0.
    """

    study: str
    name: str
    backend: str
    threads: int | None
    n: int
    forward: float
    backward: float


class Data:
    """Operands in the memory of the backend that is used, drawn and sent once.

    Those of one backend and one size are kept.

    Parameters
    ----------
    dtype : str
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._of: tuple[str, int] | None = None
        self._sent: dict[tuple[str, int], Any] = {}

    def operands(self, name: str, backend: str, n: int) -> list[Any]:
        """Return the operands of an operation."""
        hows = OPERATORS[name].operands
        return [self._array(backend, n, how, place) for place, how in enumerate(hows)]

    def cotangent(self, shape: tuple[int, ...], backend: str, n: int) -> Any:
        """Return a cotangent of a result."""
        return self._array(backend, n, "matrix" if len(shape) == 2 else "row", -1)

    def _array(self, backend: str, n: int, how: str, place: int) -> Any:
        if (backend, n) != self._of:
            self._sent.clear()
            self._of = backend, n
        array = self._sent.get((how, place))
        if array is None:
            array = self._sent[how, place] = adarray.array(drawn(how, place, n, self.dtype))
        return array


def wait() -> None:
    """Wait for the device, if the backend computes on one."""
    engine = current_mode().engine
    if engine is not None:
        engine.synchronize()


def seconds(call: Callable[[], Any], allowed: float = float("inf")) -> float:
    """Return the median time of a call, of several in a row that are waited for at last.

    Parameters
    ----------
    call : callable
    allowed : float
        Seconds for all samples: fewer are taken if these do not suffice for `SAMPLES`, and
        none beside the first two calls if they do not suffice for one.
    """

    def row(count: int) -> float:
        start = perf_counter()
        for _ in range(count):
            call()
        wait()
        return perf_counter() - start

    first = row(1)
    if first > ONCE_S:
        return first
    once = max(row(1), 1e-7)
    count = max(1, round(SAMPLE_S / once))
    samples = int(min(allowed / (once * count), SAMPLES))
    if samples < 1:
        return once
    return statistics.median(row(count) for _ in range(samples)) / count


def operator(
    name: str, backend: str, n: int, data: Data, allowed: float = float("inf")
) -> tuple[float, float]:
    """Return the times of an operation that is recorded, and of pulling a cotangent back."""
    f = OPERATORS[name].function
    xs = data.operands(name, backend, n)
    start = perf_counter()
    y, pullback = adarray.vjp(f, *xs)
    wait()
    forward = perf_counter() - start
    g = data.cotangent(y.shape, backend, n)
    if forward < ONCE_S:
        forward = seconds(lambda: adarray.vjp(f, *xs), allowed / 2)
    return forward, seconds(lambda: pullback(g), allowed / 2)


def step(width: int, dtype: str, allowed: float = float("inf")) -> float:
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

    for _ in range(RECORDED):
        call()
    wait()
    until = perf_counter() + min(allowed, WARM_S)
    for _ in range(WARM):
        if perf_counter() > until:
            break
        call()
    return seconds(call, allowed)


def size_row(
    study: str, name: str, backend: str, n: int, threads: int | None, data: Data, allowed: float
) -> Measurement:
    """Measure an operation in the current `use` block."""
    if backend == NUMPY:
        xs = operands(OPERATORS[name], n, data.dtype)
        forward = seconds(lambda: OPERATORS[name].function(*xs), allowed)
        return Measurement(study, name, backend, threads, n, forward, 0.0)
    return Measurement(study, name, backend, threads, n, *operator(name, backend, n, data, allowed))


def network_row(backend: str, width: int, dtype: str, allowed: float) -> Measurement:
    """Measure a step of the network in the current `use` block; of NumPy, its loss alone."""
    if backend == NUMPY:
        weights, data = network(width, dtype)
        time = seconds(lambda: network_loss(*weights, *data), allowed)
        return Measurement("network", "network", backend, None, parameters(width), time, 0.0)
    time = step(width, dtype, allowed)
    return Measurement("network", "network", backend, None, parameters(width), time, 0.0)
