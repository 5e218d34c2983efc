"""Kernels that are written in CUDA C, differentiated: see `RawKernel`."""

from adarray.kernels.forms import ElementwiseKernel, ReductionKernel
from adarray.kernels.raw import RawKernel, from_file

__all__ = ["ElementwiseKernel", "RawKernel", "ReductionKernel", "from_file"]
