"""What the tests of jitted functions on devices share.

For ``tests/device``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import adarray
from adarray.device import is_device

Y = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
Z = np.cos(Y) + Y


def loss(x: Any, y: Any) -> Any:
    return np.sum(np.tanh(x) * y)


def on_device(x: Any) -> bool:
    return isinstance(x, adarray.ADArray) and is_device(x._plain)


def moves(library: Any) -> tuple[int, int]:
    """Return how many transfers there were so far, to the device and back."""
    return library.transfers.to_device, library.transfers.to_host


def settled(jf: Any, *args: Any, calls: int = 3) -> Any:
    """Call a jitted function until it is compiled; return its last result."""
    for _ in range(calls):
        result = jf(*args)
    info = jf.cache_info()
    assert not info.eager, [e.eager for e in jf.entries]
    assert info.compiled > 0
    assert all(n.executable is not None for e in jf.entries for v in e.variants
               for n in v.tree.nodes() if n.compiled is not None and n.calls)  # fmt: skip
    return result


def plain(x: Any) -> Any:
    """Return an array of the host with the values of a result."""
    if isinstance(x, adarray.ADArray):
        return x.numpy()
    return x.get() if hasattr(x, "get") else getattr(x, "v", x)
