"""Sparse derivatives: patterns from recorded runs, colours, compressed evaluation."""

from adarray.sparsity.functions import SparseFunction, sparse_hessian, sparse_jacobian
from adarray.sparsity.prepared import Prepared

__all__ = ["Prepared", "SparseFunction", "sparse_hessian", "sparse_jacobian"]
