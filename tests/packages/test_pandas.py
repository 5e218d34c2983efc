"""pandas beside traced arrays: plain data that goes into it, and what comes back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frame_calls import sampled
from pandas_calls import CALLS

import adarray

pd = pytest.importorskip("pandas")
W = np.array([0.3, -0.7])


def data() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    e = (rng.random(8) > 0.4).astype(float)
    times = rng.exponential(size=8) * 5
    codes = rng.integers(0, 3, 8)
    df = pd.DataFrame({"a": rng.random(8), "b": rng.random(8), "g": list("xyxyxzzz")})
    return e, times, codes, times > 3, rng.random((8, 2)), df, df[["a", "b"]]


def weighted(call: str) -> Callable[..., Any]:
    """Return a function of `w` whose gradient is ``2 * w`` times what the call gives, summed."""
    space: dict[str, Any] = {"np": np, "pd": pd, "__name__": __name__}
    lines = [
        "def f(w, e, T, codes, mask, X, df, num):",
        f"    r = {call}",
        "    return np.sum(w**2) * float(np.nansum(np.asarray(r, dtype=float)))",
    ]
    exec("\n".join(lines), space)
    return space["f"]


@pytest.mark.parametrize("call", sampled(CALLS))
def test_plain_data_stays_plain(call: str) -> None:
    f = weighted(call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = f(W, *data())
        gradient = adarray.grad(f, intercept=True)(W, *data())
    np.testing.assert_allclose(gradient, 2 * W / np.sum(W**2) * value)
