"""The handwritten digits that the demo learns to read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

DATA_VARIABLE = "ADARRAY_DATA"
# The split belongs to the data, so it does not follow the seed of the run.
SPLIT_SEED = 0
TEST_FRACTION = 0.2


class DataError(Exception):
    """The data set cannot be read."""


@dataclass(frozen=True)
class Digits:
    """Images as rows of numbers from 0 to 1, and their labels.

    Attributes
    ----------
    name : str
    x_train, x_test : ndarray, shape (samples, pixels), float32
    y_train, y_test : ndarray, shape (samples,), int64
    batch, epochs : int
        What suits a set of this size.
    rate : float
        Step of gradient descent that suits it.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    batch: int
    epochs: int
    rate: float


def load() -> Digits:
    """Return MNIST where ADARRAY_DATA names its folder, else the set in the package.

    Raises
    ------
    DataError
        If ADARRAY_DATA is set and holds no readable ``mnist/mnist.npz``.
    """
    folder = os.environ.get(DATA_VARIABLE)
    return load_mnist(Path(folder)) if folder else load_small()


def load_small() -> Digits:
    """Return the 1797 digits of 8 by 8 pixels that are shipped in the package."""
    with resources.files("adarray.demo").joinpath("digits.npz").open("rb") as file:
        stored = np.load(file)
        images, labels = stored["images"], stored["labels"]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    x, y = _rows(images[order], 16), labels[order].astype(np.int64)
    n = round(len(y) * TEST_FRACTION)
    return Digits("digits 8x8", x[n:], y[n:], x[:n], y[:n], batch=64, epochs=40, rate=0.05)


def load_mnist(folder: Path) -> Digits:
    """Return MNIST from ``folder/mnist/mnist.npz``, Keras' file.

    Raises
    ------
    DataError
        If the file is not there or does not hold the four arrays.
    """
    path = folder / "mnist" / "mnist.npz"
    try:
        with np.load(path) as stored:
            parts = [stored[k] for k in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, KeyError, ValueError) as error:
        raise DataError(
            f"demo: {path} cannot be read as MNIST ({error}); {DATA_VARIABLE} must name a folder "
            "with mnist/mnist.npz holding x_train, y_train, x_test and y_test, or be unset for "
            "the small set in the package"
        ) from error
    x_train, y_train, x_test, y_test = parts
    return Digits(
        "MNIST 28x28",
        _rows(x_train, 255),
        y_train.astype(np.int64),
        _rows(x_test, 255),
        y_test.astype(np.int64),
        batch=128,
        epochs=5,
        rate=0.05,
    )


def _rows(images: np.ndarray, top: float) -> np.ndarray:
    return np.asarray(images.reshape(len(images), -1) / np.float32(top), np.float32)
