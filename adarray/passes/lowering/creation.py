"""Arrays of known contents."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.passes.builder import Builder
from adarray.passes.lowering import function


@function(np.zeros_like, np.empty_like)
def _zeros_like(b: Builder, operands: Any, params: Any, result: Any) -> Any:
    return b.full(result.shape, 0, result.dtype)


@function(np.ones_like)
def _ones_like(b: Builder, operands: Any, params: Any, result: Any) -> Any:
    return b.full(result.shape, 1, result.dtype)


@function(np.full_like, np.full)
def _full_like(b: Builder, operands: Any, params: Any, result: Any) -> Any:
    fill = operands[1] if len(operands) > 1 else params.get("fill_value")
    return None if fill is None else b.broadcast(b.value(fill, result.dtype), result.shape)
