"""Which results may have the memory of arguments that the caller gives up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from adarray.jitting.tree.leaf import TreeLeaf
from adarray.jitting.tree.tree import TreeNode


def is_array(x: Any) -> bool:
    """Whether a leaf is a plain array with axes."""
    return type(x) is np.ndarray and x.ndim > 0


def obstacle(x: np.ndarray) -> str:
    """Return why the memory of an array cannot be given up; "" if it can."""
    flags = x.flags
    if x.base is not None:
        return "is a view of another array"
    if not flags.owndata:
        return "does not own its memory"
    if not flags.writeable:
        return "is read-only"
    if not flags.c_contiguous:
        return "is not contiguous in C order"
    return "" if flags.aligned and x.dtype.isnative else "is not aligned"


def matched(arrays: Sequence[Any], results: Sequence[tuple[Any, Any] | None]) -> list[int | None]:
    """Return for each donated array the first result of its shape and dtype that is left.

    Parameters
    ----------
    arrays : sequence
        What has `shape` and `dtype`.
    results : sequence
        ``(shape, dtype)``; None for what is no array.
    """
    free = dict(enumerate(results))
    numbers: list[int | None] = []
    for x in arrays:
        form = (x.shape, x.dtype)
        k = next((k for k, r in free.items() if r == form), None)
        if k is not None:
            del free[k]
        numbers.append(k)
    return numbers


def pairs(node: TreeNode) -> tuple[tuple[int, int], ...]:
    """Return which targets of a segment may have the memory of which of its sources.

    That of donated arguments, and of those that the function itself writes into.
    """
    leaf = node.leaf
    if leaf is None or not (leaf.writes or node.tree.donated):
        return ()
    needed = set(leaf.numbers())
    donors: dict[int, int] = {}
    for n, i in (*_returned(node, leaf), *_written(node, leaf)):
        if n in node.targets and i in node.sources and i not in needed:
            donors.setdefault(node.targets.index(n), node.sources.index(i))
    return tuple(donors.items())


def _returned(node: TreeNode, leaf: TreeLeaf) -> Iterable[tuple[Any, int]]:
    """Yield results, and the donated inputs whose memory they get."""
    donated, symbols = node.tree.donated, node.path.symbols
    forms: list[Any] = []
    for n, kind in leaf.outputs:
        if n is None:
            forms.append((kind.shape, kind.dtype) if is_array(kind) else None)
        else:
            forms.append((symbols[n].shape, symbols[n].dtype) if kind == "array" else None)
    # An argument that the function writes into as well: with what it returns, or not at all.
    written = {i: n for i, n, _ in leaf.writes}
    for i, k in zip(donated, matched([symbols[i] for i in donated], forms), strict=True):
        n = leaf.outputs[k][0] if k is not None else None
        if written.get(i, n) == n:
            yield n, i


def _written(node: TreeNode, leaf: TreeLeaf) -> Iterable[tuple[Any, int]]:
    """Yield final values of inputs that are written into, and these inputs."""
    returned = set(leaf.returned())
    symbols = node.path.symbols
    for i, n, _ in leaf.writes:
        if n is None or n in returned or i in node.tree.donated:
            continue
        a, b = symbols[i], symbols[n]
        if node.tree.strides_of(i) is None and a.shape == b.shape and a.dtype == b.dtype:
            yield n, i
