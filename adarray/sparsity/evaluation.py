"""Derivatives along directions that colours combine: compiled, and called in blocks.

References
----------
- A. R. Curtis, M. J. D. Powell, J. K. Reid, "On the estimation of sparse Jacobian matrices", IMA J.
  Appl. Math. 13 (1974), 117-119.
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.base.errors import ForwardModeError
from adarray.base.levels import forget, remembered, restore
from adarray.base.runtime import MODE
from adarray.core.inplace import plain_value
from adarray.device import host
from adarray.jitting.calls.front import JitFunction
from adarray.jitting.shared.options import Options
from adarray.sparsity.coloring import Coloring, library
from adarray.sparsity.detection import path_of
from adarray.transforms.batch import vmap_strictly
from adarray.transforms.matrices import picked_call
from adarray.transforms.modes import forward, vjp
from adarray.transforms.products import linearize
from adarray.transforms.tree import flatten
from adarray.transforms.variables import Variables

# Directions of one call, written out one after the other: their values are computed together.
BLOCK = 8
# Elements of all directions of a small function, which are the members of one batch: fewer kernels
# and less to compile, for more memory that is gone through.
_SMALL = 1 << 16

Compressed = tuple[Any, Any]


def _path() -> Any:
    """Return the path of the run that is being recorded so far; None where none is."""
    mode = MODE.get()
    if mode is None or mode.recorder is None:
        return None
    return path_of(mode.recorder.recording)


def _directions(colors: list[Any], likes: list[Any], first: Any, count: int) -> list[list[Any]]:
    """Return, for each colour, ones at the elements that have it."""
    return [
        [
            np.where(c == first + k, 1.0, 0.0).astype(x.dtype if hasattr(x, "dtype") else float)
            for c, x in zip(colors, likes, strict=True)
        ]
        for k in range(count)
    ]


def along_columns(
    name: str, f: Callable[..., Any], argnums: Any, intercept: bool, count: int
) -> Callable[..., Compressed]:
    """Return a function that computes tangents of `f` along the directions of `count` colours.

    It takes the number of the first colour, the colours of the elements of each leaf, and the
    arguments of `f`; returns the tangents, flat and behind one another, and the path that was
    taken.
    """

    def compressed(first: Any, colors: list[Any], args: Any, kwargs: Any) -> Compressed:
        of_picked, xs = picked_call(name, f, args, kwargs, argnums, intercept, False)
        ins = Variables(xs)
        if count > BLOCK:

            def tangent(*d: Any) -> list[Any]:
                along = ins.argument(list(d))
                return flatten(forward(name, of_picked, xs, along, False)[1])[0]

            batch = _batched(tangent, colors, ins.moving, first, count)
            if batch is not None:
                return batch, _path()
        directions = [ins.argument(d) for d in _directions(colors, ins.moving, first, count)]
        try:
            along_directions = [forward(name, of_picked, xs, d, False)[1] for d in directions]
        except ForwardModeError as error:  # a rule of the user's, say
            forget(error)
            _, tangents = linearize(of_picked, *xs, intercept=False)
            along_directions = [tangents(*d) for d in directions]
        return _flat([x for t in along_directions for x in flatten(t)[0]]), _path()

    return compressed


def along_rows(
    name: str, f: Callable[..., Any], argnums: Any, intercept: bool, count: int
) -> Callable[..., Compressed]:
    """Return a function that computes cotangents of `f` along directions of `count` colours."""

    def compressed(first: Any, colors: list[Any], args: Any, kwargs: Any) -> Compressed:
        of_picked, xs = picked_call(name, f, args, kwargs, argnums, intercept, False)
        y, pullback = vjp(of_picked, *xs, intercept=False)
        leaves, rebuild = flatten(y)
        if count > BLOCK:

            def cotangent(*d: Any) -> list[Any]:
                return flatten(pullback(rebuild(list(d))))[0]

            batch = _batched(cotangent, colors, leaves, first, count)
            if batch is not None:
                return batch, _path()
        directions = _directions(colors, leaves, first, count)
        gradients = [pullback(rebuild(d)) for d in directions]
        return _flat([x for g in gradients for x in flatten(g)[0]]), _path()

    return compressed


def _batched(
    one: Callable[..., list[Any]], colors: list[Any], likes: list[Any], first: Any, count: int
) -> Any:
    """Return derivatives along the directions of colours as members of a batch.

    Flat and behind one another; None where `vmap` cannot take the function.
    """
    numbers = first + np.arange(count)
    directions = [
        np.where(c == np.reshape(numbers, (-1, *(1,) * np.ndim(c))), 1.0, 0.0).astype(
            x.dtype if hasattr(x, "dtype") else float
        )
        for c, x in zip(colors, likes, strict=True)
    ]
    before = remembered()
    try:
        blocks = vmap_strictly(one, (0,) * len(directions))(*directions)
    except Exception as error:  # what it is shows where the directions come one by one
        forget(error)
        restore(before)
        return None
    parts = [np.reshape(x, (count, -1)) for x in blocks]
    return np.reshape(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), (-1,))


def _flat(leaves: list[Any]) -> Any:
    """Return leaves as one array without axes."""
    parts = [np.reshape(x, (-1,)) for x in leaves]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Evaluation:
    """Values of a pattern's entries, for arguments.

    Parameters
    ----------
    way : callable
        Returns what `along_columns` or `along_rows` does, for a number of colours.
    coloring : Coloring
    shapes : list of tuple
        Of what is coloured: the leaves of the arguments, or the result.
    size : int
        Number of elements of a direction's derivative.
    """

    def __init__(
        self,
        way: Callable[[int], Callable[..., Compressed]],
        coloring: Coloring,
        shapes: list[tuple[int, ...]],
        size: int,
    ) -> None:
        self.coloring = coloring
        ends = np.cumsum([int(np.prod(s, dtype=int)) for s in shapes])[:-1]
        parts = np.split(coloring.colors, ends)
        self._colors = [c.reshape(s) for c, s in zip(parts, shapes, strict=True)]
        self._size = size
        count = max(coloring.total, 1)  # a derivative that is zero has a path, too
        blocks = -(-count // max(BLOCK, _SMALL // max(size, 1)))
        self._block = -(-count // blocks)
        self._blocks = blocks
        self._compressed = way(self._block)
        self._firsts = [np.int64(k * self._block) for k in range(blocks)]
        self._parts: list[Any] = [(None, _short(coloring.where))]
        if blocks > 1 and coloring.steps is None:
            self._split()

    def _split(self) -> None:
        """Sort the entries by the block that computes them."""
        where, stretch = self.coloring.where, self._block * self._size
        number = where // max(stretch, 1)
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(np.bincount(number, minlength=self._blocks))
        self._parts = [
            (_short(part), _short(where[part] - k * stretch))
            for k, part in enumerate(np.split(order, ends[:-1]))
        ]

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[np.ndarray, Any]:
        """Return the values of the entries, and the path that was taken."""
        lib, steps = library(), self.coloring.steps
        values: Any = None
        sums = []
        for k in range(self._blocks):
            compressed, path = self._call(k, args, kwargs)
            stacked = _plain(compressed)
            if steps is not None:
                sums.append(stacked)
                continue
            if values is None:
                values = np.empty(self.coloring.where.size, stacked.dtype)
            lib.pick(*self._parts[k], stacked, values)
        if steps is not None:
            # The sums are taken apart in place, in float64.
            whole = np.concatenate(sums, dtype=np.float64)
            values = lib.substitute(*steps, whole).take(self.coloring.where)
            values = values.astype(stacked.dtype, copy=False)
        return values, path

    def _call(self, k: int, args: Any, kwargs: Any) -> Compressed:
        return self._compressed(self._firsts[k], self._colors, args, kwargs)


class Divided:
    """Values of the entries of parts, of which each is computed in its own mode.

    Parameters
    ----------
    parts : sequence of (ndarray, Evaluation)
        The numbers of the entries, and what computes them.
    """

    def __init__(self, parts: Sequence[tuple[np.ndarray, Evaluation]]) -> None:
        self._parts = parts

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[np.ndarray, Any]:
        """Return the values of the entries, and the path that was taken."""
        results = [(entries, *e.run(args, kwargs)) for entries, e in self._parts]
        dtype = np.result_type(*(values for _, values, _ in results))
        total = np.empty(sum(entries.size for entries, _, _ in results), dtype)
        for entries, values, _ in results:
            total[entries] = values
        paths = tuple(path for _, _, path in results)
        return total, None if None in paths else paths


def _short(where: np.ndarray) -> np.ndarray:
    """Return positions as 32-bit integers, where these are enough."""
    return where.astype(np.int32) if where.max(initial=0) <= np.iinfo(np.int32).max else where


def _plain(x: Any) -> np.ndarray:
    return np.asarray(host(plain_value(x)))


def compiled(f: Callable[..., Any]) -> JitFunction:
    """Return a function as `adarray.jit` compiles it."""
    return JitFunction(f, Options())
