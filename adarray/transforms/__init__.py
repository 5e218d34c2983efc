"""Functions that take a function and return one that computes its derivatives."""

from adarray.transforms.gradients import grad, value_and_grad
from adarray.transforms.matrices import hessian, jacobian
from adarray.transforms.modes import jvp, no_grad, vjp

__all__ = ["grad", "hessian", "jacobian", "jvp", "no_grad", "value_and_grad", "vjp"]
