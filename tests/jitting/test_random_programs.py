"""Random programs: eager and under jit, values and gradients, on every backend.

The full run has more than the core; ``ADARRAY_LONG=5000`` runs that many, by seed
(``ADARRAY_FIRST`` is the first one).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from differential import Runner, counted, eager_gradients, eager_values, rounding, same_bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import RandomProgram, as_tuple
from random_programs import HALVES, programs, seeded
from together import together

import adarray
from adarray.testing import check_grads
from adarray.testing._ops import use_all_sizes

LONG = int(os.environ.get("ADARRAY_LONG", "0"))
FIRST = int(os.environ.get("ADARRAY_FIRST", "0"))
# Programs for each backend in the core and more in the full run; to compile them takes the time.
SHORT = {"numpy": 40, "serial": 20, "openmp": 10}
MORE = {"numpy": 80, "serial": 40, "openmp": 50}
STEADY = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


# -- the generator -----------------------------------------------------------------------------


@settings(max_examples=60, **STEADY)
@given(program=programs(), seed=st.integers(0, 100))
def test_programs_are_valid_and_tame(program: RandomProgram, seed: int) -> None:
    args = program.args(seed)
    with np.errstate(all="raise", under="ignore"):
        results = as_tuple(program.function()(*args))
    assert len(results) == len(program.exact)
    for r in results:
        assert np.all(np.isfinite(r))
        assert np.size(r) == 0 or np.max(np.abs(r)) < 1000
    for x, y in zip(args, program.args(seed), strict=True):
        np.testing.assert_array_equal(x, y)


def test_gradients_of_programs_are_right() -> None:
    """In eager code, against differences: what the runs under jit are compared with."""
    checked = 0
    for seed in range(200):
        program = seeded(seed)
        if any(a.rounded for a in program.arguments):
            continue  # lies on kinks and jumps
        args = [x if isinstance(x, float) else np.float64(x) for x in program.args(0)]
        check_grads(program.function("loss"), tuple(args), order=1)
        checked += 1
    assert checked > 80


def test_programs_take_different_paths() -> None:
    """Branches, loops, writes and functions occur, and guards flip from call to call."""
    several = 0
    texts = []
    for seed in range(300):
        program = seeded(seed)
        f, seen = program.watched()
        paths = set()
        for k in range(4):
            seen.clear()
            f(*program.args(k))
            paths.add(tuple(seen))
        several += len(paths) > 1
        texts.append(program.source)
    assert several > 50
    everything = "\n".join(texts)
    for part in (
        "while ",
        "for i in",
        "if ",
        "def helper",
        "+=",
        "@",
        "np.where",
        "axis=",
    ):
        assert everything.count(part) >= 10, part


# -- the comparison ----------------------------------------------------------------------------


@pytest.mark.slow
def test_rounding_explains_what_backends_differ_by() -> None:
    """Two ways to compute in eager code stay inside of the bound; much more would not."""
    try:
        context = use_all_sizes("serial")
    except adarray.BackendError:
        pytest.skip("the serial backend is not available")
    differ = 0
    for seed in range(60):
        program = seeded(seed)
        args = program.args(0)
        for name, eager in (("f", eager_values), ("loss", eager_gradients)):
            expected = eager(program.function(name), args)
            with context:
                got = eager(program.function(name), args)
            bounds, same_path = rounding(program, name, eager, args, expected)
            for g, e, limit in zip(got, expected, bounds, strict=True):
                differ += not same_bits(g, e)
                assert same_path
                assert np.all(np.abs(np.float64(g) - np.float64(e)) <= limit)
                assert np.all(limit <= 1e-3 * (np.abs(e) + 1))
    assert differ > 20


class _Wrong:
    """Stands for `adarray.jit`: off by a little, or off in kind."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def __call__(self, f: Any) -> Any:
        def run(*args: Any) -> Any:
            out = f(*args)
            if isinstance(out, tuple):
                return (self.change(out[0]), *out[1:])
            return self.change(out)

        return run


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x * (1 + 1e-4),
        lambda x: np.float16(x) if np.ndim(x) == 0 else x.astype(np.float16),
        lambda x: np.asarray(x)[None],
    ],
    ids=["value", "dtype", "shape"],
)
def test_a_wrong_result_is_found(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = 0
    monkeypatch.setattr(adarray, "jit", _Wrong(change), raising=False)
    for seed in range(30):
        program = seeded(seed)
        if np.size(as_tuple(program.function()(*program.args(0)))[0]) == 0:
            continue
        try:
            Runner("numpy").check(program, seeds=(0,))
        except AssertionError:
            wrong += 1
    assert wrong >= 25


# -- jit -----------------------------------------------------------------------------------------


def failures(runner: Runner, numbered: Iterable[tuple[int, RandomProgram]]) -> list[str]:
    """Check programs, given with their numbers; return what went wrong."""
    checks = ((str(k), functools.partial(runner.check, program)) for k, program in numbered)
    return [
        f"program {k}: {type(error).__name__}: {error}"
        for k, error in together(checks)
        if error is not None
    ]


@pytest.mark.slow_on("openmp")
def test_random_programs(backend: str) -> None:
    runner = Runner(backend)
    drawn: list[RandomProgram] = []
    given_programs = given(program=programs())
    several = settings(max_examples=SHORT.get(backend, 30), **STEADY)

    @several
    @given_programs
    def draw(program: RandomProgram) -> None:
        drawn.append(program)

    draw()
    with counted(runner):
        wrong = failures(runner, enumerate(drawn))
    if wrong:

        @several
        @given_programs
        def smaller(program: RandomProgram) -> None:
            runner.check(program)

        smaller()  # Hypothesis raises for the smallest program that it finds
    assert not wrong, f"{len(wrong)} of {len(drawn)} programs failed:\n" + "\n".join(wrong[:3])


@pytest.mark.slow
@pytest.mark.checked
def test_many_random_programs(backend: str) -> None:
    runner = Runner(backend)
    many = LONG or MORE.get(backend, 30)
    with counted(runner):
        wrong = failures(runner, ((k, seeded(k)) for k in range(FIRST, FIRST + many)))
    assert not wrong, f"{len(wrong)} of {many} programs failed:\n" + "\n".join(wrong[:10])


@pytest.mark.slow
@pytest.mark.checked
def test_random_programs_in_half_precision(backend: str) -> None:
    runner = Runner(backend)
    many = LONG or MORE.get(backend, 30) // 2
    with counted(runner):
        numbered = ((k, seeded(k, dtypes=HALVES)) for k in range(FIRST, FIRST + many))
        wrong = failures(runner, numbered)
    assert not wrong, f"{len(wrong)} of {many} programs failed:\n" + "\n".join(wrong[:10])
