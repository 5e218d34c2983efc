"""Names of PyTorch, JAX, autograd and TensorFlow, and what to write instead.

They are not attributes here: `hasattr` and `dir` do not know them. But the `AttributeError` that
such a name raises says what to use instead.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

_LOOPS = "write loops and branches in plain Python (for, while, if), which adarray.jit compiles"
_TREES = "transforms take nested lists, tuples, dicts and dataclasses; adarray.ravel makes a vector"
_GPU = "open adarray.use('cuda') around the computation to run it on a GPU"
_OPTIMISERS = (
    "pass adarray.value_and_grad(f) to scipy.optimize.minimize with jac=True, or write the update "
    "in NumPy"
)
_RULES = "use adarray.custom_vjp or adarray.custom_jvp for a rule of your own"
_LAYERS = "write layers as NumPy functions; adarray.ops.nn has conv2d and windows"
_NO_GRAD = "recording is on by itself; adarray.no_grad() and adarray.stop_gradient(x) switch it off"
_DTYPES = "dtypes are NumPy's: float64 stays float64, and x.astype(np.float32) is float32"
_RANDOM = "use NumPy's generators: np.random.default_rng(seed)"
_ARRAYS = (
    "use adarray.array(values, requires_grad=True), or pass plain NumPy arrays to adarray.grad"
)

# Of the module: each text follows "module 'adarray' has no attribute 'name'; ".
OF_MODULE = {
    **dict.fromkeys(("Tensor", "Variable", "constant", "from_numpy", "tensor"), _ARRAYS),
    **dict.fromkeys(("Array", "ndarray"), "the class is adarray.ADArray"),
    **dict.fromkeys(("cond", "fori_loop", "lax", "scan", "select", "switch", "while_loop"), _LOOPS),
    **dict.fromkeys(
        ("flatten", "flatten_util", "tree", "tree_flatten", "tree_map", "tree_util"), _TREES
    ),
    **dict.fromkeys(("cuda", "device_get", "device_put", "devices", "set_default_device"), _GPU),
    **dict.fromkeys(("minimize", "optim", "optimizer", "optimizers"), _OPTIMISERS),
    **dict.fromkeys(
        ("custom_gradient", "defjvp", "defvjp", "primitive"),
        f"{_RULES}, or adarray.register_rule for a function of another package",
    ),
    **dict.fromkeys(("Module", "conv", "nn", "stax"), _LAYERS),
    **dict.fromkeys(("enable_grad", "inference_mode", "set_grad_enabled"), _NO_GRAD),
    **dict.fromkeys(("config", "enable_x64", "set_default_dtype"), _DTYPES),
    **dict.fromkeys(("PRNGKey", "manual_seed", "random", "seed"), _RANDOM),
    **dict.fromkeys(
        ("deriv", "derivative", "differentiate", "gradient", "GradientTape"),
        "adarray.grad(f) returns the function that computes the gradient of f",
    ),
    **dict.fromkeys(
        ("grad_and_value", "value_and_gradient"), "it is called adarray.value_and_grad"
    ),
    **dict.fromkeys(("autograd", "func"), "the transforms are in adarray itself: adarray.grad"),
    **dict.fromkeys(
        ("hessian_tensor_product", "hessian_vector_product"), "it is called adarray.hvp"
    ),
    **dict.fromkeys(("callback", "host_callback", "pure_callback"), "use adarray.black_box"),
    **dict.fromkeys(("egrad", "elementwise_derivative"), "it is called adarray.elementwise_grad"),
    "block_until_ready": "leave it out: results are ready, or are waited for where they are read",
    "compile": "it is called adarray.jit",
    "detach": "it is called adarray.stop_gradient",
    "disable_jit": "call the function without adarray.jit",
    "eval_shape": "call the function: the result has the shape",
    "extend": f"{_RULES}, or adarray.register_rule for a function of another package",
    "grad_and_aux": "use adarray.grad(f, has_aux=True)",
    "holomorphic_grad": "use adarray.grad(f, holomorphic=True)",
    "make_jaxpr": "use adarray.evaluation_trace(f, args), or adarray.jit(f).explain(*args)",
    "make_jvp": "use adarray.jvp(f, (x,), (v,)), or adarray.linearize(f, x)",
    "make_vjp": "use adarray.vjp(f, x)",
    "multigrad": "use adarray.grad(f, argnums=(0, 1))",
    "pmap": "use adarray.vmap, or a pool of threads with adarray.copy_context",
    "remat": "it is called adarray.checkpoint",
    "relu": "write np.maximum(x, 0)",
    "sigmoid": "write 1 / (1 + np.exp(-x)), or scipy.special.expit(x)",
    "softmax": "use scipy.special.softmax",
}

_INTO = "in-place updates are differentiated"
_CASTS = {"bool": "bool", "double": "np.float64", "float": "np.float32", "half": "np.float16",
          "int": "np.int32", "long": "np.int64"}  # fmt: skip
_FUNCTIONS = ("abs", "arctan", "ceil", "cos", "cosh", "diff", "einsum", "exp", "expm1", "floor",
              "isfinite", "isnan", "log", "log10", "log1p", "log2", "matmul", "maximum", "median",
              "minimum", "outer", "sign", "sin", "sinh", "sqrt", "square", "stack", "tan", "tanh",
              "tril", "triu", "where")  # fmt: skip

# Of arrays: each text follows "'ADArray' object has no attribute 'name'; ".
OF_ARRAYS = {
    **{name: f"write x.astype({dtype})" for name, dtype in _CASTS.items()},
    **{name: f"use np.{name}" for name in _FUNCTIONS},
    **dict.fromkeys(
        ("requires_grad_", "retain_grad"),
        "create it with adarray.array(values, requires_grad=True), or use adarray.grad",
    ),
    **dict.fromkeys(("_value", "values", "to_numpy"), "use x.numpy(), or adarray.value_of(x)"),
    "add_": f"write x += y: {_INTO}",
    "at": f"write x[index] = value or x[index] += value: {_INTO}",
    "block_until_ready": "leave it out: results are ready, or are waited for where they are read",
    "clamp": "write x.clip(low, high)",
    "clone": "write x.copy()",
    "cuda": _GPU,
    "contiguous": "use np.ascontiguousarray",
    "copy_": f"write x[...] = y: {_INTO}",
    "cpu": "use x.numpy() for plain values, or x.to_device('cpu') to stay in the graph",
    "dim": "write x.ndim",
    "div_": f"write x /= y: {_INTO}",
    "expand": "write np.broadcast_to(x, shape)",
    "fill_": f"write x[...] = value: {_INTO}",
    "gather": "write np.take_along_axis(x, indices, axis)",
    "grad_fn": "adarray.evaluation_trace(f, args) lists the operations of a function",
    "is_leaf": "use x.requires_grad",
    "log_softmax": "use scipy.special.log_softmax(x, axis)",
    "logsumexp": "use scipy.special.logsumexp(x, axis)",
    "masked_fill": "write np.where(mask, value, x)",
    "mm": "write x @ y",
    "mul_": f"write x *= y: {_INTO}",
    "norm": "write np.linalg.norm(x)",
    "numel": "write x.size",
    "permute": "write x.transpose(axes)",
    "pow": "write x ** n",
    "register_hook": _RULES,
    "relu": "write np.maximum(x, 0)",
    "sigmoid": "write 1 / (1 + np.exp(-x)), or scipy.special.expit(x)",
    "softmax": "use scipy.special.softmax(x, axis)",
    "sub_": f"write x -= y: {_INTO}",
    "t": "write x.T",
    "to": f"write x.astype(dtype) for a dtype; {_GPU}",
    "type": "use x.dtype, or x.astype(dtype)",
    "unsqueeze": "write np.expand_dims(x, axis), or x[..., None]",
    "zero_": f"write x[...] = 0: {_INTO}; a leaf's gradient is cleared by x.grad = None",
    "zero_grad": "set x.grad = None",
}


def of_module(name: str) -> str:
    """Return what follows the message that `adarray` has no attribute of this name."""
    hint = OF_MODULE.get(name)
    if hint is None and not name.startswith("_") and hasattr(np, name):
        hint = f"use NumPy's own np.{name}, or adarray.numpy.{name}"
    return f"; {hint}" if hint else ""


class Elsewhere:
    """An attribute of arrays of other libraries: missing here, with a hint."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, x: object, cls: type) -> NoReturn:
        text = f"{cls.__name__!r} object" if x is not None else f"type object {cls.__name__!r}"
        raise AttributeError(
            f"{text} has no attribute {self.name!r}; {OF_ARRAYS[self.name]}", name=self.name, obj=x
        )


def shown(x: object) -> list[str]:
    """Return the attributes of an array, for ``dir``: without those of other libraries."""
    return [n for n in object.__dir__(x) if n not in OF_ARRAYS or hasattr(np.ndarray, n)]
