"""The networks in plain NumPy, with their pre-activations marked as places for noise."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from adarray.estimators import noise_site

Params = dict[str, Any]


def dense(rng: np.random.Generator, rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
    """Return random weights of variance gain / rows (He et al., 2015: a gain of 2)."""
    return (rng.standard_normal((rows, columns)) * np.sqrt(gain / rows)).astype(np.float32)


def cross_entropy(logits: Any, targets: Any) -> Any:
    """Return the loss of each row; `targets` are zeros with a one at the class."""
    top = np.max(logits, axis=1, keepdims=True)
    total = np.log(np.sum(np.exp(logits - top), axis=1))
    return total + top[:, 0] - np.sum(logits * targets, axis=1)


# -- perceptron ------------------------------------------------------------------------------


def mlp_init(rng: np.random.Generator, sizes: tuple[int, ...]) -> Params:
    """Return weights ``w0, w1, ...`` and zero biases ``b0, b1, ...``."""
    params: Params = {}
    for k, (m, n) in enumerate(pairwise(sizes)):
        params[f"w{k}"] = dense(rng, m, n, 2.0)
        params[f"b{k}"] = np.zeros(n, np.float32)
    return params


def mlp(params: Params, x: Any) -> Any:
    """Return logits, shape (samples, classes), of rectified layers; sites ``layer0, ...``."""
    last = len(params) // 2 - 1
    for k in range(last + 1):
        v = noise_site(x @ params[f"w{k}"] + params[f"b{k}"], f"layer{k}")
        x = v if k == last else np.maximum(v, 0.0)
    return x


# -- recurrent network -----------------------------------------------------------------------


def lstm_init(
    rng: np.random.Generator, words: int, width: int, hidden: int, classes: int
) -> Params:
    """Return an embedding, the weights of the gates, and the output layer."""
    b = np.zeros(4 * hidden, np.float32)
    b[hidden : 2 * hidden] = 1.0  # remembers at first (Jozefowicz et al., 2015)
    return {
        "embedding": (0.1 * rng.standard_normal((words, width))).astype(np.float32),
        "wx": dense(rng, width, 4 * hidden),
        "wh": dense(rng, hidden, 4 * hidden),
        "b": b,
        "wo": dense(rng, hidden, classes),
        "bo": np.zeros(classes, np.float32),
    }


def sigmoid(x: Any) -> Any:
    """Return the logistic function."""
    return 1.0 / (1.0 + np.exp(-x))


def lstm(params: Params, words: Any, keep: Any) -> Any:
    """Return logits from the mean of an LSTM's states over the words of each text.

    Sites: ``embedding``, shape (samples, length, width); ``gates`` at every step; ``out``.

    Parameters
    ----------
    params : dict
    words : array, shape (samples, length), int64
        0 where there is none.
    keep : array, shape (samples, hidden), or a number
        What the mean is multiplied with: dropout's mask.
    """
    present = (words > 0).astype(np.float32)
    x = noise_site(params["embedding"][words], "embedding")
    h = c = pooled = np.zeros((len(words), params["wh"].shape[0]), np.float32)
    n = params["wh"].shape[0]
    for t in range(words.shape[1]):
        v = noise_site(x[:, t] @ params["wx"] + h @ params["wh"] + params["b"], "gates")
        here = present[:, t, None]
        c_new = sigmoid(v[:, n : 2 * n]) * c + sigmoid(v[:, :n]) * np.tanh(v[:, 2 * n : 3 * n])
        h_new = sigmoid(v[:, 3 * n :]) * np.tanh(c_new)
        # Where a text has ended, its state stays.
        c = c + here * (c_new - c)
        h = h + here * (h_new - h)
        pooled = pooled + here * h_new
    mean = pooled / np.sum(present, axis=1, keepdims=True) * keep
    return noise_site(mean @ params["wo"] + params["bo"], "out")


# -- graph convolution -----------------------------------------------------------------------


def gcn_init(rng: np.random.Generator, features: int, hidden: int, classes: int) -> Params:
    """Return the weights of two layers."""
    return {
        "w0": dense(rng, features, hidden, 2.0 * features / (features + hidden)),
        "b0": np.zeros(hidden, np.float32),
        "w1": dense(rng, hidden, classes, 2.0 * hidden / (hidden + classes)),
        "b1": np.zeros(classes, np.float32),
    }


def gcn(params: Params, aggregated: Any, rows: Any, keep_features: Any, keep: Any) -> Any:
    """Return the logits of some nodes from two graph convolutions (Kipf and Welling, 2017).

    Sites: ``hidden`` of all nodes and ``out`` of those that are asked for.

    Parameters
    ----------
    params : dict
    aggregated : array, shape (all nodes, features)
        The features after aggregation, which are the same in every epoch.
    rows : array, shape (nodes, all nodes)
        The nodes' rows of the normalised adjacency matrix.
    keep_features, keep : arrays, shapes (features, 1) and (all nodes, hidden), or numbers
        Masks of dropout: words that are left out, and hidden units of nodes.
    """
    v = noise_site(aggregated @ (keep_features * params["w0"]) + params["b0"], "hidden")
    h = np.maximum(v, 0.0) * keep
    return noise_site(rows @ (h @ params["w1"]) + params["b1"], "out")
