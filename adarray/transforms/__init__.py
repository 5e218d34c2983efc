"""Functions that take a function and return one that computes its derivatives."""

from adarray.transforms.batch import vmap
from adarray.transforms.black_boxes import black_box
from adarray.transforms.checkpointing import checkpoint, checkpoint_sequential
from adarray.transforms.decisions import score_function
from adarray.transforms.gradients import grad, value_and_grad
from adarray.transforms.linear_solves import custom_linear_solve
from adarray.transforms.loops import checkpointed_loop, checkpointed_while
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
from adarray.transforms.ravelling import ravel
from adarray.transforms.rules import custom_jvp, custom_vjp
from adarray.transforms.taylor import jet

__all__ = [
    "black_box",
    "checkpoint",
    "checkpoint_sequential",
    "checkpointed_loop",
    "checkpointed_while",
    "custom_jvp",
    "custom_linear_solve",
    "custom_vjp",
    "directional_derivative",
    "elementwise_grad",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jet",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_hvp",
    "no_grad",
    "ravel",
    "score_function",
    "value_and_grad",
    "vjp",
    "vmap",
]
