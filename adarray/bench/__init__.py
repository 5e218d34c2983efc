"""``python -m adarray bench``: how fast operations are on every backend, forward and backward.

`adarray.bench.studies` are the three studies: against the threads of a block of a GPU, against
the size of matrices, and of a three-layer network against its number of parameters.
"""

from adarray.bench.run import bench
from adarray.bench.sweep import BenchOptions

__all__ = ["BenchOptions", "bench"]
