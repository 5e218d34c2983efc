"""Copies of arrays that lie in memory as the originals do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.memory import duplicate

MEMORY = np.arange(240.0).reshape(4, 6, 10)
LAYOUTS = [
    MEMORY[::a, ::b, ::c].transpose(order)
    for a, b, c in itertools.product((1, -1, 2), (1, -2), (1, -1, 3))
    for order in ((0, 1, 2), (2, 0, 1), (2, 1, 0))
] + [MEMORY[:1, ::-1], MEMORY[:, :1].T, MEMORY[:0], MEMORY[0, 0, ::-1], MEMORY[1, 2, 3:4]]


@pytest.mark.parametrize("exactly", [False, True])
def test_numpy_looks_and_copies_where_it_does_with_the_original(exactly: bool) -> None:
    for x in LAYOUTS:
        made = duplicate(x, exactly)
        np.testing.assert_array_equal(made, x)
        assert not np.shares_memory(made, x)
        assert made.flags.c_contiguous == x.flags.c_contiguous
        assert made.flags.f_contiguous == x.flags.f_contiguous
        if exactly and x.size:
            assert made.strides == x.strides
        for order in "CFAK":
            for look in (
                lambda a, order=order: a.ravel(order),
                lambda a, order=order: a.reshape(-1, order=order if order != "K" else "C"),
                lambda a: a.reshape(a.shape[0], -1) if a.size else a[:],
                lambda a: a.T.reshape(-1),
                lambda a: a.swapaxes(0, -1).reshape(-1),
            ):
                assert np.shares_memory(look(made), made) == np.shares_memory(look(x), x)


def test_copies_are_small() -> None:
    x = np.zeros((1000, 1000))[::100, ::50]
    made = duplicate(x)
    assert made.base.nbytes <= 4 * x.nbytes


@pytest.mark.parametrize("rows", [slice(None, None, -1), slice(None, None, 2)])
def test_a_copy_that_reshape_makes_is_not_taken_for_a_view(rows: slice) -> None:
    """The caller's array was written into through it."""

    def f(x: Any) -> Any:
        x[0, 0] += 1
        v = x.reshape(-1)
        v[0] = 99
        return x * 1.0

    def g(x: Any) -> Any:
        x += 1.0  # held elements that follow one another, though those of x do not
        np.multiply(x, 2.0, out=x)
        x.ravel()[0] = 99
        return np.sum(x * x)

    memory = np.arange(24.0).reshape(6, 4)
    compiled = adarray.jit(f)
    for _ in range(3):
        own, plain = memory.copy()[rows], memory.copy()[rows]
        np.testing.assert_array_equal(compiled(own), f(plain))
        np.testing.assert_array_equal(own, plain)
    for gradient in (adarray.grad(g), adarray.jit(adarray.grad(g))):
        for _ in range(3):
            x = memory.copy()[rows]
            np.testing.assert_array_equal(gradient(x), 8 * (memory[rows] + 1))


def test_arrays_that_others_rely_on_keep_their_strides_under_jit() -> None:
    def f(x: Any) -> Any:
        x[1] *= 2.0
        return x * 1.0

    compiled = adarray.jit(f)
    for _ in range(4):
        held = adarray.ADArray(np.asfortranarray(np.arange(12.0).reshape(3, 4)))
        held._frozen = True
        np.testing.assert_array_equal(compiled(held), f(np.arange(12.0).reshape(3, 4)))
