"""`adarray.jit` beside the compilers of other libraries: ``python -m asv_bench.jit``."""
