"""Checks of functions that read more than their arguments, under jit.

For tests of captured state (`adarray.jitting.captures`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import adarray

X = np.linspace(0.5, 2.0, 4)


def agree(jf: Any, f: Callable[..., Any], *args: Any) -> None:
    """Check that a jitted function does what the plain one does."""
    got, expected = jf(*args), f(*args)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def compiled(f: Callable[..., Any], *args: Any) -> Any:
    """Return `f` jitted and called until it is compiled."""
    jf = adarray.jit(f)
    for _ in range(3):
        agree(jf, f, *args)
    info = jf.cache_info()
    assert info.eager == 0
    assert info.compiled > 0
    assert info.traces <= 2  # one, where one run proves the path
    return jf
