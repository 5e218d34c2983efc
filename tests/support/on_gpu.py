"""Arrays on a real GPU.

For ``tests/device``.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def placed(a: Any, by: int) -> Any:
    """Return a copy on the GPU that begins so many elements behind an aligned place."""
    import cupy

    a = np.asarray(a)
    memory = cupy.zeros(a.size + by, a.dtype)
    memory[by:] = cupy.asarray(a).ravel()
    return memory[by:].reshape(a.shape)
