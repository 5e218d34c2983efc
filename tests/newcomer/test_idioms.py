"""How NumPy code is written: each idiom gives its value and a right gradient, unedited.

Every function takes an array of 6 positive numbers (or what stands beside it) and
returns an array or a number; derivatives are checked to the second order.
"""

from __future__ import annotations

import idioms_of_arrays  # noqa: F401  (registers)
import idioms_of_python  # noqa: F401
import numpy as np
import pytest
from idiom import IDIOMS, X

import adarray
from adarray.testing import check_grads


def test_there_are_at_least_sixty() -> None:
    assert len(IDIOMS) >= 60


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom(name: str) -> None:
    f = IDIOMS[name]
    before = X.copy()
    expected = f(X.copy())
    value, _ = adarray.vjp(f, X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    assert np.shape(value) == np.shape(expected)
    check_grads(f, (X,))


@pytest.mark.parametrize("name", IDIOMS)
def test_idiom_on_a_backend(name: str) -> None:
    f = IDIOMS[name]
    try:
        context = adarray.use("serial", cutoff=0)
    except adarray.BackendError:
        pytest.skip("the serial backend is not available")
    expected = adarray.vjp(f, X)
    g = np.ones(np.shape(expected[0]))
    with context:
        value, pullback = adarray.vjp(f, X)
        np.testing.assert_allclose(value, expected[0], rtol=1e-12)
        np.testing.assert_allclose(pullback(g)[0], expected[1](g)[0], rtol=1e-12, atol=1e-14)
