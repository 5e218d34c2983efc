"""Complex arrays in plans for a GPU, whose kernels run on the processor here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from device_plans import Compiled, DevicePlanRunner
from recorded import close, recorded

import adarray
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning.planner import plan

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
RNG = np.random.default_rng(3)


def numbers(*shape: int, dtype: str = "c16") -> np.ndarray:
    """Return complex numbers of some shape."""
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


PROGRAMS: tuple[tuple[Callable[..., object], tuple[np.ndarray, ...]], ...] = (
    (lambda x, y: (x * y / (y + 2), np.exp(1j * x.real), np.abs(x)), (numbers(700), numbers(700))),
    (lambda x, y: (x.T.copy(), np.sum(x * y, axis=0), x @ y[0]), (numbers(40, 9), numbers(40, 9))),
    (lambda x, y: np.concatenate([x, y * 2])[::-1] * 1j, (numbers(90, 3), numbers(8, 3))),
    (lambda x, y: (np.roll(x, 3) - y, (x + y).reshape(8, 8).T), (numbers(64), numbers(64))),
    (lambda x, y: x * y.real + y, (numbers(500, dtype="c8"), numbers(500, dtype="c8"))),
    (lambda x, y: (2 * x) @ y, (numbers(30, 40), numbers(40, 50))),
    (lambda x, y: x.T[:, ::-1] + y.sum(), (numbers(33, 65)[::2], numbers(4))),
)  # fmt: skip


def _compare(f: Callable[..., object], arrays: tuple[np.ndarray, ...], folder: Path) -> None:
    r = recorded(f, *arrays)
    p = plan(r.program, target=GPU)
    results = DevicePlanRunner(p, Compiled([p], folder))([np.asarray(a) for a in r.arrays])
    for got, want in zip(results, r.leaves, strict=True):
        close(np.asarray(got), want, 1e-5 if np.asarray(want).dtype in ("c8", "f4") else 1e-11)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_values(number: int, tmp_path: Path) -> None:
    _compare(*PROGRAMS[number], tmp_path)


def test_gradients(tmp_path: Path) -> None:
    def loss(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = np.zeros(600, dtype=complex)
        z[::2] = x * y
        z[1::2] = np.conj(x) / (3 + y * y)
        return np.sum(np.abs(z) ** 2) + np.sum((z[1:] * z[:-1]).imag)

    g = adarray.value_and_grad(loss, argnums=(0, 1))
    _compare(lambda x, y: g(x, y), (numbers(300), numbers(300)), tmp_path)
