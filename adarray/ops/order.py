"""Sorting and partitioning: elements change places along an axis.

References
----------
- F. H. Clarke, "Optimization and Nonsmooth Analysis", Wiley 1983.
- M. Blondel, O. Teboul, Q. Berthet, J. Djolonga, "Fast differentiable sorting and ranking", ICML
  2020 (the derivative of sorting is a permutation).
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Gather, Op, composite, register
from adarray.batching.layouts import permuted
from adarray.core.dispatch import run
from adarray.core.protocol import plain
from adarray.ops.common import composite_if_traced, in_order, s

# -- permutations --------------------------------------------------------------------------------


def _inverse(order: Any, axis: int) -> Any:
    """Return the permutation that undoes `order` along an axis."""
    if isinstance(order, Symbolic):  # nothing can be written into it
        symbolic: Any = order
        return np.argsort(symbolic, axis=axis)
    back = np.empty_like(order)
    if order.ndim == 1:
        back[order] = np.arange(len(order))
        return back
    shape = tuple(order.shape[axis] if i == axis % order.ndim else 1 for i in range(order.ndim))
    places = np.broadcast_to(np.arange(order.shape[axis]).reshape(shape), order.shape)
    np.put_along_axis(back, order, places, axis)
    return back


def _permute(a: Any, order: Any, axis: int) -> Any:
    """Return `a` with the elements along an axis in another order."""
    return a[order] if a.ndim == 1 else np.take_along_axis(a, order, axis)


permute: Op = register(
    Op(
        "permute_along_axis",
        _permute,
        Gather(),
        # Cheaper than the general gather: no two elements meet.
        [lambda g, out, a, order, axis: run(permute, g, order=_inverse(order, axis), axis=axis)],
        jvp="linear",
        samples=lambda rng: [
            s(rng.normal(size=4), np.array([2, 0, 3, 1]), 0),
            s(rng.normal(size=(2, 3)), np.array([[2, 0, 1], [0, 2, 1]]), -1),
            s(rng.normal(size=(3, 2)), np.array([[2, 0], [0, 2], [1, 1]]), 0),
            s(rng.normal(size=(3, 0)), np.zeros((3, 0), int), 1),
        ],
        operands=("a",),
        params=("order", "axis"),
        batch=permuted,
        note="by a permutation of each line, as sort and partition use it",
    )
)


def _line_up(a: Any, axis: int | None) -> tuple[Any, int]:
    """Return what to sort, and the axis: ``axis=None`` means the flattened array."""
    if axis is None:
        return np.ravel(a), 0
    if not -a.ndim <= axis < a.ndim:
        raise np.exceptions.AxisError(axis, a.ndim)
    return a, axis


def _no_fields(name: str, order: Any) -> None:
    if order is not None:
        raise NotDifferentiableError(
            f"{name}: the argument order={order!r} names fields, which a traced array does not "
            "have; leave it out"
        )


# -- sort ----------------------------------------------------------------------------------------


@composite_if_traced(np.sort)
def _sort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    **newer: Any,
) -> Any:
    """Gather by the sorting permutation; equal elements keep their order if `stable`.

    `newer` is ``descending``, which NumPy has since 2.5; an older one refuses it.
    """
    _no_fields("sort", order)
    a, axis = _line_up(a, axis)
    order = np.argsort(plain(a), axis=axis, kind=kind, stable=stable, **newer)
    r = run(permute, a, order=order, axis=axis)
    return in_order(r, "F") if a.flags.fnc else r


def sort_inplace(
    a: Any,
    axis: int = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: Any = None,
    **newer: Any,
) -> None:
    """Sort `a` in place, as the ndarray method does."""
    a[...] = np.sort(a, operator.index(axis), kind, order, stable=stable, **newer)


@composite_if_traced(np.sort_complex)
def _sort_complex(a: Any) -> Any:
    """Sort along the last axis; real numbers become complex ones, of double precision at least."""
    return np.astype(np.sort(a), np.result_type(a.dtype, "c16" if a.dtype.kind != "c" else "c8"))


# -- partition -----------------------------------------------------------------------------------


@composite_if_traced(np.partition)
def _partition(
    a: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None
) -> Any:
    _no_fields("partition", order)
    a, axis = _line_up(a, axis)
    order = np.argpartition(plain(a), plain(kth), axis=axis, kind=kind)
    return run(permute, a, order=order, axis=axis)


def partition_inplace(
    a: Any, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None
) -> None:
    """Partition `a` in place, as the ndarray method does."""
    a[...] = np.partition(a, kth, operator.index(axis), kind, order)


for _method in (sort_inplace, partition_inplace):
    composite(_method)(_method)

__all__ = ["partition_inplace", "permute", "sort_inplace"]
