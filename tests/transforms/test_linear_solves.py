"""custom_linear_solve: derivatives of solutions, whatever the method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import ShapeError

RNG = np.random.default_rng(2)
A = RNG.normal(size=(3, 3)) + 4.0 * np.eye(3)
B = RNG.normal(size=3)
V = RNG.normal(size=3)
VA = RNG.normal(size=(3, 3))


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def dense(matvec: Any, b: Any) -> Any:
    """Solve by the columns of the matrix."""
    return np.linalg.solve(np.stack([matvec(e) for e in np.eye(3)], axis=1), b)


def gradients(matvec: Any, b: Any) -> Any:
    """Solve by conjugate gradients, with as many iterations as it takes."""
    x, r = b * 0.0, b
    p = r
    for _ in range(30):
        if np.sum(r * r) < 1e-26:
            break
        q = matvec(p)
        alpha = np.sum(r * r) / np.sum(p * q)
        x = x + alpha * p
        s = r - alpha * q
        p = s + np.sum(s * s) / np.sum(r * r) * p
        r = s
    return x


def compiled(matvec: Any, b: Any) -> Any:
    """Stand for a method that takes plain arrays only."""
    a = np.stack([adarray.value_of(matvec(e)) for e in np.eye(3)], axis=1)
    return np.linalg.solve(a, adarray.value_of(b))


def by(solve: Any, symmetric: bool = False) -> Any:
    def f(a: Any, b: Any) -> Any:
        if symmetric:
            a = a @ a.T
        scale = np.exp(0.1 * np.sum(a))
        transpose = None if symmetric else solve
        return adarray.custom_linear_solve(
            lambda x: a @ x * scale, b, solve, transpose, symmetric=symmetric
        )

    return f


def exact(symmetric: bool = False) -> Any:
    def f(a: Any, b: Any) -> Any:
        if symmetric:
            a = a @ a.T
        return np.linalg.solve(a * np.exp(0.1 * np.sum(a)), b)

    return f


CASES = [(by(dense), exact()), (by(compiled), exact()), (by(gradients, True), exact(True))]


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize(("f", "expected"), CASES)
def test_derivatives_of_every_order(f: Any, expected: Any) -> None:
    mine = lambda a, b: np.sum(np.sin(f(a, b * a[0, 0])))  # noqa: E731
    plain = lambda a, b: np.sum(np.sin(expected(a, b * a[0, 0])))  # noqa: E731
    close(f(A, B), expected(A, B))
    for x, y in zip(
        adarray.grad(mine, (0, 1))(A, B), adarray.grad(plain, (0, 1))(A, B), strict=True
    ):
        close(x, y)
    close(adarray.jvp(mine, (A, B), (VA, V))[1], adarray.jvp(plain, (A, B), (VA, V))[1])
    product = adarray.hvp(plain)(A, B, VA)
    close(adarray.hvp(mine)(A, B, VA), product)
    close(adarray.make_hvp(mine)(A, B)[0](VA), product)
    close(adarray.jacfwd(adarray.jacfwd(mine))(A, B), adarray.hessian(plain)(A, B))
    slope = lambda f: lambda a: adarray.jvp(f, (a, B), (VA, V))[1]  # noqa: E731
    close(adarray.grad(slope(mine))(A), adarray.grad(slope(plain))(A))
    third = lambda f: adarray.grad(lambda a: np.sum(adarray.hvp(f)(a, B, VA) * np.cos(a)))  # noqa: E731
    close(third(mine)(A), third(plain)(A))
    again = lambda f: adarray.grad(lambda a: np.sum(adarray.make_hvp(f)(a, B)[0](VA) * VA))  # noqa: E731
    close(again(mine)(A), again(plain)(A))
    a = adarray.array(A, requires_grad=True)
    mine(a, B).backward()
    close(a.grad, adarray.grad(plain)(A, B))


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("case", [0, 2])
def test_compiled_by_jit(case: int) -> None:
    f, expected = CASES[case]
    mine = lambda a, b: np.sum(np.sin(f(a, b)))  # noqa: E731
    plain = lambda a, b: np.sum(np.sin(expected(a, b)))  # noqa: E731
    for transform in (adarray.grad, lambda f: lambda a, b: adarray.hvp(f)(a, b, VA)):
        jitted = adarray.jit(transform(mine))
        for k in range(3):
            close(jitted(A + 0.1 * k, B), transform(plain)(A + 0.1 * k, B))
        assert jitted.cache_info().eager == 0


def test_nests() -> None:
    def solve(matvec: Any, b: Any) -> Any:
        columns = []
        for e in np.eye(3):
            y = matvec({"u": e[:2], "s": e[2]})
            columns.append(np.concatenate([y["u"], y["s"][None]]))
        x = np.linalg.solve(np.stack(columns, 1), np.concatenate([b["u"], np.reshape(b["s"], 1)]))
        return {"u": x[:2], "s": x[2]}

    def f(a: Any, b: Any) -> Any:
        def matvec(x: Any) -> Any:
            y = a[:, :2] @ x["u"] + a[:, 2] * x["s"]
            return {"u": y[:2], "s": y[2]}

        x = adarray.custom_linear_solve(matvec, {"u": b[:2], "s": b[2]}, solve, solve)
        return np.sum(np.sin(x["u"])) * x["s"]

    def plain(a: Any, b: Any) -> Any:
        x = np.linalg.solve(a, b)
        return np.sum(np.sin(x[:2])) * x[2]

    for x, y in zip(adarray.grad(f, (0, 1))(A, B), adarray.grad(plain, (0, 1))(A, B), strict=True):
        close(x, y)
    close(adarray.hvp(f)(A, B, VA), adarray.hvp(plain)(A, B, VA))


def test_a_number_and_plain_calls() -> None:
    f = lambda a, b: adarray.custom_linear_solve(  # noqa: E731
        lambda x: a * x, b, lambda matvec, b: b / matvec(1.0), symmetric=True
    )
    assert f(2.0, 3.0) == 1.5
    assert adarray.grad(f, (0, 1))(2.0, 3.0) == (-0.75, 0.5)
    assert adarray.grad(adarray.grad(f))(2.0, 3.0) == pytest.approx(0.75)
    close(adarray.grad(lambda b: np.sum(by(dense)(A, b)))(B), np.linalg.solve(
        (A * np.exp(0.1 * np.sum(A))).T, np.ones(3)))  # fmt: skip


def test_what_is_refused() -> None:
    f = lambda a: np.sum(adarray.custom_linear_solve(lambda x: a @ x, B, dense))  # noqa: E731
    close(adarray.jvp(f, (A,), (VA,))[1],
          adarray.jvp(lambda a: np.sum(np.linalg.solve(a, B)), (A,), (VA,))[1])  # fmt: skip
    with pytest.raises(TypeError, match="pass transpose_solve=, or symmetric=True"):
        adarray.grad(f)(A)
    with pytest.raises(
        ShapeError, match=r"solve returned shapes \[\(\)\], and the right-hand side"
    ):
        adarray.custom_linear_solve(lambda x: x, B, lambda m, b: np.sum(b))
    with pytest.raises(TypeError, match="custom_linear_solve: expected a function, got ndarray"):
        adarray.custom_linear_solve(A, B, dense)  # type: ignore[arg-type]
