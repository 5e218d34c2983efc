"""NumPy's two dispatch protocols, beyond the short way in `ADArray`.

Every function ends in one of four places: an `Op`, a composite (a body in Python
over other functions), a function whose result is constant, or an error that names
the function.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.dispatch import apply, leaves_graph
from adarray.errors import DTypeError, NotDifferentiableError, UnsupportedFunctionError
from adarray.inplace import assign, sync_if_view
from adarray.op import COMPOSITES, CONSTANT_FUNCTIONS, FUNCTIONS, same_argument
from adarray.rebind import rebind_plain
from adarray.trace import Handle

_REDUCE = {np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
           np.logical_and: np.all, np.logical_or: np.any}  # fmt: skip
_ACCUMULATE = {np.add: np.cumsum, np.multiply: np.cumprod}
_DEFAULTS = {"casting": "same_kind", "order": "K", "subok": True, "signature": None, "where": True}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: Any) -> Any:
    """Run a ufunc or one of its methods on operands of which one is an ADArray."""
    if any(is_foreign(x) for x in inputs):
        return NotImplemented
    kwargs = dict(kwargs)
    name = ufunc.__name__
    out = kwargs.pop("out", None)
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if method == "at":
        return _at(ufunc, inputs)
    if not any(traced(x) for x in inputs):
        where = kwargs.get("where", True)
        if where is not True and isinstance(target, Handle):
            kwargs["out"] = sync_if_view(target)._v.copy()
        r = getattr(ufunc, method)(*map(plain, inputs), **{k: plain(v) for k, v in kwargs.items()})
    elif method == "reduce" and ufunc in _REDUCE:
        r = _reduce(_REDUCE[ufunc], *inputs, **kwargs)
    elif method == "accumulate" and ufunc in _ACCUMULATE:
        axis, dtype = kwargs.pop("axis", 0), kwargs.pop("dtype", None)
        r = call_function(_ACCUMULATE[ufunc], inputs[:1], {"axis": axis, "dtype": dtype})
    elif method == "outer":
        x, y = (v if hasattr(v, "ndim") else np.asarray(v) for v in inputs)
        r = _call(ufunc, (x.reshape(x.shape + (1,) * y.ndim), y), kwargs)
    elif method == "__call__":
        r = _call(ufunc, inputs, kwargs)
    else:
        raise NotDifferentiableError(
            f"{name}.{method}: has no derivative rule; write it with other functions, or pass "
            "adarray.stop_gradient(x) if no gradient should flow through it"
        )
    if isinstance(target, tuple):
        return tuple(finish(part, t, name) for part, t in zip(r, target, strict=True))
    return finish(r, target, name)


def _call(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a ufunc on operands of which one is traced."""
    name = ufunc.__name__
    if ufunc in CONSTANT_FUNCTIONS:
        return ufunc(*map(plain, inputs), **kwargs)
    dtype = kwargs.pop("dtype", None)
    for key, value in kwargs.items():
        if not same_argument(value, _DEFAULTS.get(key)):
            raise NotDifferentiableError(
                f"{name}: the argument {key}={value!r} is not differentiated; leave it out "
                "(for where=, use np.where on the result)"
            )
    if dtype is not None:
        inputs = tuple(
            call_function(np.astype, (x, dtype), {}) if isinstance(x, Handle) else x for x in inputs
        )
    if ufunc in COMPOSITES:
        return COMPOSITES[ufunc](*inputs)
    op = FUNCTIONS.get(ufunc)
    if op is None:
        raise _unsupported(name)
    return apply(op, inputs)


def _reduce(
    function: Any, x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, **rest: Any
) -> Any:
    rest = {k: v for k, v in rest.items() if v is not np._NoValue and v is not True}
    if dtype is not None:
        rest["dtype"] = dtype
    return call_function(function, (x,), {"axis": axis, "keepdims": keepdims, **rest})


def _at(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> None:
    """``np.add.at(x, index, values)`` and ``np.subtract.at``, in place."""
    target = inputs[0]
    if not isinstance(target, Handle):
        if any(traced(x) for x in inputs):
            raise leaves_graph(
                f"{ufunc.__name__}.at into a plain ndarray",
                "make the array with np.zeros_like(x) or another function of a traced array",
            )
        ufunc.at(target, *map(plain, inputs[1:]))
        return
    if not any(traced(x) for x in inputs):
        fresh = sync_if_view(target)._v.copy()
        ufunc.at(fresh, *map(plain, inputs[1:]))
        assign(target, type(target)(fresh))
        return
    if ufunc not in (np.add, np.subtract):
        raise NotDifferentiableError(
            f"{ufunc.__name__}.at: has no derivative rule; np.add.at and np.subtract.at have one"
        )
    index, values = plain(inputs[1]), inputs[2]
    op = FUNCTIONS[np.add.at]
    values = -values if ufunc is np.subtract else values
    assign(target, apply(op, (target, values), {"index": index}))


def call_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a NumPy function on arguments of which one is, or holds, an ADArray.

    Raises
    ------
    UnsupportedFunctionError
        If a traced array is passed to a function that is not known.
    """
    op = FUNCTIONS.get(func)
    if op is not None:
        operands, params, out = op.bind(args, kwargs)
        if not any(isinstance(x, Handle) for x in operands):
            r = func(*plain(args), **plain({k: v for k, v in kwargs.items() if k != "out"}))
            return finish(r, out, op.name)
        return finish(apply(op, tuple(operands), params), out, op.name)
    composite = COMPOSITES.get(func)
    if composite is not None:
        return composite(*args, **kwargs)
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    if func in CONSTANT_FUNCTIONS or not (traced(args) or traced(kwargs)):
        return finish(func(*plain(args), **plain(kwargs)), out, func.__name__)
    raise _unsupported(func.__name__)


def _unsupported(name: str) -> UnsupportedFunctionError:
    return UnsupportedFunctionError(
        f"{name}: adarray has no derivative rule for this function; write it with other NumPy "
        "functions, or pass adarray.value_of(x) if no gradient should flow through it"
    )


def finish(r: Any, out: Any, name: str) -> Any:
    """Wrap plain results as ADArrays, and write the result into ``out=`` if given."""
    if isinstance(r, tuple) and out is None:
        return type(r)(*(_wrap(x) for x in r)) if hasattr(r, "_fields") else tuple(map(_wrap, r))
    r = _wrap(r)
    if out is None:
        return r
    if isinstance(out, tuple):
        (out,) = out
    if isinstance(out, Handle):
        return assign(out, r)
    if traced(r):
        return rebind_plain(out, r, name)
    np.copyto(out, plain(r), casting="same_kind")
    return out


def _wrap(r: Any) -> Any:
    if isinstance(r, np.ndarray) and r.dtype == object:
        raise DTypeError(
            "an operand is an array of objects; adarray computes on arrays of numbers: "
            "convert it with .astype(float)"
        )
    if isinstance(r, (np.ndarray, np.generic)):
        return Handle.array_class(r)
    return r


def traced(x: Any) -> bool:
    """Whether a derivative may flow through `x` or, for containers, anything in it."""
    if isinstance(x, Handle):
        sync_if_view(x)
        return x._node is not None or (x._x is not None and bool(x._x.tangents))
    if isinstance(x, (list, tuple)):
        return any(map(traced, x))
    if isinstance(x, dict):
        return any(map(traced, x.values()))
    return False


def plain(x: Any) -> Any:
    """Return `x` with the ADArrays in it replaced by their plain values (not copied)."""
    if isinstance(x, Handle):
        return sync_if_view(x)._v
    if isinstance(x, tuple):
        return type(x)(*map(plain, x)) if hasattr(x, "_fields") else tuple(map(plain, x))
    if isinstance(x, list):
        return [plain(i) for i in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return x


def is_foreign(x: Any) -> bool:
    """Whether `x` is another duck array, which may know how to work with ours."""
    if isinstance(x, (Handle, np.ndarray, np.generic, int, float, complex, list, tuple)):
        return False
    return hasattr(type(x), "__array_ufunc__") and type(x).__array_ufunc__ is not None
