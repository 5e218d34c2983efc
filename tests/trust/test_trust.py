"""The comparison that the tests of this folder make finds what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trust import MODES, check, fresh

import adarray


def test_copies_lie_in_memory_as_the_originals_do() -> None:
    a = np.arange(24.0).reshape(4, 6)
    views = (a, a[::-2, 1::2].T, a[1:3, ::-1])
    copies = fresh(views)
    for x, y in zip(views, copies, strict=True):
        assert x.strides == y.strides
        np.testing.assert_array_equal(x, y)
    copies[0][:] = 0
    assert not copies[1].any()
    assert not copies[2].any()
    assert a.any()


def test_right_programs_pass_in_all_modes() -> None:
    def f(x: Any, s: Any) -> Any:
        y = np.sin(x) * s
        y[1:] *= x[:-1]
        return y, np.sum(y)

    assert check(f, (np.arange(1.0, 6.0)[::-1], 1.5), backends=("numpy",)) == {"right": len(MODES)}


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_derivative_is_found(mode: str) -> None:
    if mode == "jit":
        pytest.skip("takes no derivative")

    def f(x: Any) -> Any:
        return x**2 + adarray.stop_gradient(x**2)

    with pytest.raises(AssertionError):
        check(f, (np.array([1.0, 2.0]),), modes=(mode,), backends=("numpy",))


def test_a_wrong_value_and_a_lost_write_are_found() -> None:
    def wrong(x: Any) -> Any:
        return x * (2.0 if isinstance(x, adarray.ADArray) else 1.0)

    def lost(x: Any) -> Any:
        if isinstance(x, adarray.ADArray):
            x = x.copy()
        x[0] = 1.0
        return np.sum(x)

    for f in (wrong, lost):
        with pytest.raises(AssertionError):
            check(f, (np.array([3.0, 2.0]),), modes=("jit",), backends=("numpy",))


def test_refusals_are_counted() -> None:
    counts = check(lambda x: float(x[0]) * x, (np.ones(2),), modes=("plain",), backends=("numpy",))
    assert counts["refused"] == 1
