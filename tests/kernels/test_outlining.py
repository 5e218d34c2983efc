"""Long kernels: their loop nests are functions of C of their own, which compute the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from one_thread_kernels import PATTERNS

import adarray
from adarray.kernels import RawKernel, outlining, print_cpu

# Sizes of nests that become functions: whatever is a loop; inner loops only.
OUTER, INNER = (0, 1, 1 << 30), (0, 1, 40)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that the text of each kernel is appended to from here on."""
    written: list[str] = []
    printed = print_cpu.source

    def noted(*args: Any) -> str:
        written.append(printed(*args))
        return written[-1]

    monkeypatch.setattr(print_cpu, "source", noted)
    return written


def _cut_to(limits: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in zip(("LONG", "LEAST", "MOST"), limits, strict=True):
        monkeypatch.setattr(outlining, name, limit)


def _everything(text: str, args: list[Any], threads: int = 1) -> list[Any]:
    """Return what a kernel computes, its tangent, and its gradient."""
    rng = np.random.default_rng(1)
    moved = [i for i, x in enumerate(args) if getattr(x, "dtype", None) == np.float64]
    inputs = tuple(args[i] for i in moved)
    tangents = tuple(rng.normal(size=np.shape(x)) for x in inputs)
    kernel = RawKernel(text, "k")

    def f(*values: Any) -> Any:
        given = list(args)
        for i, x in zip(moved, values, strict=True):
            given[i] = x
        return kernel.apply(1, threads, tuple(given))

    out, tangent = adarray.jvp(f, inputs, tangents)
    _, pullback = adarray.vjp(f, *inputs)
    many = out if isinstance(out, (tuple, list)) else (out,)
    cotangents = [rng.normal(size=np.shape(x)) for x in many]
    back = pullback(type(out)(cotangents) if many is out else cotangents[0])
    along = tangent if many is out else (tangent,)
    return [np.asarray(x) for x in (*many, *along, *back)]


def _functions(text: str) -> int:
    return len(re.findall(r"noinline\)\) int \w+\(", text))


@pytest.mark.parametrize("backend", ["serial", "openmp"])
@pytest.mark.parametrize("limits", [OUTER, INNER], ids=["outer", "inner"])
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.sampled(12)
def test_the_same_numbers(
    name: str,
    limits: tuple[int, int, int],
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    texts: list[str],
) -> None:
    pattern = PATTERNS[name]
    args = pattern.args(pattern.size, np.random.default_rng(0))
    text = pattern.source.replace("REAL", "double")
    with adarray.use(backend):
        whole = _everything(text, args)
        assert not any(map(_functions, texts))
        texts.clear()
        _cut_to(limits, monkeypatch)
        parts = _everything(text, args)
        assert limits is INNER or all(map(_functions, texts))
    for a, b in zip(whole, parts, strict=True):
        # Sums that are vectors in one of them are added up in another order.
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
