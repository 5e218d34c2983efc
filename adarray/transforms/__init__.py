"""Functions that take a function and return one that computes its derivatives."""

from adarray.transforms.matrices import hessian, jacobian
from adarray.transforms.modes import grad, jvp, no_grad, value_and_grad, vjp

__all__ = ["grad", "hessian", "jacobian", "jvp", "no_grad", "value_and_grad", "vjp"]
