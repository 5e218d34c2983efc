"""Complex arrays in programs: other shapes hold no memory, small products are sums."""

from __future__ import annotations

import numpy as np

import adarray


def test_small_products_and_shapes_of_complex_arrays() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(2, 2)) + 1j * rng.normal(size=(2, 2))
    x = rng.normal(size=4096) + 1j * rng.normal(size=4096)
    w = rng.normal(size=4096)

    def f(x, a):
        t = np.reshape(np.transpose(np.reshape(x, (2, 2, 1024)), (1, 0, 2)), (2, 2048))
        z = np.reshape(a @ t, (4096,))
        q = np.reshape(z.reshape(4, 1024).T, (4096,))
        return np.sum(np.real(z * z) * w) + np.sum(np.imag(q) * w)

    g = adarray.value_and_grad(f, argnums=(0, 1))
    with adarray.use("serial"):
        jitted = adarray.jit(g)
        value, gradients = [jitted(x, a) for _ in range(3)][-1]
    assert "small_product" in str(jitted.explain(x, a))
    want, expected = g(x, a)
    np.testing.assert_allclose(value, want, 1e-12)
    for got, e in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(e), 1e-12, 1e-12)
