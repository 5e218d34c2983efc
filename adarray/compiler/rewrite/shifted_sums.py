"""Sums of one array at many places, on processors: read from a copy with a border of zeros.

The gradient of a convolution by slices adds multiples of one array to as many regions as there are
weights. Written region by region, each loop over a row is cut where a region begins or ends, and a
kernel takes a few regions; a sum of what lies at neighbouring places is one loop for all of them.

References
----------
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013 (boundary conditions as padded inputs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from adarray.compiler.ir.builder import INT, Builder, number_of, uniform
from adarray.compiler.ir.primitives import Map, UpdateSlice
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import CpuTarget, Target
from adarray.compiler.ir.views import Shape
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.rebuild import rebuild, renewed, uses
from adarray.compiler.scalars.dtypes import FLOATS

# Regions that one kernel writes without.
FEW = 3
# Scalar functions between the array and what is added to a region.
DEEP = 4


class ShiftedSum(NamedTuple):
    """Functions of one array, each added to a region of zeros.

    Parameters
    ----------
    root : Value
        The array.
    terms : list of (Value, tuple of int)
        What is added, and where the region begins, in the order of the additions.
    """

    root: Value
    terms: list[tuple[Value, Shape]]


def shifted_sums(program: Program, target: Target) -> Program:
    """Return the program with sums of shifted arrays in place of additions to many regions."""
    if not isinstance(target, CpuTarget):
        return program
    count = uses(program)
    inside = {
        v.args[0] for v in program.values if _adds(v) and count[v.args[0]] == 1
    } - set(program.outputs)  # fmt: skip
    sums = {
        v: found
        for v in program.values
        if _adds(v) and v not in inside and (found := _shifted(v, count)) is not None
    }
    if not sums:
        return program
    new: dict[Value, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        new[v] = _Writer(b, sums[v], v, new).sum() if v in sums else renewed(b, v, args)
        return new[v]

    return dead(rebuild(program, rule))


def _adds(v: Value) -> bool:
    p = v.primitive
    return isinstance(p, UpdateSlice) and p.add and set(p.steps) <= {1} and v.dtype.name in FLOATS


def _shifted(v: Value, count: Counter[Value]) -> ShiftedSum | None:
    """Return the additions that end in a value, if all are of one array, to zeros."""
    terms: list[tuple[Value, Shape]] = []
    while isinstance(p := v.primitive, UpdateSlice) and set(p.steps) <= {1}:
        if terms and (count[v] != 1 or v.args[1].shape != terms[0][0].shape):
            return None
        terms.append((v.args[1], p.starts))
        if not p.add:
            if not _adds_zero(v.args[1]):  # a negative zero would become a positive one
                return None
            v = v.args[0]
            break
        v = v.args[0]
    zero = uniform(v)
    # Of a negative zero, additions where a region is not would make a positive one, too.
    if zero is None or number_of(zero) != 0 or str(number_of(zero)).startswith("-"):
        return None
    if len(terms) <= FEW:
        return None
    terms.reverse()
    every = [set(_chain(t)) for t, _ in terms[1:]]
    for root in _chain(terms[0][0]):
        if all(root in chain for chain in every):
            return ShiftedSum(root, terms)
    return None


def _adds_zero(v: Value) -> bool:
    if v.primitive != Map("add"):
        return False
    zeros = [uniform(a) for a in v.args]
    return any(z is not None and number_of(z) == 0 for z in zeros)


def _chain(t: Value) -> list[Value]:
    """Return a value, and what it is computed from by scalar functions of one array each."""
    chain = [t]
    while isinstance(t.primitive, Map) and len(chain) <= DEEP:
        arrays = {a for a in t.args if a.size != 1}
        if len(arrays) != 1:
            break
        (t,) = arrays
        if t.shape != chain[0].shape:
            break
        chain.append(t)
    return chain


class _Writer:
    """Writes a sum, read from a copy of the array with a border.

    `new` has what stands for values in the new program, for all but inputs.
    Conditions are made once, and parts of them: what a kernel may read is counted.
    """

    def __init__(self, b: Builder, s: ShiftedSum, v: Value, new: dict[Value, Value]) -> None:
        self.b = b
        self.s = s
        self.v = v
        self.new = new
        self.zero = b.full(v.shape, 0, v.dtype)
        self.limits: dict[tuple[str, int, int], Value] = {}
        self.places: dict[int, Value] = {}
        self.numbers: dict[int, Value] = {}
        self.scalars: dict[Value, Value] = {}

    def sum(self) -> Value:
        """Return the sum: for each shift of rows, what is added within rows first."""
        b, s, v = self.b, self.s, self.v
        last = [max(starts) for starts in zip(*(at for _, at in s.terms), strict=True)]
        first = [min(starts) for starts in zip(*(at for _, at in s.terms), strict=True)]
        shape = tuple(n + h - k for n, h, k in zip(v.shape, last, first, strict=True))
        zeros = b.full(shape, 0, s.root.dtype)
        padded = b.update_slice(zeros, self.new.get(s.root, s.root), tuple(last), (1,) * v.ndim)
        strides = c_strides(shape)
        rows: dict[Shape, Value] = {}
        for t, at in s.terms:
            offset = sum((h - k) * d for h, k, d in zip(last, at, strides, strict=True))
            x = self._again(t, b.view(padded, offset, strides, v.shape))
            x = self._within(x, at, range(v.ndim - 1, v.ndim))
            rows[at[:-1]] = b.map("add", rows[at[:-1]], x) if at[:-1] in rows else x
        total = self.zero
        for at, row in rows.items():
            total = b.map("add", total, self._within(row, at, range(v.ndim - 1)))
        return total

    def _again(self, t: Value, x: Value) -> Value:
        """Return the functions that `t` is of the array, of `x`."""
        if t is self.s.root:
            return x
        assert isinstance(t.primitive, Map)
        args = [self._scalar(a) if a.size == 1 else self._again(a, x) for a in t.args]
        return self.b.apply(t.primitive.name, tuple(args), t.dtype)

    def _scalar(self, a: Value) -> Value:
        if a not in self.scalars:
            self.scalars[a] = self.b.reshape(self.new.get(a, a), ())
        return self.scalars[a]

    def _within(self, x: Value, at: Shape, axes: Iterable[int]) -> Value:
        """Return `x` where a region lies along some axes, and 0 elsewhere.

        A border of zeros is not enough: times an infinite weight it would be nan.
        """
        inside: Value | None = None
        for a in axes:
            end = at[a] + self.s.root.shape[a]
            for name, limit in (("greater_equal", at[a]), ("less", end)):
                if limit in (0, self.v.shape[a]):
                    continue
                test = self._limit(name, a, limit)
                inside = test if inside is None else self.b.map("logical_and", inside, test)
        return x if inside is None else self.b.map("where", inside, x, self.zero)

    def _limit(self, name: str, axis: int, limit: int) -> Value:
        b = self.b
        if axis not in self.places:
            self.places[axis] = b.iota(self.v.shape, axis)
        if limit not in self.numbers:
            self.numbers[limit] = b.full(self.v.shape, limit, INT)
        key = name, axis, limit
        if key not in self.limits:
            self.limits[key] = b.map(name, self.places[axis], self.numbers[limit])
        return self.limits[key]
