"""Loops whose tape would be too long: checkpoints, and iterations that run again from there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import random_kernels
from cuda_kernels import CASES
from kernel_backends import BACKENDS

import adarray
from adarray.compiler.ir.threads import Push, all_statements
from adarray.errors import KernelError
from adarray.kernels import RawKernel
from adarray.kernels.execution import Execution
from adarray.kernels.launch import TapeError

SOURCE = CASES["long_chain"].text("float64")
FULL, SHORT = 1 << 30, 40_000  # bytes; the tapes of these loops take 100 000 and more


def _gradient(limit: int, n: int) -> Any:
    kernel = RawKernel(SOURCE, "long_chain", memory_limit=limit)
    x = np.random.default_rng(0).uniform(0.999, 1.001, n)
    w = np.array([1.0, 0.5, -0.3, 2.0])
    return adarray.grad(lambda x: np.sum(w * kernel.apply(2, 2, (x, np.zeros(4), n, 700))))(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [2000, 2001])
def test_a_short_tape_gives_the_same_gradient(backend: str, n: int) -> None:
    with adarray.use(backend):
        np.testing.assert_allclose(_gradient(SHORT, n), _gradient(FULL, n), rtol=1e-12)


def test_memory_grows_with_the_root_of_iterations() -> None:
    used = []
    kernel = RawKernel(SOURCE, "long_chain", memory_limit=FULL)
    execution = kernel._execution
    for n in (1000, 16_000):
        operands, launch = kernel._bound(1, 1, (np.ones(n), np.zeros(1), n, 10), 0)
        values = dict(zip(kernel._operation.operands, operands, strict=True))
        values = execution.checked(values | dict(launch.integers))
        with adarray.use("serial"):
            inputs, cotangents = frozenset(("x",)), {"y": np.ones(1)}
            ran = execution._with_checkpoints(launch, values, cotangents, inputs)
        assert ran is not None
        used.append(ran[2])
    assert used[1] <= 4 * used[0]  # the tape of the processor doubles as it grows


def test_what_cannot_run_again_is_refused() -> None:
    source = """
    __global__ void k(const double *x, double *y, int n) {
        for (int i = 0; i < n; i++) y[threadIdx.x] = sin(y[threadIdx.x]) * x[i];
    }
    """
    kernel = RawKernel(source, "k", memory_limit=1000)
    with (
        adarray.use("serial"),
        pytest.raises(KernelError, match="its tape needs more than memory_limit=1000 bytes"),
    ):
        adarray.grad(lambda x: np.sum(kernel.apply(1, 1, (x, np.ones(1), 400))))(np.ones(400))


# Of these, all loops with a tape can run again.
SEEDS = (18, 44, 52, 56, 65, 70, 74, 85, 91, 105)


@pytest.mark.slow
def test_random_kernels_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Execution.compiled
    forced = False

    def full(*_: Any) -> int:
        raise TapeError("no room")

    def replaced(
        self: Execution,
        kernel: Any,
        counting: Any = None,
        checkpoints: Any = None,
        alone: Any = False,
    ) -> Any:
        taped = any(isinstance(s, Push) for s in all_statements(kernel.body))
        if forced and taped and checkpoints is None:
            return full
        return compiled(self, kernel, counting, checkpoints, alone)

    monkeypatch.setattr(Execution, "compiled", replaced)
    for seed in SEEDS:
        kernel = RawKernel(random_kernels.source(seed), "random_kernel")
        rng = np.random.default_rng(seed)
        x, y, p, w = rng.normal(size=8), rng.normal(size=8), 0.3, rng.normal(size=8)

        def f(x: Any, y: Any, p: Any, kernel: Any = kernel, w: Any = w) -> Any:
            return np.sum(w * kernel.apply(2, 4, (x, y, p, 8)))

        with adarray.use("serial"):
            forced = False
            exact = adarray.grad(f, (0, 1, 2))(x, y, p)
            forced = True
            gradient = adarray.grad(f, (0, 1, 2))(x, y, p)
        for a, b in zip(gradient, exact, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
