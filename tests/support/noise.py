"""How far rounding may carry a result: eager runs with noise in every operation.

Every result of an operation is moved by some units in the last place, those of folds and
products in the last place of the sum of magnitudes, as another order of summation would. What
the results of such runs differ by from a run without noise is the bound for another way to
compute the same, whatever the program amplifies or cancels.

For `differential`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from adarray.ad.reverse import general_rule
from adarray.base.engines import WrappingEngine
from adarray.base.op import Contraction, Gather, Layout, Op, Reduction, Scan
from adarray.base.runtime import MODE, Mode, current_mode
from adarray.base.scope import outside
from adarray.core.trace import Handle

# Elementwise functions of different libraries may be this far apart, in units of the last
# place; and so may folds and products, in those of the sum of magnitudes.
ULP = 4.0
_EXACT = (Layout, Gather)
# Operations that choose an operand or change its sign.
CHOICES = frozenset({
    "max", "min", "maximum", "minimum", "fmax", "fmin", "where", "clip", "relu", "absolute",
    "fabs", "negative", "positive", "copysign", "nan_to_num", "pad", "nanmax", "nanmin",
})  # fmt: skip


class NoisyEngine(WrappingEngine):
    """An engine that computes as another one does, and moves every result a little.

    Parameters
    ----------
    inner : BaseEngine or None
    rng : numpy.random.Generator
    ulps : float
        The largest relative change in units of the precision.
    """

    def __init__(self, inner: Any, rng: np.random.Generator, ulps: float) -> None:
        super().__init__(inner, "noisy")
        self._rng = rng
        self._ulps = ulps

    @outside
    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        """Compute a pointwise operation."""
        out = NotImplemented if self.wrapped is None else self.wrapped.pointwise(op, values)
        out = op.evaluate(*values) if out is NotImplemented else out
        return out if op.name in CHOICES else self._moved(out)

    @outside
    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Compute a rule."""
        out = NotImplemented
        if self.wrapped is not None:
            out = self.wrapped.derivative(op, operand, g, saved)
        rule = op.rules[operand]
        assert rule is not None
        out = rule(g, *saved) if out is NotImplemented else out
        return out if op.name in CHOICES else self._moved(out)

    @outside
    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute any other operation."""
        out = NotImplemented if self.wrapped is None else self.wrapped.call(op, values, params)
        if out is NotImplemented:
            out = _evaluate(op, values, params)
        if isinstance(op.lower, _EXACT) or op.name in CHOICES or isinstance(out, tuple):
            return out
        size = None
        if isinstance(op.lower, (Reduction, Contraction, Scan)):
            size = _evaluate(op, tuple(map(_magnitude, values)), params)
        return self._moved(out, size)

    @outside
    def rule(self, node: Any, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Compute a rule of an operation that is not pointwise."""
        out = general_rule(node, operand, g, saved)
        op = node.op
        if isinstance(op.lower, _EXACT) or op.name in CHOICES or isinstance(g, Handle):
            return out
        size = None
        if isinstance(op.lower, Contraction):  # products of magnitudes, summed
            size = general_rule(node, operand, _magnitude(g), tuple(map(_magnitude, saved)))
        return self._moved(out, size)

    def _moved(self, out: Any, size: Any = None) -> Any:
        """Return a result with noise."""
        if not isinstance(out, (np.ndarray, np.floating)) or out.dtype.kind != "f":
            return out
        eps = np.finfo(out.dtype).eps
        size = np.abs(out) if size is None else size
        moved = out + self._rng.uniform(-1.0, 1.0, np.shape(out)) * (self._ulps * eps) * size
        return out.dtype.type(moved) if np.ndim(out) == 0 else moved.astype(out.dtype)


def _evaluate(op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    if op.variadic:
        fixed = op.arity - 1
        return op.evaluate(*values[:fixed], list(values[fixed:]), **params)
    return op.evaluate(*values, **params)


def _magnitude(x: Any) -> Any:
    return np.abs(x) if isinstance(x, (np.ndarray, np.floating)) and x.dtype.kind == "f" else x


@contextlib.contextmanager
def noise(seed: int, ulps: float = ULP) -> Iterator[None]:
    """Compute with the current backend and noise."""
    mode = current_mode()
    engine = NoisyEngine(mode.engine, np.random.default_rng(seed), ulps)
    token = MODE.set(Mode(engine, mode.record, "noisy"))
    try:
        yield
    finally:
        MODE.reset(token)
