"""Functions that take a function and return one that computes its derivatives.

What takes time to import, and few programs use, stands in modules of its own: see `adarray`.
"""

from adarray.transforms.gradients import grad, value_and_grad
from adarray.transforms.matrices import hessian, jacfwd, jacobian, jacrev
from adarray.transforms.modes import jvp, no_grad, vjp
from adarray.transforms.products import (
    directional_derivative,
    elementwise_grad,
    hvp,
    linear_transpose,
    linearize,
    make_hvp,
)

__all__ = [
    "directional_derivative",
    "elementwise_grad",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_hvp",
    "no_grad",
    "value_and_grad",
    "vjp",
]
