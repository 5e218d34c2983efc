"""Results of functions that read captured state, compared.

For tests of captured state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import adarray


def plain(f: Any, x: np.ndarray) -> Any:
    """Return what a call gives: an array, or the kind of its error."""
    try:
        r = f(x)
    except Exception as error:
        return type(error)
    return np.asarray(r.numpy() if isinstance(r, adarray.ADArray) else r)


def same(got: Any, expected: Any, title: str) -> None:
    """Check that two results are equal, or two errors of one kind."""
    if isinstance(expected, type):
        assert got is expected, f"{title}: {got} in place of {expected}"
        return
    assert isinstance(got, np.ndarray), f"{title}: got {got}"
    assert got.dtype == expected.dtype, title
    assert got.shape == expected.shape, title
    np.testing.assert_allclose(got, expected, rtol=1e-13, err_msg=title)
