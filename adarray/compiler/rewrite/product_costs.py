"""What products of matrices cost, by themselves and together, in multiplications.

A product has to be called, and reads its matrices: one with few rows waits for the matrix that
they are multiplied by. One thread computes a small product; threads share a large one. What lies
apart in memory is copied before it is multiplied at once. The figures are those of processors
with two to eight cores; a launch on a GPU costs more, and reading less.

References
----------
- S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
  multicore architectures", Commun. ACM 52 (2009), 65-76.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from adarray.compiler.ir.program import Value
from adarray.compiler.ir.uses import sweeps

# A call of a library; an element that is read; one that is copied (`cut` in native/cpu/gemm.c).
CALL, READ, COPY = 1 << 15, 4, 16
# Multiplications from which on threads share a product (twice MATRIX_SHARE in native/cpu/gemm.c).
SHARED = 1 << 19
# At most, multiplications of a product that becomes one with others, and bytes of its factors:
# the larger ones gain nothing, and run faster while their factors are in the cache.
SMALL = 1 << 21
LARGE = 1 << 26


class Work(NamedTuple):
    """Multiplications of a product, the elements that it reads and writes, and its calls."""

    multiplications: int
    moved: int
    calls: int = 1

    def cost(self) -> float:
        """Return what the product costs where two threads may share it."""
        time = max(self.multiplications, READ * self.moved)
        return self.calls * CALL + (time / 2 if self.multiplications >= SHARED else time)


def work(v: Value) -> Work:
    """Return the work of a product; loops that compute it belong to a kernel that runs anyway."""
    a, b = v.args
    return Work(v.size * a.shape[-1], a.size + b.size + v.size, 0 if sweeps(v) else 1)


def pays(products: Iterable[Value], moved: int, copied: int) -> bool:
    """Whether products cost less together, which moves so many elements, and copies others."""
    alone = [work(v) for v in products]
    if copied and max(w.multiplications for w in alone) > SMALL:
        return False
    together = Work(sum(w.multiplications for w in alone), moved)
    return together.cost() + COPY * copied < sum(w.cost() for w in alone)
