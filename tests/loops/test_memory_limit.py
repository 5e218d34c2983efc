"""`jit`'s memory limit in captured loops: checkpoints, or a warning of what is needed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from trust import BACKENDS

import adarray
from adarray.kernels.execution import Execution

LIMIT = 1 << 15


def carried(x):
    s = x[0]
    for i in range(len(x)):
        s = np.sin(s) * x[i] + 0.5 * s
        s = np.exp(-s * s) + s
    return s


def while_small(x):
    s, i = x[0], 0
    while i < len(x) and s < 100.0:
        s = np.sin(s) * x[i] + 0.5 * s
        i += 1
    return s * s


def swept(x):
    u = x[:30].copy()
    for _ in range(400):
        for i in range(1, len(u) - 1):
            u[i] = np.sin(u[i - 1]) * u[i + 1] + 0.1 * u[i] * u[i]
    return np.sum(u)


def told(caught: list[warnings.WarningMessage]) -> list[str]:
    """Return the warnings of tapes."""
    return [str(w.message) for w in caught if "the tape of a loop" in str(w.message)]


def runs(jf: Any, x: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return what calls return, of which two are compiled, and the warnings of tapes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [jf(x) for _ in range(4)]
    for r in results[1:]:
        np.testing.assert_array_equal(r, results[0])
    return results[0], told(caught)


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of the tapes of gradients."""
    out: list[int] = []

    def note(execution: Execution, used: int) -> None:
        out.append(used)
        original(execution, used)

    original = Execution._warn_of
    monkeypatch.setattr(Execution, "_warn_of", note)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [carried, while_small])
def test_checkpoints(f: Any, backend: str, tapes: list[int]) -> None:
    x = np.random.default_rng(3).normal(size=20_000)
    with adarray.use(backend):
        expected, _ = runs(adarray.jit(adarray.grad(f)), x)
        assert max(tapes) > 4 * LIMIT
        tapes.clear()
        jf = adarray.jit(adarray.grad(f), memory_limit=LIMIT)
        got, messages = runs(jf, x)
        (line,) = jf.explain(x).loops
    assert tapes
    assert max(tapes) <= LIMIT
    assert not messages
    assert line.endswith("values, between checkpoints")
    np.testing.assert_allclose(got, expected, 1e-12, 1e-12)


def test_what_cannot_fit() -> None:
    """What loops that cannot run again keep is kept, and told of."""
    x = np.random.default_rng(3).normal(size=20_000)
    with adarray.use("serial"):
        for f, limit in ((swept, LIMIT), (carried, 64)):
            expected, _ = runs(adarray.jit(adarray.grad(f)), x)
            got, messages = runs(adarray.jit(adarray.grad(f), memory_limit=limit), x)
            np.testing.assert_allclose(got, expected, 1e-12, 1e-12)
            start = "jit: memory_limit: the tape of a loop needs "
            assert messages
            for m in messages:
                assert m.startswith(start)
                assert m.endswith(f" bytes, got a limit of {limit}; raise the limit")


def test_second_derivatives() -> None:
    """The tape of second derivatives is a whole one."""
    x = np.random.default_rng(3).normal(size=5_000)

    def product(x, v):
        return adarray.hvp(carried)(x, v)

    with adarray.use("serial"):
        expected = adarray.jit(product)(x, x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = adarray.jit(product, memory_limit=LIMIT)(x, x)
    assert told(caught)
    np.testing.assert_allclose(got, expected, 1e-12, 1e-12)
