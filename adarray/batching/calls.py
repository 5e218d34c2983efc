"""NumPy's ufuncs and functions on values of members that no derivative is taken of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import NotDifferentiableError
from adarray.base.levels import forget
from adarray.base.op import COMPOSITES, DYNAMIC, FUNCTIONS, METADATA
from adarray.base.runtime import MODE
from adarray.batching.batch import Batch
from adarray.batching.indices import (
    as_written,
    batched_index,
    is_mask,
    parts_of,
    region_of,
)
from adarray.batching.rules import (
    BatchCall,
    Rule,
    aligned,
    along,
    compute_batched,
    members,
    pointwise,
    stacked,
    wrapped,
)
from adarray.batching.values import (
    Batched,
    as_batched,
    function_hook,
    handle_of,
    innermost,
    item_hook,
    opened,
    raw_of,
    ufunc_hook,
    write_hook,
)
from adarray.core.trace import Handle
from adarray.device import is_device

# Rules of functions that have no record, since they have no derivative: see `batched`.
RULES: dict[Any, Rule] = {}
# Functions whose bodies run: those that call themselves on plain values meet those of members.
_INSIDE: ContextVar[frozenset[Any]] = ContextVar("adarray_batched_bodies", default=frozenset())


def batched(rule: Rule, *functions: Callable[..., Any]) -> None:
    """Register the batching rule of functions without a record."""
    for function in functions:
        RULES[function] = rule


def ufunc(function: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: Any) -> Any:
    """Run a ufunc, or a method of it, on values of which one is that of the members."""
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    if method == "at":
        return _at(function, *inputs)
    if method == "outer":
        x, y = (v if hasattr(v, "shape") else np.asarray(v) for v in inputs)
        inputs, method = (x.reshape(x.shape + (1,) * y.ndim), y), "__call__"
    where = kwargs.pop("where", True) if method == "__call__" else True
    if method == "__call__":
        r = _called(function, inputs, kwargs)
    else:
        r = _method(function, method, inputs, kwargs)
    targets = out if isinstance(out, tuple) else (out,)
    if not any(t is not None for t in targets):
        if where is not True:
            r = np.where(where, r, 0).astype(r.dtype)
        return r
    results = r if isinstance(r, tuple) else (r,)
    outputs = tuple(
        _into(t, x, where) if t is not None else x for t, x in zip(targets, results, strict=True)
    )
    return outputs if isinstance(r, tuple) else outputs[0]


def _into(target: Any, r: Any, where: Any) -> Any:
    """Return what ``out=`` holds: a plain one is another array then, of all members."""
    if where is not True:
        r = np.where(where, r, target)
    if r.dtype != target.dtype:
        r = r.astype(target.dtype)
    if r.shape != target.shape:
        r = np.broadcast_to(r, target.shape)
    if type(target) is Batched and not target.scalar:
        target[...] = r
        return target
    return r


def _called(function: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a ufunc."""
    op = FUNCTIONS.get(function)
    if op is not None and not kwargs:
        return compute_batched(op, inputs, {})
    kwargs.pop("order", None)
    kwargs.pop("subok", None)
    batch = innermost(inputs, kwargs)
    assert batch is not None
    call = BatchCall(batch, function, inputs, kwargs, function.__name__)
    if function.signature is None:
        return wrapped(call, pointwise(call))
    core = [len(part.split(",")) if part else 0 for part in _cores(function.signature)]
    axes = "axis" in kwargs or "axes" in kwargs
    return wrapped(call, members(call) if axes else stacked(*core)(call))


def _cores(signature: str) -> list[str]:
    """Return the core axes of the operands of a generalised ufunc, as text."""
    return [p.strip("() ") for p in signature.split("->")[0].replace("),(", ")|(").split("|")]


def _method(function: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: Any) -> Any:
    """Call ``reduce``, ``accumulate`` or ``reduceat`` along the axes of a member."""
    if method == "reduceat":
        kwargs["indices"] = inputs[1]
        names: tuple[str, ...] = ("axis", "dtype")
        args = (inputs[0], *inputs[2:])
    else:
        names, args = ("axis", "dtype"), inputs
    kwargs |= dict(zip(names, args[1:], strict=False))
    kwargs.setdefault("axis", 0)
    batch = innermost(inputs, kwargs)
    assert batch is not None
    run = getattr(function, method)
    call = BatchCall(batch, run, inputs[:1], kwargs, function.__name__)
    return wrapped(call, _ALONG(call))


_ALONG = along("all")


def _at(function: np.ufunc, a: Any, index: Any, *values: Any) -> None:
    """Apply a ufunc in place at an index of every member."""
    batch = innermost((a, index, *values))
    assert batch is not None
    if type(a) is not Batched or a.batch is not batch:
        function.at(a, *_read((index, *values)))  # into memory of others: one by one
        return
    at = batched_index(index, a.shape, batch)
    region = region_of(index, a.shape)
    written = [as_written(_broadcast(v, region, batch), at, region) for v in values]
    if isinstance(a.raw, Symbolic) and type(a.raw) is not Batched:
        op = FUNCTIONS[np.add.at]
        assert function is np.add
        a.raw = op.evaluate(a.raw, written[0], index=at.parts)
    else:
        function.at(a.raw, at.parts, *written)


def _broadcast(v: Any, region: tuple[int, ...], batch: Batch) -> Any:
    """Return values for a region of every member, of all members."""
    if type(v) is Batched and v.batch is batch:
        shape = v.shape
        if len(shape) > len(region) and shape[: len(shape) - len(region)] == (1,) * (
            len(shape) - len(region)
        ):
            shape = shape[len(shape) - len(region) :]  # as assignments take them
        lead = len(region) - len(shape)
        raw = v.raw.reshape((batch.size,) + (1,) * lead + shape) if v.ndim != len(region) else v.raw
        return np.broadcast_to(raw, (batch.size, *region))
    v = v if hasattr(v, "shape") else np.asarray(v)
    if v.ndim > len(region):
        v = v.reshape(v.shape[v.ndim - len(region) :])
    return np.broadcast_to(v, (batch.size, *region))


def item(x: Batched, index: Any) -> Any:
    """Return ``x[index]``."""
    return compute_batched(FUNCTIONS[operator.getitem], (x,), {"index": index})


def write(x: Any, index: Any, value: Any) -> Any:
    """Write ``x[index] = value`` for every member, and return the array.

    It is another one where `x` was the same for all members, or never changes.
    """
    batch = innermost((x, index, value))
    if batch is None or (type(x) is Batched and x.batch.level > batch.level):
        batch = x.batch
    if type(x) is not Batched or x.batch is not batch:
        raw = raw_of(x, batch)
        x = as_batched(raw if isinstance(raw, Symbolic) else np.array(raw), batch)
    if not x._writeable:
        raise ValueError("assignment destination is read-only")
    parts = parts_of(index)
    if len(parts) == 1 and type(parts[0]) is Batched and is_mask(parts[0]) and np.ndim(value) == 0:
        raw = _chosen(x, parts[0], value, batch)
        return _written(x, (Ellipsis,), raw)
    if parts == ():
        parts = (Ellipsis,)
    at = batched_index(parts, x.shape, batch)
    written: Any = value
    own = type(value) is Batched and value.batch is batch
    if own or (np.ndim(value) and at.source is not None):
        region = region_of(parts, x.shape)
        written = as_written(_broadcast(value, region, batch), at, region)
    return _written(x, at.parts, written)


def _chosen(x: Batched, mask: Batched, value: Any, batch: Batch) -> Any:
    """Return the array of all members with one value where a mask holds."""
    lead = x.ndim - mask.ndim
    chosen: Any = mask if mask.batch is not batch else mask.raw  # or of a batch around
    chosen = np.reshape(chosen, chosen.shape + (1,) * lead)
    if type(value) is Batched and value.batch is batch:
        value = value.raw.reshape((batch.size,) + (1,) * x.ndim)
    out = np.where(chosen, value, x.raw)
    return out if out.dtype == x.dtype else out.astype(x.dtype)


def _written(x: Batched, parts: tuple[Any, ...], value: Any) -> Batched:
    """Write into the array of all members, or make another one where nothing is written into."""
    raw = x.raw
    if type(value) is Batched or type(raw) is Batched:  # of a batch around
        return as_batched(write(raw, parts, value), x.batch)
    mode = MODE.get()
    inner_symbolic = isinstance(raw, Symbolic) or isinstance(value, Symbolic) or innermost(parts)
    if mode is not None and mode.recorder is not None and inner_symbolic:
        return as_batched(mode.recorder.write(raw, (), parts, value), x.batch)
    if innermost(parts) is not None:
        return as_batched(write(raw, parts, value), x.batch)
    raw[parts] = value
    return x


def function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a NumPy function on values of which one is that of the members."""
    if func in (np.may_share_memory, np.shares_memory):
        return _shares(*args[:2])
    if func in METADATA:
        return func(*_like(args), **_like(kwargs))
    if isinstance(func, np.ufunc):
        return ufunc(func, "__call__", args, kwargs)
    kwargs = {k: v for k, v in kwargs.items() if v is not np._NoValue}
    out = kwargs.pop("out", None)
    r = _computed(func, args, kwargs)
    if out is None or (type(out) is tuple and all(x is None for x in out)):
        return r
    return _into(out[0] if isinstance(out, tuple) else out, r, True)


def _computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    batch = innermost(args, kwargs)
    assert batch is not None
    rule = RULES.get(func)
    if rule is not None:
        call = BatchCall(batch, func, args, kwargs, func.__name__)
        return wrapped(call, rule(call))
    op = FUNCTIONS.get(func)
    if op is not None:
        bound = _bound(op, args, kwargs)
        if bound is not None:
            return compute_batched(*bound)
    if func in (np.zeros_like, np.ones_like, np.empty_like):
        return _filled(func, *args, **kwargs)
    if func in (np.stack, np.vstack, np.hstack, np.broadcast_arrays):
        return opened(COMPOSITES[func](*_handles(args), **_handles(kwargs)))
    composite = COMPOSITES.get(func)
    inside = _INSIDE.get()
    if composite is not None and func is not np.copyto and func not in inside:
        body = getattr(composite, "__wrapped__", None)
        if body is None or _is_real(args):
            token = _INSIDE.set(inside | {func})
            try:
                return opened((body or composite)(*_handles(args), **_handles(kwargs)))
            finally:
                _INSIDE.reset(token)
    decides = DYNAMIC.get(func)
    if decides is not None and innermost(decides(args, kwargs)) is not None:  # the same for all
        return func(*_read(args), **_read(kwargs))
    call = BatchCall(batch, func, args, kwargs, func.__name__)
    return wrapped(call, members(call))


def _bound(op: Any, args: Any, kwargs: Any) -> Any:
    """Return the record that takes a call, its operands and parameters; None if none does."""
    try:
        operands, params, _ = op.bind(args, kwargs)
        if operands is None:
            op = op.general
            operands, params, _ = op.bind(args, kwargs)
    except NotDifferentiableError as error:
        forget(error)
        return None
    if any(isinstance(x, (list, tuple)) for x in operands):
        return None
    return op, tuple(operands), params


def _is_real(args: Any) -> bool:
    """Whether the values of members among arguments are floating point."""
    if isinstance(args, (tuple, list)):
        return all(map(_is_real, args))
    return type(args) is not Batched or args.dtype.kind == "f"


def _handles(x: Any) -> Any:
    kind = type(x)
    if kind is Batched:
        handle = handle_of(x)
        handle._frozen = False
        return handle
    if kind is tuple or kind is list:
        return kind(map(_handles, x))
    return {k: _handles(v) for k, v in x.items()} if kind is dict else x


def _read(x: Any) -> Any:
    """Return `x` with the values that all members have in place of those of members."""
    kind = type(x)
    if kind is Batched:
        return x.read()
    if kind is tuple or kind is list:
        return kind(map(_read, x))
    return {k: _read(v) for k, v in x.items()} if kind is dict else x


def _like(x: Any) -> Any:
    """Return `x` with arrays of the same shapes and dtypes in place of values of members."""
    kind = type(x)
    if kind is Batched:
        zeros = np.broadcast_to(np.zeros((), x.dtype), x.shape)
        return zeros[()].item() if x.weak else zeros[()] if x.scalar else zeros
    if kind is tuple or kind is list:
        return kind(map(_like, x))
    return {k: _like(v) for k, v in x.items()} if kind is dict else x


def _filled(
    func: Any,
    a: Batched,
    dtype: Any = None,
    order: Any = "K",  # noqa: ARG001  (NumPy's signatures)
    subok: bool = True,  # noqa: ARG001
    shape: Any = None,
    *,
    device: Any = None,  # noqa: ARG001
) -> Any:
    """Return zeros or ones like the array of a member, which can be written into."""
    if shape is None:
        shape = a.shape
    to = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    out = a.zeros(to, a.dtype if dtype is None else dtype)
    if func is np.ones_like:
        out.raw = out.raw + out.raw.dtype.type(1)
    return out


def _shares(a: Any, b: Any) -> bool:
    """Whether arrays may share memory, that of a device or of NumPy's, in this run."""
    a, b = map(_in_memory, (a, b))
    if is_device(a) or is_device(b):
        both = is_device(a) and is_device(b) and a.library is b.library
        return both and bool(a.library.shares(a.raw, b.raw))
    return bool(np.may_share_memory(a, b))


def _in_memory(x: Any) -> Any:
    while type(x) is Batched:
        x = x.raw
    return x.value if isinstance(x, Symbolic) else x


ufunc_hook.set(ufunc)
function_hook.set(function)
item_hook.set(item)
write_hook.set(write)
_positions = along("flat")
batched(_positions, np.argmax, np.argmin, np.nanargmax, np.nanargmin)
batched(along("all"), np.all, np.any, np.count_nonzero)


def _sorted(call: BatchCall) -> Any:
    """Sort along the last axis unless another one is named."""
    names = ("axis",) if call.name == "argsort" else ("kth", "axis")
    params = {**dict(zip(names, call.values[1:], strict=False)), **call.params}
    params.setdefault("axis", -1)
    return _positions(BatchCall(call.batch, call.function, call.values[:1], params, call.name))


batched(_sorted, np.argsort, np.argpartition)


def _one_by_one(call: BatchCall) -> Any:
    return call.function(*aligned(call), **call.params)


batched(_one_by_one, np.isclose)
__all__ = ["Handle", "batched", "write"]
