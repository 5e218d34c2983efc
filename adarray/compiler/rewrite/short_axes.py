"""Short axes of pairs: what all pairs of points compute is computed coordinate by coordinate.

Differences ``x[:, None, :] - x[None, :, :]`` of points with two to eight coordinates are an array
of three axes, the last one short. A loop over pairs in a loop over coordinates would go through
memory for each, and compute again what they share. Here such values become one for each
coordinate: a kernel computes all of them in one iteration, from registers.

References
----------
- S. S. Muchnick, "Advanced Compiler Design and Implementation", Morgan Kaufmann 1997, sections
  12.2 and 17.4 (scalar replacement of aggregates, unrolling).
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.primitives import Map, ProgramInput, Reduce, View
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.rewrite.rebuild import renewed

SHORTEST, LONGEST = 2, 8  # elements of an axis that is taken apart
PAIRS = 1 << 14  # elements of an array of pairs, at least
SPREAD = 8  # times as many elements as what it is computed from, at least


class Parts(NamedTuple):
    """A value in parts along an axis, which has one element in each."""

    axis: int
    values: tuple[Value, ...]


def short_axes(program: Program, target: Target) -> Program:
    """Return the program with values of pairs in parts along short axes, for a GPU."""
    if not target.along:
        return program
    seeds = {v: axis for v in program.values for axis in [_seed(v)] if axis is not None}
    if not seeds:
        return program
    split = _Split(seeds)
    made = split.run(program)
    # Arrays of pairs that something needs whole would have to be put together.
    least = min(v.size for v in seeds)
    return program if any(v.size * SPREAD > least for v in split.joined) else made


def _seed(v: Value) -> int | None:
    """Return the short axis of a map of points that are spread over pairs; None if it is none."""
    if not isinstance(v.primitive, Map) or v.ndim < 3 or v.size < PAIRS:
        return None
    axes = [a for a, n in enumerate(v.shape) if SHORTEST <= n <= LONGEST]
    operands = [a for a in v.args if uniform(a) is None]
    if len(axes) != 1 or len(operands) < 2:
        return None
    spread = all(
        isinstance(a.primitive, View) and a.args[0].size * SPREAD <= v.size for a in operands
    )
    return axes[0] if spread else None


class _Split:
    """Makes a program of parts.

    Attributes
    ----------
    joined : list of Value
        The values, of the program before, that had to be put together again.
    """

    def __init__(self, seeds: dict[Value, int]) -> None:
        self.seeds = seeds
        self.b = Builder()
        self.new: dict[Value, Value] = {}
        self.parts: dict[Value, Parts] = {}
        self.joined: list[Value] = []

    def run(self, program: Program) -> Program:
        """Return the program."""
        b = self.b
        for v in program.values:
            if isinstance(v.primitive, ProgramInput):
                b.values.append(v)
                self.new[v] = v
                continue
            b.origin = v.origin
            parts = self._parts(v)
            if parts is None and v not in self.new:
                self.new[v] = renewed(b, v, tuple(map(self._whole, v.args)))
            elif parts is not None:
                self.parts[v] = parts
        b.inputs = list(program.inputs)
        return b.program([self._whole(v) for v in program.outputs])

    def _whole(self, v: Value) -> Value:
        """Return a value in one piece."""
        if v not in self.new:
            axis, values = self.parts[v]
            self.joined.append(v)
            self.new[v] = self.b.concatenate(values, axis)
        return self.new[v]

    def _parts(self, v: Value) -> Parts | None:
        """Return a value in parts; None if it stays in one piece."""
        if v not in self.seeds and not any(a in self.parts for a in v.args):
            return None
        match v.primitive:
            case Map() as p:
                return self._map(p, v)
            case Reduce() as p:
                return self._reduce(p, v)
            case View() as p:
                return self._view(p, v)
            case _:
                return None

    def _map(self, p: Map, v: Value) -> Parts | None:
        axes = {self.parts[a].axis - a.ndim for a in v.args if a in self.parts}
        if v in self.seeds:
            axes.add(self.seeds[v] - v.ndim)
        if len(axes) != 1:
            return None
        (axis,) = axes
        count = v.shape[axis]
        if any(a in self.parts and len(self.parts[a].values) != count for a in v.args):
            return None
        values = tuple(
            self.b.apply(p.name, tuple(self._part(a, axis, k) for a in v.args), v.dtype)
            for k in range(count)
        )
        return Parts(v.ndim + axis, values)

    def _part(self, v: Value, axis: int, k: int) -> Value:
        """Return a part of an operand; `axis` counts from the last one."""
        if v in self.parts:
            return self.parts[v].values[k]
        whole = self._whole(v)
        if v.ndim < -axis or v.shape[axis] == 1:
            return whole
        return self.b.slice(whole, v.ndim + axis, k, k + 1)

    def _reduce(self, p: Reduce, v: Value) -> Parts | None:
        """Fold each part; where the short axis is folded, too, fold what they give."""
        (a,) = v.args
        axis, values = self.parts[a]
        axes = {k % a.ndim for k in p.axes}
        if axis not in axes:
            each = tuple(self.b.reduce(p.combine, x, axes) for x in values)
            return Parts(axis - sum(k < axis for k in axes), each)
        if v.dtype != a.dtype:
            return None
        folds = [self.b.reduce(p.combine, x, axes) for x in values]
        self.new[v] = reduce(lambda x, y: self.b.apply(p.combine, (x, y), v.dtype), folds)
        return None

    def _view(self, p: View, v: Value) -> Parts | None:
        """Return views of the parts, where each axis of a view is a whole one of what it shows."""
        (a,) = v.args
        axis, values = self.parts[a]
        if p.offset:
            return None
        steps = {s: k for k, s in enumerate(c_strides(a.shape)) if a.shape[k] != 1}
        own = c_strides(values[0].shape)
        strides, split = [], -1
        for k, (n, s) in enumerate(zip(v.shape, p.strides, strict=True)):
            source = steps.get(s) if n != 1 and s else None
            if n != 1 and s and (source is None or a.shape[source] != n):
                return None
            if source == axis:
                if split >= 0:
                    return None
                split = k
            strides.append(own[source] if source is not None and source != axis else 0)
        if split < 0:
            return None
        shape = tuple(1 if k == split else n for k, n in enumerate(v.shape))
        return Parts(split, tuple(self.b.view(x, 0, tuple(strides), shape) for x in values))
