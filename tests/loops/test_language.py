"""What is understood of Python in loops: captured, with the types and values of Python."""

from __future__ import annotations

from typing import Any

import loop_language
import loops_of_arrays  # noqa: F401  # registers its functions
import numpy as np
import pytest
from unrolled_loops import UNROLLED

import adarray
from adarray.base.recording import LoopNote
from adarray.loops import notes as notes_of_loops
from adarray.loops import policy


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture loops however short they are, and compare them with the loops of Python."""
    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))
    monkeypatch.setenv("ADARRAY_CHECK", "1")


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[LoopNote]:
    """Return what is noted of loops."""
    out: list[LoopNote] = []

    def note(*args: Any, **kwargs: Any) -> LoopNote:
        out.append(LoopNote(*args, **kwargs))
        return out[-1]

    monkeypatch.setattr(notes_of_loops, "LoopNote", note)
    return out


def outcome(f: Any, args: tuple[np.ndarray, ...]) -> Any:
    """Return what a call returns, or the class of the error that the function raises."""
    try:
        return f(*(a.copy() for a in args))
    except (ArithmeticError, LookupError, ValueError) as error:
        return type(error)
    except AssertionError as error:
        if str(error):  # of a check
            raise
        return AssertionError


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(b, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(b, type) or b is None:
        assert a is b
    else:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        close = 1e-6 if np.asarray(b).dtype == np.float32 else 1e-10
        np.testing.assert_allclose(a, b, close, close)


def arguments(f: Any) -> list[tuple[np.ndarray, ...]]:
    """Return arguments by which the function goes several ways, each of them twice."""
    rng = np.random.default_rng(len(f.__name__))
    x, y = rng.normal(size=(2, 9))
    ways = [(x, y), (-np.abs(x), -np.abs(y)), (np.abs(x) + 2.0, 60.0 + y), (0.1 * x, 0.1 * y)]
    if f in loop_language.COMPLEX:
        u, v = rng.normal(size=(2, 9))
        ways = [(x + 1j * u, y + 1j * v), (0.2 * x + 0.1j * u, y - 0.3j * v), (x + 0j, y * 1j)]
    return [*(w for w in ways for _ in range(2)), ways[0]]


def number_of(value: Any) -> Any:
    """Return a number that depends on what a function returns."""
    if isinstance(value, tuple):
        return value[0] * 1.0
    if value is None:
        return 0.0
    return value.real if isinstance(value, (complex, np.complexfloating)) else value * 1.0


@pytest.mark.parametrize("f", [*loop_language.REAL, *loop_language.COMPLEX])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values(f: Any, notes: list[LoopNote]) -> None:
    jf = adarray.jit(f)
    for args in arguments(f):
        same(outcome(jf, args), outcome(f, args))
    reasons = {n.reason for n in notes}
    assert "" in reasons
    assert reasons <= {"", "it raises an error"}


@pytest.mark.slow
@pytest.mark.parametrize("f", [*loop_language.REAL, *loop_language.COMPLEX])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gradients(f: Any) -> None:
    gradient = adarray.grad(lambda x, y: number_of(f(x, y)), argnums=(0, 1))
    jf = adarray.jit(gradient)
    for args in arguments(f):
        expected, got = outcome(gradient, args), outcome(jf, args)
        if isinstance(expected, type):
            assert got is expected
            continue
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, 1e-6, 1e-9)


@pytest.mark.parametrize("f", UNROLLED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::adarray.JitWarning")
def test_what_is_unrolled(f: Any, notes: list[LoopNote]) -> None:
    jf = adarray.jit(f)
    for args in arguments(f):
        same(outcome(jf, args), outcome(f, args))
    assert UNROLLED[f] in {n.reason for n in notes}


def test_list_that_is_seen_elsewhere() -> None:
    """A list of the caller's gets what the loop appends, in each call."""
    seen: list[Any] = []

    def f(x):
        for i in range(len(x)):
            seen.append(float(i) if x[i] > 2.0 else 1.0)  # noqa: PERF401
        return x * 1.0

    jf = adarray.jit(f)
    for _ in range(3):
        jf(np.ones(9))
    assert seen == [1.0] * 27


def test_constants_that_are_equal() -> None:
    """Tuples of equal numbers of other types, and zeros of either sign, are other constants."""
    pairs = ((0, 1.0), (0.0, 1.0), (-0.0, 1.0), (False, 1.0))

    def f(x, k):
        pair, s = pairs[k], 0
        for i in range(len(x)):
            s = pair[0]
            x[i] = x[i] * pair[0] * pair[1]
        return s, x

    jf = adarray.jit(f)
    for k in (0, 0, 1, 1, 2, 2, 3, 3, 0):
        got, expected = jf(np.ones(9), k), f(np.ones(9), k)
        same(got, expected)
        assert np.array_equal(np.signbit(got[1]), np.signbit(expected[1]))
