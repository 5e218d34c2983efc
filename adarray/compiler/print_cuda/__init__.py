"""Printing kernels as CUDA C++."""
