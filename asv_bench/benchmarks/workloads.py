"""Functions to differentiate, each written once as plain NumPy.

A body takes the array namespace as its first argument: NumPy for adarray and MyGrad,
``autograd.numpy``, ``jax.numpy``. PyTorch gets the same body where its names agree and
one of its own elsewhere. This module imports NumPy alone, for it is also loaded by the
interpreters that hold the peers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Arrays = tuple[np.ndarray, ...]


class Workload(NamedTuple):
    """One function with its data.

    Parameters
    ----------
    name : str
    body : callable
        ``body(np, *variables, *constants)`` returns a scalar.
    variables : callable
        ``variables(rng)`` returns the arrays to differentiate by.
    constants : callable, optional
        ``constants(rng)`` returns the other arrays.
    torch : callable, optional
        Body for PyTorch, where `body` does not run there.
    ops : int
        Number of recorded operations by which a time is divided; 0 for none.
    scan : callable, optional
        Second body for JAX, its loop written as ``lax.scan``: ``scan(jax, *arrays)``.
    """

    name: str
    body: Callable[..., Any]
    variables: Callable[[np.random.Generator], Arrays]
    constants: Callable[[np.random.Generator], Arrays] = lambda _: ()
    torch: Callable[..., Any] | None = None
    ops: int = 0
    scan: Callable[..., Any] | None = None

    def data(self) -> tuple[Arrays, Arrays]:
        """Return ``(variables, constants)``, the same on every call."""
        rng = np.random.default_rng(0)
        return self.variables(rng), self.constants(rng)


def sin_chain(np: Any, x: Any) -> Any:
    """Apply the sine a hundred times: the cost of one operation on three numbers."""
    for _ in range(100):
        x = np.sin(x)
    return np.sum(x)


def chain(np: Any, x: Any) -> Any:
    """Add up ``sin(x) exp(-x^2) + log1p(x^2)``."""
    return np.sum(np.sin(x) * np.exp(-x * x) + np.log1p(x * x))


def normal_cdf(np: Any, x: Any) -> Any:
    """Return the normal distribution function (Abramowitz and Stegun, 26.2.17)."""
    k = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = k * (
        0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429)))
    )
    tail = 0.3989422804014327 * np.exp(-0.5 * x * x) * poly
    return np.where(x > 0, 1.0 - tail, tail)


def black_scholes(np: Any, spot: Any, strike: Any, years: Any) -> Any:
    """Add up the prices of European calls at 2 % interest and 30 % volatility."""
    spread = 0.3 * np.sqrt(years)
    d1 = (np.log(spot / strike) + 0.065 * years) / spread
    price = spot * normal_cdf(np, d1) - strike * np.exp(-0.02 * years) * normal_cdf(np, d1 - spread)
    return np.sum(price)


def logistic_regression(np: Any, w: Any, x: Any, y: Any) -> Any:
    """Return the mean negative log-likelihood of labels 0 and 1."""
    z = x @ w
    return np.mean(np.logaddexp(0.0, z) - y * z)


def _logistic_regression_torch(torch: Any, w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return torch.mean(torch.nn.functional.softplus(z) - y * z)


def network(
    np: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, targets: Any
) -> Any:
    """Return the cross-entropy of a network of three layers; `targets` is one-hot."""
    hidden = np.maximum(x @ w1 + b1, 0.0)
    hidden = np.maximum(hidden @ w2 + b2, 0.0)
    scores = hidden @ w3 + b3
    scores = scores - np.max(scores, axis=1, keepdims=True)
    log_norm = np.log(np.sum(np.exp(scores), axis=1))
    return np.mean(log_norm - np.sum(scores * targets, axis=1))


def _network_torch(
    torch: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, targets: Any
) -> Any:
    hidden = torch.relu(x @ w1 + b1)
    hidden = torch.relu(hidden @ w2 + b2)
    return torch.nn.functional.cross_entropy(hidden @ w3 + b3, targets)


def rosenbrock(np: Any, x: Any) -> Any:
    """Return Rosenbrock's function of many variables."""
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def heat(np: Any, u: Any) -> Any:
    """Take twenty explicit steps of the heat equation on a periodic grid."""
    for _ in range(20):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u = u + 0.1 * (around - 4.0 * u)
    return np.sum(u * u)


def softmax_cross_entropy(np: Any, scores: Any, rows: Any, labels: Any) -> Any:
    """Return the mean cross-entropy of the softmax over many classes."""
    scores = scores - np.max(scores, axis=1, keepdims=True)
    log_norm = np.log(np.sum(np.exp(scores), axis=1))
    return np.mean(log_norm - scores[rows, labels])


def _softmax_cross_entropy_torch(torch: Any, scores: Any, _: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(scores, labels)


def tiny_ops(np: Any, x: Any) -> Any:
    """Two hundred operations on 32 numbers."""
    for _ in range(100):
        x = np.sin(x) * 1.01
    return np.sum(x)


def _normal(*shape: int, dtype: Any = np.float64) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: (rng.normal(size=shape).astype(dtype),)


def _options(n: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: (
        rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2.0, n)
    )  # fmt: skip


def network_parameters(rng: np.random.Generator, sizes: tuple[int, ...], dtype: Any) -> Arrays:
    """Return ``w1, b1, w2, b2, ...`` for layers of `sizes` (He et al., 2015)."""
    parameters: list[np.ndarray] = []
    for m, n in itertools.pairwise(sizes):
        parameters.append((rng.normal(size=(m, n)) * np.sqrt(2 / m)).astype(dtype))
        parameters.append(np.zeros(n, dtype))
    return tuple(parameters)


def _batch(rng: np.random.Generator, batch: int, inputs: int, dtype: Any) -> Arrays:
    targets = np.eye(10, dtype=dtype)[rng.integers(0, 10, batch)]
    return rng.uniform(size=(batch, inputs)).astype(dtype), targets


def make_network(batch: int, width: int, dtype: Any, name: str = "") -> Workload:
    """Return the 784-width-width-10 network on a batch of random pictures."""
    return Workload(
        name or f"mlp b{batch} h{width} f{np.dtype(dtype).itemsize * 8}",
        network,
        lambda rng: network_parameters(rng, (784, width, width, 10), dtype),
        lambda rng: _batch(rng, batch, 784, dtype),
        _network_torch,
    )


def make_logistic_regression(rows: int, columns: int) -> Workload:
    """Return the logistic regression of given size, float64."""
    return Workload(
        f"logreg {rows}x{columns}",
        logistic_regression,
        lambda rng: (rng.normal(size=columns) / np.sqrt(columns),),
        lambda rng: (
            rng.normal(size=(rows, columns)), rng.integers(0, 2, rows).astype(np.float64)
        ),
        _logistic_regression_torch,
    )  # fmt: skip


def make_softmax(rows: int, classes: int) -> Workload:
    """Return the softmax cross-entropy of given size, float32."""
    return Workload(
        f"softmax-xent {rows}x{classes} f32",
        softmax_cross_entropy,
        _normal(rows, classes, dtype=np.float32),
        lambda rng: (np.arange(rows), rng.integers(0, classes, rows)),
        _softmax_cross_entropy_torch,
    )


OVERHEAD = Workload("sin100 n=3", sin_chain, lambda _: (np.array([0.3, 0.4, 0.5]),), ops=100)
NETWORK = make_network(128, 256, np.float32, "mlp b128 784-256-256-10 f32")
LOGISTIC = make_logistic_regression(20_000, 500)

WORKLOADS: dict[str, Workload] = {
    w.name: w
    for w in (
        OVERHEAD,
        Workload("chain 1e3", chain, _normal(1_000)),
        Workload("chain 1e5", chain, _normal(100_000)),
        Workload("chain 1e6", chain, _normal(1_000_000)),
        Workload("blackscholes 1e6", black_scholes, _options(1_000_000)),
        LOGISTIC,
        make_network(128, 128, np.float32),
        NETWORK,
        make_network(512, 1024, np.float32),
        Workload("rosenbrock 1e6", rosenbrock, _normal(1_000_000)),
        Workload("heat20 1024", heat, _normal(1024, 1024)),
        make_softmax(2048, 4096),
        Workload("tiny200ops n=32", tiny_ops, _normal(32), ops=200),
    )
}

# Elementwise functions and a sum, one call: (name, ranges of the operands).
KERNELS: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((-3.0, 3.0),),
    "log": ((0.1, 10.0),),
    "sin": ((-10.0, 10.0),),
    "cos": ((-10.0, 10.0),),
    "tanh": ((-3.0, 3.0),),
    "expm1": ((-3.0, 3.0),),
    "log1p": ((-0.5, 10.0),),
    "power": ((0.1, 10.0), (-3.0, 3.0)),
    "add": ((-3.0, 3.0), (-3.0, 3.0)),
    "multiply": ((-3.0, 3.0), (-3.0, 3.0)),
    "sum": ((-3.0, 3.0),),
}


def kernel_data(name: str, n: int = 1_000_000) -> Arrays:
    """Return float64 operands of length `n` for one of `KERNELS`."""
    rng = np.random.default_rng(0)
    return tuple(rng.uniform(low, high, n) for low, high in KERNELS[name])


def fill_elements(np: Any, x: Any, n: int) -> Any:
    """Fill an array of `n` elements one by one."""
    y = np.zeros_like(x)
    for i in range(n):
        y[i] = x[i] * 2.0
    return np.sum(y * y)


def fill_rows(np: Any, x: Any, n: int) -> Any:
    """Fill a matrix of `n` rows row by row."""
    y = np.zeros_like(np.outer(x, x[:4]))
    for i in range(n):
        y[i] = x[i] * x[:4]
    return np.sum(y * y)


def recurrence(np: Any, x: Any, n: int) -> Any:
    """Fill an array where each element depends on the one before."""
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, n):
        y[i] = np.sin(y[i - 1]) + x[i]
    return np.sum(y * y)


INPLACE = {"elements": fill_elements, "rows": fill_rows, "recurrence": recurrence}
