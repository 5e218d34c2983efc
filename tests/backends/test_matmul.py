"""Matrix products of the serial and openmp backends against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from adarray.backend import load
from adarray.errors import BackendError
from adarray.op import OPS

MATMUL = OPS["matmul"]
DTYPES = [np.float64, np.float32]


def _engine(name: str, **options: Any) -> Any:
    """Return an engine whose products BLAS computes, or skip where there is none."""
    try:
        engine = load(name).engine(**options)
    except BackendError as error:
        pytest.skip(str(error))
    from adarray_native import blas

    if blas.find() is None:
        pytest.skip(f"{blas.WHEEL} is not installed: NumPy computes all products")
    return engine


@pytest.fixture(params=["serial", "openmp-1", "openmp-2", "openmp-3", "openmp-7"])
def engine(request: pytest.FixtureRequest) -> Any:
    name, _, threads = request.param.partition("-")
    return _engine(name, cutoff=0, **({"threads": int(threads)} if threads else {}))


def product(engine: Any, x: Any, y: Any) -> Any:
    return engine.call(MATMUL, (x, y), {})


def check(engine: Any, x: np.ndarray, y: np.ndarray, what: Any = None) -> None:
    """Compare a product with NumPy's: kind of result, and values within rounding errors."""
    got, expected = product(engine, x, y), np.matmul(x, y)
    assert got is not NotImplemented, what
    assert type(got) is type(expected), what
    assert got.dtype == expected.dtype, what
    assert got.shape == expected.shape, what
    if isinstance(got, np.ndarray):
        assert got.flags.c_contiguous, what
        assert got.flags.owndata, what
        assert got.flags.writeable, what
        assert not np.shares_memory(got, x), what
    bound = np.matmul(np.abs(x), np.abs(y)) * (x.shape[-1] + 2) * np.finfo(x.dtype).eps
    assert np.all(np.abs(got - expected) <= bound), what


def layouts(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield arrays of the shape of `x` in all kinds of memory order."""
    yield "contiguous", x
    reverse = np.ascontiguousarray(x[..., ::-1])
    yield "negative stride", reverse[..., ::-1]
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    yield "every second", wide[..., ::2]
    wide = np.full((*x.shape[:-1], x.shape[-1] + 7), np.nan, x.dtype)
    wide[..., 3:-4] = x
    yield "part of rows", wide[..., 3:-4]
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    yield "misaligned", odd
    yield "repeated element", np.broadcast_to(x[..., :1], x.shape)
    frozen = x.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen
    if x.ndim > 1:
        yield "transposed", np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
        yield "repeated row", np.broadcast_to(x[..., :1, :], x.shape)
        yield "rows backwards", np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]
        columns = np.zeros((*x.shape[:-2], x.shape[-1] + 3, x.shape[-2]), x.dtype)
        columns[..., 2:-1, :] = x.swapaxes(-1, -2)
        yield "part of columns", columns.swapaxes(-1, -2)[..., 2:-1]
    if x.ndim > 2:
        yield "repeated matrix", np.broadcast_to(x[:1], x.shape)
        yield "matrices backwards", np.ascontiguousarray(x[::-1])[::-1]
        yield "axes exchanged", np.ascontiguousarray(x.swapaxes(0, -2)).swapaxes(0, -2)


SHAPES = [
    ((5, 7), (7, 3)), ((70, 33), (33, 130)), ((130, 20), (20, 9)), ((9, 20), (20, 130)),
    ((1, 50), (50, 60)), ((60, 50), (50, 1)), ((1, 50), (50, 1)), ((60, 1), (1, 50)),
    ((1, 1), (1, 1)), ((50,), (50,)), ((50,), (50, 60)), ((60, 50), (50,)), ((50,), (50, 1)),
    ((3, 8, 9), (9, 4)), ((3, 8, 9), (3, 9, 4)), ((2, 1, 8, 9), (3, 9, 4)), ((8, 9), (3, 9, 4)),
    ((3, 8, 9), (9,)), ((9,), (3, 9, 4)), ((3, 1, 9), (9, 4)), ((3, 1, 9), (9, 1)),
    ((5, 1, 1, 9), (2, 9, 1)), ((1, 3, 8, 9), (1, 1, 9, 4)), ((7, 3, 8, 9), (7, 1, 9, 4)),
    ((40, 8, 9), (40, 9, 4)),
]  # fmt: skip


@pytest.fixture
def always_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip nothing: the shapes below are small, and the C code shares out large work only."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_layouts(engine: Any, a: Any, b: Any, dtype: type) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=a).astype(dtype), rng.normal(size=b).astype(dtype)
    for name_x, u in layouts(x):
        for name_y, v in layouts(y):
            check(engine, u, v, (name_x, name_y))
