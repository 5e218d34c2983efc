"""Random loops and nests, which three threads share wherever these may be shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_loops import LoopProgram
from random_nests import NestProgram
from trust import LONG, seeds

import adarray
from adarray.compiler.ir.loopir import If
from adarray.jitting.tree import trial
from adarray.kernels import parallel
from adarray.loops import capture, policy
from adarray.loops.memory import Operations

SEEDS = [k if i < 8 or LONG else pytest.param(k, marks=pytest.mark.slow)
         for i, k in enumerate(seeds(200))]  # fmt: skip
PROGRAMS = {"loops": (LoopProgram, (0, 1, 2)), "nests": (NestProgram, (0, 1, 2, 3))}
THREADS = 3


@pytest.fixture(autouse=True)
def shares(monkeypatch: pytest.MonkeyPatch) -> list[parallel.Shares]:
    """Capture loops however short they are, and share them; return how they are shared."""
    out: list[parallel.Shares] = []
    shared = parallel.Sharing._shares

    def noted(self: parallel.Sharing, *args: Any, **kwargs: Any) -> parallel.Shares | None:
        result = shared(self, *args, **kwargs)
        if result is not None:
            out.append(result)
        return result

    monkeypatch.setattr(trial, "SUSPECT", None)  # no call is answered by eager code
    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))
    monkeypatch.setattr(policy, "_SHARED", ((0, 1 << 30),))
    monkeypatch.setattr(parallel, "LEAST_WORK", 0)
    monkeypatch.setattr(parallel, "_COPIED", 0)
    monkeypatch.setattr(parallel, "_ROWS", 0)
    monkeypatch.setattr(parallel.Sharing, "_shares", noted)
    monkeypatch.setattr(capture, "_operations", Operations())
    return out


def outcome(f: Any, args: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return f(*args)
        except (ArithmeticError, LookupError, NameError, ValueError, TypeError) as error:
            return type(error)


def flat(x: Any) -> list[Any]:
    """Return arrays and numbers in tuples, one after the other."""
    return [y for part in x for y in flat(part)] if isinstance(x, tuple) else [x]


def same(a: Any, b: Any, seed: int) -> None:
    if isinstance(a, type) or isinstance(b, type):
        assert a is b, seed
        return
    for x, y in zip(map(np.asarray, flat(a)), map(np.asarray, flat(b)), strict=True):
        scale = max(1.0, float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x))))
        np.testing.assert_allclose(y, x, rtol=1e-7, atol=1e-9 * scale, err_msg=str(seed))


def copied(args: Any) -> Any:
    return tuple(np.array(a) for a in args)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random(seed: int, kind: str) -> None:
    """Values and gradients are those of eager code, and have the same bits in each call."""
    cls, inputs = PROGRAMS[kind]
    program = cls(seed)
    args = program.arguments(seed)
    with adarray.use("openmp", threads=THREADS):
        for f in (program.f, adarray.value_and_grad(program.f, argnums=inputs)):
            expected = outcome(f, copied(args))
            compiled = adarray.jit(f)
            for _ in range(4):  # until nothing more is compiled
                same(expected, outcome(compiled, copied(args)), seed)
            first, second = (outcome(compiled, copied(args)) for _ in range(2))
            for x, y in zip(flat(first), flat(second), strict=True):
                assert isinstance(x, type) or np.array_equal(x, y, equal_nan=True)


def sweeps(a: Any, b: Any, n: int) -> Any:
    a = a.copy()
    for _ in range(n):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                a[i, j] = 0.2 * (a[i - 1, j] + a[i, j - 1] + a[i, j] + a[i, j + 1] + a[i + 1, j])
                a[i, j] += 0.1 * b[i, j] * a[i + 1, j - 1]
    return np.sum(a * a)


def far_sweeps(a: Any, b: Any, n: int) -> Any:
    a = a.copy()
    for _ in range(n):
        for i in range(1, a.shape[0]):
            for j in range(1, a.shape[1]):
                far = a[a.shape[0] - i, a.shape[1] - j]
                a[i, j] = 0.3 * (a[i - 1, j] + a[i, j - 1]) + 0.1 * far * b[i, j]
    return np.sum(a * a)


@pytest.mark.parametrize("threads", [2, 3])
def test_waves(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps run in waves, with the bits of one thread, where rows do not read too far ahead."""
    counts: list[int] = []
    written = parallel._in_waves

    def noted(*args: Any) -> Any:
        counts.append(1)
        return written(*args)

    monkeypatch.setattr(parallel, "_in_waves", noted)
    rng = np.random.default_rng(2)
    for program, waves in ((sweeps, True), (far_sweeps, False)):
        for rows in (3, 9, 26) if waves else (9, 26):
            counts.clear()
            a, b = rng.normal(size=(2, rows, 8))
            gradient = adarray.value_and_grad(program, argnums=(0, 1))
            results = []
            for backend, options in (("serial", {}), ("openmp", {"threads": threads})):
                with adarray.use(backend, **options):
                    fast = adarray.jit(gradient)
                    results.append([fast(a, b, 7) for _ in range(3)][-1])
            for x, y in zip(*map(flat, results), strict=True):
                np.testing.assert_array_equal(y, x)
            assert bool(counts) == waves


def kept_inside(x: Any) -> Any:
    out = np.zeros(5)
    for i in range(60):
        for j in range(-3, 9):
            if 0 <= j < 5:
                out[j] += x[i] * j
    return out


def test_sums_of_parts_stay_inside_of_arrays(
    shares: list[parallel.Shares], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places that no iteration may touch are added to nothing, though the range has them."""
    written: list[Any] = []
    added = parallel._added

    def noted(*args: Any) -> Any:
        written.append(added(*args))
        return written[-1]

    monkeypatch.setattr(parallel, "_added", noted)
    x = np.random.default_rng(1).normal(size=60)
    with adarray.use("openmp", threads=THREADS):
        compiled = adarray.jit(kept_inside)
        for _ in range(3):
            np.testing.assert_allclose(compiled(x), kept_inside(x))
    assert any(low < 0 for s in shares for low, _ in s.ranges.values())
    for loop in written:
        (inner,) = loop.body
        assert all(isinstance(s, If) for s in inner.body)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
def test_loops_are_shared(shares: list[parallel.Shares]) -> None:
    """Some of the first programs have loops that are shared, in each of the ways."""
    for seed in range(16):
        program = NestProgram(seed)
        args = program.arguments(seed)
        with adarray.use("openmp", threads=THREADS):
            compiled = adarray.jit(adarray.value_and_grad(program.f, argnums=(0, 1, 2, 3)))
            outcome(compiled, copied(args))
            outcome(compiled, copied(args))
    assert any(s.ranges for s in shares)
    assert any(s.variables for s in shares)
    assert any(not s.ranges and not s.variables for s in shares)
