"""Short axes of pairs: what all pairs of points compute is computed coordinate by coordinate.

Differences ``x[:, None, :] - x[None, :, :]`` of points with two to 32 coordinates are an array of
three axes, the last one short. A loop over pairs in a loop over coordinates would go through
memory for each, and compute again what they share. Here such values become one for each
coordinate: a kernel computes all of them in one iteration, from registers. Points of many
coordinates are transposed before, so that threads side by side, or lanes of a vector, read numbers
side by side.

Where a sum over some more coordinates is all that is asked of a pair, tiles of a GPU read each
point less often (`adarray.compiler.schedule.gpu.tiles`), and the axis stays.

References
----------
- S. S. Muchnick, "Advanced Compiler Design and Implementation", Morgan Kaufmann 1997, sections
  12.2 and 17.4 (scalar replacement of aggregates, unrolling).
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.primitives import Map, ProgramInput, Reduce, View, map_of
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.rewrite.rebuild import renewed

SHORTEST, LONGEST = 2, 16  # elements of an axis that is taken apart
MOST = 32  # the same of pairs that have no other axes, if none is shorter
TILED = 9  # elements from which on tiles fold it, where they can
APART = 5  # coordinates from which on a line of the cache holds those of few points
TRANSPOSED = 1 << 18  # elements of an array of pairs from which on that is worth a kernel
PAIRS = 1 << 14  # elements of an array of pairs, at least
SPREAD = 8  # times as many elements as what it is computed from, at least


class Parts(NamedTuple):
    """A value in parts along an axis, which has one element in each."""

    axis: int
    values: tuple[Value, ...]


def short_axes(program: Program, target: Target) -> Program:
    """Return the program with values of pairs in parts along short axes."""
    seeds = {v: axis for v in program.values for axis in [_seed(v)] if axis is not None}
    if target.along and any(v.shape[axis] >= TILED for v, axis in seeds.items()):
        users = _users(program)
        seeds = {
            v: axis
            for v, axis in seeds.items()
            if v.shape[axis] < TILED or not _is_tiled(v, axis, users)
        }
    while seeds:
        split = _Split(seeds)
        parts = split.run(program)
        unfit = split.unfit()
        if not unfit:
            return parts
        seeds = {v: axis for v, axis in seeds.items() if v not in unfit}
    return program


def _seed(v: Value) -> int | None:
    """Return the short axis of a map of points that are spread over pairs; None if it is none.

    What is the same for all coordinates may be an array of pairs itself.
    """
    if not isinstance(v.primitive, Map) or v.ndim < 3 or v.size < PAIRS:
        return None
    axes = [a for a, n in enumerate(v.shape) if SHORTEST <= n <= LONGEST]
    if not axes and sum(n != 1 for n in v.shape) == 3:
        axes = [a for a, n in enumerate(v.shape) if LONGEST < n <= MOST]
    operands = [a for a in v.args if uniform(a) is None]
    if len(axes) != 1 or len(operands) < 2:
        return None
    (axis,) = axes
    points = [isinstance(a.primitive, View) and a.args[0].size * SPREAD <= v.size for a in operands]
    from_end = axis - v.ndim
    alike = [a.ndim < -from_end or a.shape[from_end] == 1 for a in operands]
    spread = all(p or same for p, same in zip(points, alike, strict=True))
    varies = any(p and not same for p, same in zip(points, alike, strict=True))
    if v.shape[axis] > LONGEST and axis != v.ndim - 1 and sum(not same for same in alike) < 2:
        return None  # few points rather than many coordinates
    return axis if spread and varies else None


def _users(program: Program) -> dict[Value, list[Value]]:
    """Return the values that read each one."""
    users: dict[Value, list[Value]] = {}
    for v in program.values:
        for a in dict.fromkeys(v.args):
            users.setdefault(a, []).append(v)
    return users


def _is_tiled(seed: Value, axis: int, users: dict[Value, list[Value]]) -> bool:
    """Whether all that is asked of pairs is folded along the axis, and stored pair by pair.

    Or it is one number for all pairs.
    """
    folds: dict[Value, None] = {}
    for v in _mapped(seed, users):
        for user in users.get(v, ()):
            match user.primitive:
                case Map() if user.shape == seed.shape:
                    pass
                case Reduce() as p if tuple(a % seed.ndim for a in p.axes) == (axis,):
                    folds[user] = None
                case _:
                    return False
    return not any(
        isinstance(user.primitive, Reduce) and user.size > 1
        for fold in folds
        for v in _mapped(fold, users)
        for user in users.get(v, ())
    )


def _mapped(first: Value, users: dict[Value, list[Value]]) -> list[Value]:
    """Return a value and the maps of it that have its shape."""
    seen = {first: None}
    for v in (stack := [first]):
        for user in users.get(v, ()):
            if isinstance(user.primitive, Map) and user.shape == first.shape and user not in seen:
                seen[user] = None
                stack.append(user)
    return stack


class _Split:
    """Makes a program of parts.

    Attributes
    ----------
    concatenated : list of Value
        The values, of the program before, that had to be put together again.
    """

    def __init__(self, seeds: dict[Value, int]) -> None:
        self.seeds = seeds
        self.b = Builder()
        self.new: dict[Value, Value] = {}
        self.parts: dict[Value, Parts] = {}
        self.concatenated: list[Value] = []
        self.columns: dict[Value, Value] = {}
        # Of each value in parts, a seed that it comes from; of seeds, one met by the same value.
        self.seed_of: dict[Value, Value] = {}
        self.met: dict[Value, Value] = {v: v for v in seeds}

    def unfit(self) -> set[Value]:
        """Return the seeds of arrays of pairs that something needs whole.

        Those would have to be put together, so all that meets them stays as it is.
        """
        least: dict[Value, int] = {}
        for v in self.seeds:
            root = self._root(v)
            least[root] = min(least.get(root, v.size), v.size)
        roots = {
            self._root(self.seed_of[v])
            for v in self.concatenated
            if v.size * SPREAD > least[self._root(self.seed_of[v])]
        }
        return {v for v in self.seeds if self._root(v) in roots}

    def _root(self, seed: Value) -> Value:
        """Return the seed that stands for all that values come from together with this one."""
        while self.met[seed] is not seed:
            self.met[seed] = seed = self.met[self.met[seed]]
        return seed

    def _note_seeds(self, v: Value) -> None:
        """Note which seeds a value in parts comes from."""
        seeds = [self.seed_of[a] for a in v.args if a in self.parts]
        seeds += [v] * (v in self.seeds)
        for seed in seeds[1:]:
            self.met[self._root(seed)] = self._root(seeds[0])
        self.seed_of[v] = seeds[0]

    def run(self, program: Program) -> Program:
        """Return the program."""
        b = self.b
        for v in program.values:
            if isinstance(v.primitive, ProgramInput):
                b.values.append(v)
                self.new[v] = v
                continue
            b.origin = v.origin
            if v in self.seeds or any(a in self.parts for a in v.args):
                self._note_seeds(v)
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
            self.concatenated.append(v)
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
        columns = count >= APART and v.size >= TRANSPOSED
        values = tuple(
            self.b.apply(p.name, tuple(self._part(a, axis, k, columns) for a in v.args), v.dtype)
            for k in range(count)
        )
        return Parts(v.ndim + axis, values)

    def _part(self, v: Value, axis: int, k: int, columns: bool) -> Value:
        """Return a part of an operand; `axis` counts from the last one.

        With `columns`, it is read of an array that has those of all points side by side.
        """
        if v in self.parts:
            return self.parts[v].values[k]
        whole = self._whole(v)
        if v.ndim < -axis or v.shape[axis] == 1:
            return whole
        if columns:
            column = self._column(whole, v.ndim + axis, k)
            if column is not None:
                return column
        return self.b.slice(whole, v.ndim + axis, k, k + 1)

    def _column(self, v: Value, axis: int, k: int) -> Value | None:
        """Return a part of a view of points, read of their transpose; None if it is no such view.

        The axis is the last one of the points, in which a step is one element.
        """
        if not isinstance(v.primitive, View):
            return None
        (points,) = v.args
        count, p = v.shape[axis], v.primitive
        if points.ndim < 2 or points.shape[-1] != count or p.strides[axis] != 1:
            return None
        if any(s % count for a, s in enumerate(p.strides) if a != axis) or p.offset % count:
            return None
        own = c_strides(points.shape)[:-1]
        if points not in self.columns:
            shape = (count, *points.shape[:-1])
            transposed = self.b.view(points, 0, (1, *own), shape)
            self.columns[points] = self.b.make(map_of("cast"), (transposed,), shape, points.dtype)
        columns = self.columns[points]
        strides = tuple(0 if a == axis else s // count for a, s in enumerate(p.strides))
        shape = tuple(1 if a == axis else n for a, n in enumerate(v.shape))
        offset = p.offset // count + k * (points.size // count)
        return self.b.view(columns, offset, strides, shape)

    def _reduce(self, p: Reduce, v: Value) -> Parts | None:
        """Fold each part; where the short axis is folded, too, fold what they give."""
        (a,) = v.args
        axis, values = self.parts[a]
        axes = {k % a.ndim for k in p.axes}
        if axis not in axes:
            each = tuple(self.b.reduce(p.combine, x, axes) for x in values)
            parts = Parts(axis - sum(k < axis for k in axes), each)
            if len(each) < APART or v.size * SPREAD > a.size:
                return parts
            # Points again, and too many numbers of each to choose from wherever one is read.
            self.parts[v] = parts
            self._whole(v)
            del self.parts[v]
            return None
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
