"""Scalar expressions of pointwise operations, for those who write kernels for them."""

from adarray.base.scalar import Expr, as_expr, call, var, variables

__all__ = ["Expr", "as_expr", "call", "var", "variables"]
