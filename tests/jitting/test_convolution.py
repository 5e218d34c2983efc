"""Convolutions in compiled functions: one call between kernels, with the engine's products."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting.calls import front
from adarray.ops import windows
from adarray.ops.nn import conv2d

RNG = np.random.default_rng(6)


def drawn() -> tuple[Any, Any, dict[str, Any]]:
    settings = {"stride": (2, 1), "padding": ((1, 0), (2, 3)), "dilation": (1, 2)}
    return RNG.normal(size=(2, 4, 5, 6)), RNG.normal(size=(3, 4, 3, 2)), settings


@pytest.mark.parametrize("backend", ["numpy", "serial", "openmp"])
def test_under_jit(backend: str) -> None:
    x, w, settings = drawn()
    f = adarray.value_and_grad(lambda x, w: np.sum(np.tanh(conv2d(x, w, **settings))), (0, 1))
    with adarray.use(backend):
        (want, grads), compiled = f(x, w), adarray.jit(f)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                value, got = compiled(x, w)
                np.testing.assert_allclose(value, want, rtol=1e-12)
                for a, b in zip(got, grads, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.unchecked
def test_compiled_calls_compute_with_the_engine_that_compiled_them(monkeypatch: Any) -> None:
    seen = []

    def noted(*args: Any, _compute: Any = windows._product) -> Any:
        seen.append(adarray.backend.current_backend())
        return _compute(*args)

    monkeypatch.setattr(windows, "_product", noted)
    x, w, settings = drawn()
    with adarray.use("serial"):
        compiled = adarray.jit(lambda x, w: conv2d(x, w, **settings) * 2)
        for _ in range(3):
            compiled(x, w)
    seen.clear()
    with adarray.use("serial"):
        compiled(x, w)
        assert set(seen) == {"serial"}
        assert adarray.backend.current_backend() == "serial"
    plain = adarray.jit(lambda x, w: conv2d(x, w, **settings) * 2)
    for _ in range(3):
        seen.clear()
        plain(x, w)
    assert set(seen) == {front.default_engine().name}
    assert adarray.backend.current_backend() == "numpy"
