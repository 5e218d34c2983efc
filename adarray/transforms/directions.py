"""One derivative along many directions: all rows or columns of a Jacobian.

Directions are the members of a batch, `DIRECTIONS` of them at once, so that memory is bounded.
Where there are few, or `vmap` cannot take the function, they come one after the other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adarray.base.errors import ForwardModeError
from adarray.base.levels import remembered, restore
from adarray.core.trace import Handle
from adarray.device import KINDS, is_device
from adarray.transforms.batch import vmap_strictly
from adarray.transforms.inputs import closed_tree, refuse_whole
from adarray.transforms.modes import forward
from adarray.transforms.running import with_aux
from adarray.transforms.tree import flatten, is_number
from adarray.transforms.variables import Variables

# Directions at once, and elements that all of them together have in the largest array.
DIRECTIONS = 256
ELEMENTS = 1 << 22
# From how many on that is faster than one after the other.
ROWS, COLUMNS = 32, 5

Directions = list[Any]


def _hot(shapes: list[tuple[int, ...]], dtypes: list[Any]) -> Iterator[tuple[int, Directions]]:
    """Yield (leaf, one-hot arrays of all leaves) for every element of every leaf."""
    for k, shape in enumerate(shapes):
        for e in range(int(np.prod(shape, dtype=int))):
            arrays = [np.zeros(s, d) for s, d in zip(shapes, dtypes, strict=True)]
            arrays[k].reshape(-1)[e] = 1
            yield k, [a[()] for a in arrays]


def _blocks(
    shapes: list[tuple[int, ...]], dtypes: list[Any], most: int
) -> Iterator[tuple[int, Directions]]:
    """Yield (leaf, arrays): one-hot ones along a first axis for the leaf, zeros for others."""
    for k, shape in enumerate(shapes):
        size = int(np.prod(shape, dtype=int))
        for e in range(0, size, most):
            arrays = [np.zeros(s, d)[()] for s, d in zip(shapes, dtypes, strict=True)]
            count = min(most, size - e)
            hot = np.zeros((count, size), dtypes[k])
            hot[np.arange(count), e + np.arange(count)] = 1
            arrays[k] = hot.reshape(count, *shape)
            yield k, arrays


def _along(
    leaves: list[Any],
    inputs: list[Any],
    few: int,
    one: Callable[..., Directions],
    is_adarray: Callable[[int], bool],
) -> list[list[Any]]:
    """Return derivatives along every element of leaves.

    Parameters
    ----------
    leaves : list
        Arrays whose elements the directions are.
    inputs : list
        The differentiated arguments.
    few : int
        Up to how many directions are taken one after the other.
    one : callable
        ``one(*arrays)``: the derivatives, a list, along one direction.
    is_adarray : callable
        Whether those with a number in that list are ADArrays.

    Returns
    -------
    list of list
        For every leaf the derivatives along its elements, stacked in front. Empty for a leaf
        without elements.
    """
    shapes = [tuple(np.shape(x)) for x in leaves]
    dtypes = [x.dtype if hasattr(x, "dtype") else np.result_type(x) for x in leaves]
    count = sum(int(np.prod(s, dtype=int)) for s in shapes)
    largest = max([1, *(int(np.size(_value(x))) for x in (*leaves, *inputs))])
    most = min(DIRECTIONS, ELEMENTS // largest)
    if count > few and most > few and not _elsewhere((*leaves, *inputs)):
        before = remembered()
        try:
            stacks = _at_once(shapes, dtypes, most, one, all(isinstance(x, Handle) for x in inputs))
            return [[_adarray(p, is_adarray(i)) for i, p in enumerate(s)] for s in stacks]
        except ForwardModeError:
            raise
        except Exception:  # of what vmap cannot take; the function's own comes again
            restore(before)
    results: list[list[Any]] = [[] for _ in leaves]
    for k, hot in _hot(shapes, dtypes):
        results[k].append(one(*hot))
    return [[np.stack(p) for p in zip(*rows, strict=True)] for rows in results]


def _at_once(
    shapes: list[Any], dtypes: list[Any], most: int, one: Callable[..., Any], adarrays: bool
) -> list[list[Any]]:
    """As `_along`, from blocks of directions: ADArrays, or plain where it can."""
    results: list[list[Any]] = [[] for _ in shapes]
    for k, arrays in _blocks(shapes, dtypes, most):
        axes = tuple(0 if i == k else None for i in range(len(arrays)))
        if adarrays:  # so are the results then, where the arguments are
            arrays[k] = Handle.array_class(arrays[k])
        results[k].append(vmap_strictly(one, axes)(*arrays))
    return [
        [p[0] if len(p) == 1 else np.concatenate(p) for p in zip(*blocks, strict=True)]
        for blocks in results
    ]


def _adarray(x: Any, wanted: bool) -> Any:
    return Handle.array_class(x) if wanted and not isinstance(x, Handle) else x


def _elsewhere(leaves: tuple[Any, ...]) -> bool:
    """Whether arrays are on a device, and would not be if all came to one kind of result."""
    if any(type(x) in KINDS for x in leaves):
        return True
    mixed = len({isinstance(x, Handle) for x in leaves}) > 1
    return mixed and any(is_device(_value(x)) for x in leaves)


def _value(x: Any) -> Any:
    return x._plain if isinstance(x, Handle) else x


def reverse_rows(pullback: Any, outs: Variables, ins: Variables) -> list[list[Any]]:
    """Return, per output leaf, the input cotangents of its elements, stacked."""

    def one(*hot: Any) -> Directions:
        return flatten(pullback(outs.gradient(list(hot))))[0]

    return _along(outs.moving, ins.moving, ROWS, one, lambda i: isinstance(ins.moving[i], Handle))


def forward_columns(name: str, f: Any, xs: tuple[Any, ...], ins: Variables, has_aux: bool) -> Any:
    """Return, per input leaf, the output tangents of its elements, stacked; outputs; aux."""
    seen: list[Any] = []

    def one(*hot: Any) -> Directions:
        y, dy, aux = forward(name, f, xs, ins.gradient(list(hot)), False, has_aux, True)
        seen[:] = Variables(y, is_number), aux
        return flatten(dy)[0]

    some = any(isinstance(x, Handle) for x in ins.moving)  # then all results are ADArrays
    columns = _along(ins.moving, ins.moving, COLUMNS, one, lambda _: some)
    if not seen:
        y = f(*xs)
        y, aux = with_aux(name, y) if has_aux else (y, None)
        seen[:] = Variables(y, is_number), aux
    outs, aux = seen
    if has_aux and not some:  # beside tangents of members it was made of ADArrays
        aux = closed_tree(aux, sys.maxsize)
    refuse_whole(name, outs.moving)
    return columns, outs, aux
