"""NumPy's two dispatch protocols, beyond the fast path in `ADArray`.

Every function ends in one of four places: an `Op`, a composite (a body in Python
over other functions), a function whose result is constant, or an error that names
the function.
"""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from adarray.base.aval import BATCHED, PLAIN, Symbolic, refuse_subclass
from adarray.base.errors import DTypeError, NotDifferentiableError, UnsupportedFunctionError
from adarray.base.frames import is_frame, is_labelled, unframed
from adarray.base.op import (
    ALIKE,
    COMPOSITES,
    CONSTANT_FUNCTIONS,
    FUNCTIONS,
    METADATA,
    REFUSED,
    Op,
    load_late,
)
from adarray.base.runtime import MODE, WATCHED
from adarray.base.types import Casting, DType, Function, Operands, Params, Shape
from adarray.base.watching import WATCHES, note_read
from adarray.core.dispatch import apply, stands_for_many
from adarray.core.inplace import assign, check_cast, setitem, sync_if_view
from adarray.core.rebind import INTO_PLAIN, rebind_plain
from adarray.core.refusals import leaves_graph
from adarray.core.texts import as_text
from adarray.core.trace import Handle, is_over, is_weak, levels_of
from adarray.device import KINDS, adopt, is_device

if TYPE_CHECKING:
    import numpy.typing as npt

# Operands that are asked for shapes and dtypes.
Inputs: TypeAlias = tuple[Any, ...]

# Bodies of the methods of ufuncs for traced operands, ``body(ufunc, *inputs, **kwargs)``,
# by the method's name; they are written over other functions, in `adarray.ops.ufunc`.
UFUNC_METHODS: dict[str, Function] = {}


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Inputs, kwargs: Params) -> Any:
    """Run a ufunc or one of its methods on operands of which one is an ADArray."""
    if any(is_foreign(x) for x in inputs):
        return NotImplemented
    name = ufunc.__name__
    if any(map(is_frame, inputs)):
        if not followed(inputs) and method == "__call__":
            return ufunc(*plain(inputs), **plain(kwargs))  # by pandas
        inputs = tuple(unframed(x, name) if is_frame(x) else x for x in inputs)
    inputs = tuple(refuse_subclass(x, name) for x in inputs)
    if method == "at":
        return UFUNC_METHODS["at"](ufunc, *inputs)
    if method == "outer" and ufunc.nin == 2 and not ufunc.signature:
        # Of Python's numbers NumPy makes arrays, whose dtype does not yield.
        x, y = (
            np.reshape(v, ()) if is_weak(v) else v if hasattr(v, "ndim") else np.asarray(v)
            for v in inputs
        )
        inputs, method = (np.reshape(x, x.shape + (1,) * y.ndim), y), "__call__"
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    targets = out if isinstance(out, tuple) else (out,)
    masked = kwargs.get("where", True) is not True and method != "reduce" and traced(targets)
    watched = name in WATCHED and method == "__call__"
    followed_on = masked or traced(inputs) or traced(kwargs.get("initial")) or watched
    if not (followed_on or _fills(ufunc, targets)):
        return _untraced(ufunc, method, inputs, kwargs, targets)
    if method != "__call__":
        r = UFUNC_METHODS[method](ufunc, *inputs, **kwargs)
    elif kwargs.get("where", True) is not True:
        return _masked(ufunc, inputs, kwargs, targets)
    else:
        r = _call(ufunc, inputs, kwargs)
    if not any(t is not None for t in targets):
        return r
    casting = kwargs.get("casting", "same_kind")
    if len(targets) == 1:
        target = targets[0]
        if target.shape != r.shape and method == "__call__" and not ufunc.signature:
            r = _stretch(r, target.shape)
        return finish(r, target, name, casting)
    return tuple(
        finish(_stretch(part, t.shape) if t is not None else part, t, name, casting)
        for part, t in zip(r, targets, strict=True)
    )


def _fills(ufunc: np.ufunc, targets: Operands) -> bool:
    """Whether `jit` records a ufunc into an array that the run made, and has computed nothing in.

    NumPy could not write what it records into that.
    """
    mode = MODE.get()
    if mode is None or not mode.symbolic or ufunc not in FUNCTIONS:
        return False
    return any(
        isinstance(t, Handle) and not isinstance(sync_if_view(t)._plain, Symbolic) for t in targets
    )


def _stretch(r: Any, shape: Shape) -> object:
    """Broadcast a result to the shape of its ``out=``; NumPy's error where it does not fit."""
    try:
        return r if r.shape == shape else np.broadcast_to(r, shape)
    except ValueError:
        return r  # `assign` says which shapes do not match


def _untraced(
    ufunc: np.ufunc, method: str, inputs: Operands, kwargs: Params, targets: Operands
) -> object:
    """Let NumPy compute on plain values; it writes plain ``out=`` itself."""
    if any(t is not None for t in targets):
        kwargs["out"] = tuple(
            np.copy(sync_if_view(t)._plain)[...] if isinstance(t, Handle) else t for t in targets
        )
    r = getattr(ufunc, method)(*map(plain, inputs), **{k: plain(v) for k, v in kwargs.items()})
    results = r if isinstance(r, tuple) else (r,)
    if len(targets) != len(results):  # no out= was given
        targets = (None,) * len(results)
    outputs = tuple(
        _wrap(part) if t is None else assign(t, type(t)(part)) if isinstance(t, Handle) else t
        for part, t in zip(results, targets, strict=True)
    )
    return outputs if isinstance(r, tuple) else outputs[0]


def _masked(ufunc: np.ufunc, inputs: Inputs, kwargs: Params, targets: Inputs) -> object:
    """Call a ufunc with ``where=``: only elements that are asked for are computed.

    The others keep the value, and the gradient, of ``out=``; without it NumPy leaves
    what the memory held before, and zeros stand for that here.
    """
    name = ufunc.__name__
    if ufunc.signature:
        raise TypeError(f"{name}() got an unexpected keyword argument 'where'")
    where = plain(kwargs.pop("where"))
    where = where if isinstance(where, np.ndarray) else np.asarray(where, bool)
    if where.dtype != bool:
        raise TypeError(
            f"Cannot cast array data from {where.dtype!r} to dtype('bool') "
            "according to the rule 'safe'"
        )
    casting = kwargs.get("casting", "same_kind")
    arrays = tuple(x if is_number(x) or hasattr(x, "shape") else np.asarray(x) for x in inputs)
    shape = np.broadcast_shapes(where.shape, *(np.shape(x) for x in arrays))
    for t in targets:
        if t is not None:
            shape = np.broadcast_shapes(shape, t.shape)
    for t in targets:
        if t is not None and t.shape != shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {t.shape} doesn't match the "
                f"broadcast shape {shape}"
            )
    mask = np.broadcast_to(where, shape)
    picked = tuple(x if np.ndim(x) == 0 else np.broadcast_to(x, shape)[mask] for x in arrays)
    r = call_ufunc(ufunc, "__call__", picked, kwargs)
    parts = r if isinstance(r, tuple) else (r,)
    if len(targets) != len(parts):
        targets = (None,) * len(parts)
    outputs = tuple(
        _write_masked(t, part, mask, casting, name) for t, part in zip(targets, parts, strict=True)
    )
    return outputs if isinstance(r, tuple) else outputs[0]


def _write_masked(target: Any, part: Any, mask: np.ndarray, casting: Casting, name: str) -> object:
    """Write the computed elements of one result, and return the whole."""
    if target is None:
        target = Handle.array_class(np.zeros(mask.shape, part.dtype))
    elif not isinstance(target, Handle):
        raise leaves_graph(f"{name} into a plain ndarray of shape {target.shape}", INTO_PLAIN)
    _check_casting(part.dtype, target.dtype, casting, name)
    setitem(target, mask, part)
    return target


def _check_casting(source: DType, to: DType, casting: Casting, name: str) -> None:
    if not np.can_cast(source, to, casting):
        raise TypeError(
            f"Cannot cast ufunc {name!r} output from {source!r} to {to!r} with casting rule "
            f"{casting!r}"
        )


def _call(ufunc: np.ufunc, inputs: Operands, kwargs: Params) -> Any:
    """Call a ufunc on operands of which one is traced."""
    if ufunc in CONSTANT_FUNCTIONS:
        return _untraced(ufunc, "__call__", inputs, kwargs, ())
    if kwargs:
        kwargs = dict(kwargs)
        kwargs.pop("where", None)  # True
        if kwargs.pop("subok", True) not in (True, False):
            raise TypeError("'subok' must be a boolean")
        order = kwargs.pop("order", "K")
        if "axes" in kwargs or "axis" in kwargs or "keepdims" in kwargs:
            return UFUNC_METHODS["core_axes"](ufunc, *inputs, **kwargs)
        inputs = _loop_inputs(ufunc, inputs, kwargs)
        if order not in (None, "K", "A"):
            r = _call(ufunc, inputs, {})
            ordered = tuple(np.copy(x, order=order) for x in (r if type(r) is tuple else (r,)))
            return ordered if isinstance(r, tuple) else ordered[0]
    if ufunc in COMPOSITES:
        return COMPOSITES[ufunc](*inputs)
    op = FUNCTIONS.get(ufunc)
    if op is not None:
        return apply(op, inputs)
    if load_late():
        return _call(ufunc, inputs, kwargs)
    raise _unsupported(ufunc, inputs)


def _loop_inputs(ufunc: np.ufunc, inputs: Operands, kwargs: Params) -> tuple[object, ...]:
    """Return the operands in the dtypes of the loop that ``dtype=`` or ``signature=`` name."""
    casting = kwargs.pop("casting", "same_kind")
    dtype, signature = kwargs.pop("dtype", None), kwargs.pop("signature", None)
    signature = kwargs.pop("sig", signature)
    if kwargs:
        raise TypeError(
            f"{ufunc.__name__}() got an unexpected keyword argument {sorted(kwargs)[0]!r}"
        )
    if dtype is None and signature is None and casting == "same_kind":
        return inputs
    if isinstance(signature, str):
        signature = tuple(signature.replace("->", ""))
    if signature is not None and len(signature) == 1:
        (dtype,) = signature
    if dtype is not None:
        signature = (None,) * ufunc.nin + (dtype,) * ufunc.nout
    if signature is not None:
        signature = tuple(None if d is None else _instance(d) for d in signature)
    types = tuple(
        type(x) if is_number(x) else x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
        for x in map(plain, inputs)
    )
    options = {} if signature is None else {"signature": signature}
    resolved = ufunc.resolve_dtypes(types + (None,) * ufunc.nout, casting=casting, **options)
    return tuple(
        call_function(np.astype, (x, d), {}) if isinstance(x, Handle) else np.asarray(x, d)[()]
        for x, d in zip(inputs, resolved[: ufunc.nin], strict=True)
    )


def _instance(dtype: Any) -> DType:
    """Return a dtype that may be given as its class, as ufuncs take it."""
    named = isinstance(dtype, type) and issubclass(dtype, np.dtype)
    out: DType = np.dtype(dtype.type if named else dtype)
    return out


def is_number(x: object) -> bool:
    """Whether `x` is a Python number, whose dtype yields to others."""
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


def call_function(func: Function, args: Operands, kwargs: Params) -> Any:
    """Run a NumPy function on arguments of which one is, or holds, an ADArray.

    Raises
    ------
    UnsupportedFunctionError
        If a traced array is passed to a function that is not known.
    """
    op = FUNCTIONS.get(func)
    if op is not None:
        operands, params, out = op.bind(args, kwargs)
        if operands is None:
            op = op.general
            assert op is not None
            operands, params, out = op.bind(args, kwargs)
        if params:
            check_params(op, params)
        for x in operands:
            if isinstance(x, Handle):
                r = apply(op, tuple(operands), params)
                break
        else:
            r = func(*plain(args), **plain({k: v for k, v in kwargs.items() if k != "out"}))
        return r if out is None and isinstance(r, Handle) else finish(r, out, op.name)
    name = func.__name__
    args = tuple(x if type(x) in PLAIN else _operand(x, name) for x in args)
    kwargs = {k: x if type(x) in PLAIN else _operand(x, name) for k, x in kwargs.items()}
    composite = COMPOSITES.get(func)
    if composite is not None:
        return composite(*args, **kwargs)
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    if func in CONSTANT_FUNCTIONS or not (traced(args) or traced(kwargs)):
        if func not in CONSTANT_FUNCTIONS and func not in REFUSED:
            warn_unknown(func)
        unread = func in METADATA or func in ALIKE
        values = bare if WATCHES and unread else plain
        r = func(*values(args), **values(kwargs))
        if type(r) is str and traced(args):
            return as_text(r, args)
        return finish(r, out, func.__name__)
    raise _unsupported(func, args, kwargs)


def _operand(x: object, name: str) -> object:
    if isinstance(x, Handle):
        return x
    return unframed(x, name) if is_frame(x) or is_labelled(x) else refuse_subclass(x, name)


@functools.cache
def warn_unknown(func: Function) -> None:
    """Say once that a function of a newer NumPy has no rule here; NumPy computes it."""
    name = f"{getattr(func, '__module__', None) or 'numpy'}.{func.__name__}"
    if name.startswith("numpy.") and not hasattr(func, "__wrapped__"):
        warnings.warn(
            f"{name}: this version of adarray does not know the function; it is computed, and "
            "a traced array would be refused",
            stacklevel=4,
        )


_SIZES = frozenset({int, type(None)})


def check_params(op: Op, params: Params) -> None:
    """Raise if an argument without a derivative rule is traced; copy what the caller may change.

    Raises
    ------
    NotDifferentiableError
    """
    for name, value in params.items():
        if type(value) is tuple and _SIZES.issuperset(map(type, value)):
            continue  # a shape, or axes: the most common
        if isinstance(value, (Handle, tuple, list, np.ndarray)):
            if traced(value):
                raise NotDifferentiableError(
                    f"{op.name}: the argument {name} is traced and has no derivative rule; pass "
                    "adarray.value_of(it) if no gradient should flow through it"
                )
            params[name] = _apart(value)  # the rules read it later


def _apart(x: object) -> object:
    """Return a snapshot of an argument: arrays and lists in it copied, ADArrays plain."""
    if isinstance(x, Handle):
        x = plain(x)
    if type(x) is not np.ndarray and isinstance(x, Symbolic):
        return x
    if isinstance(x, np.ndarray):
        return x.copy("K")
    if type(x) is list or type(x) is tuple:
        return type(x)(map(_apart, x))
    return x


def _unsupported(func: Function, *values: object) -> UnsupportedFunctionError:
    name = func.__name__
    levels = levels_of(values) if values else None
    if func in REFUSED:
        return UnsupportedFunctionError(f"{name}: {REFUSED[func]}", levels)
    return UnsupportedFunctionError(
        f"{name}: adarray has no derivative rule for this function; write it with other NumPy "
        "functions, or pass adarray.value_of(x) if no gradient should flow through it",
        levels,
    )


def finish(r: Any, out: Any, name: str, casting: str = "same_kind") -> Any:
    """Wrap plain results as ADArrays, and write the result into ``out=`` if given."""
    if out is None and isinstance(r, Handle):
        return r  # first, since isinstance asks an ADArray for its __class__
    if isinstance(r, tuple) and out is None:
        return type(r)(*(_wrap(x) for x in r)) if hasattr(r, "_fields") else tuple(map(_wrap, r))
    r = _wrap(r)
    if out is None:
        return r
    if isinstance(out, tuple):
        (out,) = out
    if isinstance(out, Handle):
        return assign(out, r, casting)
    if traced(r):
        check_cast(r.dtype, out.dtype, casting)
        return rebind_plain(out, r, name)
    np.copyto(out, plain(r), casting=casting)  # type: ignore[arg-type]
    return out


def _wrap(r: object) -> Any:
    if isinstance(r, Handle):
        return r
    if isinstance(r, np.ndarray) and r.dtype == object:
        raise DTypeError(
            "an operand is an array of objects; adarray computes on arrays of numbers: "
            "convert it with .astype(float)"
        )
    if isinstance(r, (np.ndarray, np.generic)):
        if type(r) not in PLAIN and isinstance(r, np.ndarray):
            refuse_subclass(r, "array")
            r = r.view(np.ndarray)  # of a memory map, for instance
        return Handle.array_class(r)
    return r


def traced(x: object) -> bool:
    """Whether a derivative may flow through `x` or, for containers, anything in it."""
    if isinstance(x, Handle):
        sync_if_view(x)
        if x._node is None and (x._x is None or not x._x.tangents):
            return False
        return not is_over(x)
    if isinstance(x, (list, tuple)):
        return any(map(traced, x))
    if isinstance(x, dict):
        return any(map(traced, x.values()))
    return False


def followed(x: object) -> bool:
    """Whether `x` carries a derivative or is recorded by `jit`: what a plain value would lose."""
    if isinstance(x, Handle):
        return traced(x) or isinstance(x._plain, Symbolic)
    if isinstance(x, (list, tuple)):
        return any(map(followed, x))
    if isinstance(x, dict):
        return any(map(followed, x.values()))
    return False


def plain(x: object) -> Any:
    """Return `x` with the ADArrays in it replaced by their plain values (not copied)."""
    if isinstance(x, Handle):
        if WATCHES and traced(x):
            note_read()
        return sync_if_view(x)._plain
    if isinstance(x, tuple):
        return type(x)(*map(plain, x)) if hasattr(x, "_fields") else tuple(map(plain, x))
    if isinstance(x, list):
        return [plain(i) for i in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return adopt(x) if KINDS and type(x) in KINDS else x


def bare(x: object) -> Any:
    """Return what `plain` does, to code that does not let values decide what is computed."""
    if isinstance(x, Handle):
        return sync_if_view(x)._plain
    if isinstance(x, tuple):
        return type(x)(*map(bare, x)) if hasattr(x, "_fields") else tuple(map(bare, x))
    if isinstance(x, list):
        return [bare(i) for i in x]
    if isinstance(x, dict):
        return {k: bare(v) for k, v in x.items()}
    return adopt(x) if KINDS and type(x) in KINDS else x


def on_plain(function: Function, args: Operands, kwargs: Params) -> Any:
    """Call a function that does not dispatch on plain values; `jit` records the call."""
    mode = MODE.get()
    if BATCHED:
        values, options = plain(args), plain(kwargs)
        batched = stands_for_many((*values, *options.values()))
        if batched is not None:
            return batched.function(function, values, options)
    recorder = mode.recorder if mode is not None else None
    if recorder is not None and (followed(args) or followed(kwargs)):
        return recorder.function(function, plain(args), plain(kwargs))
    return function(*plain(args), **plain(kwargs))


def plain_array(x: object, dtype: npt.DTypeLike | None = None) -> Any:
    """Return the plain values of `x` as an array; a symbolic one where `jit` records."""
    value = plain(x)
    if isinstance(value, Symbolic):
        same = dtype is None or value.dtype == dtype
        return value if same else value.astype(np.dtype(dtype))
    if is_device(value):
        return value if dtype is None else value.astype(dtype, copy=False)
    return np.asarray(value, dtype)


def concrete(x: object) -> Any:
    """Return `plain(x)` with symbolic values replaced by those of this run."""
    x = bare(x)
    if isinstance(x, Symbolic):
        return x.value
    if isinstance(x, (tuple, list)) and type(x) in (tuple, list):
        return type(x)(map(concrete, x))
    return {k: concrete(v) for k, v in x.items()} if type(x) is dict else x


def is_foreign(x: object) -> bool:
    """Whether `x` is another duck array, which may know how to work with ours."""
    if isinstance(x, (Handle, np.ndarray, np.generic, int, float, complex, list, tuple)):
        return False
    if (KINDS and type(x) in KINDS) or is_frame(x):
        return False
    return getattr(type(x), "__array_ufunc__", None) is not None


def defers(x: object) -> bool:
    """Whether operators leave it to `x`, by NumPy's rules for arrays that are not of NumPy's.

    Such are sparse arrays: their class has no ``__array_ufunc__``, but a priority. One that is
    None says the same of itself, as the classes of `numpy.polynomial` do.
    """
    kind = type(x)
    if isinstance(x, (Handle, np.ndarray, np.generic)):
        return False
    known = getattr(kind, "__array_ufunc__", NotImplemented)
    return known is None or (known is NotImplemented and hasattr(kind, "__array_priority__"))
