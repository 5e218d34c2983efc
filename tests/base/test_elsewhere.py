"""Names of other libraries: no attributes, and errors that say what to write."""

from __future__ import annotations

import functools
import inspect
import re

import numpy as np
import pytest

import adarray
from adarray.base.elsewhere import OF_ARRAYS, OF_MODULE


def test_names_of_the_module_are_absent_and_say_what_to_write() -> None:
    for name, hint in OF_MODULE.items():
        assert not hasattr(adarray, name)
        assert name not in dir(adarray)
        with pytest.raises(AttributeError) as caught:
            getattr(adarray, name)
        assert str(caught.value) == f"module 'adarray' has no attribute {name!r}; {hint}"
    with pytest.raises(AttributeError, match=r"'zeros'; use NumPy's own np\.zeros, or"):
        adarray.zeros  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        adarray.nonsense  # noqa: B018


@pytest.mark.parametrize("x", [adarray.array([1.0, 2.0]), adarray.array(1.0)], ids=["1-d", "0-d"])
def test_names_of_arrays_are_absent_and_say_what_to_write(x: adarray.ADArray) -> None:
    assert inspect.getattr_static(x, "cpu", None) is not None  # the message has a place
    for name, hint in OF_ARRAYS.items():
        assert not hasattr(x, name)
        assert getattr(x, name, None) is None
        assert not hasattr(type(x), name)
        assert name not in dir(x)
        with pytest.raises(AttributeError) as caught:
            getattr(x, name)
        assert str(caught.value) == f"'ADArray' object has no attribute {name!r}; {hint}"
    assert {"sum", "T", "backward", "grad"} <= set(dir(x))


def test_traced_values_say_it_too() -> None:
    for start in (np.ones(2), 2.0):  # an array, and a Python number
        with pytest.raises(AttributeError, match=r"no attribute 'cpu'; use x.numpy\(\) for plain"):
            adarray.grad(lambda x: np.sum(x.cpu()))(start)
    assert adarray.grad(lambda x: np.sum(x) if hasattr(x, "cpu") else 2.0 * np.sum(x))(1.0) == 2.0


def test_hints_name_what_there_is() -> None:
    places = {"adarray": adarray, "np": np, "x": adarray.array([[1.0]])}
    for hint in {**OF_MODULE, **OF_ARRAYS}.values():
        for mention in re.findall(r"\b(adarray|np|x)((?:\.[a-zA-Z_]\w*)+)", hint):
            where, path = mention
            assert (
                functools.reduce(getattr, path[1:].split("."), places[where]) is not NotImplemented
            )


def test_arguments_and_habits_of_other_libraries() -> None:
    x = np.ones((2, 3))
    for call in (lambda x: x.sum(dim=0), lambda x: x.mean(0, dim=1)):
        with pytest.raises(TypeError, match=r"\(\) got an .* 'dim'; it is called axis in NumPy$"):
            adarray.grad(call)(x)
    with pytest.raises(TypeError, match=r"^sum\(\) .* 'keepdim'; it is called keepdims in NumPy$"):
        adarray.grad(lambda x: x.sum(0, keepdim=True))(x)
    with pytest.raises(TypeError, match=r"^sum\(\) got an unexpected keyword argument 'along'$"):
        adarray.grad(lambda x: x.sum(along=0))(x)
    leaf = adarray.array([1.0], requires_grad=True)
    with pytest.raises(
        adarray.TraceError, match=r"^data: .*; update a leaf under `with adarray.no"
    ):
        leaf.data -= 0.1  # type: ignore[misc, operator]
    with pytest.raises(
        AttributeError, match=r"make the array by adarray.array\(x, requires_grad=T"
    ):
        adarray.array([1.0]).requires_grad = True
