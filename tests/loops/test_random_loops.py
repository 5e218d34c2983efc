"""Random functions of loops: captured, unrolled and plain ones compute the same, gradients too.

``ADARRAY_LONG=5000`` takes so many, ``ADARRAY_FIRST`` says which is the first, and
``ADARRAY_BACKENDS`` where they run.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from random_loops import LoopProgram
from trust import BACKENDS, LONG, seeds

import adarray
from adarray.base.recording import LoopNote
from adarray.loops import notes as notes_of_loops
from adarray.loops import policy

CLOSE = (1e-7, 1e-9)
# A dozen in the core; all of them, and more, in full and long runs.
SEEDS = [k if i < 12 or LONG else pytest.param(k, marks=pytest.mark.slow)
         for i, k in enumerate(seeds(300))]  # fmt: skip


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture loops however short they are."""
    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[LoopNote]:
    """Return what is noted of loops."""
    out: list[LoopNote] = []

    def note(*args: Any, **kwargs: Any) -> LoopNote:
        out.append(LoopNote(*args, **kwargs))
        return out[-1]

    monkeypatch.setattr(notes_of_loops, "LoopNote", note)
    return out


def outcome(f: Any, args: Any) -> Any:
    """Return what a call returns, or the class of the error."""
    with np.errstate(all="ignore"):
        try:
            return f(*args)
        except (ArithmeticError, LookupError, NameError, ValueError, TypeError) as error:
            return type(error)


def copied(args: Any) -> Any:
    return tuple(np.array(a) for a in args)


def same(a: Any, b: Any, scale: float = 1.0) -> None:
    """Compare results, and errors; what is `scale` times larger has lost digits."""
    if isinstance(a, type) or isinstance(b, type):
        assert a is b
        return
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y, scale)
        return
    np.testing.assert_allclose(a, b, CLOSE[0], CLOSE[1] * scale)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_values(seed: int, notes: list[LoopNote]) -> None:
    program = LoopProgram(seed)
    args = program.arguments(seed)
    for backend in BACKENDS:
        with adarray.use(backend):
            jf = adarray.jit(program.f)
            for k in (seed, seed, seed, seed + 1):
                args = program.arguments(k)
                expected = outcome(program.f, copied(args))
                same(outcome(jf, copied(args)), expected)
    assert all(n.reason or n.taped is not None for n in notes)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients(seed: int) -> None:
    program = LoopProgram(seed)
    args = program.arguments(seed)
    gradient = adarray.value_and_grad(program.f, argnums=(0, 1, 2))
    expected = outcome(gradient, copied(args))
    scale = 1.0 if isinstance(expected, type) else max(1.0, abs(float(expected[0])) * 1e-3)
    for backend in BACKENDS:
        with adarray.use(backend):
            jf = adarray.jit(gradient)
            for _ in range(3):
                same(outcome(jf, copied(args)), expected, scale)
    if not isinstance(expected, type):
        differences(program, args, expected[1], seed)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
@pytest.mark.parametrize("seed", SEEDS[::4])
def test_memory_limit(seed: int) -> None:
    """Loops run again from checkpoints, or have tapes that are longer than they should be."""
    program = LoopProgram(seed)
    args = program.arguments(seed)
    gradient = adarray.value_and_grad(program.f, argnums=(0, 1, 2))
    expected = outcome(gradient, copied(args))
    scale = 1.0 if isinstance(expected, type) else max(1.0, abs(float(expected[0])) * 1e-3)
    with adarray.use(BACKENDS[0]):
        jf = adarray.jit(gradient, memory_limit=64)
        for _ in range(3):
            same(outcome(jf, copied(args)), expected, scale)


def differences(program: LoopProgram, args: Any, gradients: Any, seed: int) -> None:
    """Compare a derivative along a direction with differences, where these settle."""
    rng = np.random.default_rng(seed + 1)
    along = [rng.normal(size=a.shape) for a in args]
    slope = sum(float(np.sum(g * d)) for g, d in zip(gradients, along, strict=True))
    estimates = []
    for h in (1e-5, 1e-6):
        ends = [
            outcome(program.f, tuple(a + e * h * d for a, d in zip(args, along, strict=True)))
            for e in (1, -1)
        ]
        if any(isinstance(e, type) for e in ends):
            return
        estimates.append((ends[0] - ends[1]) / (2 * h))
    if abs(estimates[0] - estimates[1]) < 1e-4 * (1 + abs(slope)):
        np.testing.assert_allclose(slope, estimates[1], 1e-3, 1e-3)
    else:
        warnings.warn(f"seed {seed}: a branch turns close by", RuntimeWarning, stacklevel=2)
