"""Code that uses SciPy's own modules differentiates inside of `adarray.intercept`, unedited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.linalg
import scipy.signal
import scipy.sparse as sp
import scipy.sparse.linalg as spl
from scipy.integrate import odeint, quad
from scipy.interpolate import CubicSpline, interp1d
from scipy.ndimage import gaussian_filter
from scipy.optimize import brentq

import adarray

X = np.array([1.0, 2.0, 3.0])


def _solve(x: Any) -> Any:
    return scipy.linalg.solve(np.diag(x) + 1, x).sum()


def _filtered(x: Any) -> Any:
    return scipy.signal.lfilter([1.0, 0.5], [1.0, -0.2], x).sum()


def _sparse(x: Any) -> Any:
    a = sp.csr_matrix((x, (np.arange(3), np.arange(3))), shape=(3, 3))
    return (a @ x).sum() + spl.spsolve(a.tocsc(), x**2).sum()


def _constant_sparse(x: Any) -> Any:
    a = sp.diags([1.0, 2.0, 3.0]).tocsr()
    return (a @ x).sum() + (a.dot(x)).sum()


def _integral(x: Any) -> Any:
    return quad(lambda t: np.exp(-t * x[0]) * x[1], 0, x[2])[0]


def _splines(x: Any) -> Any:
    smooth = CubicSpline(np.arange(3.0), x)(np.array([0.5, 1.2])).sum()
    return smooth + interp1d(np.arange(3.0), x)(0.3)


def _image(x: Any) -> Any:
    return (gaussian_filter(x, 1.0) ** 2).sum()


def _root(x: Any) -> Any:
    return brentq(lambda t: t**3 - x.sum(), 0, 5)


def _equation(x: Any) -> Any:
    return odeint(lambda y, t: -x[0] * y, x[1], np.linspace(0, 1, 3))[-1, 0]


@pytest.mark.parametrize(
    "f",
    [_solve, _filtered, _sparse, _constant_sparse, _integral, _splines, _image, _root, _equation],
)
def test_gradient(f: Callable[[Any], Any]) -> None:
    gradient = adarray.grad(f, intercept=True)(X)
    slopes = [(f(X + h) - f(X - h)) / 2e-5 for h in 1e-5 * np.eye(3)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-6)
