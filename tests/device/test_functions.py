"""Errors of float32 functions in compiled kernels, over all kinds of numbers."""

from __future__ import annotations

import numpy as np
from careful import FUNCTIONS, floats, folds, gradient, matrix, ulps, values

import adarray


def compiled(device_backend, f, x):
    """Return the results of a function that is compiled for the device."""
    jf = adarray.jit(f)
    with adarray.use(device_backend), np.errstate(all="ignore"):
        for _ in range(3):
            results = jf(x)
    return [np.asarray(r) for r in results]


def test_errors_over_all_exponents(device_backend):
    x = floats(2 if device_backend == "standin" else 2000)
    for (function, limit), got in zip(
        FUNCTIONS.values(), compiled(device_backend, values, x), strict=True
    ):
        assert ulps(got, x, function).max() <= limit


def test_an_element_does_not_depend_on_its_neighbours(device_backend):
    x = floats(20)
    whole = compiled(device_backend, values, x)
    for a, b in zip(whole, compiled(device_backend, values, x[3:].copy()), strict=True):
        np.testing.assert_array_equal(a[3:], b)


def test_totals_of_packs_that_are_computed_again(device_backend):
    x = np.tile(np.array([0.3, 1e5, -0.7, 2.0, 1.2e19, 0.1, 0.2], np.float32), 400)
    total, rest = compiled(device_backend, gradient, x)
    wide, wide_rest = gradient(x.astype(np.float64))
    np.testing.assert_allclose(total, wide, rtol=1e-5)
    np.testing.assert_allclose(rest, wide_rest, rtol=1e-5, atol=1e-6)


def test_rows_and_columns(device_backend):
    x = matrix()
    wanted = folds(x.astype(np.float64))
    for got, want in zip(compiled(device_backend, folds, x), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
