"""Functions with rules of users, of arrays on a device: their expressions compute there."""

from __future__ import annotations

from typing import Any

import numpy as np

import adarray
from adarray.base.op import FUNCTIONS, OPS

X = np.linspace(0.1, 2.0, 12).reshape(4, 3)


def test_an_expression_computes_on_the_device(device_backend: str) -> None:
    def lengths(x: Any) -> Any:
        raise AssertionError("the array has left the device")

    transformed = adarray.register_rule(
        lengths, lambda g, out, x: (g / out)[:, None] * x, name="lengths_on_a_device",
        expr=lambda x: np.sqrt(np.sum(x**2, axis=1)),
    )  # fmt: skip
    try:
        with adarray.use(device_backend):
            gradient = adarray.grad(lambda x: np.sum(transformed(x * 2.0) ** 3))(X)
            np.testing.assert_allclose(
                np.asarray(gradient), 24.0 * X * np.sqrt(np.sum(X**2, 1))[:, None]
            )
    finally:
        FUNCTIONS.pop(transformed)
        FUNCTIONS.pop(lengths, None)
        OPS.pop("lengths_on_a_device")
