"""Printing kernels as C."""
