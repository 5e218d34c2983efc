"""Scalar expressions of pointwise operations, for those who write kernels for them."""

from adarray.base.scalar import ScalarExpr as Expr
from adarray.base.scalar import as_expr, call, var, variables

__all__ = ["Expr", "as_expr", "call", "var", "variables"]
