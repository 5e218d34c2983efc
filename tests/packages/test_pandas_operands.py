"""Objects of pandas beside traced arrays: operands in any order, and in NumPy's functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frame_calls import PANDAS, sampled

import adarray
from adarray.base.levels import MET

pd = pytest.importorskip("pandas", minversion="2.1")
# np.sum(frame) in the plain run.
pytestmark = pytest.mark.filterwarnings("ignore:The behavior of DataFrame.sum:FutureWarning")
X = np.array([0.31, 0.52, 0.47, 0.83, 0.66, 0.29])
RNG = np.random.default_rng(0)
df = pd.DataFrame({"a": RNG.random(6) + 0.5, "b": RNG.random(6) + 0.2, "g": list("xyxyxz")})
num, s = df[["a", "b"]], df["a"]
i, m, idx = pd.Series([1, 2, 3, 4, 5, 6]), s > 0.9, pd.Index([1.0, 2, 3, 4, 5, 6])


def function(call: str) -> Callable[[Any], Any]:
    space = dict(globals())
    exec(f"def f(x):\n    return {call}", space)
    return space["f"]


def differences(f: Callable[[Any], Any]) -> np.ndarray:
    def number(x: np.ndarray) -> float:
        return float(np.sum(np.asarray(f(x), dtype=float)))

    steps = 1e-6 * np.eye(6)
    return np.array([(number(X + h) - number(X - h)) / 2e-6 for h in steps])


@pytest.mark.parametrize("call", sampled(PANDAS))
def test_gradient(call: str) -> None:
    f = function(call)
    expected = differences(f)
    for intercept in (False, True):
        gradient = adarray.grad(f, intercept=intercept)(X)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("call", ["((s - x) ** 2).mean()", "np.sum(num * x[:2])"])
def test_compiled(call: str) -> None:
    f = function(call)
    compiled = adarray.jit(adarray.grad(f))
    for _ in range(2):
        np.testing.assert_allclose(compiled(X), differences(f), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "method"),
    [
        ("s @ x", "Series.__matmul__"), ("num @ x[:2]", "DataFrame.__matmul__"),
        ("pd.Series(x)", "Series.__init__"), ("df.assign(p=x)", "DataFrame.assign"),
        ("num.mul(x, axis=0)", "DataFrame.mul"),
    ],
)  # fmt: skip
def test_what_pandas_cannot_hold_is_refused_in_one_sentence(call: str, method: str) -> None:
    with pytest.raises(adarray.TraceError) as caught:
        adarray.grad(function(f"np.sum({call})"))(X)
    text = str(caught.value)
    assert text.startswith(f"pandas {method}: a traced value would leave the graph")
    assert "compute with .to_numpy() of the Series or DataFrame" in text
    assert text.endswith("line 2)")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "df * x[:3]",
            "multiply: an operand is a DataFrame of dtype float64, (object|str); adarray ",
        ),
        (
            "x + df['g']",
            "add: an operand is a Series of dtype (object|str); adarray computes on arrays",
        ),
    ],
)
def test_other_things_than_numbers_are_refused(call: str, message: str) -> None:
    with pytest.raises(adarray.DTypeError) as caught:
        adarray.grad(function(f"np.sum({call})"))(X)
    assert re.match(message, str(caught.value))  # pandas 3 has a dtype for text
    assert "pass .to_numpy(dtype=float) (in f, file" in str(caught.value)


def test_beside_plain_adarrays_pandas_computes() -> None:
    array = adarray.array([1.0, 2.0])
    for r in (num * array, array * num, np.multiply(num, array), np.multiply(array, num)):
        pd.testing.assert_frame_equal(r, num * np.array([1.0, 2.0]))
    mask = s > adarray.array(X)
    assert isinstance(mask, pd.Series)


@pytest.mark.parametrize(
    "transform", [lambda f: adarray.grad(f)(X), lambda f: adarray.jvp(f, (X,), (X,))]
)
@pytest.mark.parametrize(
    ("call", "fix"),
    [
        ("(s * x).std()", "divides by n - 1, NumPy by n: pass ddof=1"),
        ("np.exp(x / s).var()", "divides by n - 1, NumPy by n: pass ddof=1"),
        (
            "(num * x[:2]).max().sum()",
            "reduces each column, NumPy all of them at once: pass axis=0",
        ),
        ("(x[:2] - num).sum().sum()", "reduces each column"),
        ("(num * x[:2]).std().sum()", "divides by n - 1"),
    ],
)
def test_methods_that_pandas_has_otherwise_are_refused(call: str, fix: str, transform: Any) -> None:
    with pytest.raises(adarray.UnsupportedFunctionError, match=fix) as caught:
        transform(function(call))
    assert str(caught.value).startswith(re.findall(r"\.(\w+)\(\)", call)[0])
    assert "in f, file" in str(caught.value)
    assert not MET


@pytest.mark.parametrize(
    "call",
    [
        "(s * x).std(ddof=1)", "(s * x).var(ddof=1)", "np.std(s * x)", "(s * x).mean()",
        "(num * x[:2]).max(axis=0).sum()", "(num * x[:2]).std(axis=0, ddof=1).sum()",
        "(s * x).sum() * x[:4].std()",
    ],
)  # fmt: skip
def test_methods_that_say_what_they_mean(call: str) -> None:
    f = function(call)
    steps = 1e-6 * np.eye(6)
    expected = [(f(X + h) - f(X - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(adarray.grad(f)(X), expected, rtol=1e-7, atol=1e-8)
    jitted = adarray.jit(f)
    for _ in range(3):
        assert jitted(X) == pytest.approx(f(X), rel=1e-14)


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
def test_compiled_functions_leave_such_methods_to_pandas() -> None:
    f = function("(s * x).std() + (num * x[:2]).max().sum()")
    jitted = adarray.jit(f)
    for _ in range(3):
        assert jitted(X) == f(X)
