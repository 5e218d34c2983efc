"""Loops over rows and within them become one, whatever is done with whole rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plan_runner import PlanRunner
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import For, statements
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import CPU
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.planning.planner import plan

RNG = np.random.default_rng(7)
TARGET = replace(CPU, small=4)
ROWS, COLUMNS = 13, 5


def checked(f: Callable[..., Any], *arrays: np.ndarray) -> Plan:
    """Plan `f` for a processor, compare it with the interpreter, and return the plan."""
    r = recorded(f, *arrays)
    planned = plan(r.program, target=TARGET)
    for step in planned.steps:
        if isinstance(step, KernelStep):
            verify(step.kernel)
    results = PlanRunner(planned)(list(arrays))
    for got, want in zip(results, interpret(r.program, list(arrays)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
    return planned


def nested(planned: Plan) -> bool:
    """Whether a vector loop stands in a loop other than one over rows or blocks."""
    return any(
        isinstance(s, For) and s.kind == "serial"
        for step in planned.steps
        if isinstance(step, KernelStep)
        for s in statements(step.kernel.body)
    )


def rolled(x: Any, y: Any) -> Any:
    return np.tanh(np.roll(x, 1, axis=0) + np.roll(x, -1, axis=0) - 2.0 * x) * y


def fixed_ends(x: Any, y: Any) -> Any:
    inner = x[1:-1] + 0.1 * (x[:-2] - 2.0 * x[1:-1] + x[2:]) * y[1:-1]
    return np.concatenate([x[:1], inner, x[-1:]])


def written(x: Any, y: Any) -> Any:
    z = x * y
    z[2:9] = np.sin(x[3:10])
    z[11] = y[0]
    return z


def joined(x: Any, y: Any) -> Any:
    return np.concatenate([x[4:], y[:2], x[:3] * y[5:8]], axis=0) * 2.0


WHOLE_ROWS = {f.__name__: f for f in (rolled, fixed_ends, written, joined)}


@pytest.mark.parametrize("name", WHOLE_ROWS)
@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
def test_whole_rows_are_moved_in_one_loop(name: str, gradient: bool) -> None:
    f = WHOLE_ROWS[name]
    x, y = RNG.normal(size=(2, ROWS, COLUMNS))
    if gradient:
        f = adarray.grad(lambda x, y: np.sum(WHOLE_ROWS[name](x, y) ** 2))
    planned = checked(f, x, y)
    if name == "written" or (gradient and name == "fixed_ends"):
        return  # regions are steps of their own; rows of two lengths have loops of their own
    assert not nested(planned)


def along_columns(x: Any, y: Any) -> Any:
    return np.tanh(np.roll(x, 1, axis=1) + x) * y


def by_row(x: Any, y: Any) -> Any:
    return np.roll(x, 1, axis=0) * y[:, :1]


def flipped(x: Any, y: Any) -> Any:
    return np.concatenate([x[::-1] * y, x])


@pytest.mark.parametrize("f", [along_columns, by_row, flipped], ids=lambda f: f.__name__)
def test_what_differs_within_rows_stays_nested(f: Callable[..., Any]) -> None:
    x, y = RNG.normal(size=(2, ROWS, COLUMNS))
    assert nested(checked(f, x, y))
    checked(adarray.grad(lambda x, y: np.sum(f(x, y) ** 2)), x, y)


def test_middle_axes() -> None:
    """Two of three axes become one where steps run along the first, or the second."""
    x, y = RNG.normal(size=(2, 7, 6, 5))
    for axis in (0, 1, 2):

        def f(x: Any, y: Any, axis: int = axis) -> Any:
            return np.tanh(np.roll(x, 2, axis=axis) + np.roll(x, -1, axis=axis)) * y

        planned = checked(f, x, y)
        assert nested(planned) == (axis == 2)
        checked(adarray.grad(lambda x, y, f=f: np.sum(f(x, y) ** 2)), x, y)


def random_function(seed: int) -> Callable[..., Any]:
    """Return a function that moves whole rows, single ones and columns about, in several steps."""

    def f(x: Any, y: Any) -> Any:
        choice = random.Random(seed)
        z = x
        for _ in range(choice.randint(2, 5)):
            axis, n = choice.choice(((0, ROWS), (0, ROWS), (0, ROWS), (1, COLUMNS)))
            k = choice.randint(1, n - 2)
            head = (slice(None),) * axis
            kind = choice.randrange(6)
            if kind == 0:
                z = np.roll(z, choice.randint(-3, 3), axis=axis) + 0.5 * z
            elif kind == 1:
                z = np.concatenate([z[(*head, slice(k, None))], y[(*head, slice(0, k))]], axis)
            elif kind == 2:
                inner = np.sin(z[(*head, slice(1, -1))] + y[(*head, slice(2, None))])
                ends = z[(*head, slice(0, 1))], z[(*head, slice(-1, None))]
                z = np.concatenate([ends[0], inner, ends[1]], axis)
            elif kind == 3:
                z = z * 1.0
                z[(*head, slice(k, k + 1))] = y[(*head, slice(k - 1, k))] * 2.0
            elif kind == 4:
                z = z * 1.0
                z[(*head, slice(0, k))] += np.cos(z[(*head, slice(n - k, n))])
            else:
                z = z - np.mean(z, axis=axis, keepdims=True) * y
        return z

    return f


@pytest.mark.parametrize("seed", range(40))
def test_random_moves(seed: int) -> None:
    f = random_function(seed)
    x, y = RNG.normal(size=(2, ROWS, COLUMNS))
    checked(f, x, y)
    checked(adarray.value_and_grad(lambda x, y: np.sum(f(x, y) ** 2), argnums=(0, 1)), x, y)
