"""Values that are made where a join wants them: as stretches of its memory.

A join of many values would copy each of them; so those that nothing else places are written
into the memory of the join in the first place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.planning.buffers import ALIGN


def stretches(join: Value, fusion: Any, placed: Any) -> Iterable[tuple[Value, int]]:
    """Yield values that can lie inside of a join, and where they begin, in bytes.

    Parameters
    ----------
    join : Value
    fusion : Fusion
    placed : container of int
        Values whose memory is elsewhere already, by ``id``.
    """
    axis = join.params["axis"]
    if any(n != 1 for n in join.shape[:axis]):
        return
    row = c_strides(join.shape)[axis] * join.dtype.itemsize
    start = 0
    taken: set[int] = set()
    for a in join.args:
        access = fusion.uses.access(a)
        root = access.root
        whole = (
            access.offset == 0
            and root.size == a.size
            and all(
                n == 1 or s == c
                for n, s, c in zip(a.shape, access.strides, c_strides(a.shape), strict=True)
            )
        )
        computed = id(root) in fusion.owner and not fusion.uses.is_inline(root)
        fresh = id(root) not in placed and id(root) not in taken
        if whole and computed and fresh and a.size and start * row % ALIGN == 0:
            taken.add(id(root))
            yield root, start * row
        start += a.shape[axis]
