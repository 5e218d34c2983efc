"""Gradients through the functions of the array API standard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray.numpy as xp
from adarray.testing import check_grads

X = np.array([[1.5, 0.3, -0.7], [0.2, 2.5, 0.9], [-0.4, 0.8, 1.9]])
DIFFERENTIABLE = {
    "argsort gather": lambda x: xp.take_along_axis(x, xp.argsort(x, descending=True), axis=-1),
    "astype": lambda x: xp.astype(x, xp.float64, copy=False) ** 2,
    "clip": lambda x: xp.clip(x, min=xp.asarray([0.0, 0.0, 0.5]), max=2.0) ** 2,
    "concat": lambda x: xp.concat([x, 2 * x], axis=None) ** 2,
    "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=1, include_initial=True) ** 2,
    "cumulative_prod": lambda x: xp.cumulative_prod(x, axis=0),
    "diff": lambda x: xp.diff(x, prepend=x[:, :1] ** 2),
    "full": lambda x: xp.full((2, 3), x[0, 1]) * x[:2],
    "full_like": lambda x: xp.full_like(x, x[0, 1]) * x,
    "hypot": lambda x: xp.hypot(x, x.T),
    "in place": lambda x: _fill(x),
    "linspace": lambda x: xp.linspace(x[0, 0], x[1, 1], 4) ** 2,
    "arange": lambda x: xp.arange(x[0, 0], 6.0, x[1, 1]) ** 2,
    "meshgrid": lambda x: xp.meshgrid(x[0], x[1])[0] * xp.meshgrid(x[0], x[1])[1],
    "nested list": lambda x: xp.asarray([[x[0, 0], 1], [x[1, 1] ** 2, x[0, 0]]]),
    "list operand": lambda x: xp.sum([x[0], x[1] * x[2]], axis=0) + xp.exp([x[0, 0], x[0, 1], 1.0]),
    "reciprocal": lambda x: xp.reciprocal(x),
    "repeat": lambda x: xp.repeat(x, xp.asarray([1, 0, 2]), axis=0) ** 2,
    "sort": lambda x: xp.sort(x, axis=0, descending=True) * xp.arange(3.0),
    "std": lambda x: xp.std(x, axis=0, correction=1.0),
    "tile": lambda x: xp.tile(x, (2, 1)) ** 2,
    "unstack": lambda x: xp.unstack(x)[0] * xp.unstack(x, axis=1)[2],
    "unique_values": lambda x: xp.sort(x.reshape(-1)) ** 2,
    "vecdot": lambda x: xp.vecdot(x, x.T),
    "where": lambda x: xp.where(x > 0.5, x**2, -x),
    "cholesky": lambda x: xp.linalg.cholesky(x @ x.T + xp.eye(3), upper=True),
    "cross": lambda x: xp.linalg.cross(x, x[::-1]),
    "eigvalsh": lambda x: xp.linalg.eigvalsh(x + x.T),
    "inv": lambda x: xp.linalg.inv(x),
    "matrix_norm": lambda x: xp.linalg.matrix_norm(x),
    "matrix_power": lambda x: xp.linalg.matrix_power(x, 3),
    "pinv": lambda x: xp.linalg.pinv(x[:, :2]),
    "slogdet": lambda x: xp.linalg.slogdet(x).logabsdet,
    "solve": lambda x: xp.linalg.solve(x, x[0] ** 2),
    "svdvals": lambda x: xp.linalg.svdvals(x),
    "trace": lambda x: xp.linalg.trace(x**2, offset=1),
    "vector_norm": lambda x: xp.linalg.vector_norm(x, axis=0, ord=3),
    "fft": lambda x: xp.abs(xp.fft.fft(x)) ** 2,
    "irfft": lambda x: xp.fft.irfft(xp.fft.rfft(x, axis=0) ** 2, n=3, axis=0),
}


def _fill(x: Any) -> Any:
    y = xp.zeros((3, 3))
    y[0] = x[1]
    y[1:, 2] = x[0, 0] * x[1:, 0]
    return y**2


@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE))
def test_gradients(name: str) -> None:
    check_grads(DIFFERENTIABLE[name], (X,))
