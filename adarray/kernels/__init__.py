"""Kernels that are written in CUDA C, differentiated: see `RawKernel`."""

from adarray.kernels.raw import RawKernel, from_file

__all__ = ["RawKernel", "from_file"]
