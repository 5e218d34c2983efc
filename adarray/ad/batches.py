"""Into a batch and out of it: two operations that move nothing, and the sum over members."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.ad.reverse import batch_of, rule_hook, sum_hook
from adarray.base.aval import BATCHED
from adarray.base.op import Op, Opaque
from adarray.batching.batch import Batch, SplitError
from adarray.batching.calls import function
from adarray.batching.rules import compute_batched, member_of
from adarray.batching.values import Batched, as_batched, raw_of
from adarray.core.dispatch import apply
from adarray.core.graph import Node
from adarray.core.inplace import sync_if_view
from adarray.core.saving import OfMembers
from adarray.core.trace import Handle
from adarray.ops.common import Placed


def _enter(x: Any, batch: Batch, scalar: bool = True) -> Any:
    return as_batched(x, batch, scalar)


def _leave(x: Any, batch: Batch) -> Any:
    return raw_of(x, batch)


ENTER = Op(
    "vmap.members",
    _enter,
    Opaque(),
    [lambda g, *_, batch, **__: leave(g, batch)],
    jvp="linear",
    operands=("x",),
    params=("batch", "scalar"),
    needs=lambda _mask: (False, False),
)
LEAVE = Op(
    "vmap.stack",
    _leave,
    Opaque(),
    [lambda g, *_, batch: enter(g, batch)],
    jvp="linear",
    operands=("x",),
    params=("batch",),
    needs=lambda _mask: (False, False),
)


def enter(x: Any, batch: Batch, scalar: bool = True) -> Any:
    """Return the arrays of all members, along the first axis, as that of one.

    Plain for plain values, an ADArray for one.
    """
    if not isinstance(x, Handle):
        return _enter(x, batch, scalar)
    members = apply(ENTER, (x,), {"batch": batch, "scalar": scalar})
    members._frozen = True
    return members


def leave(x: Any, batch: Batch) -> Any:
    """Return an array of one member as those of all, along the first axis."""
    if isinstance(x, Handle):
        return apply(LEAVE, (x,), {"batch": batch})
    return _leave(x, batch)


def _sum(g: Any) -> Any:
    """Return the sum of the values of members."""
    value: Any = g._plain if isinstance(g, Handle) else g
    return np.sum(leave(g, value.batch), axis=0)


def _by_rule(
    rule: Callable[..., Any], node: Node, p: Node, i: int, g: Any, saved: tuple[Any, ...]
) -> Any:
    """Run a rule on the cotangents of all members; one by one, if it looks at values.

    Parameters
    ----------
    rule : callable
        ``rule(node, p, i, g, saved, engine)``
    """
    batch = batch_of(g)
    batch.walks += 1
    try:
        return rule(node, p, i, g, saved, None)
    except SplitError as error:
        if error.batch is not batch and not error.batch.walks:
            raise
        batch = error.batch
    finally:
        batch_of(g).walks -= 1
    cotangents = []
    for k in range(batch.size):
        one = copy.copy(node)
        one.params = _member(node.params, k, batch)
        part, values = _member(g, k, batch), tuple(_member(v, k, batch) for v in saved)
        inner = batch_of(part)
        if inner is None:
            ct = rule(one, p, i, part, values, None)
        else:
            ct = _by_rule(rule, one, p, i, part, values)
        cotangents.append(ct.add_to(ct.zeros()) if type(ct) is Placed else ct)
    return enter(np.stack(cotangents), batch, scalar=True)


def _member(x: Any, k: int, batch: Batch) -> Any:
    """Return what a member has in place of a value, or of what is in a container."""
    kind = type(x)
    if isinstance(x, Handle):
        sync_if_view(x)
        if type(x._plain) is not Batched or x._plain.batch is not batch:
            return x
        at: Any = leave(x, batch)
        return at[k]
    if kind is Batched:
        return member_of(x, k, batch)
    if kind is tuple or kind is list:
        return kind(_member(v, k, batch) for v in x)
    if kind is dict:
        return {n: _member(v, k, batch) for n, v in x.items()}
    if isinstance(x, OfMembers):
        return x.of_member(lambda v: _member(v, k, batch))
    if kind is Placed:
        return Placed(x.aval, _member(x.index, k, batch), _member(x.g, k, batch), x.steps)
    return x


class _Members:
    """What computes on values of the members of batches."""

    def __init__(self) -> None:
        self.function = function

    @staticmethod
    def compute(op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute an operation."""
        if op is ENTER or op is LEAVE:
            return op.evaluate(*values, **params)
        return compute_batched(op, values, params)


def install() -> None:
    """Let operations meet values of the members of batches: from the first call of `vmap` on."""
    BATCHED.setdefault(Batched, _MEMBERS)
    BATCHED.setdefault(Batch, _MEMBERS)  # the parameter of `ENTER`, which no engine knows


_MEMBERS = _Members()
sum_hook.set(_sum)
rule_hook.set(_by_rule)
