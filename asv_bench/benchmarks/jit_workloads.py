"""What `jit` is measured on: functions of plain NumPy with the least work that they need.

Bodies take the array namespace first, as in `workloads`. A loop that JAX cannot unroll in
reasonable time has a second body for it, written with ``lax.scan``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .workloads import (
    NETWORK,
    Arrays,
    Workload,
    black_scholes,
    chain,
    make_logistic_regression,
    make_network,
    rosenbrock,
    tiny_ops,
)

Functions = dict[str, float]


class JitWorkload(NamedTuple):
    """A workload and the least work that its value and gradient need.

    Parameters
    ----------
    workload : Workload
    dtype : str
        Of its arithmetic.
    moved : float
        Bytes that must be read or written once: arguments and gradients.
    flops : float
        Operations in matrix products, value and gradient.
    functions : dict
        How often each elementary function (``exp``, ``divide``, ...) must be evaluated.
    kind : {"elementwise", "memory", "product", "tiny"}
        What limits it, and so which target holds: ``memory`` means that it goes over large
        arrays with little arithmetic, ``product`` that matrix products take most of its time.
    footprint : float, optional
        Bytes that are touched again and again, where they are fewer than `moved`.
    reads_only : bool, optional
        Whether next to nothing is written.
    """

    workload: Workload
    dtype: str
    kind: str
    moved: float
    flops: float = 0.0
    functions: Functions = {}  # noqa: RUF012  (never changed)
    footprint: float = 0.0
    reads_only: bool = False

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.workload.name


# -- bodies -------------------------------------------------------------------------------


def make_heat(steps: int) -> Callable[..., Any]:
    """Return explicit steps of the heat equation on a periodic grid."""

    def heat(np: Any, u: Any) -> Any:
        for _ in range(steps):
            around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
            u = u + 0.1 * (around - 4.0 * u)
        return np.sum(u * u)

    return heat


def _heat_scan(steps: int) -> Callable[..., Any]:
    def heat(jax: Any, u: Any) -> Any:
        np = jax.numpy

        def step(u: Any, _: Any) -> Any:
            around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
            return u + 0.1 * (around - 4.0 * u), None

        u, _ = jax.lax.scan(step, u, None, length=steps)
        return np.sum(u * u)

    return heat


def n_body(np: Any, x: Any, y: Any, z: Any, mass: Any) -> Any:
    """Return the softened potential energy of all pairs of bodies."""
    dx = x[:, None] - x[None, :]
    dy = y[:, None] - y[None, :]
    dz = z[:, None] - z[None, :]
    distance = np.sqrt(dx * dx + dy * dy + dz * dz + 0.01)
    return -0.5 * np.sum(mass[:, None] * mass[None, :] / distance)


def cross_entropy(np: Any, scores: Any, labels: Any) -> Any:
    """Return the mean cross-entropy of the softmax over many classes."""
    scores = scores - np.max(scores, axis=1, keepdims=True)
    log_norm = np.log(np.sum(np.exp(scores), axis=1))
    return np.mean(log_norm - scores[np.arange(len(labels)), labels])


def _cross_entropy_torch(torch: Any, scores: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(scores, labels)


def mixture(np: Any, logits: Any, means: Any, log_scales: Any, x: Any) -> Any:
    """Return the negative log-likelihood of a mixture of Gaussians, diagonal covariances."""
    scaled = (x[:, None, :] - means) * np.exp(-log_scales)
    weights = logits - np.log(np.sum(np.exp(logits)))
    joint = weights - np.sum(log_scales, axis=1) - 0.5 * np.sum(scaled * scaled, axis=2)
    top = np.max(joint, axis=1, keepdims=True)
    return -np.mean(np.log(np.sum(np.exp(joint - top), axis=1)) + top[:, 0])


def _mixture_torch(torch: Any, logits: Any, means: Any, log_scales: Any, x: Any) -> Any:
    scaled = (x[:, None, :] - means) * torch.exp(-log_scales)
    weights = torch.log_softmax(logits, 0)
    joint = weights - torch.sum(log_scales, 1) - 0.5 * torch.sum(scaled * scaled, 2)
    return -torch.mean(torch.logsumexp(joint, 1))


def recurrent_network(
    np: Any, w_in: Any, w_hidden: Any, bias: Any, w_out: Any, inputs: Any, targets: Any
) -> Any:
    """Return the squared error of a recurrent network after its last step."""
    hidden = np.zeros((inputs.shape[1], bias.shape[0]), dtype=inputs.dtype)
    for t in range(len(inputs)):
        hidden = np.tanh(inputs[t] @ w_in + hidden @ w_hidden + bias)
    return np.mean((hidden @ w_out - targets) ** 2)


def _recurrent_network_scan(
    jax: Any, w_in: Any, w_hidden: Any, bias: Any, w_out: Any, inputs: Any, targets: Any
) -> Any:
    np = jax.numpy

    def step(hidden: Any, x: Any) -> Any:
        return np.tanh(x @ w_in + hidden @ w_hidden + bias), None

    start = np.zeros((inputs.shape[1], bias.shape[0]), inputs.dtype)
    hidden, _ = jax.lax.scan(step, start, inputs)
    return np.mean((hidden @ w_out - targets) ** 2)


def layer_norm(np: Any, x: Any, scale: Any, shift: Any) -> Any:
    """Normalise every row, scale and shift it, and average the squared tanh."""
    centred = x - np.mean(x, axis=1, keepdims=True)
    variance = np.mean(centred * centred, axis=1, keepdims=True)
    y = np.tanh(centred / np.sqrt(variance + 1e-5) * scale + shift)
    return np.mean(y * y)


def _layer_norm_torch(torch: Any, x: Any, scale: Any, shift: Any) -> Any:
    y = torch.tanh(torch.nn.functional.layer_norm(x, x.shape[1:], scale, shift, 1e-5))
    return torch.mean(y * y)


def kepler(np: Any, mean: Any, eccentricity: Any) -> Any:
    """Solve Kepler's equation by Newton's method, and add up the cosines of the anomalies."""
    anomaly = mean + eccentricity * np.sin(mean)
    error = 1.0
    while error > 1e-10:
        step = (anomaly - eccentricity * np.sin(anomaly) - mean) / (
            1.0 - eccentricity * np.cos(anomaly)
        )
        anomaly = anomaly - step
        error = np.max(np.abs(step))
    return np.sum(np.cos(anomaly))


# -- data ---------------------------------------------------------------------------------


def _options(n: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: (
        rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2.0, n)
    )  # fmt: skip


def _normal(shape: tuple[int, ...], dtype: str) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: (rng.normal(size=shape).astype(dtype),)


def make_chain(n: int, dtype: str) -> JitWorkload:
    """Return the elementwise chain on `n` numbers."""
    size = np.dtype(dtype).itemsize
    name = f"chain 1e{len(str(n)) - 1}" + (" f32" if size == 4 else "")
    kind = "tiny" if n <= 1000 else "elementwise"
    # The gradient needs the cosine, and a quotient for log1p.
    functions = dict.fromkeys(("sin", "cos", "exp", "log1p", "divide"), float(n))
    return JitWorkload(
        Workload(name, chain, _normal((n,), dtype)), dtype, kind, 2.0 * n * size, 0.0, functions
    )


def make_black_scholes(n: int) -> JitWorkload:
    """Return the prices of `n` options: gradients by spot, strike and time."""
    # Two distribution functions: an exponential and a quotient each, whose squares serve
    # the gradient; log and quotient for d1, the root and a quotient, the discount.
    functions = {"exp": 3.0 * n, "log": n, "sqrt": n, "divide": 4.0 * n}
    w = Workload("blackscholes 1e6", black_scholes, _options(n))
    return JitWorkload(w, "float64", "elementwise", 6.0 * 8 * n, 0.0, functions)


def make_regression(rows: int, columns: int) -> JitWorkload:
    """Return logistic regression: two products with the matrix, which is read once."""
    w = make_logistic_regression(rows, columns)
    functions = {"exp": float(rows), "log1p": float(rows), "divide": float(rows)}
    moved = 8.0 * rows * (columns + 1)
    return JitWorkload(w, "float64", "memory", moved, 0.0, functions, reads_only=True)


def sized_network(w: Workload, batch: int, width: int) -> JitWorkload:
    """Return a network that `make_network` made, with the work that it needs."""
    sizes = (784, width, width, 10)
    products = [2.0 * batch * m * n for m, n in itertools.pairwise(sizes)]
    parameters = sum(m * n for m, n in itertools.pairwise(sizes))
    flops = 3 * sum(products) - products[0]  # no gradient by the pictures
    moved = 4.0 * (2 * parameters + 784 * batch)
    return JitWorkload(w, "float32", "product", moved, flops)


def make_heat_equation(n: int, steps: int, dtype: str = "float64") -> JitWorkload:
    """Return `steps` steps on an `n` by `n` grid."""
    size = np.dtype(dtype).itemsize
    name = f"heat{steps} {n}" + (" f32" if size == 4 else "")
    w = Workload(name, make_heat(steps), _normal((n, n), dtype), scan=_heat_scan(steps))
    # As if every step, forward and backward, read and wrote the grid once.
    moved = 2.0 * 2 * steps * size * n * n
    return JitWorkload(w, dtype, "memory", moved, footprint=2.0 * size * n * n)


def make_n_body(n: int) -> JitWorkload:
    """Return the energy of `n` bodies."""

    def bodies(rng: np.random.Generator) -> Arrays:
        return tuple(rng.normal(size=n) for _ in range(3))

    w = Workload(f"nbody {n}", n_body, bodies, lambda rng: (rng.uniform(0.5, 1.5, n),))
    functions = {"sqrt": float(n * n), "divide": float(n * n)}
    return JitWorkload(w, "float64", "elementwise", 7.0 * 8 * n, 0.0, functions)


def make_cross_entropy(rows: int, classes: int) -> JitWorkload:
    """Return the softmax cross-entropy."""
    w = Workload(
        f"softmax-xent {rows}x{classes} f32",
        cross_entropy,
        _normal((rows, classes), "float32"),
        lambda rng: (rng.integers(0, classes, rows),),
        _cross_entropy_torch,
    )
    size = rows * classes
    return JitWorkload(w, "float32", "memory", 2.0 * 4 * size, 0.0, {"exp": float(size)})


def make_mixture(n: int, parts: int, dims: int) -> JitWorkload:
    """Return a mixture of `parts` Gaussians in `dims` dimensions."""

    def parameters(rng: np.random.Generator) -> Arrays:
        shape = (parts, dims)
        return rng.normal(size=parts), rng.normal(size=shape), 0.1 * rng.normal(size=shape)

    w = Workload(
        f"mixture {n}x{parts}x{dims}",
        mixture,
        parameters,
        lambda rng: (rng.normal(size=(n, dims)),),
        _mixture_torch,
    )
    functions = {"exp": float(n * parts), "log": float(n), "divide": float(n)}
    return JitWorkload(w, "float64", "elementwise", 8.0 * n * dims, 0.0, functions)


def make_recurrent_network(steps: int, batch: int, width: int) -> JitWorkload:
    """Return a recurrent network with `width` inputs and states, one output."""

    def parameters(rng: np.random.Generator) -> Arrays:
        parameters = (
            rng.normal(size=(width, width)) / np.sqrt(width),
            rng.normal(size=(width, width)) / np.sqrt(width),
            np.zeros(width),
            rng.normal(size=(width, 1)) / np.sqrt(width),
        )
        return tuple(x.astype("float32") for x in parameters)

    def series(rng: np.random.Generator) -> Arrays:
        inputs = rng.normal(size=(steps, batch, width))
        return inputs.astype("float32"), rng.normal(size=(batch, 1)).astype("float32")

    w = Workload(
        f"rnn{steps} b{batch} h{width} f32",
        recurrent_network,
        parameters,
        series,
        scan=_recurrent_network_scan,
    )
    product = 2.0 * steps * batch * width * width
    moved = 4.0 * (4 * width * width + steps * batch * width)
    functions = {"tanh": float(steps * batch * width)}
    return JitWorkload(w, "float32", "product", moved, 5 * product, functions)


def make_layer_norm(rows: int, columns: int) -> JitWorkload:
    """Return the layer norm followed by a tanh."""

    def data(rng: np.random.Generator) -> Arrays:
        shift = 0.1 * rng.normal(size=(2, columns))
        parameters = (rng.normal(size=(rows, columns)), 1.0 + shift[0], shift[1])
        return tuple(x.astype("float32") for x in parameters)

    w = Workload(f"layernorm {rows}x{columns} f32", layer_norm, data, torch=_layer_norm_torch)
    size = rows * columns
    return JitWorkload(w, "float32", "memory", 2.0 * 4 * size, 0.0, {"tanh": float(size)})


def make_kepler(n: int) -> JitWorkload:
    """Return Kepler's equation for `n` bodies; the data take five Newton steps."""

    def orbits(rng: np.random.Generator) -> Arrays:
        return rng.uniform(0.0, 2 * np.pi, n), rng.uniform(0.0, 0.7, n)

    w = Workload(f"while-kepler 1e{len(str(n)) - 1}", kepler, orbits)
    functions = {"sin": 7.0 * n, "cos": 6.0 * n, "divide": 10.0 * n}
    return JitWorkload(w, "float64", "elementwise", 4.0 * 8 * n, 0.0, functions)


def make_tiny(dtype: str) -> JitWorkload:
    """Return two hundred operations on 32 numbers."""
    size = np.dtype(dtype).itemsize
    name = "tiny200ops n=32" + (" f32" if size == 4 else "")
    w = Workload(name, tiny_ops, _normal((32,), dtype), ops=200)
    functions = {"sin": 3200.0, "cos": 3200.0}
    return JitWorkload(w, dtype, "tiny", 2.0 * size * 32, 0.0, functions)


TINY = make_tiny("float64")

JIT_WORKLOADS: dict[str, JitWorkload] = {
    w.name: w
    for w in (
        *(make_chain(n, t) for t in ("float64", "float32") for n in (10**3, 10**5, 10**7)),
        make_black_scholes(1_000_000),
        make_regression(20_000, 500),
        sized_network(make_network(128, 128, np.float32), 128, 128),
        sized_network(NETWORK, 128, 256),
        sized_network(make_network(512, 1024, np.float32), 512, 1024),
        JitWorkload(
            Workload("rosenbrock 1e6", rosenbrock, _normal((1_000_000,), "float64")),
            "float64",
            "memory",
            2.0 * 8e6,
        ),
        make_heat_equation(1024, 20),
        make_heat_equation(1024, 200),
        make_n_body(1500),
        make_cross_entropy(2048, 4096),
        make_mixture(20_000, 16, 8),
        make_recurrent_network(50, 64, 128),
        make_layer_norm(4096, 1024),
        TINY,
        make_kepler(100_000),
    )
}

# For compile time alone: peers take minutes.
LONG = make_recurrent_network(1000, 16, 32)
EVERY: dict[str, JitWorkload] = {**JIT_WORKLOADS, LONG.name: LONG}
