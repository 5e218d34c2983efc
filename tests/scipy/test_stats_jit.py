"""Distributions under jit: recorded as our own functions, or as one call of SciPy's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

import adarray

X = np.linspace(-1.5, 2.0, 7)
P = np.linspace(0.0, 1.0, 7)
LAWS = {
    "norm": (),
    "expon": (),
    "gamma": (2.5,),
    "beta": (2.0, 3.0),
    "t": (4.0,),
    "poisson": (2.5,),
    "lognorm": (0.7,),
    "weibull_min": (1.5,),
    "uniform": (),
    "binom": (5, 0.3),
}
METHODS = ["pdf", "logpdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf", "pmf", "logpmf"]


@pytest.mark.parametrize("name", LAWS)
def test_methods(name: str) -> None:
    law, shapes = getattr(stats, name), LAWS[name]
    for method in METHODS:
        if not hasattr(law, method):
            continue
        x = P if method in ("ppf", "isf") else np.arange(7.0) - 1 if "pmf" in method else X

        def direct(x: Any, _method: str = method) -> Any:
            return getattr(law, _method)(x, *shapes), getattr(law, _method)(x[2], *shapes)

        def frozen(x: Any, _method: str = method) -> Any:
            return getattr(law(*shapes), _method)(x), x[0]

        for f in (direct, frozen):
            jitted = adarray.jit(f)
            with warnings.catch_warnings(), adarray.use("numpy"):
                warnings.simplefilter("error")
                for _ in range(3):
                    for a, b in zip(jitted(x), f(x), strict=True):
                        assert type(a) is type(b)
                        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)
            assert jitted.cache_info().eager == 0, method


def test_parameters_that_are_arguments() -> None:
    def f(x: Any, a: float, scale: float) -> Any:
        return np.sum(stats.gamma.logpdf(x, a, scale=scale)) + stats.norm(a, scale).cdf(x[0])

    jitted = adarray.jit(f)
    for k in range(4):
        args = np.arange(1.0, 5.0), 2.0 + k, 0.5 + k
        np.testing.assert_allclose(jitted(*args), f(*args), rtol=1e-12)
    assert jitted.cache_info()[1:3] == (2, 1)
