"""Parts and neighbours of floating point numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import Op, Opaque, composite, register
from adarray.core.protocol import plain
from adarray.ops import creation
from adarray.ops.common import s, unbroadcast

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


@composite(np.real_if_close)
def _real_if_close(a: Any, tol: float = 100) -> Any:
    """``np.real_if_close``: the real part, where NumPy decides for it; else the array itself."""
    a = creation.asarray(a)
    if a.dtype.kind != "c":
        return a
    if tol > 1:
        tol = np.finfo(a.dtype).eps * tol
    close = np.all(np.absolute(np.imag(plain(a))) < tol)  # under `jit`, Python looks at it
    return np.real(a) if close else a
