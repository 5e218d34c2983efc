"""Random nests of loops, in strips of three lanes wherever these may run side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_nests import NestProgram
from trust import LONG, seeds

import adarray
from adarray.kernels import lanes
from adarray.loops import capture, policy
from adarray.loops.memory import Operations

SEEDS = [k if i < 8 or LONG else pytest.param(k, marks=pytest.mark.slow)
         for i, k in enumerate(seeds(200))]  # fmt: skip


def width(strips: lanes.Strips) -> tuple[int, bool]:
    """Return three lanes, and whether the loop is so many strips."""
    trips = strips.legality.loop.exact
    return 3, trips is not None and trips % 3 == 0


@pytest.fixture(autouse=True)
def strips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Capture loops however short they are, in strips of three; return how many there were."""
    count: list[int] = []
    written = lanes.Strips.written

    def noted(self: lanes.Strips, number: int) -> Any:
        count.append(number)
        return written(self, number)

    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))
    monkeypatch.setattr(lanes.Strips, "written", noted)
    monkeypatch.setattr(lanes.Strips, "_width", width)
    monkeypatch.setattr(lanes, "_LEAST", 1)
    monkeypatch.setattr(lanes, "_GAIN", 1e9)
    monkeypatch.setattr(capture, "_operations", Operations())
    return count


def outcome(f: Any, args: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return f(*args)
        except (ArithmeticError, LookupError, NameError, ValueError, TypeError) as error:
            return type(error)


def same(a: Any, b: Any, seed: int) -> None:
    if isinstance(a, type) or isinstance(b, type):
        assert a is b, seed
        return
    for x, y in zip(a if isinstance(a, tuple) else (a,), b if isinstance(b, tuple) else (b,),
                    strict=True):  # fmt: skip
        if isinstance(x, tuple):
            same(x, y, seed)
        else:
            x, y = np.asarray(x), np.asarray(y)
            scale = max(1.0, float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x))))
            np.testing.assert_allclose(y, x, rtol=1e-7, atol=1e-9 * scale, err_msg=str(seed))


def copied(args: Any) -> Any:
    return tuple(np.array(a) for a in args)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
@pytest.mark.parametrize("seed", SEEDS)
def test_random(seed: int) -> None:
    """Values and gradients are those of eager code."""
    program = NestProgram(seed)
    args = program.arguments(seed)
    with adarray.use("serial"):
        for f in (program.f, adarray.value_and_grad(program.f, argnums=(0, 1, 2, 3))):
            expected = outcome(f, copied(args))
            compiled = adarray.jit(f)
            for _ in range(3):
                same(expected, outcome(compiled, copied(args)), seed)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
def test_strips_are_met(strips: list[int]) -> None:
    """Some of the first programs have loops that become strips."""
    for seed in range(6):
        program = NestProgram(seed)
        args = program.arguments(seed)
        with adarray.use("serial"):
            compiled = adarray.jit(adarray.value_and_grad(program.f, argnums=(0, 1, 2, 3)))
            outcome(compiled, copied(args))
            outcome(compiled, copied(args))
    assert strips
