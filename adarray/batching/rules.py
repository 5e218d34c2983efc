"""Batching rules: how an operation on values of one member is one on those of all.

A rule is ``rule(call)``, where the `BatchCall` has the operands and parameters of one member. It
returns the result of all members, stacked along the first axis; a tuple of them, if the operation
has several. A record names its rule (``batch=``). Kinds of operations that all work alike share one
from this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.base.errors import ShapeError, TraceError, UnsupportedFunctionError
from adarray.base.op import Op, Pointwise, Reduction, Scan
from adarray.base.runtime import MODE
from adarray.batching.batch import WALKING, Batch
from adarray.batching.indices import batched_index, in_order, parts_of, settled
from adarray.batching.values import Batched, as_batched, innermost, member_axis, raw_of
from adarray.core.dispatch import compute

Rule = Callable[["BatchCall"], Any]
_PYTHON = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}


class BatchCall:
    """One operation on values of members.

    Parameters
    ----------
    batch : Batch
        The innermost one of the operands.
    function : callable
        ``function(*values, **params)`` computes at the level below.
    values : tuple
        The operands.
    params : dict
    name : str
        For errors.
    """

    __slots__ = ("batch", "function", "name", "params", "values")

    def __init__(
        self,
        batch: Batch,
        function: Callable[..., Any],
        values: tuple[Any, ...],
        params: dict[str, Any],
        name: str,
    ) -> None:
        self.batch = batch
        self.function = function
        self.values = values
        self.params = params
        self.name = name

    def has(self, x: Any) -> bool:
        """Whether members have values of their own."""
        return type(x) is Batched and x.batch is self.batch

    def full(self, i: int) -> Any:
        """Return operand `i` of all members; one that all have is broadcast."""
        return raw_of(self.values[i], self.batch)

    def shape(self, i: int) -> tuple[int, ...]:
        """Return the shape of operand `i` of a member."""
        return np.shape(self.values[i])

    def only(self, *positions: int) -> bool:
        """Whether no other operand or parameter has values of the members."""
        rest = [v for i, v in enumerate(self.values) if i not in positions]
        return innermost(rest, self.params) is not self.batch

    def run(self, *values: Any, **params: Any) -> Any:
        """Compute the operation at the level below."""
        return self.function(*values, **params)


class Coupling:
    """A rule that says which axes of operands depend on each other.

    Parameters
    ----------
    rule : callable
    along : tuple or None
        Of an operation along axes of its first operand: what ``axis=None`` means, the name of the
        parameter, and its default.
    core : tuple of int
        Of an operation on stacks: how many of the last axes of each operand belong together.
    pairs : callable, optional
        ``pairs(i, shapes, **params)`` returns the numbers of elements of the result, and those of
        elements of operand `i` that they depend on; `shapes` are those of the operands.
    """

    __slots__ = ("along", "core", "pairs", "rule")

    def __init__(
        self,
        rule: Rule,
        along: Any = None,
        core: tuple[int, ...] = (),
        pairs: Callable[..., tuple[Any, Any]] | None = None,
    ) -> None:
        self.rule = rule
        self.along = along
        self.core = core
        self.pairs = pairs

    def __call__(self, call: BatchCall) -> Any:
        """Apply the rule."""
        return self.rule(call)


def pointwise(call: BatchCall) -> Any:
    """Align the operands of members, and apply the operation to those of all."""
    return call.run(*aligned(call), **call.params)


def aligned(call: BatchCall) -> list[Any]:
    """Return operands that broadcast as those of a member do, behind the members' axis."""
    values, n = call.values, call.batch.size
    ndim = max([len(v.shape) for v in values if hasattr(v, "shape")], default=0)
    strong: list[Any] | None = None
    operands = []
    for v in values:
        if not call.has(v):
            operands.append(v)
            continue
        raw = v.raw
        if v.weak:  # its dtype yields to others
            if strong is None:
                strong = [
                    w.dtype for w in values
                    if hasattr(w, "dtype") and not (type(w) is Batched and w.weak)
                ]  # fmt: skip
            if strong:
                to = np.result_type(*strong, _PYTHON[raw.dtype.kind])
                raw = raw if raw.dtype == to else raw.astype(to)
        lead = ndim - len(v.shape)
        operands.append(raw.reshape((n,) + (1,) * lead + v.shape) if lead else raw)
    return operands


def along(
    none: str = "all",
    stay: Sequence[int] = (),
    moved: bool = False,
    name: str = "axis",
    default: int | None = None,
) -> Rule:
    """Return the rule of an operation along axes of its first operand.

    Parameters
    ----------
    none : {"all", "flat", "last"}
        What ``axis=None`` means: all axes, the elements in one row, or the last axis.
    stay : sequence of int
        Positions of operands that broadcast against the first.
    moved : bool
        Whether the result has axes of its own in front, as those of quantiles.
    name : str
        Of the parameter.
    default : int or None
        The axis where none is given.
    """
    default = -1 if none == "last" else default

    def rule(call: BatchCall) -> Any:
        if not call.only(0, *stay):
            return members(call)
        if moved and (np.ndim(call.values[1]) > 1 or any(v is not None for v in call.values[2:])):
            return members(call)
        a, shape = call.full(0), call.shape(0)
        ndim, params = len(shape), dict(call.params)
        axis = params.get(name, default)
        if not ndim:
            # A number: what NumPy does along its axis 0 or -1 is done along one of length 1.
            return members(call) if axis not in (None, ()) else _of_numbers(call, a, none)
        if axis is None and none == "flat":
            a, params[name], ndim = a.reshape((call.batch.size, -1)), 1, 1
        elif axis is None:
            params[name] = tuple(range(1, ndim + 1)) if none == "all" else ndim
        else:
            params[name] = member_axis(axis, ndim)
        rest = [
            raw_aligned(call, v, ndim) if i + 1 in stay and call.has(v) else v
            for i, v in enumerate(call.values[1:])
        ]
        r = call.run(a, *rest, **params)
        if moved and np.ndim(call.values[1]):
            r = np.moveaxis(r, np.ndim(call.values[1]), 0)
        return r

    return Coupling(rule, None if stay or moved else (none, name, default), ())


def _of_numbers(call: BatchCall, a: Any, none: str) -> Any:
    """Apply an operation along all axes of a number, which has none."""
    params = dict(call.params)
    if none == "flat":
        return call.run(a.reshape((call.batch.size, 1)), *call.values[1:], **{**params, "axis": 1})
    if innermost(call.values[1:]) is call.batch:
        return members(call)
    return call.run(a, *call.values[1:], **{**params, "axis": ()})


def raw_aligned(call: BatchCall, v: Batched, ndim: int) -> Any:
    """Return an operand of all members that broadcasts against one of `ndim` axes a member."""
    lead = ndim - v.ndim
    return v.raw.reshape((call.batch.size,) + (1,) * lead + v.shape) if lead else v.raw


def stacked(*core: int) -> Rule:
    """Return the rule of an operation on stacks: the last `core` axes of operands are theirs."""

    def rule(call: BatchCall) -> Any:
        if innermost(call.params) is call.batch:
            return members(call)
        outer = [len(call.shape(i)) - k for i, k in enumerate(core)]
        if min(outer) < 0:
            return members(call)  # which raises NumPy's error
        most = max(outer)
        operands = []
        for i, k in enumerate(core):
            v = call.values[i]
            if call.has(v):
                lead = most - (v.ndim - k)
                operands.append(v.raw.reshape((call.batch.size,) + (1,) * lead + v.shape))
            else:
                operands.append(v)
        return call.run(*operands, **call.params)

    return Coupling(rule, core=core)


def shifted(*names: str, applies: Callable[[BatchCall], bool] | None = None) -> Rule:
    """Return the rule of an operation on one array whose parameters `names` are axes.

    Parameters
    ----------
    *names : str
        Parameters that are always given as axes, or left at defaults that the record names.
    applies : callable, optional
        Whether a call can be done so; one by one else.
    """

    def rule(call: BatchCall) -> Any:
        if not call.only(0) or (applies is not None and not applies(call)):
            return members(call)
        params = dict(call.params)
        for name in names:
            params[name] = member_axis(params[name], len(call.shape(0)))
        return call.run(call.full(0), **params)

    return rule


def same(call: BatchCall) -> Any:
    """Apply the operation as it is: it does not ask where the axes are."""
    if not call.only(0):
        return members(call)
    return call.run(call.full(0), **call.params)


def members(call: BatchCall) -> Any:
    """Compute member by member: the rule of operations that know nothing of stacks."""
    results = []
    for k in range(call.batch.size):
        values = tuple(member_of(v, k, call.batch) for v in call.values)
        params = {n: member_of(v, k, call.batch) for n, v in call.params.items()}
        results.append(call.run(*values, **params))
    if not results:
        values = tuple(_nobody(v, call.batch) for v in call.values)
        results = [call.run(*values, **call.params)]
        return _stack(call, results, empty=True)
    return _stack(call, results)


def _stack(call: BatchCall, results: list[Any], empty: bool = False) -> Any:
    if isinstance(results[0], (tuple, list)):
        parts = [_stack(call, list(p), empty) for p in zip(*results, strict=True)]
        cls = type(results[0])
        return cls(*parts) if hasattr(cls, "_fields") else tuple(parts)
    shapes = {np.shape(x) for x in results}
    if len(shapes) > 1:
        for v in (*call.values, *call.params.values()):
            if call.has(v):
                v.read()  # which splits the batch
        raise ShapeError(
            f"{call.name}: the results of the members of a batch have shapes {sorted(shapes)}; "
            "they must be equal"
        )
    r = np.stack([x if hasattr(x, "shape") else np.asarray(x) for x in results])
    return r[:0] if empty else r


def member_of(v: Any, k: int, batch: Batch) -> Any:
    """Return the value of member `k`, or of what is in it."""
    if type(v) is Batched:
        if v.batch is not batch:
            return v
        x = v.raw[k]
        if not v.scalar and not x.shape and isinstance(x, np.generic):
            return np.asarray(x)
        return x
    if type(v) is tuple or type(v) is list:
        return type(v)(member_of(x, k, batch) for x in v)
    if type(v) is slice:
        return slice(*(member_of(x, k, batch) for x in (v.start, v.stop, v.step)))
    return v


def _nobody(v: Any, batch: Batch) -> Any:
    return np.zeros(v.shape, v.dtype) if type(v) is Batched and v.batch is batch else v


def item(call: BatchCall) -> Any:
    """Index the arrays of all members."""
    batch, shape = call.batch, call.shape(0)
    item_index = call.params["index"]
    if any(type(i) is Batched and i.dtype.kind == "b" for i in parts_of(item_index)):
        # What is recorded has the mask that all members have, which rules read later.
        call.params["index"] = settled(parts_of(item_index), batch)
    index = batched_index(call.params["index"], shape, batch)
    a = call.values[0]
    if not call.has(a):
        if index.source is None and type(index.parts[0]) is np.ndarray:
            # One array for all: no copies of it.
            parts = index.parts[1:]
            leading = [i for i in parts if i is not None and type(i) is not slice]
            if len(leading) == len(parts) or _lead(parts):
                return call.run(a, index=parts)
        a = raw_of(a, batch)
    else:
        a = a.raw
    return in_order(call.run(a, index=index.parts), index)


def _lead(parts: Sequence[Any]) -> bool:
    """Whether arrays stand in front of all slices, so that their axes come first."""
    kinds = [i is None or type(i) is slice for i in parts]
    return kinds == sorted(kinds)


def rule_of(op: Op) -> Rule | None:
    """Return the rule of a record: its own, or that of its kind."""
    if op.batch is not None:
        return op.batch
    if isinstance(op.lower, Pointwise):
        return pointwise
    if isinstance(op.lower, (Reduction, Scan)):
        return _REDUCTION if isinstance(op.lower, Reduction) else _SCAN
    if isinstance(op.numpy, np.ufunc) and op.numpy.signature is None:
        return pointwise
    return None


_REDUCTION, _SCAN = along("all"), along("flat")


def compute_batched(op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Compute an operation of which operands or parameters are values of members.

    Raises
    ------
    UnsupportedFunctionError
        If its record has no batching rule.
    TraceError
        If the batch is over.
    """
    batch = innermost(values, params)
    assert batch is not None
    if not batch.open and not WALKING.get():
        raise TraceError(
            f"{op.name}: an operand is the array of one member of a batch, and the function that "
            "vmap ran for all members has ended; return it from that function"
        )

    def below(*args: Any, **options: Any) -> Any:
        return compute(op, args, options, MODE.get())

    rule = rule_of(op)
    if rule is None:
        raise UnsupportedFunctionError(
            f"{op.name}: has no batching rule; write it with other NumPy functions, or call it "
            "outside of the function that vmap takes"
        )
    call = BatchCall(batch, below, values, params, op.name)
    return wrapped(call, rule(call), op)


def wrapped(call: BatchCall, r: Any, op: Op | None = None) -> Any:
    """Return results of all members as values of one."""
    if isinstance(r, (tuple, list)):
        parts = [wrapped(call, x, op) for x in r]
        return type(r)(*parts) if hasattr(r, "_fields") else tuple(parts)
    weak = all(_is_number(v) for v in call.values) and bool(call.values)
    out = as_batched(r, call.batch, _gives_scalar(call, op))
    if weak and out.scalar and out.dtype.kind in "fc":
        return Batched(r, call.batch, True, True)
    return out


def _is_number(v: Any) -> bool:
    if type(v) is Batched:
        return v.weak
    return isinstance(v, (int, float, complex)) and not isinstance(v, np.generic)


def _gives_scalar(call: BatchCall, op: Op | None) -> bool:
    """Whether NumPy gives a member a scalar where a result has no axes."""
    if op is None or op.zero_d is None:
        return True
    v = call.values[0]
    array = not v.scalar if type(v) is Batched else isinstance(v, np.ndarray)
    return not op.zero_d(array, call.params)
