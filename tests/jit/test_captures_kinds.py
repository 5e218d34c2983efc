"""No stale constants: every kind of state that a function reads, changed between calls.

Each case makes a function and a list of changes. The jitted function must do what the plain one
does after every change, whether it had been called once before it, had recorded twice, or ran
compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from captured_kinds import KINDS, X

import adarray


def plain(f: Any, x: np.ndarray) -> Any:
    """Return what a call gives: an array, or the kind of its error."""
    try:
        r = f(x)
    except Exception as error:
        return type(error)
    return np.asarray(r.numpy() if isinstance(r, adarray.ADArray) else r)


def same(got: Any, expected: Any, title: str) -> None:
    if isinstance(expected, type):
        assert got is expected, title
        return
    assert isinstance(got, np.ndarray), f"{title}: got {got}"
    assert got.dtype == expected.dtype, title
    assert got.shape == expected.shape, title
    np.testing.assert_allclose(got, expected, rtol=1e-13, err_msg=title)


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
def test_changes_are_seen(name: str, calls: int) -> None:
    f, changes = KINDS[name]()
    with adarray.use("numpy"):
        jf = adarray.jit(f)
        for number, change in enumerate([None, *changes]):
            if change is not None:
                change()
            for k in range(calls):
                x = X * (1 + 0.1 * k)
                same(plain(jf, x), plain(f, x), f"{name}: change {number}, call {k}")
