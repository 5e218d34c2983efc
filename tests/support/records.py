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


def part_on_a_stand_in(op: str, dtype: object, backend: str) -> None:
    """Skip what long runs and GPUs show: on the stand-in, half of the operations run, each once.

    Their rules are those of the processor's backends, where all of them are checked.
    """
    number = _NUMBERS[op]
    chosen = "float32" if number % 4 == 1 else "float64"
    short = number % 2 == 1 and np.dtype(dtype) == chosen  # type: ignore[call-overload]
    skip_unless_long(backend != "standin" or short)
