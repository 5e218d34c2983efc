"""The operations of NumPy; those of SciPy join the registry with a drop-in module.

For tests that go over all records.
"""

from __future__ import annotations

import numpy as np
from differential import skip_unless_long

import adarray  # noqa: F401  (registers)
from adarray.base.op import OPS

CORE = {n: op for n, op in OPS.items() if n.partition(".")[0] not in ("special", "stats", "scipy")}
_NUMBERS = {name: i for i, name in enumerate(CORE)}


def one_precision_on_a_stand_in(op: str, dtype: object, backend: str) -> None:
    """Skip one of the precisions where NumPy computes: every other operation has the other one."""
    chosen = "float32" if _NUMBERS[op] % 2 else "float64"
    skip_unless_long(backend != "standin" or np.dtype(dtype) == chosen)  # type: ignore[call-overload]
