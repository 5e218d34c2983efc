"""Kernels: groups of values become loop IR."""
