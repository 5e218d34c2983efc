"""How arrays are folded: lengths, launches, and what they leave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from adarray_backends.cuda import extrema as ties
from adarray_backends.cuda import reductions
from adarray_backends.cuda.engine import THREADS, USUAL_THREADS

from adarray.base.op import FUNCTIONS, Op

if TYPE_CHECKING:
    from adarray_backends.cuda.library import CudaLibrary

CHARS = {"f": "float32", "d": "float64"}
_SHORT = 128  # rows of fewer elements are CuPy's to fold
_LINE = 128  # bytes of memory that are moved together at best
_LARGE = 1024  # threads of a block that folds whole columns
_MOST_OUTER = 65535  # the most that a grid's second axis may have
_STRETCH = 8192  # elements that a block folds at least, where a row is shared by several


class FoldLaunch(NamedTuple):
    """One launch of a reduction."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    size: int  # of its result
    numbers: tuple[Any, ...]


class Folding(NamedTuple):
    """How arrays of one shape are folded along some axes."""

    steps: list[FoldLaunch]
    char: str
    shape: tuple[int, ...]
    transposed: bool

    def run(self, library: CudaLibrary, x: Any) -> tuple[Any, Any]:
        """Return the folded array."""
        last = self.steps[-1]
        for step in self.steps:
            shape = self.shape if step is last else step.size
            out = library.run(library.kind, shape, self.char)
            library.run(step.kernel, step.grid, step.block, (x, out, *step.numbers))
            x = out
        return x.T if self.transposed else x, None


class Extrema(NamedTuple):
    """How the extrema of rows are found, with their ties."""

    kernel: Any
    char: str
    outer: int
    n: Any
    shape: tuple[int, ...]
    transposed: bool
    threads: int

    def run(self, library: CudaLibrary, x: Any) -> tuple[Any, Any]:
        """Return the extrema, and their numbers and places."""
        out = library.run(library.xp.empty, self.outer, self.char)
        ties = library.run(library.xp.empty, 2 * self.outer, np.int32)
        library.run(self.kernel, (self.outer,), (self.threads,), (x, out, ties, self.n))
        return _shaped(out, self.shape, self.transposed), ties


def _shaped(x: Any, shape: tuple[int, ...], transposed: bool) -> Any:
    if x.shape != shape:
        x = x.reshape(shape)
    return x.T if transposed else x


def in_parts(x: Any) -> Any:
    """Return a complex array in C order as a real one, with an axis for the two parts behind."""
    real = {"F": "f", "D": "d"}[x.dtype.char]
    return x.view(real).reshape((*x.shape, 2))


def of_parts(x: Any, dtype: Any) -> Any:
    """Return a real array in C order, whose last axis has the two parts, as a complex one."""
    return x.view(dtype).reshape(x.shape[:-1])


def normalized(axis: Any, ndim: int) -> list[int] | None:
    """Return the axes to fold; None where NumPy is to say what is wrong with them."""
    numbers = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = []
    for a in numbers:
        if not isinstance(a, int) or not -ndim <= a < ndim:
            return None
        axes.append(a % ndim)
    return axes if len(set(axes)) == len(axes) else None


def lengths(shape: tuple[int, ...], axes: list[int]) -> tuple[int, int, int] | None:
    """Return the lengths (outer, fold, inner) of an array; None if the axes are not together."""
    axes = [a for a in axes if shape[a] != 1]
    if not axes:
        return None
    low, high = min(axes), max(axes)
    if any(shape[a] != 1 and a not in axes for a in range(low, high + 1)):
        return None
    return math.prod(shape[:low]), math.prod(shape[low : high + 1]), math.prod(shape[high + 1 :])


def column_lanes(outer: int, packs: int, size: int, processors: int) -> int:
    """Return how many packs of columns a block folds whole; 0 if there would be few blocks.

    `outer` arrays have so many packs of `size` bytes in a row. Blocks take whole lines of
    memory at least.
    """
    for lanes in (32, 16, 8):
        if lanes * size >= _LINE and 4 * outer * -(-packs // lanes) >= 3 * processors:
            return lanes
    return 0


class Folder:
    """Plans how arrays are folded on a GPU.

    Parameters
    ----------
    library : CudaLibrary
    blocks : int
        That keep the GPU busy.
    """

    def __init__(self, library: CudaLibrary, blocks: int) -> None:
        self._library = library
        self._blocks = blocks
        self._kernels: dict[Any, Any] = {}

    def plan(
        self, op: Op, char: str, shape: tuple[int, ...], axis: Any, keep: bool, transposed: bool,
        aligned: bool,
    ) -> Any:  # fmt: skip
        """Return how an array in C order is folded; NotImplemented: by CuPy."""
        ndim = len(shape)
        axes = normalized(axis, ndim)
        if axes is None:
            return NotImplemented
        if transposed:
            axes = [ndim - 1 - a for a in axes]
        sizes = lengths(shape, axes)
        if sizes is None:
            return NotImplemented
        outer, n, inner = sizes
        to = tuple(1 if i in axes else k for i, k in enumerate(shape) if keep or i not in axes)
        wide = 2 if char == "d" else 4
        dtype = CHARS[char]
        steps: Any
        if inner == 1:
            pack = wide if n % wide == 0 and aligned else 1
            if n < _SHORT:
                return NotImplemented
            if op.name in ("max", "min") and outer >= 64 and n < 1 << 30 and outer < 1 << 30:
                kernel, _ = self.extrema(op.name, dtype, pack)
                return Extrema(kernel, char, outer, np.int32(n), to, transposed, THREADS.get())
            steps = self._rows(op, dtype, outer, n, pack)
        else:
            pack = wide if inner % wide == 0 and aligned else 1
            if inner < 32 or n < 16:
                return NotImplemented
            steps = self._columns(op, dtype, outer, n, inner, pack)
        return NotImplemented if steps is None else Folding(steps, char, to, transposed)

    def repetition(self, full: tuple[int, ...], shape: tuple[int, ...], char: str) -> Any:
        """Return how arrays of shape `full` are summed to `shape`, of which they are copies."""
        if char not in CHARS or 0 in full:
            return NotImplemented
        lead = len(full) - len(shape)
        axes = tuple(i for i, n in enumerate(full) if i < lead or (n != 1 and shape[i - lead] == 1))
        plan = self.plan(FUNCTIONS[np.sum], char, full, axes, False, False, True)
        return plan if plan is NotImplemented else plan._replace(shape=shape)

    def _kernel(self, op: Op, dtype: str, rows: bool, first: bool, pack: int) -> Any:
        """Return the kernel of one launch; None if an operation has none."""
        threads = THREADS.get()
        key = (op, dtype, rows, first, pack, threads)
        if key not in self._kernels:
            fold = reductions.fold_of(op, dtype)
            kernel = None
            if fold is not None:
                itemsize = 8 if dtype == "float64" else 4
                text = reductions.source(fold, rows, first, pack, itemsize, threads)
                kernel = self._library.compiled(text, "rows" if rows else "columns")
            self._kernels[key] = kernel
        return self._kernels[key]

    def _rows(self, op: Op, dtype: str, outer: int, n: int, pack: int) -> Any:
        """Return the launches that fold rows."""
        parts = max(1, min(-(-self._blocks // outer), n // _STRETCH))
        stretch = -(-n // (parts * 1024)) * 1024 if parts > 1 else n
        parts = -(-n // stretch)
        kernel = self._kernel(op, dtype, True, True, pack)
        if kernel is None or outer * parts >= 1 << 31:
            return None
        count = np.dtype(dtype).type(n)
        numbers = (np.int64(n), np.int64(stretch), np.int32(parts), np.int32(parts == 1), count)
        block = (THREADS.get(),)
        steps = [FoldLaunch(kernel, (outer * parts,), block, outer * parts, numbers)]
        if parts > 1:
            last = self._kernel(op, dtype, True, False, 1)
            numbers = (np.int64(parts), np.int64(parts), np.int32(1), np.int32(1), count)
            steps.append(FoldLaunch(last, (outer,), block, outer, numbers))
        return steps

    def _columns(self, op: Op, dtype: str, outer: int, n: int, inner: int, pack: int) -> Any:
        """Return the launches that fold columns."""
        wide = -(-inner // (32 * pack))
        parts = max(1, min(-(-self._blocks // (wide * outer)), n // 32))
        stretch = -(-n // parts)
        parts = -(-n // stretch)
        count = np.dtype(dtype).type(n)
        if parts > 1 and THREADS.get() == USUAL_THREADS and outer <= _MOST_OUTER:
            lanes = column_lanes(outer, inner // pack, pack * count.itemsize, self._blocks // 8)
            kernel = self._whole_columns(op, dtype, pack, lanes) if lanes else None
            if kernel is not None:
                grid, block = (-(-inner // (lanes * pack)), outer), (lanes, _LARGE // lanes)
                numbers = (np.int64(n), np.int64(inner), count)
                return [FoldLaunch(kernel, grid, block, outer * inner, numbers)]
        kernel = self._kernel(op, dtype, False, True, pack)
        if kernel is None or outer * parts > _MOST_OUTER:
            return None
        block = (32, THREADS.get() // 32)
        numbers = (
            np.int64(n), np.int64(inner), np.int64(stretch), np.int32(parts),
            np.int32(parts == 1), count,
        )  # fmt: skip
        steps = [FoldLaunch(kernel, (wide, outer * parts), block, outer * parts * inner, numbers)]
        if parts > 1:
            last = self._kernel(op, dtype, False, False, pack)
            numbers = (
                np.int64(parts), np.int64(inner), np.int64(parts), np.int32(1), np.int32(1), count,
            )  # fmt: skip
            steps.append(FoldLaunch(last, (wide, outer), block, outer * inner, numbers))
        return steps

    def _whole_columns(self, op: Op, dtype: str, pack: int, lanes: int) -> Any:
        """Return the kernel that folds columns in one launch; None if an operation has none."""
        key = ("whole", op, dtype, pack, lanes)
        if key not in self._kernels:
            fold = reductions.fold_of(op, dtype)
            kernel = None
            if fold is not None:
                itemsize = 8 if dtype == "float64" else 4
                text = reductions.whole_columns(fold, lanes, pack, itemsize, _LARGE)
                kernel = self._library.compiled(text, "columns")
            self._kernels[key] = kernel
        return self._kernels[key]

    def extrema(self, name: str, dtype: str, pack: int) -> Any:
        """Return the kernels that find extrema of rows with their ties, and their cotangents."""
        threads = THREADS.get()
        key = ("extrema", name, dtype, pack, threads)
        if key not in self._kernels:
            text = ties.source(name == "max", dtype, pack, threads)
            self._kernels[key] = self._library.compiled(text, "forward", "backward")
        return self._kernels[key]
