"""Random programs over arrays that share memory: values, writes, and which results share it."""

from __future__ import annotations

import types
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from shared_arrays import compare, differentiated
from trust import BACKENDS, seeds

import adarray
from adarray.errors import TraceError
from adarray.jitting import JitWarning
from adarray.testing._ops import use_all_sizes

X = np.linspace(0.5, 1.5, 6)
W = np.array([1.0, 2.0, 3.0])
V = W[::-1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", seeds(80))
def test_random_programs(seed: int) -> None:
    backend = BACKENDS[seed % len(BACKENDS)]
    compare(seed, backend, views=backend != "cuda")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["grad", "vjp", "jvp", "one", "nested", "jit"])
def test_derivatives_of_random_programs(mode: str) -> None:
    refused = Counter(differentiated(seed, mode) for seed in seeds(40))
    print(refused)
    assert refused[False] > refused[True] / 3


def _write_captured(x: Any) -> Any:
    W[0] = 5.0
    return np.sum(x * x)


def _write_view(x: Any) -> Any:
    V[0] += 4.0
    return np.sum(x * x)


def _write_argument(x: Any) -> Any:
    x[0] = 5.0
    return np.sum(W * x)


def _write_argument_read_view(x: Any) -> Any:
    x *= 2.0
    return np.sum(V * x)


def _compare(x: Any) -> Any:
    return np.sum(x) * (2.0 if x is W else 3.0)


def _compare_numbers(x: Any) -> Any:
    return np.sum(x) * (2.0 if id(x) == id(W) else 3.0)


@pytest.mark.parametrize(
    "f",
    [_write_captured, _write_view, _write_argument, _write_argument_read_view, _compare,
     _compare_numbers],
)  # fmt: skip
def test_arguments_that_are_captured_too(f: Any) -> None:
    """What the function wrote into one was not in the other, and `is` said no."""
    for call in (
        lambda x: adarray.grad(f)(x),
        lambda x: adarray.vjp(f, x),
        lambda x: adarray.jvp(f, (x,), (np.ones(3),)),
    ):
        W[:] = 1.0, 2.0, 3.0
        with pytest.raises(TraceError, match="pass a copy"):
            call(W)
        W[:] = 1.0, 2.0, 3.0
        call(W.copy())


def test_helpers_that_compare_arguments() -> None:
    def same(a: Any, b: Any) -> bool:
        return a is b

    def f(x: Any, y: Any) -> Any:
        return np.sum(x) * (2.0 if same(x, y) else 3.0)

    with pytest.raises(TraceError, match="asks which objects they are"):
        adarray.grad(f)(W, W)
    np.testing.assert_array_equal(adarray.grad(f)(W, W.copy()), np.full(3, 3.0))


class _Model:
    def __init__(self) -> None:
        self.weights = W

    def kept(self, x: Any) -> bool:
        return x is self.weights

    def __call__(self, x: Any) -> Any:
        return np.sum(x) * (2.0 if self.kept(x) else 3.0)


def _same(a: Any, b: Any) -> bool:
    return a is b


def _is_captured(x: Any) -> bool:
    return x is W


def _is_same(x: Any) -> bool:
    return _same(x, W)


def _by_helper(x: Any) -> Any:
    return np.sum(x) * (2.0 if _is_captured(x) else 3.0)


def _by_helper_of_two(x: Any) -> Any:
    return np.sum(x) * (2.0 if _same(W, x) else 3.0)


def _by_helper_of_helper(x: Any) -> Any:
    return np.sum(x) * (2.0 if _is_same(x) else 3.0)


def _by_list(x: Any, expected: Any = [W]) -> Any:  # noqa: B006
    return np.sum(x) * (2.0 if any(x is v for v in expected) else 3.0)


def _shared_by_helper(x: Any) -> Any:
    def shares() -> bool:
        return np.shares_memory(V, x)

    return np.sum(x) * (2.0 if shares() else 3.0)


def _wrapping(f: Any) -> Any:
    def wrapped(*args: Any) -> Any:
        return f(*args)

    return wrapped


CODE_THAT_COMPARES = {
    "helper": _by_helper, "helper of two": _by_helper_of_two, "method": _Model(),
    "helper of a helper": _by_helper_of_helper, "list": _wrapping(_by_list),
    "wrapped": _wrapping(_compare), "memory": _wrapping(_shared_by_helper),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")  # of shares_memory
@pytest.mark.parametrize("mode", ["grad", "intercept", "jvp", "jit(grad)", "nested"])
@pytest.mark.parametrize("name", CODE_THAT_COMPARES)
def test_code_that_compares_arguments_with_what_is_captured(name: str, mode: str) -> None:
    f = CODE_THAT_COMPARES[name]
    W[:] = 1.0, 2.0, 3.0

    def call(x: Any) -> Any:
        if mode == "jvp":
            return adarray.jvp(f, (x,), (np.ones(3),))[1]
        if mode == "nested":
            return adarray.grad(lambda s: np.sum(adarray.grad(f)(x)) * s)(1.0)
        transformed = adarray.grad(f, intercept=mode == "intercept")
        transformed = adarray.jit(transformed) if mode == "jit(grad)" else transformed
        return np.sum(transformed(x))

    with pytest.raises(TraceError, match=r"compared .*by .*pass a copy"):
        call(W)
    assert call(W.copy()) == 9.0


def test_comparisons_of_traced_arrays_in_nested_transforms() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0

        def inner(z: Any) -> Any:
            return np.sum(z * z) * (2.0 if _same(z, y) else 3.0)

        return np.sum(adarray.grad(inner)(y))

    with pytest.raises(TraceError, match="compared with it by `is`"):
        adarray.grad(f)(W)


def _reads(x: Any) -> Any:
    result = np.sin(x)
    expected = np.sin(W)
    assert result is not expected
    assert x.dtype is W.dtype
    assert type(x) is not list
    return np.sum(result - expected)


def _reads_by_helper(x: Any) -> Any:
    return _reads(x) * (1.0 if _same(None, x.shape) else 2.0)


@pytest.mark.parametrize("f", [_reads, _reads_by_helper])
def test_comparisons_of_other_objects(f: Any) -> None:
    W[:] = 1.0, 2.0, 3.0
    assert np.all(np.isfinite(adarray.grad(f)(W)))


# Of the backends that compile, the second shows what the first does.
REPEATED = [pytest.param(b, 150, marks=pytest.mark.slow) for b in BACKENDS[2:]]


@pytest.mark.parametrize(
    ("backend", "count"),
    [*((b, 1) for b in BACKENDS), *((b, 150) for b in BACKENDS[:2]), *REPEATED],
)
def test_captured_arrays_become_one(backend: str, count: int) -> None:
    """What was compiled for two arrays was run for one that both names led to."""

    def programs() -> tuple[Any, Any]:
        held = types.SimpleNamespace(a=np.zeros(6), b=np.ones(6), others=[np.zeros(6)] * 4)

        def f(x: Any) -> Any:
            s: Any = 0.0
            for i in range(count):
                held.a[i % 6] = held.a[i % 6] * 0.5 + 0.1 * i + 0.1
                s = s + held.b[i % 6] * x[i % 6]
            return s * x * (2.0 if held.a is held.b else 3.0) + held.others[0] + held.others[3]

        return f, held

    (f, held), (plain, own) = programs(), programs()
    jitted = adarray.jit(f)
    with use_all_sizes(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        for same in (False, True, False, True):
            for h in (held, own):
                h.b = h.a if same else np.full(6, 2.0)
                h.others = [h.a if same else np.zeros(6) for _ in range(4)]
            for _ in range(3):
                np.testing.assert_allclose(jitted(X), plain(X), rtol=1e-12)
                np.testing.assert_allclose(held.a, own.a, rtol=1e-12)
