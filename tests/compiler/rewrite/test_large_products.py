"""Products of many steps as one, where they are too large to be so on a processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Concatenate, Matmul, PythonCall, UpdateSlice
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.planning.passes import prepared
from adarray.compiler.rewrite import optimise
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.product_costs import ON_GPU
from adarray.compiler.rewrite.products import products
from adarray.compiler.rewrite.shared_parts import shared_parts

RNG = np.random.default_rng(8)
STEPS, ROWS, SIZE = 5, 9000, 16  # more multiplications than products become one for on processors


def network(x: Any, w: Any, u: Any) -> Any:
    h = np.tanh(x[0] @ w)
    for t in range(1, len(x)):
        h = np.tanh(x[t] @ w + h @ u)
    return np.mean(h * h)


def count(program: Program, kind: type) -> int:
    return sum(isinstance(v.primitive, kind) for v in program.values)


def network_arrays(steps: int) -> list[np.ndarray]:
    shapes = (steps, ROWS, SIZE), (SIZE, SIZE), (SIZE, SIZE)
    return [(RNG.normal(size=s) / s[-1]).astype(np.float32) for s in shapes]


def test_gradients_of_all_steps_are_one_product_each() -> None:
    arrays = network_arrays(STEPS)
    r = recorded(adarray.value_and_grad(network, argnums=(0, 1, 2)), *arrays)
    program = optimise(r.program, check=True)
    on_cpu, on_gpu = (prepared(program, target) for target in (CPU, GPU))
    verify_program(on_gpu)
    # Forward one for all inputs, and one per step; backward one per step, one for all inputs'
    # gradients, and one for each matrix.
    assert count(on_gpu, Matmul) == 1 + (STEPS - 1) + (STEPS - 1) + 1 + 2
    assert count(on_cpu, Matmul) > count(on_gpu, Matmul)
    for got, want in zip(interpret(on_gpu, arrays), interpret(program, arrays), strict=True):
        close(got, want, 1e-5)


def test_steps_beyond_sixteen_are_one_array() -> None:
    """Slices that nobody has written yet are still seen to be zero."""
    arrays = network_arrays(20)
    r = recorded(adarray.value_and_grad(network, argnums=(0, 1, 2)), *arrays)
    program = prepared(optimise(r.program), GPU)
    assert count(program, UpdateSlice) == 0
    assert count(program, Matmul) == 1 + 2 * 19 + 1 + 2


@pytest.mark.parametrize(
    ("side", "fewer"), [("rows", True), ("columns", False), ("computed", True), ("spread", False)]
)
def test_sums_are_joined_where_little_is_copied(side: str, fewer: bool) -> None:
    """Large factors that lie apart, or across what libraries read, are multiplied one by one."""
    n, m = 3000, 12

    def f(x: Any, y: Any) -> Any:
        terms = []
        for k in range(4):
            left, right = x[k], y[k]
            if side == "columns":
                left = x[:, k]
            if side == "computed":
                left, right = np.sin(left), np.cos(right)
            if side == "spread":
                left = x[3 * k % 4]
            terms.append((left if side == "columns" else left.T) @ right)
        return terms[0] + terms[1] + terms[2] + terms[3]

    shape = (m, 4, n) if side == "columns" else (4, n, m)
    arrays = [RNG.normal(size=s).astype(np.float32) / 100 for s in (shape, (4, n, m))]
    if side == "spread":
        arrays[1] = np.ascontiguousarray(arrays[1][[2, 0, 3, 1]])
    r = recorded(f, *arrays)
    # Six calls are saved, which take as long as to copy a third of all elements.
    costs = ON_GPU._replace(call=ON_GPU.copy * 8 * n * m // 3 // 6)
    program = dead(products(optimise(r.program), costs))
    verify_program(program)
    assert count(program, Matmul) == (1 if fewer else 4)
    for got, want in zip(interpret(program, arrays), interpret(r.program, arrays), strict=True):
        close(got, want, 1e-4)


def rows_of(program: Program) -> list[int]:
    return [len(v.args) for v in program.values if isinstance(v.primitive, Concatenate)]


def shared(f: Any, *args: Any) -> list[int]:
    """Rewrite, compare; return how many parts the concatenations have then."""
    r = recorded(f, *args)
    after = shared_parts(r.program)
    verify_program(after)
    arrays = [np.asarray(a) for a in args]
    for got, want in zip(interpret(after, arrays), interpret(r.program, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    return sorted(rows_of(after))


def parts(x: Any) -> list[Any]:
    return [np.tanh(x[k] * (k + 1)) for k in range(6)]


def test_a_part_of_a_concatenation_is_a_view() -> None:
    def f(x: Any) -> Any:
        p = parts(x)
        return np.sin(np.concatenate(p[2:5])), np.cos(np.concatenate(p))

    assert shared(f, RNG.normal(size=(6, 3, 4))) == [6]


def test_the_longest_one_stays() -> None:
    def f(x: Any) -> Any:
        p = parts(x)
        return [np.sin(np.concatenate(q)) for q in (p[1:3], p[1:5], p)]

    assert shared(f, RNG.normal(size=(6, 3, 4))) == [6]


@pytest.mark.parametrize("order", [(1, 0), (0, 2), (0, 0)])
def test_other_parts_stay(order: tuple[int, int]) -> None:
    def f(x: Any) -> Any:
        p = parts(x)
        return np.sin(np.concatenate([p[k] for k in order])), np.concatenate(p)

    assert shared(f, RNG.normal(size=(6, 3, 4))) == [2, 6]


def test_what_the_longer_one_needs_stays() -> None:
    def f(x: Any) -> Any:
        p = parts(x)
        first = np.concatenate(p[:2])
        return np.concatenate([p[0], p[1], first * 2])

    assert shared(f, RNG.normal(size=(6, 3, 4))) == [2, 3]


def test_values_are_in_order() -> None:
    """The shorter one came first, and what reads it waits for the longer one."""

    def f(x: Any) -> Any:
        p = parts(x)
        total = np.sum(np.concatenate(p[:4]), axis=0)
        late = np.tanh(x[5] - 1)
        return total * 2, np.concatenate([*p[:4], late])

    assert shared(f, RNG.normal(size=(6, 3, 4))) == [5]


def test_parts_that_wait_for_each_other() -> None:
    """Each longer one needs what is a part of the other: one of the two parts stays."""

    def f(x: Any) -> Any:
        p = parts(x)
        one, two = np.concatenate(p[:2]), np.concatenate(p[2:4])
        return np.concatenate([*p[:2], np.sin(two)[:3]]), np.concatenate([*p[2:4], np.cos(one)])

    assert shared(f, RNG.normal(size=(6, 3, 4))) == [2, 3, 3]


def test_parts_of_two_wholes_are_in_order() -> None:
    """A whole that comes later needs the part of another one that comes later still."""

    def f(x: Any) -> Any:
        p = parts(x)
        one, two = np.concatenate(p[:2]), np.concatenate(p[2:4])
        return (
            np.sin(one), np.concatenate([*p[:2], np.sin(two)[:3]]),
            np.concatenate([*p[2:4], np.cos(p[0])]),
        )  # fmt: skip

    assert shared(f, RNG.normal(size=(6, 3, 4))) == [3, 3]


def test_calls_stay_in_their_order() -> None:
    """They may have effects: none goes before one that waits for a whole."""

    def f(x: Any) -> Any:
        p = parts(x)
        first = np.sort(np.concatenate(p[:2]), axis=0)
        second = np.linalg.eigvalsh(x[0] @ x[0].T)
        return first, second, np.concatenate(p[:3])

    r = recorded(f, RNG.normal(size=(6, 3, 4)))
    calls = [
        [v.primitive.function for v in p.values if isinstance(v.primitive, PythonCall)]
        for p in (r.program, shared_parts(r.program))
    ]
    assert len(calls[0]) == 2
    assert calls[0] == calls[1]
    assert rows_of(shared_parts(r.program)) == [3]
