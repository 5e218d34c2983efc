"""Steps of compiled plans that are no kernels: matrix products, and calls of Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from plans import buffer, operand, whole

from adarray.compiler.ir.plan import MatmulStep
from adarray.compiler.ir.primitives import Slot
from adarray.errors import ADArrayError


def _dots(a: np.ndarray, b: np.ndarray, base_a: np.ndarray, base_b: np.ndarray) -> Any:
    """Return a plan for ``a @ b`` of views of two inputs."""
    in_a = buffer("input", base_a.size, 0, a.dtype)
    in_b = buffer("input", base_b.size, 1, b.dtype)
    shape = np.matmul(a, b).shape
    out = buffer("output", int(np.prod(shape)), 0, a.dtype)
    step = MatmulStep(operand(in_a, a, base_a), operand(in_b, b, base_b), whole(out, shape), ())
    return plans.plan([step], [in_a, in_b, out], [whole(out, shape)])


# -- products ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("seed", range(8))
def test_products(engine: Any, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(12):
        m, k, n = (int(v) for v in rng.choice([1, 2, 3, 17, 70], 3))
        lead = tuple(int(v) for v in rng.choice([1, 2, 5], rng.integers(0, 3)))
        a, base_a = _matrix(rng, (*lead[rng.integers(0, len(lead) + 1) :], m, k), dtype)
        b, base_b = _matrix(rng, (*lead[rng.integers(0, len(lead) + 1) :], k, n), dtype)
        if rng.random() < 0.15:
            a, base_a = _matrix(rng, (k,), dtype)
        elif rng.random() < 0.15:
            b, base_b = _matrix(rng, (k,), dtype)
        run = engine.executable(_dots(a, b, base_a, base_b))
        (got,) = run([base_a, base_b])
        tolerance = 0 if dtype == "int64" else 1e-4 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, np.matmul(a, b), rtol=tolerance, atol=tolerance)


def _matrix(rng: Any, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers in some layout: transposed, strided, reversed, repeated; and their memory."""
    base = (rng.standard_normal(shape) * 8).astype(dtype)
    kind = rng.integers(0, 6)
    if kind == 1 and len(shape) > 1:
        base = np.ascontiguousarray(base.swapaxes(-1, -2))
        return base.swapaxes(-1, -2), base
    if kind == 2:
        base = np.repeat(base, 3, axis=-1)
        return base[..., ::3], base
    if kind == 3 and len(shape) > 1:
        base = np.repeat(np.repeat(base, 2, axis=-1), 2, axis=-2)
        return base[..., ::2, ::2], base
    if kind == 4 and len(shape) > 2:
        base = np.ascontiguousarray(base[:1])
        return np.broadcast_to(base, shape), base
    if kind == 5:
        # Its first element is the last one in memory: an input with negative strides.
        return base[..., ::-1], base
    return base, base


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_empty_products(engine: Any, m: int, k: int, n: int) -> None:
    a, b = np.ones((m, k)), np.ones((k, n))
    (got,) = engine.executable(_dots(a, b, a, b))([a, b])
    np.testing.assert_array_equal(got, np.zeros((m, n)))


def test_products_without_blas(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from adarray_backends.cpu import blas

    monkeypatch.setattr(blas, "ready", lambda lib, ffi: False)
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    (got,) = engine.executable(_dots(a, b, a, b))([a, b])
    np.testing.assert_array_equal(got, a @ b)


# -- calls of Python -----------------------------------------------------------------------


def test_calls_between_kernels(engine: Any) -> None:
    references = []

    def function(x: Any) -> Any:
        references.append(x)
        return np.sort(x)

    run = engine.executable(plans.sorted_plan(function))
    x = np.array([0.1, -3, 0.5, 2, -1, 0])
    for _ in range(3):
        y, total = run([x, 0.5])
        expected = np.exp(np.sort(np.exp(x) * 0.5)) * 0.5
        np.testing.assert_allclose(y, expected, rtol=1e-14)
        np.testing.assert_allclose(total, expected.sum(), rtol=1e-14)
    run([x * 0, 1.0])
    # What a function keeps stays as it was.
    np.testing.assert_allclose(references[0], np.exp(x) * 0.5, rtol=1e-15)


def test_operands_and_results_of_calls(engine: Any) -> None:
    n = 6
    a, s = buffer("input", n, 0), buffer("input", 1, 1, np.int64)
    const = buffer("const", 3, 0, np.float32)
    one, two = buffer("output", 3, 0, np.float32), buffer("output", n, 1)
    seen: list[Any] = []

    def function(pair: Any, *, named: dict[str, Any]) -> Any:
        seen.append((pair, named))
        return pair[0] * 2, (named["x"][::-1] * pair[1]).reshape(2, 3)

    step = plans.call_step(
        function, ((Slot(1), Slot(2)),), {"named": {"x": Slot(0)}},
        (whole(a), whole(const), whole(s, ())), (one, two),
        results=(((3,), np.dtype(np.float32)), ((2, 3), np.dtype(np.float64))),
    )  # fmt: skip
    new_plan = plans.plan(
        [step], [a, s, const, one, two], [whole(one), whole(two, (2, 3))], [np.ones(3, np.float32)]
    )
    x = np.arange(6.0)
    y, z = engine.executable(new_plan)([x, 3])
    np.testing.assert_array_equal(y, np.full(3, 2, np.float32))
    np.testing.assert_array_equal(z, (x[::-1] * 3).reshape(2, 3))
    (pair, named) = seen[0]
    assert type(pair[1]) is np.int64
    assert not named["x"].flags.writeable
    assert y.dtype == np.float32


def test_errors_in_calls(engine: Any) -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError("oh")

    x = np.ones(6)
    with pytest.raises(ZeroDivisionError, match="oh"):
        engine.executable(plans.sorted_plan(fails))([x, 1.0])
    with pytest.raises(ADArrayError, match="had shape"):
        engine.executable(plans.sorted_plan(lambda x: x[:3]))([x, 1.0])
    with pytest.raises(ValueError, match="string to float"):
        engine.executable(plans.sorted_plan(lambda x: "none"))([x, 1.0])


def test_a_plan_inside_of_a_plan(engine: Any) -> None:
    inner = engine.executable(plans.scaled_plan(6))
    outer = engine.executable(plans.sorted_plan(lambda x: inner([x, 2.0])[0]))
    x = np.linspace(-1, 0, 6)
    np.testing.assert_allclose(outer([x, 1.0])[0], np.exp(np.exp(np.exp(x)) * 2), rtol=1e-14)
