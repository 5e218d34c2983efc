"""What adarray is measured on, on a GPU: see `asv_bench.gpu.__main__` and ``.ci/gpu.py``."""
