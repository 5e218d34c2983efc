"""Saving operands and results of an operation for its derivative rules.

References
----------
- L. Hascoët, U. Naumann, V. Pascual, "'To be recorded' analysis in reverse-mode automatic
  differentiation", Future Gener. Comput. Syst. 21 (2005), 1401-1417.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.aval import Aval, Symbolic, aval_of
from adarray.base.op import Op
from adarray.base.probe import needs
from adarray.base.types import Operands
from adarray.core.guard import WriteGuard, keep_plain
from adarray.core.trace import Handle, is_borrowed, save


class OfMembers:
    """Values saved in an object of their own, shared by all members of a batch."""

    def of_member(self, of: Callable[[Any], Any]) -> Any:
        """Return one member's part of the saved values: `of` selects it from a leaf."""
        raise NotImplementedError


def saved_for(
    op: Op,
    mask: int,
    operands: Operands,
    values: list[object],
    out: Handle | tuple[Handle, ...],
    aval: Aval | tuple[Aval, ...],
) -> tuple[Operands, list[WriteGuard] | None]:
    """Return ``(out, *operands)`` as the rules read them, and the guards of plain arrays.

    `out` and `aval` are tuples for an operation with several results.
    """
    guards: list[WriteGuard] | None = None
    wanted = op._plans.get(mask) if not op.variadic else None
    if wanted is None:
        wanted = op.plan(mask) if op.pointwise else needs(op, mask, len(operands))
    if not wanted[0]:
        saved: list[object] = [None if op.pointwise else aval]
    else:
        saved = [tuple(map(save, out)) if isinstance(out, tuple) else save(out)]
    for x, v, want in zip(operands, values, wanted[1:], strict=True):
        if want:
            if isinstance(x, Handle) and v is x._plain and not is_borrowed(x):
                value = save(x)
                if not op.pointwise and not isinstance(value, (np.ndarray, np.generic, Symbolic)):
                    value = np.asarray(value)[()]  # a traced Python number: rules ask for its shape
                saved.append(value)
                continue
            v, guard = keep_plain(as_array(v))
            saved.append(v)
            if guard is not None:
                guards = [guard] if guards is None else [*guards, guard]
        elif op.pointwise or v is None:
            saved.append(None)
        else:
            node = x._node if isinstance(x, Handle) else None
            saved.append(node.aval if node is not None else aval_of(v))
    return tuple(saved), guards


def as_array(x: object) -> object:
    """Return a plain operand as rules may read it: lists become arrays."""
    if x is None or isinstance(x, (np.ndarray, np.generic, int, float, complex, slice, tuple)):
        return x
    return np.asarray(x)
