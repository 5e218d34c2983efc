"""Networks, models in classes, and what they keep."""

import dataclasses
import json
import logging
from collections import defaultdict, namedtuple
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

rng = np.random.default_rng(2)
X = rng.normal(size=(10, 4))
Y = np.sin(X.sum(axis=1))
IMAGES = rng.random((3, 8, 8))
LABELS = np.array([0, 2, 1])
log = logging.getLogger(__name__)


# perceptron


def mlp_dict(params):
    h = np.tanh(X.dot(params["W1"]) + params["b1"])
    out = h.dot(params["W2"]) + params["b2"]
    return np.mean((out.squeeze() - Y) ** 2)


def mlp_layers(layers):
    h = X
    for i, (W, b) in enumerate(layers):
        h = np.dot(h, W) + b
        if i < len(layers) - 1:
            h = np.maximum(0.1 * h, h)
    return np.mean((h[:, 0] - Y) ** 2)


def mlp_flat(theta):
    W1 = theta[:20].reshape(4, 5)
    b1 = theta[20:25]
    W2 = theta[25:30].reshape(5, 1)
    h = 1 / (1 + np.exp(-(X @ W1 + b1)))
    return np.mean(((h @ W2).ravel() - Y) ** 2)


# a model in a class


class Model:
    def __init__(self, n_in, n_hidden):
        self.W = np.zeros((n_in, n_hidden))
        self.v = np.ones(n_hidden) / n_hidden
        self.history = []
        self.calls = 0

    def forward(self, x):
        self.hidden = np.tanh(x.dot(self.W))
        self.output = self.hidden.dot(self.v)
        return self.output

    def loss(self, W):
        self.W = W
        self.calls += 1
        value = np.mean((self.forward(X) - Y) ** 2)
        self.history.append(value)
        return value


model = Model(4, 3)


def model_method(W):
    return model.loss(W)


def model_inside(W):
    m = Model(4, 3)
    m.W[:] = W
    prediction = m.forward(X)
    m.history.append(np.abs(prediction - Y).max())
    return ((prediction - Y) ** 2).mean() + 0.01 * m.history[-1]


class Layer:
    def __init__(self, name):
        self.name = name
        self.params = {}

    def __call__(self, x):
        return np.tanh(x @ self.params["W"] + self.params["b"])


class Network:
    def __init__(self):
        self.layers = [Layer("first"), Layer("second")]
        self.losses = []

    def set_params(self, params):
        for layer in self.layers:
            layer.params.update(params[layer.name])

    def __call__(self, params):
        self.set_params(params)
        out = reduce(lambda h, layer: layer(h), self.layers, X)
        loss = np.sum((out[:, 0] - Y) ** 2)
        self.losses += [loss]
        return loss


network = Network()


# parameters in classes of Python

Weights = namedtuple("Weights", ["w", "b", "scale"])


def named_tuple(p):
    out = p.scale * np.tanh(X @ p.w + p.b)
    return np.square(out - Y).sum()


@dataclass
class Settings:
    w: np.ndarray
    b: float
    name: str = "run 1"
    steps: list = field(default_factory=list)


def data_class(p):
    p2 = dataclasses.replace(p, b=p.b * 2)
    return np.mean((X @ p2.w + p2.b - Y) ** 2)


def data_class_unpacked(p):
    values = vars(p)
    prediction = X.dot(values["w"]) + values["b"]
    summary = {"name": p.name, "n": len(prediction)}
    assert json.loads(json.dumps(summary))["n"] == 10
    return float(len(p.name)) * np.mean((prediction - Y) ** 2)


# convolutional network


def conv_loops(image, kernel):
    h, w = image.shape
    k = kernel.shape[0]
    out = np.zeros((h - k + 1, w - k + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.sum(image[i : i + k, j : j + k] * kernel)
    return out


def pool(image):
    h, w = image.shape
    return image.reshape(h // 2, 2, w // 2, 2).max(axis=(1, 3))


def cnn_loops(params):
    loss = 0
    for image, label in zip(IMAGES, LABELS):
        h = pool(np.maximum(conv_loops(image, params["kernel"]), 0))
        z = h.flatten() @ params["W"]
        z = z - np.max(z)
        loss += -z[label] + np.log(np.sum(np.exp(z)))
    return loss / len(IMAGES)


def cnn_windows(params):
    k = params["kernel"].shape[0]
    windows = sliding_window_view(IMAGES, (k, k), axis=(1, 2))
    h = np.einsum("nijkl,kl->nij", windows, params["kernel"])
    h = np.where(h > 0, h, 0)
    h = h.reshape(3, 3, 2, 3, 2).max(axis=4).max(axis=2)
    z = h.reshape(3, -1).dot(params["W"])
    p = np.exp(z) / np.exp(z).sum(1)[:, None]
    return -np.log(p[np.arange(3), LABELS]).mean()


def cnn_scipy(params):
    from scipy.signal import correlate2d

    losses = []
    for image, label in zip(IMAGES, LABELS):
        h = correlate2d(image, params["kernel"], mode="valid")
        h[h < 0] = 0
        z = pool(h).ravel() @ params["W"]
        losses.append(np.log(np.exp(z).sum()) - z[label])
    return np.mean(losses)


# recurrent network

SEQUENCE = rng.normal(size=(6, 3))


def rnn_states(params):
    h = np.zeros(4)
    states = []
    for x in SEQUENCE:
        h = np.tanh(params["Wx"].dot(x) + params["Wh"].dot(h) + params["b"])
        states.append(h)
    return np.sum(np.array(states)[-1] ** 2) + np.stack(states).mean()


def rnn_preallocated(params):
    n = len(SEQUENCE)
    H = np.zeros((n + 1, 4))
    for t in range(n):
        H[t + 1] = np.tanh(params["Wx"] @ SEQUENCE[t] + params["Wh"] @ H[t] + params["b"])
    return np.sum(H[n] ** 2) + H[1:].mean()


def gru_cell(params):
    h = np.zeros((4,))
    sigmoid = lambda v: 1.0 / (1.0 + np.exp(-v))
    for t, x in enumerate(SEQUENCE):
        a = params["Wx"] @ x + params["b"]
        z = sigmoid(a + params["Wh"] @ h)
        h = (1 - z) * h + z * np.tanh(a)
        if t % 2 == 0:
            log.debug("step %d, |h| = %s", t, np.linalg.norm(h))
    return h.sum()


# attention


def attention(p):
    q, k, v = (X @ p[name] for name in ("q", "k", "v"))
    scores = q @ k.T / np.sqrt(q.shape[-1])
    mask = np.triu(np.ones_like(scores), 1).astype(bool)
    scores = np.where(mask, -np.inf, scores)
    w = np.exp(scores - scores.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    return np.square(w @ v).mean()


def attention_in_place(p):
    q, k, v = X @ p["q"], X @ p["k"], X @ p["v"]
    scores = np.einsum("id,jd->ij", q, k) / 2.0
    scores[np.triu_indices(len(X), 1)] = -1e9
    scores -= np.amax(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.sum(scores, axis=-1)[:, None]
    return (np.matmul(scores, v) ** 2).mean()


# layer normalisation and dropout


def normalised(p):
    h = X @ p["W"]
    mu, var = h.mean(axis=-1, keepdims=True), h.var(axis=-1, keepdims=True)
    h = p["gamma"] * (h - mu) / np.sqrt(var + 1e-5)
    keep = np.random.RandomState(0).rand(*h.shape) > 0.2
    return np.sum((h * keep / 0.8) ** 3)


# autoencoder and factorisation

RATINGS = rng.random((6, 5))
SEEN = rng.random((6, 5)) > 0.3


def factorise_masked(p):
    U, V = p
    error = (RATINGS - U.dot(V.T))[SEEN]
    return np.sum(error**2) + 0.1 * (np.linalg.norm(U) ** 2 + np.linalg.norm(V) ** 2)


def factorise_loop(p):
    U, V = p
    loss = 0.0
    for i, j in zip(*np.nonzero(SEEN)):
        loss += (RATINGS[i, j] - np.dot(U[i], V[j])) ** 2
    for row in U:
        loss += 0.1 * sum(x**2 for x in row)
    return loss


def factorise_ma(p):
    R = np.ma.array(RATINGS, mask=~SEEN)
    U, V = p
    E = np.where(R.mask, 0, R.data - U @ V.T)
    return np.vdot(E, E)


# training inside: the learning rate


def train_inside(lr):
    w = np.zeros(4)
    losses = defaultdict(list)
    for epoch in range(5):
        r = X @ w - Y
        g = 2 * X.T @ r / len(Y)
        w -= lr * g
        losses["train"].append(np.mean(r**2))
    return losses["train"][-1]


def train_momentum(lr):
    w, m = np.zeros(4), np.zeros(4)
    best = np.inf
    for epoch in range(5):
        r = X.dot(w) - Y
        m = 0.9 * m + X.T.dot(r) / len(Y)
        w = w - lr * m
        best = min(best, np.mean(r**2))
    print(f"best loss {best:.4f} with lr={lr}")
    return np.mean((X.dot(w) - Y) ** 2)


def r(*shape):
    return 0.5 * rng.normal(size=shape)


MLP = {"W1": r(4, 3), "b1": r(3), "W2": r(3, 1), "b2": r(1)}
CNN = {"kernel": r(3, 3), "W": r(9, 3)}
RNN = {"Wx": r(4, 3), "Wh": r(4, 4), "b": r(4)}
QKV = {"q": r(4, 3), "k": r(4, 3), "v": r(4, 2)}
NET = {"first": {"W": r(4, 3), "b": r(3)}, "second": {"W": r(3, 1), "b": r(1)}}
PROGRAMS = {
    "perceptron": [
        (mlp_dict, (MLP,)),
        (mlp_layers, ([(r(4, 3), r(3)), (r(3, 1), r(1))],)),
        (mlp_flat, (r(30),)),
    ],
    "model class": [
        (model_method, (r(4, 3),)),
        (model_inside, (r(4, 3),)),
        (model.loss, (r(4, 3),)),
    ],
    "network of layers": [(network, (NET,))],
    "named tuple": [(named_tuple, (Weights(r(4), 0.1, 1.2),))],
    "data class": [
        (data_class, (Settings(r(4), 0.3),)),
        (data_class_unpacked, (Settings(r(4), 0.3),)),
    ],
    "convolutional network": [(cnn_loops, (CNN,)), (cnn_windows, (CNN,)), (cnn_scipy, (CNN,))],
    "recurrent network": [(rnn_states, (RNN,)), (rnn_preallocated, (RNN,)), (gru_cell, (RNN,))],
    "attention": [(attention, (QKV,)), (attention_in_place, (QKV,))],
    "normalisation": [(normalised, ({"W": r(4, 3), "gamma": r(3)},))],
    "matrix factorisation": [
        (factorise_masked, ((r(6, 2), r(5, 2)),)),
        (factorise_loop, ((r(6, 2), r(5, 2)),)),
        (factorise_ma, ((r(6, 2), r(5, 2)),)),
    ],
    "learning rate": [(train_inside, (0.1,)), (train_momentum, (0.1,))],
}
