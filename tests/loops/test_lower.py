"""Loops as kernels: against the loops themselves, and their derivatives against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loop_cases import CASES, RAISING
from loop_programs import Program

from adarray.loops.forms import NotCaptured, Workspace


def _program(name: str) -> Program:
    case = CASES[name]
    return Program(case.function, *case.args(np.random.default_rng(1)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_does_what_the_loop_does(name: str) -> None:
    tolerance = 1e-5 if name == "singles" else 1e-12
    _program(name).check(tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.gradient and n not in RAISING])
def test_derivatives_are_differences(name: str) -> None:
    _program(name).check_gradients()


@pytest.mark.parametrize("name", CASES)
def test_errors_are_noted(name: str) -> None:
    assert _program(name).raises() is (name in RAISING)


def beyond_64_bits(x):
    n = 1
    for i in range(len(x)):
        n *= 3
        x[i] = n % 7
    return x


def test_larger_integers_are_left_to_python() -> None:
    Program(beyond_64_bits, np.ones(39)).check()
    assert Program(beyond_64_bits, np.ones(40)).raises()


# -- memory ----------------------------------------------------------------------------------------


def bins(x, y):
    sums = np.zeros(5)
    for i in range(5):
        inside = np.logical_and(0.2 * i <= x, x < 0.2 * i + 0.2)
        part = y[inside]
        sums[i] = part.sum() / part.size
    return sums


def bins_of_what_changes(x, y):
    sums = np.zeros(5)
    for i in range(5):
        inside = np.logical_and(0.2 * i <= x, x < 0.2 * i + 0.2)
        x[i] += 0.3
        sums[i] = y[inside].sum() + np.sum(inside)
    return sums


def bins_with_two_names(x, y):
    sums = np.zeros(5)
    for i in range(5):
        inside = x > 0.2 * i
        other = inside
        other[i] = True
        sums[i] = y[inside].sum()
    return sums


@pytest.mark.parametrize(
    ("f", "memories"), [(bins, 0), (bins_of_what_changes, 1), (bins_with_two_names, 1)]
)
def test_masks_take_memory_where_they_have_to(f: Any, memories: int) -> None:
    rng = np.random.default_rng(3)
    program = Program(f, rng.random(30), rng.random(30))
    program.check()
    program.check_gradients()
    own = [s for _, s in program.kernel.sources if isinstance(s, Workspace) and s.dtype == "bool"]
    assert len(own) == memories


# -- what is not captured --------------------------------------------------------------------------


def out_of_range(x):
    for i in range(len(x)):
        x[i] = x[i + len(x)]
    return x


def unknown_call(x):
    for i in range(len(x)):
        x[i] = sorted([x[i]])[0]
    return x


def never_bound(x):
    for i in range(len(x)):
        if x[i] > 0:
            y = x[i]
        x[i] = y
    return x


def cast_back(x):
    for i in range(2, len(x)):
        x[:i] *= 0.5
    return x


def prints(x):
    for i in range(len(x)):
        print(x[i])
    return x


def of_no_shape(x, y):
    for i in range(len(x)):
        x[i:] += y[: i + 1]
    return x


def written_before_it_is_bound(x):
    for _ in range(3):
        x[0] = 1
        x = x * 2
    return x


def passed_on_and_kept(x):
    for _ in range(3):
        old = x
        x = x * 2
    return x, old


def left_early(x):
    for i in range(len(x)):
        with np.errstate(all="raise"):
            x[i] = 1
    return x


REFUSED: dict[str, tuple[Any, tuple[Any, ...], str, int]] = {
    "out_of_range": (
        out_of_range, (np.ones(5),),
        "an index may be out of range: it is 5 to 9 where there are 5 elements or more", 2,
    ),
    "unknown_call": (unknown_call, (np.ones(5),), "a call of sorted", 2),
    "never_bound": (never_bound, (np.ones(5),), "'y' may not be bound", 4),
    "cast_back": (
        cast_back, (np.ones(5, np.int64),),
        "multiply in place gives float64, and the array has int64", 2,
    ),
    "prints": (prints, (np.ones(5),), "a call of print", 2),
    "of_no_shape": (
        of_no_shape, (np.ones(5), np.ones(5)), "arrays whose shapes are not known to fit", 2,
    ),
    "written_before_it_is_bound": (
        written_before_it_is_bound, (np.ones(5),),
        "an array is written before it is bound in an iteration", 2,
    ),
    "passed_on_and_kept": (
        passed_on_and_kept, (np.ones(5),), "'old' may not be bound after the loop", 1,
    ),
    "left_early": (left_early, (np.ones(5),), "the statement with is not understood", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused(name: str) -> None:
    function, args, reason, line = REFUSED[name]
    with pytest.raises(NotCaptured) as caught:
        Program(function, *args)
    assert caught.value.reason == reason
    assert caught.value.line == line + 1
