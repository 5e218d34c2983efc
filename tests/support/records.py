"""The operations of NumPy; those of SciPy join the registry with a drop-in module."""

from __future__ import annotations

import adarray  # noqa: F401  (registers)
from adarray.op import OPS

CORE = {n: op for n, op in OPS.items() if n.partition(".")[0] not in ("special", "stats", "scipy")}
