"""What products of matrices cost, by themselves and together, in multiplications.

A product has to be called, and reads its matrices: one with few rows waits for the matrix that
they are multiplied by. One thread computes a small product; threads share a large one. What lies
apart in memory is copied before it is multiplied at once. There are figures for processors with two
to eight cores, which all programs are rewritten with, and for GPUs, where a launch takes as long as
many multiplications, and what is read counts for more of them.

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

# Multiplications from which on threads share a product (twice MATRIX_SHARE in native/cpu/gemm.c).
SHARED = 1 << 19


class ProductCosts(NamedTuple):
    """What products cost on a target, in multiplications.

    Attributes
    ----------
    call : int
        Of a library.
    read, copy : int
        Of an element.
    small : int
        Multiplications that a product has at most that becomes one with others: larger ones gain
        nothing.
    large : int
        Bytes of factors that become one, at most: on a processor more do not stay in the cache, on
        a GPU they take memory that would be free by then.
    in_place : bool
        Whether factors of sums of products are counted as copied only where no kernel writes them,
        however much there is to bring together.
    """

    call: int
    read: int
    copy: int
    small: int
    large: int
    in_place: bool


# A copy of an element: `cut` in native/cpu/gemm.c.
ON_CPU = ProductCosts(1 << 15, 4, 16, 1 << 21, 1 << 26, False)
# At 27e12 multiplications per second: 5 microseconds, and 3e12 bytes per second.
ON_GPU = ProductCosts(1 << 27, 32, 64, 1 << 33, 1 << 29, True)


class Work(NamedTuple):
    """Multiplications of a product, the elements that it reads and writes, and its calls."""

    multiplications: int
    moved: int
    calls: int = 1

    def cost(self, costs: ProductCosts = ON_CPU) -> float:
        """Return what the product costs where two threads may share it."""
        time = max(self.multiplications, costs.read * self.moved)
        return self.calls * costs.call + (time / 2 if self.multiplications >= SHARED else time)


def work(v: Value) -> Work:
    """Return the work of a product; loops that compute it belong to a kernel that runs anyway."""
    a, b = v.args
    return Work(v.size * a.shape[-1], a.size + b.size + v.size, 0 if sweeps(v) else 1)


def pays(products: Iterable[Value], moved: int, copied: int, costs: ProductCosts = ON_CPU) -> bool:
    """Whether products cost less together, which moves so many elements, and copies others."""
    alone = [work(v) for v in products]
    if copied and max(w.multiplications for w in alone) > costs.small:
        return False
    together = Work(sum(w.multiplications for w in alone), moved)
    return together.cost(costs) + costs.copy * copied < sum(w.cost(costs) for w in alone)
