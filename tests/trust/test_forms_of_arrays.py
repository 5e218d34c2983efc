"""Flags, shapes and types of captured arrays that a function sets change as in plain runs."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from repeated import X, repeat

import adarray
from adarray.jitting.captures.parts import ArrayForm

# NumPy 2.5 advises against setting shapes and types.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
Made = tuple[Callable[[Any], Any], Callable[[], Any]]


def in_a_closure(a: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: a


def in_a_class(a: np.ndarray) -> Callable[[], np.ndarray]:
    class Holder:
        attribute = a

    return lambda: Holder.attribute


def in_slots(a: np.ndarray) -> Callable[[], np.ndarray]:
    class Slots:
        __slots__ = ("held",)

    s = Slots()
    s.held = a
    return lambda: s.held


def in_a_proxy(a: np.ndarray) -> Callable[[], np.ndarray]:
    items = types.MappingProxyType({"a": a})
    return lambda: items["a"]


def in_a_cache(a: np.ndarray) -> Callable[[], np.ndarray]:
    return functools.lru_cache(lambda: a)


PLACES = (in_a_closure, in_a_class, in_slots, in_a_proxy, in_a_cache)


def opened_and_closed(get: Any, x: Any) -> Any:
    get().flags.writeable = not get().flags.writeable
    return np.sum(x * get()[:3])


def asked_between(get: Any, x: Any) -> Any:
    get().setflags(write=False)
    s = 3.0 if get().flags.writeable else 2.0
    get().flags.writeable = True
    return s * np.sum(x * get()[:3])


def refused_between(get: Any, x: Any) -> Any:
    get().flags.writeable = False
    try:
        get()[0] = 5.0
    except ValueError:
        s = 2.0
    else:
        s = 3.0
    get().flags["WRITEABLE"] = True
    return s * np.sum(x * get()[:3])


def turned(get: Any, x: Any) -> Any:
    get().shape = (4, 1) if get().ndim == 1 else (4,)
    return np.sum(x) * np.sum(get()) * get().ndim


def read_as_bits(get: Any, x: Any) -> Any:
    get().dtype = np.int64 if get().dtype == np.float64 else np.float64
    return np.sum(x) * (2.0 if get().dtype == np.int64 else 3.0)


CHANGES = (opened_and_closed, asked_between, refused_between, turned, read_as_bits)


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
def test_what_a_function_sets(place: Any, change: Any) -> None:
    def make() -> Made:
        get = place(np.array([0.5, 1.5, -1.0, 2.0]))
        return lambda x: change(get, x), lambda: ArrayForm(get()).items()

    assert not repeat(make)


@pytest.mark.parametrize("a", [np.array(["a", "b"]), np.array([1.0, None], object)], ids=["U", "O"])
def test_arrays_without_numbers(a: np.ndarray) -> None:
    def make() -> Made:
        array = a.copy()

        def f(x: Any) -> Any:
            array.flags.writeable = not array.flags.writeable
            array.shape = (1, 2) if array.ndim == 1 else (2,)
            return np.sum(x) * array.ndim

        return f, lambda: ArrayForm(array).items()

    assert not repeat(make)


def test_what_others_set(backend: str) -> None:
    names = np.array(["a", "b"])
    f = adarray.jit(lambda x: x * names.ndim * (2.0 if names.flags.writeable else 1.0))
    with adarray.use(backend):
        for shape, open_, expected in (((2,), True, 2), ((1, 2), True, 4), ((1, 2), False, 2)):
            names.shape, names.flags.writeable = shape, open_
            for _ in range(3):
                np.testing.assert_array_equal(f(X), X * expected)


def test_a_view_is_put_back_while_its_base_is_closed() -> None:
    base = np.zeros(6)
    view = base[::2]
    base.flags.writeable = False
    before = ArrayForm(view).items()
    view.flags.writeable = False
    ArrayForm(view).update(before)
    assert view.flags.writeable
    assert not base.flags.writeable
