"""Values of all members of a batch at once, and the rules by which operations take them.

Inside of `adarray.vmap` an ADArray holds a `Batched` value: to everybody it is the array of one
member, and in memory it is an array with one axis more, the first. Recording, tangents and
cotangents are above it and see members alone; what computes, `adarray.core.dispatch.compute`,
hands an operation with such a value to the rule of its record. That calls the operation, or
another, on the arrays of all members, at the level below: NumPy, a backend, a recording of `jit`
or the batch around.

References
----------
- G. E. Blelloch, G. W. Sabot, "Compiling collection-oriented languages onto massively parallel
  computers", J. Parallel Distrib. Comput. 8 (1990), 119-134.
- R. Frostig, M. J. Johnson, C. Leary, "Compiling machine learning programs via high-level tracing",
  SysML 2018.
"""

from adarray.batching.batch import Batch, SplitError
from adarray.batching.values import Batched, as_batched, is_batched, member_axis, raw_of

__all__ = ["Batch", "Batched", "SplitError", "as_batched", "is_batched", "member_axis", "raw_of"]
