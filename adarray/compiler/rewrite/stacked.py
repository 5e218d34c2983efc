"""Arrays of which every slice is written by itself, as one array, for GPUs.

The derivative of a loop over time steps writes what belongs to each step into its slice of one
array. Where products of all steps have become one (see `adarray.compiler.rewrite.hoist`), the
slices are computed alike of slices of one array, so the whole is computed of the whole. Each
slice would be a launch of its own.

References
----------
- J. R. Allen, K. Kennedy, "Automatic translation of FORTRAN programs to vector form", ACM Trans.
  Program. Lang. Syst. 9 (1987), 491-542.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Map, UpdateSlice, View
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.rebuild import rebuild, renewed

MOST_MAPS = 8  # between a slice and what it is read of


def stacked(program: Program, target: Target) -> Program:
    """Return the program with arrays whose slices are computed alike computed as one."""
    if not isinstance(target, GpuTarget):
        return program
    bases = {v.args[0] for v in program.values if _axis(v) is not None}
    whole = {v: _slices(v) for v in program.values if _axis(v) is not None and v not in bases}
    whole = {v: slices for v, slices in whole.items() if slices}
    if not whole:
        return program
    readers = Counter(a for v in program.values for a in v.args)
    readers.update(program.outputs)
    new: dict[Value, Value] = {}
    changed = False

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        nonlocal changed
        stack = None
        if v in whole:
            stack = _Stack(b, lambda x: new.get(x, x), readers).of(whole[v], MOST_MAPS)
        if stack is None:
            new[v] = renewed(b, v, args)
        else:
            changed = True
            axis = _axis(v)
            assert axis is not None
            order = [*range(1, axis + 1), 0, *range(axis + 1, v.ndim + 1)]
            new[v] = b.reshape(b.transpose(stack, order), v.shape)
        return new[v]

    after = rebuild(program, rule)
    return dead(after) if changed else program


def _axis(v: Value) -> int | None:
    """Return the axis along which a value has one slice of an array set; None for others."""
    p = v.primitive
    if not isinstance(p, UpdateSlice) or p.add or any(step != 1 for step in p.steps):
        return None
    shorter = [k for k, (n, m) in enumerate(zip(v.shape, v.args[1].shape, strict=True)) if n != m]
    if len(shorter) != 1 or v.args[1].shape[shorter[0]] != 1:
        return None
    return shorter[0]


def _slices(v: Value) -> list[Value]:
    """Return the slices of an array in order, if each was set by itself; else none."""
    axis = _axis(v)
    assert axis is not None
    slices: dict[int, Value] = {}
    while _axis(v) == axis and len(slices) < v.shape[axis]:
        assert isinstance(v.primitive, UpdateSlice)
        slices.setdefault(v.primitive.starts[axis], v.args[1])  # the last one wins
        v = v.args[0]
    complete = len(slices) == v.shape[axis]
    return [slices[k] for k in range(len(slices))] if complete else []


class _Stack:
    """Makes the array of values that are computed alike.

    Parameters
    ----------
    b : Builder
    new : callable
        Returns what stands for a value in the new program.
    readers : Counter
        How often each value is read.
    """

    def __init__(
        self, b: Builder, new: Callable[[Value], Value], readers: Counter[Value]
    ) -> None:  # fmt: skip
        self.b = b
        self.new = new
        self.readers = readers

    def of(self, values: Sequence[Value], maps: int) -> Value | None:
        """Return values of one shape, one after the other along a new first axis.

        None if that is no array that is there, and at most so many scalar functions of it.
        """
        b, (first, *rest) = self.b, values
        count = len(values)
        if any(v.shape != first.shape or v.dtype != first.dtype for v in rest):
            return None
        if all(v is first for v in rest):
            x = self.new(first)
            return b.broadcast(b.reshape(x, (1, *x.shape)), (count, *x.shape))
        if isinstance(first.primitive, View):
            return self._views(values, maps)
        if isinstance(first.primitive, Map) and maps:
            return self._maps(values, maps - 1)
        return None

    def _views(self, values: Sequence[Value], maps: int) -> Value | None:
        views = [v.primitive for v in values]
        first = views[0]
        assert isinstance(first, View)
        offsets = [p.offset for p in views if isinstance(p, View) and p.strides == first.strides]
        if len(offsets) < len(values):
            return None
        shape, root = (len(values), *values[0].shape), values[0].args[0]
        if all(v.args[0] is root for v in values):
            step = offsets[1] - offsets[0]
            if any(y - x != step for x, y in pairwise(offsets)):
                return None
            return self.b.view(self.new(root), offsets[0], (step, *first.strides), shape)
        if len(set(offsets)) > 1:
            return None
        roots = self.of([v.args[0] for v in values], maps)
        if roots is None:
            return None
        return self.b.view(roots, first.offset, (root.size, *first.strides), shape)

    def _maps(self, values: Sequence[Value], maps: int) -> Value | None:
        first, count = values[0], len(values)
        alike = all(v.primitive == first.primitive and self.readers[v] == 1 for v in values)
        if not alike or any(len(v.args) != len(first.args) for v in values):
            return None
        args = []
        for operands in zip(*(v.args for v in values), strict=True):
            x = self.of(operands, maps)
            if x is None:
                return None
            axes = first.ndim - operands[0].ndim
            args.append(self.b.reshape(x, (count, *(1,) * axes, *x.shape[1:])))
        return self.b.apply(first.primitive.name, tuple(args), first.dtype)  # type: ignore[union-attr]
