"""Applying an operation: compute the value, record what its rules need.

`unary` and `binary` are the fast paths of pointwise operations; everything else
goes through `apply`. Forward mode is here too, since tangents are computed with
the operation and never stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from adarray.base.aval import BATCHED, PLAIN, Aval, Batching, Symbolic, aval_of, refuse_subclass
from adarray.base.errors import ForwardModeError
from adarray.base.frames import is_frame, is_labelled, unframed
from adarray.base.hooks import Hook
from adarray.base.op import Layout, Op
from adarray.base.runtime import MODE, WATCHED, Mode
from adarray.base.types import Function, Operands, Params, Span
from adarray.core.graph import PICK, Node, Steps, merge_spans, next_order
from adarray.core.guard import keep_plain
from adarray.core.mirrors import absorb
from adarray.core.refusals import no_derivative, reraise
from adarray.core.saving import as_array, saved_for
from adarray.core.tangents import (
    SERIES,
    attach,
    inexact,
    save_tangents,
    strip,
    strong_zero,
    tangent_of,
    unrecorded,
    without_dropped,
)
from adarray.core.trace import Handle, root_of, snapshot, state_of
from adarray.core.views import view_of, wrapped
from adarray.device import KINDS, adopt, is_device

_new = object.__new__

# Makes an array of an operand that is a list or a tuple, an ADArray if it holds one; of that dtype,
# if it is not None.
join_hook: Hook[Function] = Hook("adarray.ops.joining")


def unary(op: Op, x: Handle) -> Any:
    """Apply the pointwise operation `op` to one ADArray."""
    if x._x is not None:
        return apply(op, (x,))
    v = x._plain
    mode = MODE.get()
    if mode is None:
        r = op.evaluate(v)
    else:
        if mode.place is not None:
            v = mode.place(v)
        r = compute_pointwise(op, (v,), mode)
        if not mode.record:
            return type(x)(r)
    node = x._node
    if node is None:
        return type(x)(r)
    aval = node.aval
    if r.dtype is not aval.dtype:
        if r.dtype.kind not in "fc":
            return type(x)(no_derivative(op, r))
        aval = Aval(r.shape, r.dtype)
    try:
        save_out, save_x = op._plans[1]
    except KeyError:
        save_out, save_x = op.plan(1)
    saved: tuple[object, object]
    if save_x:
        x._frozen = True
        saved = (r if save_out else None, v)
    else:
        saved = (r if save_out else None, None)
    # Node(...) and ADArray(...), without the calls of __init__: a tenth of the cost.
    new_node = _new(Node)
    new_node.order = next_order()
    new_node.op = op
    new_node.parents = (node,)
    new_node.saved = saved
    new_node.params = None
    new_node.aval = aval
    new_node.span = node.span
    new_node.guard = None
    out = _new(type(x))
    out._plain = r
    out._node = new_node
    out._x = None
    out._frozen = save_out
    return out


def binary(op: Op, x: Any, y: Any) -> Any:
    """Apply the pointwise operation `op` to two operands, one of them an ADArray.

    Beside an object of pandas, NotImplemented: `adarray.core.protocol.call_ufunc` knows what to do.
    """
    xv: object
    yv: object
    if isinstance(x, Handle):
        if x._x is not None:
            return apply(op, (x, y))
        cls: type[Handle] = type(x)
        xv, nx = x._plain, x._node
    else:
        xv, nx = x, None
        if type(x) not in PLAIN:
            if type(x) is list or type(x) is tuple:
                return apply(op, (x, y))
            if is_frame(x):
                return NotImplemented
            x = xv = refuse_subclass(x, op.name)
        elif KINDS and type(x) in KINDS:
            x = xv = adopt(x)
    if isinstance(y, Handle):
        if y._x is not None:
            return apply(op, (x, y))
        cls = type(y)
        yv, ny = y._plain, y._node
    else:
        yv, ny = y, None
        if type(y) not in PLAIN:
            if type(y) is list or type(y) is tuple:
                return apply(op, (x, y))
            if is_frame(y):
                return NotImplemented
            y = yv = refuse_subclass(y, op.name)
        elif KINDS and type(y) in KINDS:
            y = yv = adopt(y)
    mode = MODE.get()
    if mode is not None:
        if mode.symbolic:
            return apply(op, (x, y))
        if mode.place is not None:  # plain operands are saved as they are there
            was_x, was_y = xv is x, yv is y
            xv, yv = mode.place(xv), mode.place(yv)
            x, y = xv if was_x else x, yv if was_y else y
    try:
        r = op.evaluate(xv, yv) if mode is None else compute_pointwise(op, (xv, yv), mode)
    except ValueError as error:
        reraise(op, (xv, yv), error)
    if mode is not None and not mode.record:
        return cls(r)
    if nx is None:
        if ny is None:
            return cls(r)
        mask, aval, span = 2, ny.aval, ny.span
    elif ny is None:
        mask, aval, span = 1, nx.aval, nx.span
    else:
        mask, aval = 3, nx.aval
        span = nx.span if nx.span is ny.span else merge_spans(nx.span, ny.span)
    try:
        another = r.dtype is not aval.dtype or r.shape != aval.shape
    except AttributeError:  # of an object that computes itself, such as a Fraction
        return apply(op, (x, y))
    if another:
        if r.dtype.kind not in "fc":
            return cls(no_derivative(op, r))
        aval = Aval(r.shape, r.dtype)
    try:
        save_out, save_x, save_y = op._plans[mask]
    except KeyError:
        save_out, save_x, save_y = op.plan(mask)
    guard = None
    if save_x:
        if xv is not x:
            x._frozen = True
        else:
            xv, guard = keep_plain(as_array(x), references=2)
    if save_y:
        if yv is not y:
            y._frozen = True
        else:
            yv, guard = keep_plain(as_array(y), references=2)
    saved = (r if save_out else None, xv if save_x else None, yv if save_y else None)
    new_node = _new(Node)  # as in `unary`
    new_node.order = next_order()
    new_node.op = op
    new_node.parents = (nx, ny)
    new_node.saved = saved
    new_node.params = None
    new_node.aval = aval
    new_node.span = span
    new_node.guard = guard
    out = _new(cls)
    out._plain = r
    out._node = new_node
    out._x = None
    out._frozen = save_out
    return out


def compute_pointwise(op: Op, values: Operands, mode: Mode | None) -> Any:
    """Compute a pointwise operation on plain values with the current backend."""
    if BATCHED:
        for v in values:
            if type(v) in BATCHED:
                return BATCHED[type(v)].compute(op, values, {})
    if mode is not None and mode.engine is not None:
        r = mode.engine.pointwise(op, values)
        if r is not NotImplemented:
            return r
    return op.evaluate(*values)


def compute(op: Op, values: Operands, params: Params, mode: Mode | None) -> Any:
    """Compute any operation on plain values with the current backend."""
    if BATCHED:
        batched = stands_for_many(values)
        if batched is None and params:
            batched = stands_for_many(params.values())
        if batched is not None:
            return batched.compute(op, values, params)
    if op.pointwise and not params:
        return compute_pointwise(op, values, mode)
    if mode is not None and mode.engine is not None:
        r = mode.engine.call(op, values, params)
        if r is not NotImplemented:
            return r
    if op.variadic:
        fixed = op.arity - 1
        return op.evaluate(*values[:fixed], list(values[fixed:]), **params)
    return op.evaluate(*values, **params)


def stands_for_many(values: Iterable[Any]) -> Batching | None:
    """Return the `Batching` of the first batched value, None if there is none."""
    for v in values:
        kind = type(v)
        if kind in BATCHED:
            return BATCHED[kind]
        if kind is tuple or kind is list:
            batched = stands_for_many(v)
        elif kind is slice:
            batched = stands_for_many((v.start, v.stop, v.step))
        else:
            continue
        if batched is not None:
            return batched
    return None


def run(op: Op, *operands: object, **params: object) -> Any:
    """Apply `op` from a derivative rule: plain in, plain out, with the current backend."""
    for x in operands:
        if isinstance(x, Handle):
            return apply(op, operands, params)
    return compute(op, operands, params, MODE.get())


_KNOWN = (Handle, np.ndarray, np.generic, int, float, complex, list, tuple, type(None))


def apply(op: Op, operands: tuple[Any, ...], params: Params | None = None) -> Any:
    """Apply `op` to operands, and return an ADArray although none of them may be one.

    Parameters
    ----------
    op : Op
    operands : tuple
        ADArrays, plain arrays and numbers.
    params : dict, optional
        Keyword arguments of the operation and its rules.

    Returns
    -------
    ADArray
        A view of an operand where NumPy gives a view.
    """
    params = params or {}
    if WATCHED and op.name in WATCHED:
        seen = WATCHED[op.name](op, operands, params)
        if seen is not NotImplemented:
            return seen
    mode = MODE.get()
    if mode is not None and mode.recorder is not None:
        operands = mode.recorder.as_operands(operands)
    level, mask = 0, 0
    cls: type[Handle] | None = None
    span: Span | None = None
    values: list[object] = []
    parents: list[Node | None] = []
    for x in operands:
        node = None
        if isinstance(x, Handle):
            cls = type(x)
            e = x._x
            if e is not None:
                if e.base is not None or e.mirror is not None:
                    sync(x)
                if e.weak:
                    cls = Handle.array_class
                if e.tangents:
                    level = max(level, e.tangents[-1].level)
            values.append(x._plain)
            node = x._node
            if node is not None:
                mask |= 1 << len(parents)
                if span is not node.span:
                    span = node.span if span is None else merge_spans(span, node.span)
        else:
            if type(x) not in PLAIN:
                if type(x) is list or type(x) is tuple:
                    return apply(op, tuple(join_hook.call(y, None) for y in operands), params)
                if is_frame(x) or is_labelled(x):
                    array = unframed(x, op.name)
                    return apply(op, tuple(array if y is x else y for y in operands), params)
                x = refuse_subclass(x, op.name)
            values.append(adopt(x) if KINDS and type(x) in KINDS else x)
        parents.append(node)
    if cls is None:  # plain operands, and an ADArray elsewhere, as in ``out=``
        cls = Handle.array_class
    recording = mode is None or mode.record
    if level and recording:
        return _push(op, operands, params, level)
    place = mode.place if mode is not None else None
    if place is not None:
        if isinstance(op.lower, Layout) and _of_host(values, params):
            mode = None  # a view must lie in the memory of its base
        else:
            values = list(map(place, values))
    try:
        r = compute(op, tuple(values), params, mode)
    except ValueError as error:
        reraise(op, tuple(values), error)
    if op.outputs > 1:
        return _several(op, operands, params, values, r, parents, mask, span, cls)
    if span is None or not recording:
        return wrapped(op, operands, params, values, r, cls)
    if not isinstance(r, (np.ndarray, np.generic, Symbolic)):
        if isinstance(r, float) and not all(isinstance(x, _KNOWN) for x in operands):
            numbers = (x if isinstance(x, _KNOWN) else float(x) for x in operands)
            return apply(op, tuple(numbers), params)  # as a Fraction does beside a float
        r = np.asarray(r)
        r = r if r.dtype.kind == "O" else r[()]
    if r.dtype.kind not in "fc":
        return cls(no_derivative(op, r))
    out = wrapped(op, operands, params, values, r, cls)
    aval = Aval(r.shape, r.dtype)
    saved, guards = saved_for(op, mask, operands, values, out, aval)
    out._node = Node(op, tuple(parents), saved, params or None, aval, span, guards)
    return out


def _of_host(values: list[object], params: Params) -> bool:
    """Whether the array that is looked at is in the memory of the host, and all that says where."""
    index = params.get("index")
    parts = (*values, *(index if isinstance(index, tuple) else (index,)))
    return type(values[0]) is np.ndarray and not any(is_device(x) for x in parts)


def _several(
    op: Op,
    operands: Operands,
    params: Params,
    values: list[object],
    results: Any,
    parents: list[Node | None],
    mask: int,
    span: Span | None,
    cls: type[Handle],
) -> tuple[Handle, ...]:
    """Wrap the results of an operation with several; each picks its part from one node."""
    out = tuple(wrapped(op, operands, params, values, r, cls) for r in results)
    if hasattr(results, "_fields"):
        out = type(results)(*out)
    mode = MODE.get()
    if span is None or (mode is not None and not mode.record):
        return out
    avals = tuple(aval_of(x._plain) for x in out)
    saved, guards = saved_for(op, mask, operands, values, out, avals)
    node = Node(op, tuple(parents), saved, params or None, avals[0], span, guards)
    for k, x in enumerate(out):
        if avals[k].dtype.kind in "fc":
            x._node = pick(node, k, avals[k])
        else:
            no_derivative(op, x._plain)
    return out


def pick(node: Node, index: int, aval: Aval) -> Node:
    """Return the node of one result of an operation with several."""
    return Node(PICK, (node,), (None, None), {"index": index}, aval, node.span)


def replay(value: Any, steps: Steps) -> Any:
    """Apply the layout `steps` of a view to `value`, plain or ADArray."""
    for op, rest, params in steps:
        if isinstance(value, Handle):
            value = apply(op, (value, *rest), params)
        else:
            value = op.evaluate(value, *rest, **params)
    return value


def sync(view: Handle) -> None:
    """Update a view if its base, or a copy of it that others hold, was written since."""
    x = view._x
    assert x is not None
    if x.base is None:  # no view: others hold a copy of it
        absorb(view)
        return
    if x.base._x is not None and x.base._x.mirror is not None:
        absorb(x.base)
    node, buffer, tangents = x.seen
    root = x.base
    rx = root._x
    if (
        node is root._node
        and buffer is root._plain
        and tangents is (rx.tangents if rx is not None else ())
    ):
        return
    fresh = replay(root, x.steps)
    view._plain, view._node = fresh._plain, fresh._node
    x.tangents = fresh._x.tangents if fresh._x is not None else ()
    x.seen = state_of(root)


def _push(op: Op, operands: tuple[Any, ...], params: Params, level: int) -> Any:
    """Apply `op` and push the tangents of `level`, the highest one, through it."""
    series = SERIES.get(level)
    if series is None:
        primals = tuple(strip(x, level) for x in operands)
    else:
        primals = tuple(map(series.strip, operands))
    out = apply(op, primals, params)
    for x, p in zip(operands, primals, strict=True):
        if p is not x and p._frozen:
            root_of(x)._frozen = True
    if op.outputs > 1:
        if series is not None:
            return series.push(op, operands, primals, params, out)
        return _push_several(op, operands, primals, params, out, level)
    if out._plain is None or not inexact(op, out._plain):
        return out
    source = operands[0]
    if out._x is not None and out._x.base is primals[0] and source is not primals[0]:
        # The view must follow the user's array, not the stripped copy of its handle.
        moved = view_of(source, op, operands[1:], params, out._plain)
        moved._node = out._node
        assert moved._x is not None
        assert out._x is not None
        moved._x.tangents = out._x.tangents
        out = moved
    if series is not None:
        return series.push(op, operands, primals, params, out)
    total = None
    seen = out
    if out._node is not None:
        seen, primals = unrecorded(out, level), tuple(unrecorded(x, level) for x in primals)
    for i, x in enumerate(operands):
        t = tangent_of(x, level)
        if t is not None:
            part = jvp_rule(op, i, t, seen, primals, params)
            total = part if total is None else total + part
    if total is None:
        return out
    attach(out, level, total)
    if out._node is not None:
        save_tangents(out._node, (out, *operands))
    return out


def _push_several(
    op: Op,
    operands: Operands,
    primals: Operands,
    params: Params,
    out: tuple[Handle, ...],
    level: int,
) -> tuple[Handle, ...]:
    """Give the results of an operation with several their tangents."""
    totals: list[Any] = [None] * len(out)
    seen = tuple(unrecorded(x, level) for x in out)
    primals = tuple(unrecorded(x, level) for x in primals)
    for i, x in enumerate(operands):
        t = tangent_of(x, level)
        if t is not None:
            parts = jvp_rule(op, i, t, seen, primals, params)
            totals = [
                part if total is None else total if part is None else total + part
                for total, part in zip(totals, parts, strict=True)
            ]
    pick = next((x._node for x in out if x._node is not None), None)
    for x, total in zip(out, totals, strict=True):
        if total is not None and inexact(op, x._plain):
            attach(x, level, total)
    if pick is not None:
        node = pick.parents[0]
        assert node is not None
        save_tangents(node, (out, *operands))
        for x in out:
            if x._node is not None:
                x._node.span = node.span
    return out


def jvp_rule(op: Op, i: int, t: Handle, out: object, primals: Operands, params: Params) -> Any:
    """Return the tangent of the result for tangent `t` of operand `i`."""
    if isinstance(out, tuple):
        primal_out: object = tuple(map(snapshot, out))
    else:
        primal_out = snapshot(out) if isinstance(out, Handle) else out
    if op.pointwise:
        rule = op.rules[i]
        if rule is None:
            op.plan(1 << i)  # raises
            raise AssertionError
        with np.errstate(invalid="ignore"):  # 0 * inf: what does not move has derivative 0
            moved = strong_zero(t, rule(t, primal_out, *primals))
            if not op.masks:
                return moved
            return without_dropped(moved, lambda: rule(1.0, primal_out, *primals))
    if op.jvp == "linear":
        return run(op, *primals[:i], t, *primals[i + 1 :], **params)
    rules = op.jvp if isinstance(op.jvp, tuple | list) else ()
    if op.variadic and i >= op.arity - 1:
        return rules[-1](t, i, primal_out, *primals, **params)
    if i >= len(rules) or rules[i] is None:
        raise ForwardModeError(
            f"{op.name}: no forward-mode derivative with respect to operand {i}; "
            "use grad or vjp, or pass it as a plain array"
        )
    return rules[i](t, primal_out, *primals, **params)
