"""What is measured: fifteen operations on square matrices, and a three-layer network."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from adarray.demo.network import init, loss
from adarray.ops.elementwise import relu


class Operator(NamedTuple):
    """One operation.

    Parameters
    ----------
    name, group : str
        Operations of one group behave alike.
    function : callable
        Of NumPy arrays.
    operands : tuple of {"matrix", "positive", "row"}
        How each operand is drawn.
    """

    name: str
    group: str
    function: Callable[..., Any]
    operands: tuple[str, ...]


MATRIX, POSITIVE, ROW = ("matrix",), ("positive",), ("row",)
_ALL = (
    Operator("add", "arithmetic", np.add, MATRIX * 2),
    Operator("broadcast", "arithmetic", np.add, MATRIX + ROW),
    Operator("copy", "arithmetic", np.copy, MATRIX),
    Operator("divide", "arithmetic", np.divide, POSITIVE * 2),
    Operator("multiply", "arithmetic", np.multiply, MATRIX * 2),
    Operator("negate", "arithmetic", np.negative, MATRIX),
    Operator("subtract", "arithmetic", np.subtract, MATRIX * 2),
    Operator("sum", "arithmetic", lambda x: np.sum(x, axis=1), MATRIX),
    Operator("transpose", "arithmetic", lambda x: np.copy(np.transpose(x)), MATRIX),
    Operator("matmul", "product", np.matmul, MATRIX * 2),
    Operator("exp", "function", np.exp, MATRIX),
    Operator("log", "function", np.log, POSITIVE),
    Operator("max", "function", lambda x: np.max(x, axis=1), MATRIX),
    Operator("power", "function", np.power, POSITIVE * 2),
    Operator("relu", "function", relu, MATRIX),
)
OPERATORS = {o.name: o for o in _ALL}
# Kernels of a library, whose blocks are not ours to choose.
OF_LIBRARIES = frozenset({"matmul"})

# NumPy by itself, without adarray and without derivatives, is measured beside the backends.
NUMPY = "numpy"
# Backends as tables and pictures have them.
ORDER = (NUMPY, "serial", "openmp", "cuda")

INPUTS, CLASSES, BATCH = 784, 10, 128
RATE = 0.01


@lru_cache(maxsize=8)  # what is drawn for one size
def drawn(how: str, place: int, n: int, dtype: str) -> np.ndarray:
    """Return random numbers, the same in every call, to be read only.

    Parameters
    ----------
    how : {"matrix", "positive", "row"}
    place : int
        Of the operand; -1 for a cotangent.
    n : int
        Rows and columns.
    dtype : {"float32", "float64"}
    """
    rng = np.random.default_rng([n, place + 1])
    x = rng.standard_normal((n,) if how == "row" else (n, n), np.dtype(dtype).type)
    if how == "positive":
        x = np.abs(x, out=x)
        x += 0.5
    x.flags.writeable = False
    return x


def operands(operator: Operator, n: int, dtype: str) -> list[np.ndarray]:
    """Return random operands of `n` by `n`, the same in every call."""
    return [drawn(how, place, n, dtype) for place, how in enumerate(operator.operands)]


def parameters(width: int) -> int:
    """Return the number of parameters of the network with layers of this width."""
    sizes = (INPUTS, width, width, CLASSES)
    return sum((m + 1) * n for m, n in pairwise(sizes))


def network(width: int, dtype: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return parameters and data: weights and biases of each layer, pictures and labels."""
    rng = np.random.default_rng(width)
    layers = init([INPUTS, width, width, CLASSES], rng, dtype)
    x = rng.uniform(size=(BATCH, INPUTS)).astype(dtype)
    return [a for layer in layers for a in layer.values()], [x, rng.integers(0, CLASSES, BATCH)]


def network_loss(*arrays: Any) -> Any:
    """Return the mean cross-entropy of the network of ``w1, b1, w2, b2, w3, b3, x, labels``."""
    *flat, x, labels = arrays
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return loss([{"weight": w, "bias": b} for w, b in pairs], x, labels)
