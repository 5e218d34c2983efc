"""There are two truth values of NumPy and two of Python, and code compares with them by ``is``."""

from __future__ import annotations

import numpy as np
import pytest
from trust import MODES, check
from type_questions import module

import adarray
from adarray.core.comparing import asks_truths, truths_in
from adarray.errors import TraceError

X = np.array([0.7, 1.3, -0.4])
# Truth values of NumPy's (half of them true), and of Python's: of `x`, and of a number `t`.
NUMPYS = (
    "x[0] > 0.71", "(x > 0.71)[0]", "(x < -9.0).any()", "(x > -9.0).all()", "np.any(x > 1.32)",
    "np.isnan(x[0])", "np.isnan(x)[1]", "~(x[0] > 0.71)", "(x[0] > 0.71) & (x[1] > 0)",
    "np.logical_not(x[0] > 0.71)", "np.greater(x[0], 0.71)", "(x > 0.71).min()", "np.bool_(x[0])",
    "np.logical_or.reduce(x > 0.71)", "x.astype(bool)[0]", "x[0] == x[1]", "np.isclose(x[0], 2.0)",
    "list(x > 0.71)[0]", "next(iter(x > 0.71))", "x[1] > 1.31",
)  # fmt: skip
PYTHONS = ("t > 1.31", "not t > 1.31", "t == 2.0", "t < 2.0", "bool(x[0] > 0.71)",
           "np.array_equal(x, x)", "np.allclose(x[0], 2.0)")  # fmt: skip
# What may be asked of a truth value `b`, as an expression.
WAYS = (
    "b is np.True_", "np.True_ is b", "b is not np.False_", "b is TRUE", "same(b, np.True_)",
    "any(b is q for q in (np.True_,))", "b is True", "False is not b", "matched(b)",
    "operator.is_(b, np.True_)", "b is True or b is np.True_",
)  # fmt: skip
TEXT = """
import operator
TRUE = np.True_
def same(a, b):
    return a is b
def matched(b):
    match b:
        case True:
            return True
    return False
def f(x, t):
    b = {value}
    return x * (x[1] if {question} else t * x[0])
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", WAYS)
def test_which_truth_value_it_is(way: str) -> None:
    at = WAYS.index(way)
    for value in (*NUMPYS[at % 7 :: 7], *PYTHONS[at % 3 :: 3]):
        f = module(TEXT.format(value=value, question=way)).f
        modes = [m for m in MODES if m != "plain"]  # without interception, see below
        counts = check(f, (X, 1.3), modes, backends=("numpy",))
        assert not counts["refused"], (value, counts)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "openmp"])
@pytest.mark.parametrize("way", WAYS)
def test_which_truth_value_it_is_compiled(way: str, backend: str) -> None:
    for value in (NUMPYS[WAYS.index(way)], PYTHONS[WAYS.index(way) % len(PYTHONS)]):
        f = module(TEXT.format(value=value, question=way)).f
        counts = check(f, (X, 1.3), ("jit", "jit(grad)", "jit in grad"), (backend,))
        assert not counts["refused"], (value, counts)


def test_without_interception_it_is_refused() -> None:
    f = module(TEXT.format(value="x[0] > 0.71", question="b is np.True_")).f
    with pytest.raises(TraceError, match=r"np.True_: .* compares with it by `is`"):
        adarray.jvp(lambda x: np.sum(f(x, 1.3)), (X,), (X,), intercept=False)
    g = module(TEXT.format(value="x[0] > 0.71", question="b == np.True_")).f
    adarray.grad(lambda x: np.sum(g(x, 1.3)), intercept=False)(X)


def test_other_code_keeps_its_truth_values_traced() -> None:
    """A guard for each truth value would record a branch for each."""

    def usual(x: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        if mask is None:
            mask = np.ones(3)
        return np.where(x[0] > 0.71, x * mask, np.sum(x, keepdims=True))

    def asking(t: float) -> bool:
        return (t > 1.0) is True

    assert not asks_truths(truths_in(usual.__code__))
    assert asks_truths(truths_in(asking.__code__))
