"""The three experiments: data, network, batches, settings of each method, accuracy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from asv_bench.likelihood_ratio import data, models
from asv_bench.likelihood_ratio.methods import BP, Method

Batch = tuple[Any, ...]


class Problem(ABC):
    """A training problem: data, network and optimiser.

    Attributes
    ----------
    title : str
    network : str
    methods : dict of str to Method
    epochs, batch : int
    rate : float
        Of Adam; it falls along a half cosine.
    penalty : dict of str to float
        Squared-norm penalties of parameters, by name.
    chosen : bool
        Whether the accuracy reported is that of the epoch with the best accuracy on held-out
        samples, else that of the last one.
    """

    name: str
    title: str
    network: str
    methods: dict[str, Method]
    epochs: int
    rate: float
    penalty: dict[str, float]
    chosen = False

    @abstractmethod
    def init(self, rng: np.random.Generator) -> models.Params:
        """Return the first weights."""

    @abstractmethod
    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the arguments of `losses` behind the parameters, for one epoch."""

    @staticmethod
    @abstractmethod
    def losses(params: models.Params, *batch: Any) -> Any:
        """Return one loss per sample."""

    @staticmethod
    @abstractmethod
    def logits(params: models.Params, *inputs: Any) -> Any:
        """Return logits without dropout."""

    @abstractmethod
    def parts(self) -> dict[str, tuple[list[Batch], np.ndarray]]:
        """Return ``inputs of logits, labels`` of the sets that accuracy is measured on."""

    def estimator_options(self) -> dict[str, Any]:
        """Return further arguments of the estimators."""
        return {}


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    """Return rows of zeros with a one at each label, float32."""
    return np.eye(classes, dtype=np.float32)[labels]


def chunks(x: np.ndarray, size: int) -> list[Batch]:
    """Return rows in parts of at most `size`."""
    return [(x[k : k + size],) for k in range(0, len(x), size)]


def outputs_only(exact: tuple[str, ...], copies: int) -> Method:
    """Return LR-M: noise at the network's outputs, and exact derivatives below them."""
    how = {"copies": copies, "sigma": 0.1, "directions": "hadamard", "exact": exact}
    return Method("LR-M", how, redraw=50)


class Mnist(Problem):
    """A perceptron with one hidden layer; images are shifted by up to one pixel."""

    name = "mnist"
    rate = 2e-3

    def __init__(self, epochs: int | None = None, quick: bool = False) -> None:
        self.data = d = data.load("mnist")
        self.title = d.name
        self.small = d.x_train.shape[1] < 28
        self.hidden = 32 if self.small else 256
        pixels = d.x_train[0].size
        self.network = f"perceptron {pixels}-{self.hidden}-10"
        self.epochs = epochs or (2 if quick else 30 if self.small else 12)
        # Eight pixels are few for shifts.
        self.batch, self.most = (32, 0) if self.small else (128, 1)
        self.penalty = {}
        self.samples = 1280 if quick else len(d.y_train)
        full = {"sigma": 1.0, "antithetic": False, "baseline": None, "mode": "full"}
        pairs = {"copies": 2 * self.hidden, "sigma": 0.1, "directions": "hadamard"}
        self.methods = {
            "bp": BP,
            "lr-f": Method("LR-F", {"copies": 10, **full}, 0.5),
            "lr-f-pairs": Method("LR-F, pairs", {"copies": 64, "sigma": 0.1, "mode": "full"}),
            "lr-l": Method("LR-L", pairs),
            "lr-l-64": Method("LR-L, few", {**pairs, "copies": 64}),
            "lr-m": outputs_only(("layer0",), 32),
        }

    def init(self, rng: np.random.Generator) -> models.Params:
        """Return the first weights."""
        return models.mlp_init(rng, (self.data.x_train[0].size, self.hidden, 10))

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        d, n = self.data, self.batch
        order = rng.permutation(len(d.y_train))[: self.samples]
        for k in range(0, len(order) - n + 1, n):
            rows = np.sort(order[k : k + n])
            x = shifted(d.x_train[rows], *rng.integers(-self.most, self.most + 1, 2))
            yield x.reshape(n, -1) * np.float32(1 / 255), one_hot(d.y_train[rows], 10)

    @staticmethod
    def losses(params: models.Params, *batch: Any) -> Any:
        """Return one loss per sample."""
        x, targets = batch
        return models.cross_entropy(models.mlp(params, x), targets)

    @staticmethod
    def logits(params: models.Params, *inputs: Any) -> Any:
        """Return logits without dropout."""
        return models.mlp(params, *inputs)

    def parts(self) -> dict[str, tuple[list[Batch], np.ndarray]]:
        """Return inputs and labels of what is measured."""
        x = self.data.x_test
        rows = x.reshape(len(x), -1) * np.float32(1 / 255)
        return {"test": ([(rows,)], self.data.y_test)}


def shifted(images: np.ndarray, down: int, right: int) -> np.ndarray:
    """Return images moved by some pixels; what comes in is black."""
    _, height, width = images.shape
    moved = np.zeros_like(images)
    moved[:, max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = images[
        :, max(-down, 0) : height + min(-down, 0), max(-right, 0) : width + min(-right, 0)
    ]
    return moved


class AgNews(Problem):
    """An LSTM over word numbers; words and pooled states are left out at random."""

    name = "agnews"
    rate = 5e-3

    def __init__(self, epochs: int | None = None, quick: bool = False) -> None:
        self.data = d = data.load("agnews")
        self.title = d.name
        self.small = d.words < 1000
        self.width, self.hidden = (8, 8) if self.small else (16, 16)
        self.batch = 32 if self.small else 128
        self.length = 16 if quick else d.x_train.shape[1]
        self.network = f"LSTM of {self.hidden} units, embedding of {self.width}"
        self.epochs = epochs or (1 if quick else 12 if self.small else 4)
        self.samples = 1280 if quick else len(d.y_train)
        self.penalty = {}
        few = 32 if quick or self.small else 256
        pairs = {"sigma": 0.02, "directions": "hadamard"}
        full = {"sigma": 0.1, "antithetic": False, "baseline": "clean", "mode": "full"}
        self.methods = {
            "bp": BP,
            "lr-f": Method("LR-F", {"copies": few, **full}),
            "lr-f-pairs": Method("LR-F, pairs", {"copies": few, **pairs, "mode": "full"}),
            "lr-l": Method("LR-L", {"copies": min(few, 128), **pairs}),
            "lr-l-64": Method("LR-L, few", {"copies": min(few, 64), **pairs}),
            "lr-m": outputs_only(("embedding", "gates"), 8),
        }

    def init(self, rng: np.random.Generator) -> models.Params:
        """Return the first weights."""
        return models.lstm_init(rng, self.data.words, self.width, self.hidden, 4)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        d, n = self.data, self.batch
        order = rng.permutation(len(d.y_train))[: self.samples]
        for k in range(0, len(order) - n + 1, n):
            rows = order[k : k + n]
            x = d.x_train[rows, : self.length]
            # Some words are replaced by number 1, the unknown word.
            x = np.where((rng.random(x.shape) < 0.2) & (x > 0), 1, x)
            keep = (rng.random((n, self.hidden)) >= 0.3) / np.float32(0.7)
            yield x, keep.astype(np.float32), one_hot(d.y_train[rows], 4)

    @staticmethod
    def losses(params: models.Params, *batch: Any) -> Any:
        """Return one loss per sample."""
        x, keep, targets = batch
        return models.cross_entropy(models.lstm(params, x, keep), targets)

    @staticmethod
    def logits(params: models.Params, *inputs: Any) -> Any:
        """Return logits without dropout."""
        return models.lstm(params, *inputs, np.float32(1.0))

    def parts(self) -> dict[str, tuple[list[Batch], np.ndarray]]:
        """Return inputs and labels of what is measured."""
        d = self.data
        size = 100 if self.small else 400
        return {
            "val": (chunks(d.x_val[:, : self.length], size), d.y_val),
            "test": (chunks(d.x_test[:, : self.length], size), d.y_test),
        }


class Cora(Problem):
    """Two graph convolutions; words and hidden units are left out at random."""

    name = "cora"
    rate = 0.02
    chosen = True

    def __init__(self, epochs: int | None = None, quick: bool = False) -> None:
        self.data = d = data.load("cora")
        self.title = d.name
        self.small = len(d.labels) < 1000
        self.hidden = 8 if self.small else 32
        self.classes = int(d.labels.max()) + 1
        self.network = f"graph convolutions {d.features.shape[1]}-{self.hidden}-{self.classes}"
        self.epochs = epochs or (5 if quick else 200)
        self.aggregated = d.adjacency @ d.features
        self.rows = d.adjacency[d.train]
        self.penalty = {"w0": 5e-4}
        full = {"sigma": 0.3, "antithetic": False, "baseline": "clean", "mode": "full"}
        pairs = {"copies": 64, "sigma": 0.1, "directions": "hadamard"}
        self.methods = {
            "bp": BP,
            "lr-f": Method("LR-F", {"copies": 64, **full}),
            "lr-f-pairs": Method("LR-F, pairs", {**pairs, "mode": "full"}),
            "lr-l": Method("LR-L", pairs),
            "lr-m": outputs_only(("hidden",), 16),
        }

    def init(self, rng: np.random.Generator) -> models.Params:
        """Return the first weights."""
        return models.gcn_init(rng, self.data.features.shape[1], self.hidden, self.classes)

    def batches(self, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        d = self.data
        words = (rng.random((d.features.shape[1], 1)) >= 0.5) * np.float32(2.0)
        keep = (rng.random((len(d.labels), self.hidden)) >= 0.5) * np.float32(2.0)
        yield self.aggregated, self.rows, words, keep, one_hot(d.labels[d.train], self.classes)

    @staticmethod
    def losses(params: models.Params, *batch: Any) -> Any:
        """Return one loss per sample."""
        *inputs, targets = batch
        return models.cross_entropy(models.gcn(params, *inputs), targets)

    @staticmethod
    def logits(params: models.Params, *inputs: Any) -> Any:
        """Return logits without dropout."""
        one = np.float32(1.0)
        return models.gcn(params, *inputs, one, one)

    def parts(self) -> dict[str, tuple[list[Batch], np.ndarray]]:
        """Return inputs and labels of what is measured."""
        d = self.data
        return {
            part: ([(self.aggregated, d.adjacency[nodes])], d.labels[nodes])
            for part, nodes in (("val", d.val), ("test", d.test))
        }

    def estimator_options(self) -> dict[str, Any]:
        """Return the credit of nodes."""
        # A node's noise has an effect on the losses of its neighbours alone.
        near = (self.rows.T > 0).astype(np.float32)
        return {"credit": {"hidden": near, "out": "rows"}}


PROBLEMS: dict[str, type[Problem]] = {p.name: p for p in (Mnist, AgNews, Cora)}
