"""Memory of compiled functions: what is used again, what is given back, and limits."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.transforms.tree import flatten

SIZE = 100_000  # elements: large enough for the pool


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend that compiles."""
    if backend not in ("serial", "openmp"):
        pytest.skip("a backend without plans")
    with adarray.use(backend):
        yield


def address(x: Any) -> int:
    return int(x.__array_interface__["data"][0])


def doubled() -> Any:
    jf = adarray.jit(lambda x: x * 2.0)
    for _ in range(3):
        jf(np.ones(SIZE))
    return jf


# -- results ----------------------------------------------------------------------------------


@pytest.mark.unchecked
def test_a_dropped_result_is_the_memory_of_the_next() -> None:
    jf, x = doubled(), np.ones(SIZE)
    places = set()
    for _ in range(6):
        r = jf(x)
        places.add(address(r))
        del r
    assert len(places) == 1


def keep_nothing_but(kind: str, r: Any) -> Any:
    """Return what keeps the memory of an array in another way than the array itself."""
    if kind == "view":
        return r[5:9]
    if kind == "view of a view":
        return r.reshape(10, -1)[3][::2]
    if kind == "memoryview":
        return memoryview(r)
    if kind == "dlpack":
        return np.from_dlpack(r)
    return adarray.array(r) if kind == "ADArray" else r


@pytest.mark.slow
@pytest.mark.checked
@pytest.mark.parametrize(
    "kind", ["array", "view", "view of a view", "memoryview", "dlpack", "ADArray"]
)
def test_what_is_held_is_never_overwritten(kind: str) -> None:
    jf, references = doubled(), []
    for k in range(5):
        r = jf(np.full(SIZE, k + 1.0))
        references.append(keep_nothing_but(kind, r))
        del r
        gc.collect(1)  # what the call made is young; all that other tests left takes long
        jf(np.full(SIZE, -1.0))
    for k, x in enumerate(references):
        assert np.all(np.asarray(x) == 2.0 * (k + 1.0))


def test_results_of_one_call_do_not_share_memory() -> None:
    jf = adarray.jit(lambda x: (x + 1.0, x + 1.0, x.copy(), np.sum(x)))
    x = np.ones((300, 300))
    for _ in range(4):
        *arrays, _total = jf(x)
        for i, a in enumerate(arrays):
            assert not np.shares_memory(a, x)
            assert not any(np.shares_memory(a, b) for b in arrays[:i])


@pytest.mark.unchecked
def test_recorded_runs_leave_nothing_in_the_pool() -> None:
    def f(x: Any) -> Any:
        for _ in range(10):
            x = np.sin(x) * np.cos(x) + 1.0
        return np.sum(x)

    jf = adarray.jit(adarray.grad(f))
    x = np.ones(SIZE)
    jf(x)
    jf(x)
    assert jf.path(x)[0].executable is not None
    library = adarray.base.runtime.MODE.get().engine.library
    jf(x)
    assert library.lib.adarray_pool_cached() <= 3 * x.nbytes


def test_constants_that_are_uniform_take_no_memory() -> None:
    def f(x: Any) -> Any:
        return x + np.zeros(SIZE)

    jf = adarray.jit(f)
    for _ in range(3):
        jf(np.ones(SIZE))
    (node,) = jf.path(np.ones(SIZE))
    for constant in node.path.constants.values():
        assert constant.size == 1 or set(constant.strides) == {0}


# -- limits -----------------------------------------------------------------------------------


def layers(ws: Any, x: Any) -> Any:
    for w in ws:
        x = np.tanh(x @ w)
    return np.mean(x**2)


def heat(x: Any) -> Any:
    for _ in range(40):
        x = x + 0.1 * np.tanh(np.roll(x, 1, 0) + np.roll(x, -1, 0) - 2 * x)
    return np.sum(x * x)


def chained(name: str) -> tuple[Any, tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    if name == "heat":
        return adarray.value_and_grad(heat), (rng.normal(size=(64, 64)),)
    ws = [rng.normal(size=(48, 48)) / 7 for _ in range(30)]
    return adarray.value_and_grad(layers), (ws, rng.normal(size=(200, 48)))


def measured(g: Any, args: Any, limit: int | None) -> tuple[int, list[Any]]:
    """Return the arena of a compiled function, and the leaves of its result."""
    jf = adarray.jit(g, memory_limit=limit)
    for _ in range(3):
        result = jf(*args)
    (node,) = jf.path(*args)
    return node.plan.arena, flatten(result)[0]


@pytest.mark.slow
@pytest.mark.checked
@pytest.mark.parametrize(
    ("name", "share"), [("layers", 0.5), ("layers", 0.25), ("heat", 0.5), ("heat", 0.3)]
)
def test_a_limit_is_kept_by_checkpoints(name: str, share: float) -> None:
    g, args = chained(name)
    free, expected = measured(g, args, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arena, got = measured(g, args, int(share * free))
    assert arena <= share * free
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)


def test_a_limit_out_of_reach_is_reported_with_what_was_reached() -> None:
    g, args = chained("layers")
    free, expected = measured(g, args, None)
    with pytest.warns(RuntimeWarning, match=r"temporaries need \d+ bytes, got a limit of 1000"):
        arena, got = measured(g, args, 1000)
    assert arena < free / 4
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)
