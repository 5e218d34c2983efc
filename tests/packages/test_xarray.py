"""xarray over traced arrays: DataArrays hold them, and compute by NumPy's protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from frame_calls import XARRAY, sampled

import adarray

xr = pytest.importorskip("xarray")
X = np.array([0.31, 0.52, 0.47, 0.83, 0.66, 0.29])
RNG = np.random.default_rng(0)
t = np.arange(6.0)
da = xr.DataArray(RNG.random(6) + 0.5, dims="t", coords={"t": t})
d2 = xr.DataArray(
    RNG.random((2, 3)) + 0.5, dims=("y", "t"), coords={"y": [10, 20], "t": [0.0, 1.0, 2.0]}
)
lab = xr.DataArray(list("aabbca"), dims="t")
ds = xr.Dataset({"u": da, "w": da * 2})


def D(x: Any) -> Any:  # noqa: N802
    return xr.DataArray(x, dims="t", coords={"t": t})


def D2(x: Any) -> Any:  # noqa: N802
    return xr.DataArray(
        x.reshape(2, 3), dims=("y", "t"), coords={"y": [10, 20], "t": [0.0, 1.0, 2.0]}
    )


def function(call: str) -> Callable[[Any], Any]:
    space = dict(globals())
    exec(
        f"def f(x):\n    r = {call}\n    return r.data if isinstance(r, xr.DataArray) else r", space
    )
    return space["f"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", sampled(XARRAY))
def test_gradient(call: str) -> None:
    f = function(call)

    def number(x: np.ndarray) -> float:
        return float(np.sum(np.asarray(f(x), dtype=float)))

    expected = [(number(X + h) - number(X - h)) / 2e-6 for h in 1e-6 * np.eye(6)]
    for intercept in (False, True):
        gradient = adarray.grad(f, intercept=intercept)(X)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "method"),
    [("D(x).values.sum()", "DataArray.values"), ("D(x).interp_like(da)", "DataArray.interp_like")],
)
def test_what_becomes_plain_is_refused_in_one_sentence(call: str, method: str) -> None:
    with pytest.raises(adarray.TraceError) as caught:
        adarray.grad(function(call))(X)
    text = str(caught.value)
    assert text.startswith(f"xarray {method}: a traced value would leave the graph")
    assert "take .data in place of .values or .to_numpy(), and compute with that" in text
    assert "(in f, file" in text


@pytest.mark.parametrize(
    "call",
    [
        "D(x).interp(t=2.3)",
        "D(x).interp(t=[0.4, 4.7, 7.0], method='nearest').fillna(0.5)",
        "D(x).interp({'t': [0.4, 4.7]}, method='cubic') * 2",
        "D(x).interp(t=[-0.5, 4.7], kwargs={'fill_value': 'extrapolate'})",
        "D2(x).interp(t=[0.5, 1.25])",
        "D2(x).interp(y=12.5, t=[0.5, 1.25, 1.75])",
        "D2(x).interp(t=xr.DataArray([0.5, 1.25], dims='z')) * xr.DataArray([1.0, 3.0], dims='z')",
        "da.interp(t=x)",
        "D(x[::-1]).isel(t=[3, 1, 0, 2, 5, 4]).interp(t=[0.5, 4.5])",
    ],
)
def test_interpolation(call: str) -> None:
    f = function(call)

    def number(x: np.ndarray) -> float:
        return float(np.sum(f(x)))

    expected = [(number(X + h) - number(X - h)) / 2e-6 for h in 1e-6 * np.eye(6)]
    np.testing.assert_allclose(adarray.grad(lambda x: np.sum(f(x)))(X), expected, atol=1e-6)
    with pytest.warns(adarray.JitWarning):  # classes of SciPy that are made of traced values
        got = adarray.jit(adarray.grad(lambda x: np.sum(f(x))))(X)
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("D(x).interp(t=[1.5], method='akima')", "method 'akima'"),
        ("D2(x).interp(y=xr.DataArray([12.0], dims='t'), t=[0.5])", "points along"),
    ],
)
def test_what_interpolation_is_refused(call: str, what: str) -> None:
    f = function(call)
    with pytest.raises(adarray.UnsupportedFunctionError, match=what):
        adarray.grad(lambda x: np.sum(f(x)))(X)


WAYS = {
    "jet": lambda f, x: adarray.jet(f, (x,), ((np.ones(3),),)),
    "jvp": lambda f, x: adarray.jvp(f, (x,), (x,)),
    "vjp": lambda f, x: adarray.vjp(f, x),
    "jacobian": lambda f, x: adarray.jacobian(f)(x),
    "jacfwd": lambda f, x: adarray.jacfwd(f)(x),
    "vmap": lambda f, x: adarray.vmap(f)(np.stack([x, x])),
}


class Holder:
    def __init__(self, x: Any) -> None:
        self.parts = {"x": [x]}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["DataArray", "Dataset", "OptimizeResult", "Holder"])
def test_results_that_hold_what_is_followed(way: str, kind: str) -> None:
    """Their derivative was None, and their arrays had the axis of all members."""
    make = {
        "DataArray": lambda x: xr.DataArray(x, dims="t") ** 2,
        "Dataset": lambda x: xr.Dataset({"a": ("t", x * 2)}),
        "OptimizeResult": lambda x: scipy.optimize.OptimizeResult(x=x * 2),
        "Holder": lambda x: Holder(x * 2),
    }[kind]
    x = np.arange(1.0, 4.0)
    with pytest.raises(adarray.DTypeError, match=rf"{way}: the function returned a {kind}, which"):
        WAYS[way](make, x)
    WAYS[way](lambda x: {"x": x * 2.0, "name": "plain", "holder": Holder(3.0)}, x)
