"""Where Python and NumPy do something else than compiled loops would: results stay theirs."""

from __future__ import annotations

import copy
import gc
import math
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray

X = np.arange(3.0)
U8 = np.arange(3, dtype=np.uint8)
INTS = (2, 3, 4, 5)  # so many that an int becomes an input


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend; what stays eager may say so."""
    with adarray.use(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def came(f: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return what a call gave, or the type of what it raised, and its arguments afterwards."""
    args = copy.deepcopy(args)
    try:
        return f(*args), args
    except Exception as error:
        return type(error), args


def agree(f: Callable[..., Any], *calls: tuple[Any, ...]) -> Any:
    """Compare a jitted function with the plain one in each of these calls, made three times."""
    compiled = adarray.jit(f)
    for args in calls:
        for _ in range(3):
            (got, left), (expected, remaining) = came(compiled, args), came(f, args)
            assert type(got) is type(expected), (args, got, expected)
            if type(expected) is not type:
                np.testing.assert_allclose(got, expected, rtol=1e-13)
            else:
                assert got is expected
            for a, b in zip(left, remaining, strict=True):
                np.testing.assert_array_equal(a, b)
    return compiled


def with_ints(*others: int, x: Any = X) -> list[tuple[Any, int]]:
    return [(x, n) for n in (*INTS, *others)]


# -- Python's whole numbers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "large"),
    [
        (lambda x, n: x * (n * n * n), 2**40),
        (lambda x, n: x * float(10**n), 25),
        (lambda x, n: x * (2**n), 70),
        (lambda x, n: x * (1 << n), 70),
        (lambda _, n: n * 2, 2**62),
        (lambda _, n: n + (1 << 62), 2**62),
    ],
)
def test_ints_that_outgrow_64_bits(f: Any, large: int) -> None:
    agree(f, *with_ints(large))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: x * (100 // n),
        lambda x, n: x * (100 % n),
        lambda x, n: x * (1 / n),
        lambda x, n: x * (1 << n),
        lambda x, n: x * (n // 0),
    ],
)
def test_ints_divided_by_zero_and_shifted_back(f: Any) -> None:
    agree(f, *with_ints(0, -1))


@pytest.mark.slow
@pytest.mark.checked
@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: x + n,
        lambda x, n: x < n,
        lambda x, n: np.maximum(x, n),
        lambda x, n: np.where(x > 1, x, n),
        lambda x, n: (x.__setitem__(0, n), x.sum())[1],
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "uint64", "int64"])
def test_ints_that_an_array_cannot_hold(f: Any, dtype: str) -> None:
    agree(f, *with_ints(300, -1, x=U8.astype(dtype)))


@pytest.mark.parametrize("number", [-1, 300, 2**63, 2**64, -(2**63) - 1, 2])
def test_comparisons_with_ints_of_other_ranges(number: int) -> None:
    agree(lambda x: np.stack([x < number, x > number, x == number, number <= x]), (U8,))


def test_ints_stay_inputs_where_64_bits_hold_the_result() -> None:
    compiled = agree(lambda x, n: x * (n * (n - 1) + 3 * n) / (n + 1), *with_ints(1000, 12345))
    assert compiled.cache_info().eager == 0
    assert compiled.cache_info().paths == 4  # three numbers, then all others


def test_captured_ints_that_outgrow_64_bits() -> None:
    state = {"k": 1}

    @adarray.jit
    def f(x: Any) -> Any:
        return x * state["k"] ** 3

    for k in (*range(12), 2**31 + 1, 2**40, 5):
        state["k"] = k
        np.testing.assert_array_equal(f(X), X * k**3)


# -- Python's other numbers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "number"),
    [
        (lambda x, s: x * (1.0 / s), 0.0),
        (lambda x, s: x * (s**0.5), -1.0),
        (lambda x, s: x * (s**-1), 0.0),
        (lambda x, s: x * s**400.0, 1e10),
        (lambda x, s: x * (7.5 // s), 0.0),
        (lambda x, s: x * (7.5 % s), 0.0),
        (lambda x, s: x * math.exp(s), 1000.0),
        (lambda x, s: x * math.log(s), 0.0),
        (lambda x, s: x * math.sqrt(s), -1.0),
        (lambda _, s: 1 / s, 0.0),
        (lambda _, s: s * 2, 1e308),
        (lambda x, s: x / (x.sum().item() - s), 3.0),
    ],
)
def test_python_raises_where_numpy_warns(f: Any, number: float) -> None:
    agree(f, (X, 2.0), (X, number), (X, 4.0))
    agree(f, (X, number), (X, 2.0))


# -- np.errstate -----------------------------------------------------------------------------


def quiet(x: Any, y: Any) -> Any:
    with np.errstate(all="ignore"):
        return x / y


def strict(x: Any, y: Any) -> Any:
    with np.errstate(divide="raise"):
        return x / y


def test_errstate_inside_of_the_function() -> None:
    for f in (quiet, strict):
        agree(f, (X, X + 1), (X + 1, X), (X, X + 1))
    compiled = adarray.jit(quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            compiled(X + 1, X)
    assert compiled.cache_info().compiled == 1


def test_errstate_inside_of_one_part_only() -> None:
    def f(x: Any, y: Any) -> Any:
        return quiet(x, y) + np.log(y + 1)

    compiled = adarray.jit(f)
    for _ in range(3):
        compiled(X + 1, X + 1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        compiled(X, X - 1)
    assert {str(w.message) for w in heard} == {"divide by zero encountered in log"}


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
def test_whole_numbers_divided_by_zero(dtype: str) -> None:
    x = np.arange(6).astype(dtype)
    with np.errstate(divide="raise"):
        agree(lambda a, b: a // b, (x, x + 1), (x, x), (x, x + 1))
        agree(lambda a, b: a % b, (x, x + 1), (x, x), (x, x + 1))


# -- what is written ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [((4, 3), (8, 8)), ((4,), (0,))])
def test_writes_into_an_array_that_overlaps_itself(shape: Any) -> None:
    def f(x: Any) -> Any:
        x[0] = 5.0
        return x * 2

    compiled = adarray.jit(f)
    for _ in range(3):
        (a, x), (b, y) = ((m, np.lib.stride_tricks.as_strided(m, *shape)) for m in two(6))
        np.testing.assert_array_equal(compiled(x), f(y))
        np.testing.assert_array_equal(a, b)


def two(n: int) -> tuple[Any, Any]:
    return np.arange(float(n)), np.arange(float(n))


def test_functions_that_write_into_their_argument() -> None:
    bad = np.array([1.0, np.nan, np.inf])
    agree(lambda x: (np.nan_to_num(x, copy=False), x.sum())[1], (bad,))
    agree(lambda x: (np.nan_to_num(x, False), x.sum())[1], (bad,))
    agree(lambda x: (x.resize(3, 2), x.sum())[1], (np.arange(6.0).reshape(2, 3),))


# -- results -----------------------------------------------------------------------------------


class Owner:
    """A result that is not taken apart."""

    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("f", "opened"),
    [
        (lambda x: Owner(x * 2), lambda r: r.value),
        (lambda x: types.SimpleNamespace(a=[x * 2]), lambda r: r.a[0]),
        (lambda x: (x * i for i in (2, 3)), next),
        (lambda x: lambda: x * 2, lambda r: r()),
        (lambda x: {"f": Owner([x * 2])}, lambda r: r["f"].value[0]),
    ],
)
def test_no_recorded_value_is_hidden_in_a_result(f: Any, opened: Any) -> None:
    compiled = adarray.jit(f)
    for k in range(4):
        r = opened(compiled(X + k))
        assert type(r) is np.ndarray
        np.testing.assert_array_equal(r, (X + k) * 2)


def test_objects_that_hold_nothing_recorded_are_results() -> None:
    mark = Owner(3)
    compiled = adarray.jit(lambda x: (mark, x * 2))
    for _ in range(4):
        assert compiled(X)[0] is mark
    assert compiled.cache_info().eager == 0


def test_text_of_values() -> None:
    for f in (
        lambda x: (x, f"{x.sum():.2f}"),
        lambda x: (x, str(x[0])),
        lambda x: (x, ",".join(map(str, x))),
    ):
        compiled = adarray.jit(f)
        for k in (0, 0, 0, 5):
            assert compiled(X + k)[1] == f(X + k)[1]


def test_text_of_ints_finds_things() -> None:
    weights = {f"w{n}": np.full(3, float(n)) for n in range(10)}
    compiled = adarray.jit(lambda x, w, n: x * w[f"w{n}"])
    for n in (*range(10), 3, 8):
        np.testing.assert_array_equal(compiled(X, weights, n), X * n)


# -- what changes outside ------------------------------------------------------------------------


def factor(x: Any) -> Any:
    return x * 2


def other_factor(x: Any) -> Any:
    return x * 3


def test_code_put_into_an_old_function() -> None:
    """As tools do that load a changed module again."""
    code = factor.__code__
    try:
        inside, itself = adarray.jit(lambda x: factor(x)), adarray.jit(factor)
        for _ in range(3):
            inside(X), itself(X)
        factor.__code__ = other_factor.__code__
        np.testing.assert_array_equal(inside(X), X * 3)
        np.testing.assert_array_equal(itself(X), X * 3)
    finally:
        factor.__code__ = code


@pytest.mark.usefixtures("_young_heap")
def test_nothing_is_kept_alive() -> None:
    captured, x = np.ones(1000), np.ones(1000)
    compiled = adarray.jit(lambda x: x * captured)
    for _ in range(4):
        compiled(x)
    seen = [weakref.ref(x), weakref.ref(captured), weakref.ref(compiled)]
    x = captured = compiled = None  # type: ignore[assignment]
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3
