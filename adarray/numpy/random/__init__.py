"""`numpy.random` with ADArrays: NumPy's streams, and draws that are smooth in parameters.

Draws with plain parameters are NumPy's, number for number. With traced parameters the
same numbers come as functions of them (reparametrisation), so that gradients flow:

>>> import adarray
>>> import adarray.numpy as np
>>> def loss(mu):
...     rng = np.random.default_rng(0)
...     return np.mean((rng.normal(mu, 0.5, size=100) - 2.0) ** 2)
>>> float(adarray.grad(loss)(1.0)) < 0
True
"""

from __future__ import annotations

from typing import Any

import numpy as _np

from adarray.numpy.random import _generator
from adarray.numpy.random._generator import Generator as Generator
from adarray.numpy.random._generator import RandomState as RandomState
from adarray.numpy.random._generator import default_rng as default_rng

# The same functions under older names.
_OLD = {"ranf": "random_sample", "sample": "random_sample"}
_DIRECT = {"get_bit_generator", "set_bit_generator", "test"}


def __getattr__(name: str) -> Any:
    if name.startswith("__") or not hasattr(_np.random, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_np.random, name)
    method = _OLD.get(name, name)
    if callable(value) and name not in _DIRECT and hasattr(_generator.GLOBAL, method):
        value = _generator.function(method)
    globals()[name] = value
    return value


__all__ = [n for n in dir(_np.random) if not n.startswith("_")]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "Generator", "RandomState", "default_rng"})
