"""What a jitted function captured and changes before its pullback runs: right, or refused.

The pullback of a compiled call runs the function again. State that is compared, and is no input,
was read as it was then: numbers, attributes, subclasses of ndarray gave gradients of another
function.
"""

from typing import Any

import numpy as np
import pytest

import adarray as ad


class Matrix(np.ndarray):
    """A subclass without anything of its own."""


class Items(list):
    """A list that no copy stands for."""


class Holder:
    """Numbers and arrays among attributes of a class."""

    number = 3.0
    array = np.array([1.0, 2.0, 3.0])


X = np.array([1.0, 2.0, 3.0])
NUMBER = 2.0
SETTINGS = {"mode": "a"}
NUMBERS = [1.0, 2.0]
BYTES = bytearray(b"abc")
DERIVED = X.copy().view(Matrix)
ITEMS = Items([X.copy()])
MEMORY: Any = None


def _set(new: bool) -> None:
    global NUMBER
    NUMBER = 5.0 if new else 2.0
    Holder.number = 7.0 if new else 3.0
    SETTINGS["mode"] = "b" if new else "a"
    NUMBERS[0] = 9.0 if new else 1.0
    BYTES[0] = 1 if new else 97
    for array in (Holder.array, DERIVED, ITEMS[0], MEMORY):
        array[0] = 10.0 if new else 1.0


READERS = {
    "global": lambda x: np.sum(x * x * NUMBER),
    "class attribute": lambda x: np.sum(x * x * Holder.number),
    "array of a class": lambda x: np.sum(x * x * Holder.array),
    "text": lambda x: np.sum(x * x * (1.0 if SETTINGS["mode"] == "a" else 5.0)),
    "item": lambda x: np.sum(x * x * NUMBERS[0]),
    "bytes": lambda x: np.sum(x * x * BYTES[0]),
    "subclass of ndarray": lambda x: np.sum(x * x * DERIVED),
    "list subclass": lambda x: np.sum(x * x * ITEMS[0]),
    "memory map": lambda x: np.sum(x * x * MEMORY),
    "view of a memory map": lambda x: np.sum(x * x * MEMORY[:]),
}


@pytest.fixture(autouse=True)
def _state(tmp_path):
    global MEMORY
    MEMORY = np.memmap(tmp_path / "data", float, "w+", shape=3)
    MEMORY[:] = X
    _set(False)
    yield
    _set(False)
    MEMORY = None


@pytest.mark.parametrize("kind", READERS)
def test_changed_between_a_call_and_its_pullback(kind):
    f = READERS[kind]
    factor = f(np.array([1.0, 0.0, 0.0])), f(np.array([0.0, 1.0, 0.0])), f(np.array([0.0, 0.0, 1]))
    expected = 2 * X * np.array(factor)
    jitted = ad.jit(f)
    for _ in range(4):  # recorded, compiled, and after a refusal
        _set(False)
        _, pull = ad.vjp(jitted, X)
        _set(True)
        try:
            (got,) = pull(1.0)
        except ad.TraceError as error:
            assert "what it captured changed between the call and its derivative" in str(error)  # noqa: PT017
        else:
            np.testing.assert_allclose(got, expected)
        _set(False)
        np.testing.assert_allclose(ad.vjp(jitted, X)[1](1.0)[0], expected)
    _set(True)
    np.testing.assert_allclose(ad.grad(jitted)(X), ad.grad(f)(X))  # gradients after a change


def test_a_recorded_gradient_is_of_the_state_of_its_call():
    def f(x):
        return np.sum(x * x * NUMBER)

    _, pull = ad.vjp(ad.jit(f), X)
    _set(True)
    with pytest.raises(ad.TraceError, match="changed between the call and its derivative"):
        pull(1.0)
