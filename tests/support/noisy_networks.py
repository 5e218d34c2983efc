"""Small networks with a noise site in each layer, for tests of estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.estimators import noise_site
from adarray.ops.nn import conv2d


class Network(NamedTuple):
    """A function of parameters and data that returns the losses of samples."""

    f: Callable[..., Any]
    params: dict[str, Any]
    data: tuple[Any, ...]


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def dense() -> Network:
    rng = np.random.default_rng(0)

    def f(w: Any, x: Any, y: Any) -> Any:
        h = np.tanh(noise_site(x @ w["a"] + w["b"], "first"))
        return (noise_site(h @ w["c"], "second") - y) ** 2

    params = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=2), "c": rng.normal(size=2)}
    return Network(f, params, (rng.normal(size=(4, 3)), rng.normal(size=4)))


def conv() -> Network:
    rng = np.random.default_rng(1)

    def f(w: Any, x: Any, y: Any) -> Any:
        h = np.tanh(noise_site(conv2d(x, w["k"]), "conv"))
        return np.sum((noise_site(h.reshape(len(x), -1) @ w["c"], "out") - y) ** 2, axis=1)

    params = {"k": rng.normal(size=(2, 1, 2, 2)), "c": rng.normal(size=(8, 2)) / 2}
    return Network(f, params, (rng.normal(size=(3, 1, 3, 3)), rng.normal(size=(3, 2))))


def kernels() -> Network:
    """Return a convolution with noise on the weights, one draw for each copy."""
    network = conv()

    def f(w: Any, x: Any, y: Any) -> Any:
        h = np.tanh(conv2d(x, noise_site(w["k"], "weights")))
        return np.sum((h.reshape(len(x), -1) @ w["c"] - y) ** 2, axis=1)

    return Network(f, network.params, network.data)


def _recurrent(seed: int, gates: int, step: Callable[..., Any], width: int = 2) -> Network:
    rng = np.random.default_rng(seed)

    def f(w: Any, x: Any, y: Any) -> Any:
        state: Any = (np.zeros((len(x), width)), np.zeros((len(x), width)))
        for t in range(x.shape[1]):
            state = step(w, x[:, t], state)
        return (noise_site(state[0] @ w["out"], "out") - y) ** 2

    params = {
        "x": rng.normal(size=(3, gates * width)) / 2,
        "h": rng.normal(size=(width, gates * width)) / 2,
        "b": rng.normal(size=gates * width) / 2,
        "out": rng.normal(size=width),
    }
    return Network(f, params, (rng.normal(size=(3, 3, 3)), rng.normal(size=3)))


def rnn() -> Network:
    def step(w: Any, x: Any, state: Any) -> Any:
        h, c = state
        return np.tanh(noise_site(h @ w["h"] + x @ w["x"] + w["b"], "cell")), c

    return _recurrent(2, 1, step)


def lstm() -> Network:
    def step(w: Any, x: Any, state: Any) -> Any:
        h, c = state
        v = noise_site(h @ w["h"] + x @ w["x"] + w["b"], "cell")
        i, o, g = _sigmoid(v[:, :2]), _sigmoid(v[:, 4:6]), np.tanh(v[:, 6:])
        c = _sigmoid(v[:, 2:4]) * c + i * g
        return o * np.tanh(c), c

    return _recurrent(3, 4, step)


def gru() -> Network:
    def step(w: Any, x: Any, state: Any) -> Any:
        h, c = state
        u = noise_site(x @ w["x"] + w["b"], "from input")
        v = noise_site(h @ w["h"], "from state")
        r, z = _sigmoid(u[:, :2] + v[:, :2]), _sigmoid(u[:, 2:4] + v[:, 2:4])
        n = np.tanh(u[:, 4:] + r * v[:, 4:])
        return (1.0 - z) * n + z * h, c

    return _recurrent(4, 3, step)


# A path of five nodes, with the aggregation of graph convolutions: a node sees its neighbours.
_LINKS = np.eye(5) + np.eye(5, k=1) + np.eye(5, k=-1)
_ROOTS = np.sqrt(_LINKS.sum(axis=1))
AGGREGATE = _LINKS / _ROOTS[:, None] / _ROOTS


def gcn() -> Network:
    rng = np.random.default_rng(5)

    def f(w: Any, x: Any, y: Any) -> Any:
        h = np.tanh(noise_site(AGGREGATE @ (x @ w["first"]), "first"))
        return np.sum((noise_site(AGGREGATE @ (h @ w["second"]), "second") - y) ** 2, axis=1)

    params = {"first": rng.normal(size=(3, 2)), "second": rng.normal(size=(2, 2))}
    return Network(f, params, (rng.normal(size=(5, 3)), rng.normal(size=(5, 2))))


# A node's losses of the first layer: its own and those of its neighbours.
LOCAL = {"first": (AGGREGATE > 0).astype(float), "second": "rows"}
NETWORKS = {
    "dense": dense,
    "conv": conv,
    "kernels": kernels,
    "rnn": rnn,
    "lstm": lstm,
    "gru": gru,
    "gcn": gcn,
}
