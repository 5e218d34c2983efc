"""Arrays of known contents."""

from __future__ import annotations

import numpy as np

from adarray.compiler.ir.builder import Builder
from adarray.compiler.translate import Translated, ValueCall, function, of_pairs

of_pairs(np.zeros_like, np.empty_like, np.ones_like)


@function(np.zeros_like, np.empty_like)
def _zeros_like(b: Builder, call: ValueCall) -> Translated:
    return b.full(call.result.shape, 0, call.result.dtype)


@function(np.ones_like)
def _ones_like(b: Builder, call: ValueCall) -> Translated:
    return b.full(call.result.shape, 1, call.result.dtype)


@function(np.full_like, np.full)
def _full_like(b: Builder, call: ValueCall) -> Translated:
    fill = call.operands[1] if len(call.operands) > 1 else call.params.get("fill_value")
    if fill is None:
        return None
    return b.broadcast(b.value(fill, call.result.dtype), call.result.shape)
