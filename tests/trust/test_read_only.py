"""What NumPy does not let anybody write into raises its error; what it does is done or refused.

Each program catches errors, so that another outcome than NumPy's is another result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from repeated import repeat

PROGRAM = """
captured = np.ones(3)
class Holder: held = np.ones(3)
def f(x):
    b = x * 2.0
    try:
        {body}
        r = 1.0
    except (ValueError, TypeError, AttributeError):
        r = 2.0
    return np.sum(b) * (1.0 + r)
"""
BODIES = (
    "b.imag[0] = 1.0", "x.imag[0] = 1.0", "captured.imag[0] = 1.0", "Holder.held.imag[:] = 0.0",
    "np.imag(b)[0] = 1.0", "np.imag(captured)[1] = 3.0", "b.imag += 1.0", "b.imag = 1.0",
    "v = b.imag; v[...] = 2.0", "v = np.imag(b); v += 2.0", "v = b[1:].imag; v[0] = 2.0",
    "np.copyto(b.imag, 1.0)", "np.add(b.imag, 1.0, out=b.imag)", "b.imag.fill(0.0)",
    "b.imag.sort()", "b.imag.flat[0] = 1.0", "b.imag.T[0] = 1.0", "b.imag.put([0], [1.0])",
    "np.put(np.imag(b), [0], 1.0)", "np.place(b.imag, [True] * 3, [1.0])", "b.real[0] = 5.0",
    "np.real(b)[0] = 5.0", "b.real = 3.0", "b.real.imag[0] = 1.0", "np.add.at(b.imag, [0], 1.0)",
    "z = b + 0j; z.imag[0] = 1.0; b = b + z.imag", "z = b + 0j; z.imag.imag[0] = 1.0",
    "z = b + 0j; np.imag(np.imag(z))[0] = 1.0", "b.imag.flags.writeable = True",
    "assert not b.imag.flags.writeable", "assert not np.imag(b).flags.writeable",
    "b.shape = (3, 1)", "b.imag.shape = (3, 1)", "b.dtype = np.int64", "captured.shape = (3,)",
    "np.broadcast_to(b, (2, 3))[0, 0] = 1.0", "o = np.broadcast_to(b, (2, 3)); o[0] += 1.0",
    "o = np.broadcast_arrays(b, np.ones((2, 3)))[0]; o[0, 0] = 1.0",
    "o = np.broadcast_arrays(b, np.ones((2, 3)))[0][0]; o[0] = 1.0",
    "o = np.broadcast_arrays(b, np.ones((2, 3)))[1]; o[0, 0] = 4.0; b = b + o[0]",
    "o = np.broadcast_arrays(b, np.ones(3))[0]; o[0] = 4.0",
    "o = np.meshgrid(b, b, copy=False)[0]; o[0, 0] = 1.0",
    "o = np.meshgrid(b, b, copy=False, sparse=True)[0]; o[0, 0] = 1.0",
    "o = np.meshgrid(b, b)[0]; o[0, 0] = 1.0", "o = np.ix_(b)[0]; o[0] = 1.0",
    "m = np.outer(b, b); m.diagonal()[0] = 1.0", "np.diag(np.outer(b, b))[0] = 1.0",
    "np.lib.stride_tricks.sliding_window_view(b, 2)[0, 0] = 1.0",
    "m = np.outer(b, b); o = np.einsum('ii->i', m); o[0] = 1.0; b = b + m[0]",
    "np.conj(b)[0] = 1.0", "b.conj()[0] = 4.0", "np.real_if_close(b)[0] = 2.0",
)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("body", BODIES)
def test_writes_that_numpy_refuses(body: str) -> None:
    def make() -> Any:
        space: dict[str, Any] = {"np": np, "__name__": "read_only"}
        exec(PROGRAM.format(body=body), space)
        return space["f"], lambda: (space["captured"].tolist(), space["Holder"].held.tolist())

    repeat(make, calls=4)
