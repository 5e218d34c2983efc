"""The data sets, and small ones that take their place where ADARRAY_DATA is not set."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adarray.demo import data as digits

DATA_VARIABLE = digits.DATA_VARIABLE
DataError = digits.DataError
# The split belongs to the data, so it does not follow the seed of a run.
SPLIT_SEED = 0
HELD_OUT = 1600  # rows of AG-News' training set that choose settings


@dataclass(frozen=True)
class Images:
    """Grey images, from 0 to 255.

    Attributes
    ----------
    name : str
    x_train, x_test : ndarray, shape (samples, height, width), uint8
    y_train, y_test : ndarray, shape (samples,), int64
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Texts:
    """Texts as rows of word numbers; 0 fills the end of a row.

    Attributes
    ----------
    name : str
    words : int
        Size of the vocabulary.
    x_train, x_val, x_test : ndarray, shape (samples, length), int64
    y_train, y_val, y_test : ndarray, shape (samples,), int64
    """

    name: str
    words: int
    x_train: np.ndarray
    y_train: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Graph:
    """A graph whose nodes have features and a class.

    Attributes
    ----------
    name : str
    features : ndarray, shape (nodes, features), float32
        Rows that add up to one.
    adjacency : ndarray, shape (nodes, nodes), float32
        D^-1/2 (A + I) D^-1/2, with D the row sums of A + I.
    labels : ndarray, shape (nodes,), int64
    train, val, test : ndarray, int64
        Nodes.
    """

    name: str
    features: np.ndarray
    adjacency: np.ndarray
    labels: np.ndarray
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def load(name: str) -> Any:
    """Return a data set: that of ADARRAY_DATA, or a generated one where it is not set.

    Raises
    ------
    DataError
        If ADARRAY_DATA is set and the files are not there or hold something else.
    """
    folder = os.environ.get(DATA_VARIABLE)
    own, small = SETS[name]
    if not folder:
        return small()
    path = Path(folder) / name / own[0]
    try:
        with np.load(path, allow_pickle=False) as stored:
            return own[1](stored)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"likelihood_ratio: {path} cannot be read as {name} ({error}); {DATA_VARIABLE} must "
            f"name a folder with {name}/{own[0]}, or be unset for small generated data"
        ) from error


def _mnist(stored: Any) -> Images:
    x, y, u, v = (stored[k] for k in ("x_train", "y_train", "x_test", "y_test"))
    return Images("MNIST", x, y.astype(np.int64), u, v.astype(np.int64))


def _agnews(stored: Any) -> Texts:
    x, y, u, v = (stored[k].astype(np.int64) for k in ("x_train", "y_train", "x_test", "y_test"))
    order = np.random.default_rng(SPLIT_SEED).permutation(len(y))
    val, train = order[:HELD_OUT], order[HELD_OUT:]
    words = int(max(x.max(), u.max())) + 1
    return Texts("AG-News, a subset", words, x[train], y[train], x[val], y[val], u, v)


def _cora(stored: Any) -> Graph:
    labels = stored["labels"].astype(np.int64)
    rows, columns = (stored[k].astype(np.int64) for k in ("feat_row", "feat_col"))
    features = np.zeros((len(labels), columns.max() + 1), np.float32)
    features[rows, columns] = 1.0
    parts = (stored[k].astype(np.int64) for k in ("train_idx", "val_idx", "test_idx"))
    return graph("Cora", features, stored["edges"].astype(np.int64), labels, *parts)


def graph(
    name: str, features: np.ndarray, edges: np.ndarray, labels: np.ndarray, *parts: np.ndarray
) -> Graph:
    """Return a graph from its undirected edges, normalised as Kipf and Welling (2017) do."""
    a = np.eye(len(labels), dtype=np.float32)
    a[edges[:, 0], edges[:, 1]] = a[edges[:, 1], edges[:, 0]] = 1.0
    scale = 1.0 / np.sqrt(np.sum(a, axis=1))
    rows = features / np.maximum(np.sum(features, axis=1, keepdims=True), 1.0)
    return Graph(name, rows, scale[:, None] * a * scale, labels, *parts)


def small_images() -> Images:
    """Return the 1797 digits of 8 by 8 pixels that adarray ships."""
    d = digits.load_small()
    x, u = ((255 * s).astype(np.uint8).reshape(-1, 8, 8) for s in (d.x_train, d.x_test))
    return Images("digits of 8x8 pixels (shipped)", x, d.y_train, u, d.y_test)


def small_texts(samples: int = 1200, words: int = 60, length: int = 12) -> Texts:
    """Return random texts of four topics, each of which has words of its own."""
    rng = np.random.default_rng(SPLIT_SEED)
    y = rng.integers(0, 4, samples)
    common = rng.integers(2, words, (samples, length))
    own = 2 + y[:, None] + 4 * rng.integers(0, (words - 2) // 4, (samples, length))
    x = np.where(rng.random((samples, length)) < 0.5, own, common)
    x[np.arange(length) >= rng.integers(length // 2, length + 1, (samples, 1))] = 0
    a, b = samples * 2 // 3, samples * 5 // 6
    return Texts("random texts (generated)", words, x[:a], y[:a], x[a:b], y[a:b], x[b:], y[b:])


def small_graph(nodes: int = 240, features: int = 60, classes: int = 4) -> Graph:
    """Return a random graph in which nodes of a class are more often neighbours."""
    rng = np.random.default_rng(SPLIT_SEED)
    labels = rng.integers(0, classes, nodes)
    alike = labels[:, None] == labels
    i, j = np.nonzero(np.triu(rng.random((nodes, nodes)) < np.where(alike, 0.08, 0.004), 1))
    words = (np.arange(features) % classes) == labels[:, None]
    x = (rng.random((nodes, features)) < np.where(words, 0.20, 0.05)).astype(np.float32)
    a, b = nodes // 6, nodes // 2
    parts = np.arange(a), np.arange(a, b), np.arange(b, nodes)
    return graph("random graph (generated)", x, np.stack([i, j], axis=1), labels, *parts)


Reader = tuple[str, Callable[[Any], Any]]
SETS: dict[str, tuple[Reader, Callable[[], Any]]] = {
    "mnist": (("mnist.npz", _mnist), small_images),
    "agnews": (("agnews_ids.npz", _agnews), small_texts),
    "cora": (("cora.npz", _cora), small_graph),
}
