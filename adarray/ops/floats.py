"""Parts and neighbours of floating point numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.op import Op, Opaque, register
from adarray.ops.common import composite_if_traced, s, unbroadcast
from adarray.protocol import plain

nextafter = register(
    Op(
        "nextafter",
        np.nextafter,
        Opaque(),
        [lambda g, out, x1, x2: unbroadcast(g, x1.shape), None],
        jvp=[lambda t, out, x1, x2: np.broadcast_to(t, out.shape), None],
        samples=lambda rng: [
            s(rng.normal(size=(3, 4)), np.inf),
            s(rng.normal(size=(3, 1)), np.array([-1.0, 0.0, 1.0])),
        ],
        operands=("x1", "x2"),
        signature="x1, x2, /, out=None",
        note="a step of one rounding unit; none with respect to the direction",
    )
)


@composite_if_traced(np.real_if_close)
def _real_if_close(a: Any, tol: float = 100) -> Any:
    """``np.real_if_close``: the real part, where NumPy decides for it."""
    numpys = np.real_if_close(plain(a), tol)
    return np.real(a) if a.dtype.kind == "c" and numpys.dtype.kind != "c" else a
