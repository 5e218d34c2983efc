"""Derivative rules below dropped elements, where values are infinite or nan.

A rule sums products of cotangents with values. The cotangent of an element that was dropped is 0,
and where its row holds nan or infinity, 0 times that is nan, which the sum carries into what has
nothing to do with that row. Only when that has happened, the rule is asked which elements of the
operands lead to elements that count, by running it on ordinary numbers; values at the others are
replaced by such numbers, and it is run again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.aval import BATCHED, Aval, Symbolic, aval_of
from adarray.base.op import OPS, Op
from adarray.core.graph import Node
from adarray.core.inplace import plain_value
from adarray.core.trace import Handle
from adarray.device import is_device

# What a rule may raise on numbers that it was not made for; LinAlgError is a ValueError.
_ERRORS = (ArithmeticError, AttributeError, IndexError, TypeError, ValueError)


def cleared(
    node: Node, i: int, g: Any, saved: tuple[Any, ...], ct: Any, rule: Callable[..., Any]
) -> Any:
    """Return the cotangent `ct` of rule `i`, without the nan of elements without effect.

    Parameters
    ----------
    node : Node
        Of an operation that is not pointwise; zeros in its cotangent have no effect.
    i : int
        The operand.
    g : array
        The cotangent of the result.
    saved : tuple
        ``(out, *operands)`` as the rule is given them.
    ct : array
        What the rule returned for them.
    rule : callable
        ``rule(node, i, g, saved)``.
    """
    if type(ct) is np.ndarray:  # the usual case, and in it nearly always the end
        flat = ct if ct.flags.c_contiguous else ct.T
        total = np.vdot(flat, flat)  # one pass
        if total == total:
            return ct
    op = node.op
    if not _has_nan(ct) or OPS.get(op.name) is not op:
        return ct
    try:
        return _Structure(node, g, saved, rule).cleared(i)
    except _ERRORS:
        return ct  # the rule has no derivative of the numbers it was tried with: nan says so


def without_masked(rule: Callable[..., Any], g: Any, saved: tuple[Any, ...], ct: Any) -> Any:
    """Return the cotangent `ct` of a rule that masks, without the nan of infinity times 0.

    What follows ``np.maximum(x, 0)`` may have an infinite derivative where `x` has no effect, as
    `np.sqrt` has at 0. Where the rule has nan, it is asked for its factor.
    """
    if type(ct) is np.ndarray:  # the usual case, and in it nearly always the end
        total = np.add.reduce(ct, None)  # of infinities, too, nan
        if total == total:
            return ct
    if not _has_nan(ct):
        return ct
    factor = rule(np.ones(np.shape(g), g.dtype), *saved)
    return np.where(factor == 0, np.zeros((), g.dtype), g * factor)


def _has_nan(x: Any) -> bool:
    """Whether an array on the host has nan; in a recording, whether it has in this run."""
    value = plain_value(x)
    if type(value) in BATCHED:
        value = value.shown()  # those of all members
    elif isinstance(value, Symbolic):
        value = value.value
    elif is_device(value):
        return False  # to look would wait for the device
    if not isinstance(value, (np.ndarray, np.generic)) and not is_device(value):
        return False
    if value.dtype.kind not in "fc":
        return False
    return bool(np.isnan(value).any())


class _Structure:
    """Which elements of the operands of a node lead to elements with a cotangent."""

    def __init__(
        self, node: Node, g: Any, saved: tuple[Any, ...], rule: Callable[..., Any]
    ) -> None:
        self.node = node
        self.op: Op = node.op
        self.g = g
        self.rule = rule
        self.saved = saved
        self.probe: Any
        if type(g) is dict:  # of some of several results
            self.probe = {k: _probe(v) for k, v in g.items()}
        else:
            self.probe = _probe(g)
        self.ordinary: list[Any] = [None]
        for k, v in enumerate(saved[1:]):
            self.ordinary.append(_beside(v, k + 1))
        self.ordinary[0] = self._value(self.ordinary[1:])

    def cleared(self, i: int) -> Any:
        """Return the cotangent of operand `i`."""
        changed = list(self.saved)
        reached: list[Any] = []
        for k in range(1, len(self.saved)):
            v = self.saved[k]
            if not _is_values(v):
                continue
            if _finite(v):
                if self.saved[0] is None or isinstance(self.saved[0], Aval):
                    continue
                reached.append((k, self._reached(k - 1)))
                continue
            alive = self._reached(k - 1)
            reached.append((k, alive))
            changed[k] = self._filled(v, alive, k)
        out = self.saved[0]
        if _is_values(out) and not _finite(out):
            changed[0] = self._filled(out, self._counts(reached), 0)
        cotangent = self.rule(self.node, i, self.g, tuple(changed))
        if _has_nan(cotangent):
            idle = np.logical_not(self._reached(i))
            cotangent = np.where(np.isnan(_untracked(cotangent)) & idle, 0, cotangent)
        return cotangent

    def _filled(self, v: Any, alive: Any, k: int) -> Any:
        return np.where(np.isfinite(_untracked(v)) | alive, v, self.ordinary[k])

    def _reached(self, k: int) -> Any:
        """Return which elements of operand `k` lead to an element with a cotangent."""
        r = self.rule(self.node, k, self.probe, tuple(self.ordinary))
        alive = np.not_equal(r, 0)
        if k + 1 < len(self.saved) and not any(isinstance(v, Aval) for v in self.saved):
            # What an operation picks by its values.
            r = self.rule(self.node, k, self.probe, tuple(map(_untracked, self.saved)))
            alive = alive | (np.not_equal(r, 0) & np.isfinite(r))
        return alive

    def _value(self, operands: list[Any]) -> Any:
        op, params = self.op, self.node.params or {}
        if op.variadic:
            fixed = op.arity - 1
            operands = [*operands[:fixed], operands[fixed:]]
        return op.evaluate(*operands, **params)

    def _counts(self, reached: list[tuple[int, Any]]) -> Any:
        """Return which elements of the result depend on operands that lead to a cotangent."""
        op, params = self.op, self.node.params or {}
        total: Any = np.not_equal(self.probe, 0)
        for k, alive in reached:
            t = np.where(alive, self.ordinary[k], 0)
            operands = list(self.ordinary[1:])
            if op.jvp == "linear":
                operands[k - 1] = t
                r = self._value(operands)
            elif op.jvp is None:  # a rule of the user's: what changes with them
                operands[k - 1] = operands[k - 1] + t / 4
                r = np.subtract(self._value(operands), self.ordinary[0])
            elif op.variadic:
                r = op.jvp[-1](t, k - 1, *self.ordinary, **params)  # type: ignore[operator,misc]
            else:
                r = op.jvp[k - 1](t, *self.ordinary, **params)  # type: ignore[operator,misc]
            total = total | np.not_equal(r, 0)
        return total


def _probe(g: Any) -> Any:
    """Return ordinary numbers where a cotangent is not 0."""
    aval = aval_of(plain_value(g))
    return np.where(np.equal(_untracked(g), 0), 0, _ordinary(aval.shape, aval.dtype, 0))


def _is_values(v: Any) -> bool:
    if v is None or isinstance(v, (Aval, tuple)):
        return False
    value = plain_value(v)
    return hasattr(value, "dtype") and value.dtype.kind in "fc"


def _finite(v: Any) -> bool:
    value = plain_value(v)
    if isinstance(value, Symbolic):
        return False  # in another run it may not be
    return bool(np.isfinite(value).all())


def _untracked(v: Any) -> Any:
    """Return a value that no derivative is recorded of; under `jit` it is still followed."""
    if not isinstance(v, Handle):
        return v
    return type(v)(v._plain, None, None, True) if isinstance(v._plain, Symbolic) else v._plain


def _beside(v: Any, k: int) -> Any:
    """Return ordinary numbers in place of a saved value that holds some."""
    if not isinstance(v, Aval) and not _is_values(v):
        return v
    aval = v if isinstance(v, Aval) else aval_of(plain_value(v))
    if aval.dtype.kind not in "fc":
        return v
    return _ordinary(aval.shape, aval.dtype, k)


def _ordinary(shape: tuple[int, ...], dtype: Any, k: int) -> Any:
    """Return numbers between 0.5 and 1.5 of which none is like another, the same every time."""
    n = math.prod(shape)
    r = 0.5 + np.modf(0.6180339887498949 * np.arange(1 + k, n + 1 + k) * (k + 1) ** 0.5)[0]
    r = r.reshape(shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:  # which may have to be positive definite
        r = r + np.swapaxes(r, -1, -2) + 2 * shape[-1] * np.eye(shape[-1])
    return r.astype(dtype)[()]


__all__ = ["cleared"]
