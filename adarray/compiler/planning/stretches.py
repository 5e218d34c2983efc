"""Values that are written where a concatenation wants them: as stretches of its memory.

A concatenation of many values would copy each of them; so those that nothing else places are
written into its memory in the first place.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.planning.buffers import ALIGN


def stretches(
    axis: int, concatenation: Value, fusion: Fusion, placed: Container[Value]
) -> Iterable[tuple[Value, int]]:
    """Yield values that can lie inside of a concatenation, and where they begin, in bytes.

    Parameters
    ----------
    axis : int
        Along which its operands lie.
    concatenation : Value
    fusion : Fusion
    placed : container of Value
        Those whose memory is elsewhere already.
    """
    if any(n != 1 for n in concatenation.shape[:axis]):
        return
    row = c_strides(concatenation.shape)[axis] * concatenation.dtype.itemsize
    start = 0
    roots: set[Value] = set()
    for a in concatenation.args:
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
        computed = root in fusion.owner and not fusion.uses.is_inline(root)
        fresh = root not in placed and root not in roots
        if whole and computed and fresh and a.size and start * row % ALIGN == 0:
            roots.add(root)
            yield root, start * row
        start += a.shape[axis]
