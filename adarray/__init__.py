"""adarray: gradients of plain NumPy code, on the hardware at hand.

>>> import numpy as np, adarray
>>> adarray.grad(lambda x: np.sum(np.sin(x)))(np.zeros(2))
array([1., 1.])
"""

import typing as _typing

from adarray import (
    kinds as _kinds,  # noqa: F401  (makes the classes of numbers)
)
from adarray import (
    ops as _ops,  # noqa: F401  (registers the operations)
)
from adarray._version import __version__
from adarray.ad import backward as _backward  # noqa: F401  (is `ADArray.backward`)
from adarray.arrays.adarray import ADArray, array, stop_gradient, value_of
from adarray.backend import backends, current_backend, use
from adarray.base.context import copy_context
from adarray.base.errors import (
    ADArrayError,
    BackendError,
    CompileError,
    DeviceMemoryError,
    DTypeError,
    NotDifferentiableError,
    ShapeError,
    TraceError,
    UnsupportedFunctionError,
)
from adarray.custom import register_rule
from adarray.debug import debug_nans
from adarray.transforms import (
    directional_derivative,
    elementwise_grad,
    grad,
    hessian,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    make_hvp,
    no_grad,
    value_and_grad,
    vjp,
)

if _typing.TYPE_CHECKING:
    from adarray import estimators as estimators
    from adarray import numpy as numpy
    from adarray import scipy as scipy
    from adarray import testing as testing
    from adarray.evaluation import evaluation_trace
    from adarray.intercepting import intercept, wrap
    from adarray.jitting import JitWarning, jit, register_captured
    from adarray.profiling import profile
    from adarray.sparsity import sparse_hessian, sparse_jacobian
    from adarray.transforms.batch import vmap
    from adarray.transforms.black_boxes import black_box
    from adarray.transforms.checkpointing import checkpoint, checkpoint_sequential
    from adarray.transforms.decisions import score_function
    from adarray.transforms.linear_solves import custom_linear_solve
    from adarray.transforms.loops import checkpointed_loop, checkpointed_while
    from adarray.transforms.ravelling import ravel
    from adarray.transforms.rules import custom_jvp, custom_vjp
    from adarray.transforms.taylor import jet

# What takes time to import, and the modules that have it.
_LATE = {
    "JitWarning": "jitting",
    "black_box": "transforms.black_boxes",
    "checkpoint": "transforms.checkpointing",
    "checkpoint_sequential": "transforms.checkpointing",
    "checkpointed_loop": "transforms.loops",
    "checkpointed_while": "transforms.loops",
    "custom_jvp": "transforms.rules",
    "custom_linear_solve": "transforms.linear_solves",
    "custom_vjp": "transforms.rules",
    "evaluation_trace": "evaluation",
    "intercept": "intercepting",
    "jet": "transforms.taylor",
    "jit": "jitting",
    "profile": "profiling",
    "ravel": "transforms.ravelling",
    "register_captured": "jitting",
    "score_function": "transforms.decisions",
    "sparse_hessian": "sparsity",
    "sparse_jacobian": "sparsity",
    "vmap": "transforms.batch",
    "wrap": "intercepting",
}


def __getattr__(name: str) -> object:
    """Import what takes time to import when it is first asked for."""
    import importlib

    if name in ("estimators", "testing", "numpy", "scipy"):
        return importlib.import_module(f"adarray.{name}")
    if name == "jit":
        importlib.import_module("adarray.loops")  # which makes its functions ask before loops
    if name in _LATE:
        return getattr(importlib.import_module(f"adarray.{_LATE[name]}"), name)
    hint = importlib.import_module("adarray.base.elsewhere").of_module(name)
    raise AttributeError(f"module 'adarray' has no attribute {name!r}{hint}", name=name)


__all__ = [
    "ADArray",
    "ADArrayError",
    "BackendError",
    "CompileError",
    "DTypeError",
    "DeviceMemoryError",
    "JitWarning",
    "NotDifferentiableError",
    "ShapeError",
    "TraceError",
    "UnsupportedFunctionError",
    "__version__",
    "array",
    "backends",
    "black_box",
    "checkpoint",
    "checkpoint_sequential",
    "checkpointed_loop",
    "checkpointed_while",
    "copy_context",
    "current_backend",
    "custom_jvp",
    "custom_linear_solve",
    "custom_vjp",
    "debug_nans",
    "directional_derivative",
    "elementwise_grad",
    "evaluation_trace",
    "grad",
    "hessian",
    "hvp",
    "intercept",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jet",
    "jit",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_hvp",
    "no_grad",
    "profile",
    "ravel",
    "register_captured",
    "register_rule",
    "score_function",
    "sparse_hessian",
    "sparse_jacobian",
    "stop_gradient",
    "use",
    "value_and_grad",
    "value_of",
    "vjp",
    "vmap",
    "wrap",
]


def __dir__() -> list[str]:
    """Return what users use: no modules of ours, and nothing is imported for it."""
    import importlib.util

    packages = ["errors", "estimators", "numpy", "ops", "testing"]
    if importlib.util.find_spec("scipy") is not None:
        packages.append("scipy")
    own = ("__doc__", "__file__", "__name__", "__path__", "__spec__", "__all__")
    return sorted({*__all__, *packages, *own})
