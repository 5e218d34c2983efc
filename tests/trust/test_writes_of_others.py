"""Memory that others write into: each result is right, or refused.

``ADARRAY_LONG=2000`` runs that many random programs.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trust import BACKENDS, MODES, check, seeds
from unseen_writers import LOUD, WRITERS, by_rows, program, restore

import adarray

REFUSALS = (adarray.ADArrayError, TypeError, ValueError, AttributeError, BufferError)
X = np.linspace(0.3, 1.2, 6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("writer", WRITERS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_what_is_written_is_seen(
    writer: Callable[[Any], None], saved: bool, shape: tuple[int, ...]
) -> None:
    """Under interception, wrap and jit, each wrote into a copy; and nothing said so."""

    def f(x: Any) -> Any:
        b = np.arange(6.0).reshape(shape) / 4
        y = x * b.reshape(-1) if saved else x
        writer(b)
        return y * b.reshape(-1)

    counts = check(f, (X,), backends=("numpy",), refusals=REFUSALS)
    # Python's buffer protocol does not know ADArrays, which all but two modes make of arrays.
    assert counts["right"] >= (2 if writer.__name__ in LOUD else len(MODES))


def test_traced_values_wait_until_the_memory_is_given_back() -> None:
    def filled(x: Any) -> Any:
        b = np.zeros_like(x)
        array = np.asarray(b)
        with pytest.raises(adarray.TraceError, match="in-place update of the memory of a plain"):
            b[0] = x[1]
        assert not array.any()
        del array
        b[0] = x[1]
        return np.sum(b)

    b = adarray.array(np.zeros(3))
    part = np.asarray(b)[1:]
    b[:] = 2.0
    b += 1.0
    part[0] = 5.0
    np.testing.assert_array_equal(b, [3.0, 5.0, 3.0])
    np.testing.assert_array_equal(part, [5.0, 3.0])
    leaf = adarray.array(np.ones(2), requires_grad=True)
    filled(leaf).backward()
    np.testing.assert_array_equal(leaf.grad, [0.0, 1.0])


def test_saved_values_stay_when_the_memory_is_written() -> None:
    def f(x: Any) -> Any:
        b = np.zeros_like(x) + 2.0
        array = np.asarray(b)
        y = x * b  # a copy is saved
        array[:] = 7.0
        z = x * b
        return np.sum(y + z)

    np.testing.assert_array_equal(adarray.grad(f)(X), np.full(6, 9.0))


def test_bytes_of_elements_are_written_by_compiled_code() -> None:
    """A view of other item size was taken for the array itself: eight elements became 0."""

    def f(x: Any) -> Any:
        b = np.arange(6.0)
        b.view("u1")[8:16] = 0
        return x * b

    jitted = adarray.jit(f)
    for _ in range(4):
        np.testing.assert_array_equal(jitted(X), f(X))


def test_functions_that_are_applied_write_after_an_operation_read() -> None:
    """The rule of the product read what was written later."""

    def f(x: Any) -> Any:
        a = np.arange(1.0, 7.0)
        y = x * a
        by_rows(a)
        return np.sum(y + x * a)

    for transformed in (adarray.grad(f, intercept=True), adarray.grad(f)):
        np.testing.assert_array_equal(transformed(X), [1.25, 2.25, 3.25, 8.0, 10.0, 12.0])


def test_plain_products_into_a_traced_array() -> None:
    def f(x: Any) -> Any:
        a = x * 2.0
        np.dot(np.eye(6) * 2, np.ones(6), out=a)
        return np.sum(a * x)

    np.testing.assert_array_equal(adarray.grad(f)(X), np.full(6, 2.0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:you are shuffling")  # NumPy, of all but its own arrays
def test_random_programs() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(60):
        f, text = program(seed)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                restore()
                f(X.copy())
        except Exception:
            counts["wrong for NumPy, too"] += 1
            continue
        backend = BACKENDS[seed % len(BACKENDS)]
        try:
            with np.errstate(all="ignore"):
                counts += check(
                    f, (X,), backends=(backend,), calls=4, refusals=REFUSALS, before=restore
                )
        except Exception as error:
            raise AssertionError(f"seed {seed}:\n{text}\n{error}") from error
    print(counts)
    assert counts["right"] > 2 * counts["refused"]
