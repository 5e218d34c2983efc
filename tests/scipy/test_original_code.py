"""What a drop-in has no rule for goes through SciPy's own code, as without interception."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import adarray

SWEEP = Path(__file__).parents[1] / "support" / "scipy_sweep.py"
X = np.array([0.31, 0.52, 0.47, 0.83])


def normal(x: Any) -> Any:
    return np.sum(st.norm._cdf(x) + st.norm._sf(x) ** 2 + st.norm._logpdf(x) + st.norm._ppf(x))


def others(x: Any) -> Any:
    return np.sum(st.gamma._logpdf(x, 2.0) + st.logistic._cdf(x) + st.expon._logsf(x))


@pytest.mark.parametrize("f", [normal, others])
def test_methods_without_a_rule(f: Callable[[Any], Any]) -> None:
    expected = adarray.grad(f, intercept=False)(X)
    np.testing.assert_allclose(adarray.grad(f, intercept=True)(X), expected, rtol=1e-12)
    slopes = [(f(X + h) - f(X - h)) / 2e-6 for h in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(expected, slopes, rtol=1e-6)


def test_what_would_be_converted_is_refused_by_name() -> None:
    with pytest.raises(adarray.NotDifferentiableError, match=r"scipy.stats.ansari: adarray has no"):
        adarray.grad(lambda x: st.ansari(x, X)[0], intercept=True)(X)


def test_an_error_of_the_caller_is_the_one_that_scipy_raises() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        adarray.grad(lambda x: st.norm._cdf(x, x, x, x, x), intercept=True)(X)


@pytest.mark.slow
@pytest.mark.skipif("ADARRAY_LONG" not in os.environ, reason="takes minutes: in long runs only")
@pytest.mark.parametrize("array_api", ["", "1"])
@pytest.mark.parametrize(
    "modules",
    [
        "scipy.stats", "distributions", "scipy.special scipy.linalg scipy.fft scipy.integrate",
        "scipy.signal scipy.interpolate scipy.optimize scipy.spatial.distance",
    ],
)  # fmt: skip
def test_nothing_is_worse_off_inside(modules: str, array_api: str) -> None:
    if modules == "distributions" and array_api:
        pytest.skip("as without the array API")
    done = subprocess.run(
        [sys.executable, str(SWEEP), *modules.split()],
        check=True, capture_output=True, text=True,
        env={**os.environ, "SCIPY_ARRAY_API": array_api},
    )  # fmt: skip
    assert json.loads(done.stdout) == []
