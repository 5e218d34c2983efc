"""What the GPU can do, measured in the run: copies, and products of large matrices.

Rates of PyTorch, whose products are cuBLAS's, are the ceilings; those of adarray, of float32
(or float64) arrays that its option rounds, are what is compared with them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Of float32 arrays, but for the last two; 16 bits in between are rounded to on the way.
PRECISIONS = ("float32", "tf32", "bf16", "fp16", "float16", "float64")
SIZE = 8192  # of matrices
COPIED = (400_000_000, 1 << 30)  # bytes
SAMPLES = 3
SAMPLE_S = 0.02


def seconds(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Return the median time of one call in a row of them."""

    def row(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return time.perf_counter() - start

    row(2)
    count = max(2, round(SAMPLE_S / (row(2) / 2)))
    return statistics.median(row(count) for _ in range(SAMPLES)) / count


def copies(torch: Any) -> dict[str, float]:
    """Return bytes read and written per second by copies of so many bytes."""
    rates = {}
    for size in COPIED:
        a = torch.rand(size // 4, device="cuda")
        b = torch.empty_like(a)
        took = seconds(lambda a=a, b=b: b.copy_(a), torch.cuda.synchronize)
        rates[str(size)] = 2.0 * size / took
    return rates


def matrices() -> tuple[np.ndarray, np.ndarray]:
    """Return two float64 matrices of random numbers, the same for every engine."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, SIZE, SIZE), np.float32)
    return a, b


class Products:
    """Products of large matrices on one engine, made ready once.

    Errors are those of the product of the float32 matrices, before they are rounded to
    what the precision keeps, against the product in float64.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.a, self.b, self.exact = engine.matrices(*matrices())

    def measure(self, precision: str) -> dict[str, float]:
        """Return operations per second, and the relative error."""
        call, wait, error = self.engine.product(self.a, self.b, self.exact, precision)
        return {"rate": 2.0 * SIZE**3 / seconds(call, wait), "relative error": error}
