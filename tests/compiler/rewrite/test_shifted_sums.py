"""Gradients of convolutions by slices on processors: one sum of shifted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from convolutions import convolve, random_convolution
from recorded import agrees, close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.primitives import UpdateSlice
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite.shifted_sums import FEW, shifted_sums

RNG = np.random.default_rng(31)


def integers(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Return numbers whose sums of products are exact in any order."""
    return RNG.integers(-4, 5, shape).astype(dtype)


def additions(program: Program) -> int:
    return sum(isinstance(v.primitive, UpdateSlice) and v.primitive.add for v in program.values)


def gradient(window: tuple[int, ...], x: np.ndarray, w: np.ndarray, g: np.ndarray) -> Program:
    """Return the program of a convolution's gradient, for a cotangent that is an argument."""

    def f(x: Any, w: Any, g: Any) -> Any:
        return adarray.grad(lambda x: np.sum(convolve(x, w, (1,) * len(window)) * g))(x)

    with np.errstate(invalid="ignore"):
        return recorded(f, x, w, g).program


CASES = [
    ((40,), (5,)), ((7, 9), (3, 3)), ((2, 30, 6), (2, 3)), ((5, 6, 7), (3, 3, 3)),
    ((4, 9, 8), (5, 1)),
]  # fmt: skip


def convolved(shape: tuple[int, ...], window: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    lengths = [n - k + 1 for n, k in zip(shape[len(shape) - len(window) :], window, strict=True)]
    return (
        integers(*shape), integers(*window), integers(*shape[: len(shape) - len(window)], *lengths)
    )  # fmt: skip


@pytest.mark.parametrize(("shape", "window"), CASES)
@pytest.mark.parametrize("weight", [None, np.inf, -np.inf, np.nan, -0.0])
def test_sums_are_the_same_to_the_bit(
    shape: tuple[int, ...], window: tuple[int, ...], weight: float | None
) -> None:
    x, w, g = convolved(shape, window)
    if weight is not None:  # what it is multiplied by outside of a region is not added
        w[(-1,) * w.ndim] = weight
    program = gradient(window, x, w, g)
    after = shifted_sums(program, CPU)
    verify_program(after, "shifted_sums")
    assert additions(program) >= w.size - 1
    assert additions(after) == 0
    with np.errstate(invalid="ignore"):
        (expected,), (got,) = (interpret(p, [x, w, g]) for p in (program, after))
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_where_regions_stay() -> None:
    x, w, g = convolved((9, 8), (3, 3))
    program = gradient((3, 3), x, w, g)
    assert shifted_sums(program, GPU) is program
    few = gradient((FEW,), *convolved((40,), (FEW,)))
    assert shifted_sums(few, CPU) is few

    def different(x: Any, g: Any) -> Any:
        # Each region has an array of its own.
        return adarray.grad(lambda x: sum(np.sum(x[k : k + 9] * g[k]) for k in range(6)))(x)

    several = recorded(different, integers(14), integers(6, 9)).program
    assert shifted_sums(several, CPU) is several

    def into(y: Any, g: Any) -> Any:
        y = y.copy()
        for k in range(6):
            y[k : k + 9] += g
        return y

    other = recorded(into, integers(14), integers(9)).program
    assert shifted_sums(other, CPU) is other

    def returned(g: Any) -> Any:
        y = np.zeros(14)
        parts = []
        for k in range(6):
            y[k : k + 9] += g
            parts.append(y.copy())
        return parts

    seen = recorded(returned, integers(9)).program
    assert shifted_sums(seen, CPU) is seen


def test_a_gradient_takes_few_kernels_of_the_image() -> None:
    def f(x: Any, w: Any) -> Any:
        a = convolve(np.tanh(x), w, (1, 1, 1))
        return np.mean(a * a)

    x, w = np.ones((30, 31, 45), np.float32), np.ones((3, 3, 3), np.float32)
    program = recorded(adarray.value_and_grad(f, argnums=(0, 1)), x, w).program
    large = [
        s
        for s in plan(program, target=CPU).steps
        if isinstance(s, KernelStep) and any(b.size > 30_000 for b in s.buffers)
    ]
    assert len(large) <= 4


@pytest.mark.parametrize(
    "seed", [0, 3, *(pytest.param(k, marks=pytest.mark.slow) for k in (5, 8, 11, 14))]
)
def test_compiled_random_convolutions(seed: int) -> None:
    c = random_convolution(seed)
    f = adarray.value_and_grad(c.function, argnums=(0, 1, 2))
    agrees(recorded(f, *c.arguments))
    value, gradients = f(*c.arguments)
    if "openmp" not in adarray.backends():
        pytest.skip("there is no openmp backend")
    with adarray.use("openmp", threads=2):
        jitted = adarray.jit(f)
        for _ in range(3):
            result = jitted(*c.arguments)
    for got, expected in zip((result[0], *result[1]), (value, *gradients), strict=True):
        close(
            np.asarray(got),
            np.asarray(expected),
            4e-4 if np.asarray(expected).dtype == np.float32 else 1e-10,
        )
