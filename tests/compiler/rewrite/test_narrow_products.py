"""Products of short rows with small matrices are loops of kernels on a GPU."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.plan import MatmulStep
from adarray.compiler.ir.primitives import Matmul
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import narrow_products as rules
from adarray.compiler.rewrite import optimise
from adarray.compiler.rewrite.narrow_products import LARGEST, LEAST_ROWS, MOST, narrow_products

RNG = np.random.default_rng(17)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def normal(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)


def in_loops(program: Program) -> int:
    return sum(isinstance(v.primitive, Matmul) and v.primitive.loops for v in program.values)


def test_which_products_are_loops() -> None:
    def count(rows: int, depth: int, columns: int, target: Any = GPU) -> int:
        x, w = np.ones((rows, depth), np.float32), np.ones((depth, columns), np.float32)
        program = recorded(lambda x, w: np.tanh(x @ w), x, w).program
        return in_loops(narrow_products(program, target))

    assert count(LEAST_ROWS, 16, LARGEST // 16) == 1
    assert count(LEAST_ROWS, 3, 2) == 1
    assert count(LEAST_ROWS - 1, 16, 16) == 0
    assert count(LEAST_ROWS, 16, LARGEST // 16 + 1) == 0
    assert count(LEAST_ROWS, 16, 16, CPU) == 0


def test_too_many_products_are_left_to_a_library() -> None:
    def f(x: Any, w: Any, steps: int) -> Any:
        for _ in range(steps):
            x = np.tanh(x @ w)
        return x

    x, w = normal(LEAST_ROWS, 3), normal(3, 3)
    for steps in (MOST, MOST + 1):
        program = recorded(lambda x, w, n=steps: f(x, w, n), x, w).program
        assert in_loops(narrow_products(program, GPU)) == (MOST if steps == MOST else 0)


def recurrent(x: Any, w: Any, u: Any) -> Any:
    h = np.tanh(x[0] @ w)
    for t in range(1, len(x)):
        h = np.tanh(x[t] @ w + h @ u)
    return np.mean(h * h)


def gated(x: Any, w: Any, u: Any) -> Any:
    """Two products by step, one of what the other gates."""
    h = np.zeros_like(x[0])
    for t in range(len(x)):
        z = 1 / (1 + np.exp(-(x[t] @ w + h @ u)))
        h = (1 - z) * h + z * np.tanh(x[t] + (z * h) @ w)
    return np.sum(h * np.sin(h))


def layers(x: Any, w: Any, u: Any) -> Any:
    """Rows are normalised between products, and all of them meet at the end."""
    for y in x:
        a = np.tanh(y @ w) @ u
        a = a - np.max(a, axis=1, keepdims=True)
        x = np.exp(a) / np.sum(np.exp(a), axis=1, keepdims=True)
    return np.sum(np.mean(x @ w.T, axis=0) ** 2)


@emulated
@pytest.mark.parametrize("shared", [4 << 10, 64 << 10])
def test_values_and_gradients(shared: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "LEAST_ROWS", 30)
    cases = []
    for f in recurrent, gated, layers:
        for size in 3, 16:
            arrays = [normal(4, 37, size), normal(size, size), normal(size, size)]
            r = recorded(adarray.value_and_grad(f, argnums=(0, 1, 2)), *arrays)
            program = optimise(r.program)
            assert in_loops(narrow_products(program, GPU))
            cases.append((r, arrays, plan(program, target=GPU)))
    compiled = Compiled([p for *_, p in cases], tmp_path, replace(SMALL, shared_memory=shared))
    for r, arrays, p in cases:
        results = DevicePlanRunner(p, compiled)(arrays)
        for got, want in zip(results, interpret(r.program, arrays), strict=True):
            close(got, want, 1e-4)


def test_a_recurrent_network_is_one_kernel_for_all_its_steps() -> None:
    arrays = [normal(6, LEAST_ROWS, 16), normal(16, 16), normal(16, 16)]
    r = recorded(adarray.value_and_grad(recurrent, argnums=(0, 1, 2)), *arrays)
    steps = plan(optimise(r.program), target=GPU).steps
    # The gradients of both matrices are products of all steps; the inputs' come from one more.
    assert sum(isinstance(s, MatmulStep) for s in steps) == 2
    assert len(steps) <= 8
