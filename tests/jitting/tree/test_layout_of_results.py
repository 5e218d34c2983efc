"""Results lie in memory as those of the function itself: views of them are views, copies copies."""

from __future__ import annotations

from typing import Any

import device
import numpy as np
import pytest

import adarray
from adarray.base.memory import duplicate, order_of
from adarray.testing._ops import use_all_sizes

M = np.arange(1.0, 25.0)
LAYOUTS = {
    "C": M.reshape(2, 3, 4),
    "Fortran": np.asfortranarray(M.reshape(2, 3, 4)),
    "turned": M.reshape(4, 2, 3).transpose(1, 2, 0),
    "reversed": M.reshape(3, 2, 4).transpose(1, 0, 2)[::-1],
    "steps": np.repeat(M, 2).reshape(4, 2, 6).transpose(1, 2, 0)[:, ::2],
}
FUNCTIONS = {
    "product": lambda x: x * 2.0,
    "several": lambda x: (x + 1.0, np.sum(x, 0), np.cumsum(x, -1), 3.0),
    "copy": lambda x: x.copy("K"),
    "argument": lambda x: (x, x * 1.0),
    "views": lambda x: (lambda y: (y[0], y.T, y.reshape(-1)))(np.sin(x)),
    "twice": lambda x: (lambda y: [y, y, y + 0.0])(x * 3.0),
    "constant": lambda x: (np.asfortranarray(np.ones((2, 3))), x),
    "where": lambda x: {"a": np.where(x > 5.0, x, 1.0), "b": np.concatenate([x, x], -1)},
    "transposed": lambda x: x.T * 1.0,
    "columns": lambda x: x[:, [0, 1]],
    "written": lambda x: (lambda y: (y.__setitem__(0, 1.0), y)[1])(x * 2.0),
}


def leaves(r: Any) -> list[Any]:
    parts = list(r.values()) if isinstance(r, dict) else r
    if isinstance(parts, (tuple, list)):
        return [x for p in parts for x in leaves(p)]
    return [r] if isinstance(r, np.ndarray) else []


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("serial", marks=pytest.mark.slow), "standin"]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_lie_as_plain_ones(name: str, backend: str, monkeypatch: Any) -> None:
    """They lay in C order, so that ``reshape`` gave a view where plain code has a copy."""
    if backend == "standin":
        device.installed(monkeypatch)
    f = FUNCTIONS[name]
    for layout, x in LAYOUTS.items():
        with use_all_sizes(backend):
            jitted = adarray.jit(f)
            for _ in range(3):
                expected, got = leaves(f(duplicate(x))), leaves(jitted(duplicate(x)))
                for a, b in zip(got, expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-14)
                    assert order_of(a) == order_of(b), (layout, a.strides, b.strides)
                    if b.base is None:
                        views = [np.shares_memory(v, v.reshape(-1)) for v in (a, b)]
                        assert views[0] == views[1]
