"""Loops whose iterations are independent, as kernels of a thread for each of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import device
import host_gpu
import numpy as np
import pytest

import adarray
from adarray.kernels.operation import Operation
from adarray.loops import capture, policy
from adarray.loops.memory import Operations

RNG = np.random.default_rng(7)


def distances(x: Any, w: Any) -> Any:
    out = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        for j in range(len(x)):
            s = 0.0
            for k in range(x.shape[1]):
                s += (x[i, k] - x[j, k]) ** 2
            out[i, j] = np.sqrt(s + 0.1)
    return np.sum(out * out * out) + np.sum(w)


def convolution(x: Any, w: Any) -> Any:
    out = np.zeros((len(x) - 2, x.shape[1] - 2))
    for i in range(len(x) - 2):
        for j in range(x.shape[1] - 2):
            for k in range(3):
                for m in range(3):
                    out[i, j] += x[i + k, j + m] * w[k, m]
    return np.sum(out * out)


def paths(x: Any, w: Any) -> Any:
    total = 0.5
    for i in range(len(x)):
        s = w[0, 0]
        for j in range(x.shape[1]):
            s = s * np.exp(0.1 * x[i, j]) + 0.01 * w[1, 1]
        if s > 0.2:
            total += s * s
    return total


def histogram(x: Any, w: Any) -> Any:
    out = np.zeros(4)
    for i in range(len(x)):
        out[i % 4] += x[i, 0] * w[0, 0]
    return np.sum(out * out)


def recurrence(x: Any, w: Any) -> Any:
    x = x.copy()
    for i in range(1, len(x)):
        for j in range(x.shape[1]):
            x[i, j] += 0.5 * x[i - 1, j] * w[0, 0]
    return np.sum(x * x)


PROGRAMS = {distances: 2, convolution: 2, paths: 1, histogram: 1, recurrence: 0}


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Have loops run as on a device; return the blocks of each loop."""
    out: list[int | None] = []
    spread = Operations.spread

    def noted(self: Operations, *args: Any) -> tuple[Operation, int] | None:
        result = spread(self, *args)
        out.append(None if result is None else result[1])
        return result

    monkeypatch.setattr(capture, "_computing", lambda: (1, True))
    monkeypatch.setattr(policy, "_ON_DEVICE", ((1, 1 << 30),))
    monkeypatch.setattr(capture, "_operations", Operations())
    monkeypatch.setattr(Operations, "spread", noted)
    return out


def arguments() -> tuple[np.ndarray, np.ndarray]:
    return RNG.normal(size=(70, 12)), RNG.uniform(0.2, 1.0, size=(3, 3))


@pytest.mark.parametrize("program", PROGRAMS)
def test_derivatives(program: Callable[..., Any], blocks: list[int | None]) -> None:
    """Values and gradients are those of eager code; threads are as many as there are iterations."""
    x, w = arguments()
    gradient = adarray.value_and_grad(program, argnums=(0, 1))
    value, by = gradient(x, w)
    with adarray.use("serial"):
        fast = adarray.jit(gradient)
        for _ in range(3):
            again, others = fast(x, w)
        assert fast.explain(x, w).loops[0].partition("): ")[2].startswith("captured")
    np.testing.assert_allclose(again, value, rtol=1e-10)
    for a, b in zip(others, by, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9 * np.max(np.abs(b)))
    levels = PROGRAMS[program]
    assert [b is not None for b in blocks] == [levels > 0] * len(blocks)
    if levels == 2:
        assert all(b is not None and b > 1 for b in blocks)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("program", PROGRAMS)
def test_cuda(
    program: Callable[..., Any], blocks: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text for GPUs computes the same."""
    device.installed(monkeypatch)
    engine = host_gpu.HostGpu("standin", device.library())
    monkeypatch.setattr(device.StandIn, "engine", lambda _self: engine)
    x, w = arguments()
    gradient = adarray.value_and_grad(program, argnums=(0, 1))
    value, by = gradient(x, w)
    with adarray.use("standin"):
        again, others = adarray.jit(gradient)(x, w)
    np.testing.assert_allclose(np.asarray(again), value, rtol=1e-10)
    for a, b in zip(others, by, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-8, atol=1e-9 * np.max(np.abs(b)))
    assert [b is not None for b in blocks] == [PROGRAMS[program] > 0] * len(blocks)
