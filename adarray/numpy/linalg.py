"""`numpy.linalg` with ADArrays; the array API's linear algebra extension."""

from __future__ import annotations

import numpy as _np

from adarray.numpy import _lift, _modules

__getattr__, __dir__ = _modules.attribute(_np.linalg, _lift.wrapped, globals())
__all__ = [n for n in dir(_np.linalg) if not n.startswith("_") and n not in ("linalg", "test")]
