"""Factorisations and solutions of linear systems, written down as steps of a plan.

What fits into the shared memory of one block is factorised by it, and larger matrices in blocks,
by kernels of ours (`HEADERS`), which stand in a graph like all others: see `Limits`. Beyond them
cuSOLVER is called, which launches what it needs and waits for nothing. A matrix that NumPy would
refuse is refused as data of kernels are: nobody waits for the GPU before the plan ends.

A matrix that lies in rows is its transpose in columns, and that is what is factorised: see
`adarray.compiler.rewrite.factors`. Pivots are the order of the rows where our kernels factorise,
and exchanges of rows, counted from 1, where cuSOLVER does.

References
----------
- G. H. Golub, C. F. Van Loan, "Matrix Computations", 4th ed., Johns Hopkins 2013, algorithms 3.1.3
  (substitution by columns), 3.4.1 (LU with partial pivoting), 4.2.2 (Cholesky by outer products),
  and sections 3.2.11 and 4.2.6 (in blocks).
- NVIDIA, "cuSOLVER API Reference" (getrf, getrs, potrf) and "cuBLAS" (trsm), 2025.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import adarray_native
import numpy as np
from adarray_backends.cuda.launcher import KernelRecord, LinalgRecord, Record, SlotOffset

from adarray.compiler.ir.plan import CallStep, Operand
from adarray.compiler.ir.primitives import Slot
from adarray.compiler.rewrite.factors import (
    decompose,
    determinant,
    invert_decomposed,
    logarithm_of_determinant,
    solve_decomposed,
    solve_triangle,
    triangle_of,
)

if TYPE_CHECKING:
    from adarray_backends.cuda.encoding import CudaEncoder

THREADS, WARPS, PANEL, SQUARE = 256, 8, 16, 32  # as adarray_solvers.h has them
LU, SOLVE, CHOLESKY, TRIANGLE = range(4)  # as device_steps.h has them
NAMES = ("getrf", "getrs", "potrf", "trsm")
_REALS = {"f": "float", "d": "double"}
_BLOCKS = 1024  # of kernels that go over whole matrices
_ALIGNED = 256  # bytes
_LOWER, _UPPER, _RIGHT = 0, 1, 1  # cuBLAS's numbers
_FORWARD, _UNIT = 1, 2  # flags
_CHOLESKY_ROWS = 128  # of a block that is factorised at once where there are several
_STATIC = 5632  # bytes of shared memory beside matrices
# The text of all kernels, in this order.
HEADERS = ("adarray_solvers.h", "adarray_factors.h", "adarray_substitution.h")
# Which part of them has a kernel; each is compiled when a plan first needs it.
PARTS = {
    "LU": ("decomposed",),
    "PANELS": ("panel_decomposed", "rows_moved"),
    "CHOLESKY": ("cholesky",),
    "SOLVED": ("solved",),
    "TRIANGLE": ("triangle_solved",),
    "WHOLE": ("subtracted", "laid", "nonzero", "triangular", "determined"),
}
# Columns that are factorised at once where a matrix is in blocks; rows of each thread then.
_LU_COLUMNS = 64
_TALL = {"f": 3, "d": 2}


class SolverText(NamedTuple):
    """Kernels for one dtype as text: the name of the first one, and those of the others."""

    name: str
    followers: tuple[str, ...]
    text: str


def text_of(part: str, char: str) -> SolverText:
    """Return the kernels of one of `PARTS` for float32 or float64, "f" or "d"."""
    first, *others = PARTS[part]
    names = f"#define REAL {_REALS[char]}\n#define WITH_{part}\n"
    return SolverText(first, tuple(others), names + "\n".join(map(adarray_native.text, HEADERS)))


def part_of(kernel: str) -> str:
    """Return which of `PARTS` has a kernel."""
    return next(part for part, kernels in PARTS.items() if kernel in kernels)


class Limits(NamedTuple):
    """Rows of matrices that our kernels take, by the shared memory that a block may have.

    Parameters
    ----------
    block : int
        What one block factorises.
    solve : int
        What is substituted with by panels, and factorised in blocks.
    """

    block: int
    solve: int


def limits_of(char: str, shared: int) -> Limits:
    """Return the limits for float32 or float64, "f" or "d"."""
    size, room = np.dtype(char).itemsize, shared - _STATIC
    block = 0
    while block < THREADS - PANEL and _factor_bytes(block + PANEL, block + PANEL, size) <= room:
        block += PANEL
    solve = 0
    while solve < _TALL[char] * THREADS and _substitution_bytes(solve + SQUARE, size) <= room:
        solve += SQUARE
    return Limits(min(block, solve), solve)


def _factor_bytes(m: int, n: int, size: int) -> int:
    """Return the shared memory of a block that factorises `m` rows of `n` columns."""
    return -(-n * (m | 1) * size // 16) * 16 + n * PANEL * size


def _substitution_bytes(n: int, size: int) -> int:
    """Return the shared memory of a block that solves with `n` rows."""
    return (2 * SQUARE * (n | 1) + WARPS * -(-n // SQUARE) * SQUARE) * size


def _move_bytes(m: int, n: int, size: int) -> int:
    """Return the shared memory of a block that moves `m` rows beside a panel of `n` columns."""
    return (2 * SQUARE * (n | 1) + 2 * WARPS * -(-m // SQUARE) * SQUARE) * size


def records(encoder: CudaEncoder, s: CallStep, refused: SlotOffset) -> list[Record] | None:
    """Return a call as launches if it is one of linear algebra; else None.

    What the pass `factors` wrote always is one. `refused` is where kernels write codes.
    """
    write = next((w for f, w in _WRITERS if f is s.function), None)
    if write is None or s.args[:1] != (Slot(0),):
        return None
    if s.operands[0].buffer.dtype.char not in _REALS:
        return None
    if any(len(o.shape) > 2 or 0 in o.shape for o in s.operands):
        return None
    steps = Steps(encoder, s.operands[0].buffer.dtype, refused)
    write(steps, s)
    return steps.records


def refuses(s: CallStep) -> bool:
    """Whether the launches of a call may refuse a matrix."""
    return any(s.function is f for f in _REFUSING)


class Steps:
    """Writes the launches of one call down.

    Parameters
    ----------
    encoder : CudaEncoder
    dtype : dtype
    refused : SlotOffset
        Where kernels write that a matrix is refused.

    Attributes
    ----------
    limits : Limits
    """

    def __init__(self, encoder: CudaEncoder, dtype: np.dtype[Any], refused: SlotOffset) -> None:
        self.encoder = encoder
        self.refused = refused
        self.dtype = dtype
        self.limits = limits_of(dtype.char, encoder.target.shared_memory)
        self.records: list[Record] = []
        self._used = 0  # bytes of workspace

    def place(self, o: Operand) -> SlotOffset:
        """Return where an operand begins."""
        return self.encoder.place(o.buffer, o.offset)

    def room(self, size: int) -> SlotOffset:
        """Return so many bytes of workspace."""
        place = self.encoder.behind(self._used, size)
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return place

    def launch(self, name: str, blocks: int, *arguments: SlotOffset | int, shared: int = 0) -> None:
        """Note the launch of a kernel, with so many bytes of shared memory."""
        function = self.encoder.gpu.solver_kernel(name, self.dtype.char, shared)
        grid, threads = (blocks, 1, 1), (THREADS, 1, 1)
        self.records.append(KernelRecord(function, grid, threads, shared, arguments))

    def factor(self, name: str, m: int, n: int, *arguments: SlotOffset | int) -> None:
        """Let one block factorise `m` rows of `n` columns."""
        self.launch(name, 1, *arguments, shared=_factor_bytes(m, n, self.dtype.itemsize))

    def substitute(self, name: str, n: int, k: int, *arguments: SlotOffset | int) -> None:
        """Solve with `n` rows for `k` columns."""
        shared = _substitution_bytes(n, self.dtype.itemsize)
        self.launch(name, -(-k // WARPS), *arguments, shared=shared)

    def call(self, which: int, *arguments: SlotOffset | int) -> None:
        """Note a call of a library, which gets its handle before the arguments."""
        library = "cublas" if which == TRIANGLE else "cusolver"
        handle = SlotOffset(self.encoder.handle(library))
        function = self.encoder.gpu.solver_function(NAMES[which], self.dtype.char)
        self.records.append(LinalgRecord(function, which, (handle, *arguments)))

    def lay(
        self, of: SlotOffset | int, to: SlotOffset, shape: tuple[int, int],
        strides: tuple[int, int], triangle: int = 0,
    ) -> None:  # fmt: skip
        """Copy a matrix into rows without gaps; the identity if `of` is 0.

        Of a triangle, 1 the lower and 2 the upper one, the rest becomes zero.
        """
        blocks = min(-(-shape[0] * shape[1] // THREADS), _BLOCKS)
        self.launch("laid", blocks, of, to, *shape, *strides, triangle)

    def moved(self, place: SlotOffset, elements: int) -> SlotOffset:
        """Return the place so many elements behind another one."""
        return SlotOffset(place.slot, place.offset + elements * self.dtype.itemsize)


def _columns(o: Operand) -> tuple[int, tuple[int, int]]:
    """Return how many right-hand sides there are, and the strides of rows and columns."""
    return (1, (o.strides[0], 0)) if len(o.shape) == 1 else (o.shape[1], (*o.strides,))  # type: ignore[return-value]


def _decomposed(steps: Steps, s: CallStep) -> None:
    (a,) = s.operands
    n = a.shape[0]
    lu, pivots = map(steps.encoder.place, s.results)
    if n <= steps.limits.block:
        rows, columns = a.strides
        steps.factor("decomposed", n, n, steps.place(a), lu, pivots, n, columns, rows)
        return
    if n <= steps.limits.solve:
        _decomposed_in_blocks(steps, a, lu, pivots)
        return
    work = steps.encoder.gpu.solver_room("getrf", n, steps.dtype.char)
    info, room = steps.room(_ALIGNED), steps.room(work * steps.dtype.itemsize)
    steps.lay(steps.place(a), lu, (n, n), a.strides)  # type: ignore[arg-type]
    steps.call(LU, n, n, lu, n, room, pivots, info)


def _decomposed_in_blocks(steps: Steps, a: Operand, lu: SlotOffset, order: SlotOffset) -> None:
    """Factorise some columns; move the rows of the others, and subtract what follows from it."""
    n, size = a.shape[0], steps.dtype.itemsize
    moves = steps.room(n * 4)
    steps.lay(steps.place(a), lu, (n, n), a.strides)  # type: ignore[arg-type]
    for begin in range(0, n, _LU_COLUMNS):
        end = min(begin + _LU_COLUMNS, n)
        rows, columns, right = n - begin, end - begin, n - end
        steps.factor(
            "panel_decomposed", rows, columns, steps.moved(lu, begin * (n + 1)),
            SlotOffset(order.slot, order.offset + 4 * begin), moves, rows, columns, n, begin > 0,
        )  # fmt: skip
        if not begin + right:  # no columns beside the only panel
            return
        steps.launch(
            "rows_moved", -(-(begin + right) // WARPS), steps.moved(lu, begin), moves, rows,
            columns, n, begin, right, shared=_move_bytes(rows, columns, size),
        )  # fmt: skip
        if not right:
            return
        # In rows it is the transpose: what is written lies side by side.
        steps.launch(
            "subtracted", (-(-right // SQUARE)) ** 2, steps.moved(lu, end * (n + 1)),
            steps.moved(lu, begin + end * n), steps.moved(lu, end + begin * n), right, right,
            columns, n, 1, n, 1, n, 1, 0,
        )  # fmt: skip


def _solved(steps: Steps, s: CallStep) -> None:
    lu, pivots, b = s.operands
    k, strides = _columns(b)
    _solve(steps, s, lu, pivots, steps.place(b), k, strides, bool(s.args[3]))


def _inverted(steps: Steps, s: CallStep) -> None:
    lu, pivots = s.operands
    _solve(steps, s, lu, pivots, 0, lu.shape[0], (0, 0), bool(s.args[2]))


def _solve(
    steps: Steps, s: CallStep, lu: Operand, pivots: Operand, b: SlotOffset | int, k: int,
    strides: tuple[int, int], transposed: bool,
) -> None:  # fmt: skip
    """Solve for `k` columns, those of the identity if `b` is 0."""
    n, to = lu.shape[0], steps.encoder.place(s.results[0])
    factors = steps.place(lu), steps.place(pivots)
    if n <= steps.limits.solve:
        numbers = n, k, *strides, int(transposed)
        steps.substitute("solved", n, k, *factors, b, to, steps.refused, *numbers)
        return
    info = steps.room(_ALIGNED)
    steps.launch("nonzero", 1, factors[0], steps.refused, n, n + 1)
    if b == 0:
        # The inverse in rows is that of the transpose in columns.
        steps.lay(0, to, (n, n), (0, 0))
        steps.call(SOLVE, int(transposed), n, n, factors[0], n, factors[1], to, n, info)
        return
    columns = to if k == 1 else steps.room(n * k * steps.dtype.itemsize)
    steps.lay(b, columns, (k, n), strides[::-1])
    steps.call(SOLVE, int(not transposed), n, k, factors[0], n, factors[1], columns, n, info)
    if k > 1:
        steps.lay(columns, to, (n, k), (1, n))


def _triangle_solved(steps: Steps, s: CallStep) -> None:
    factor, b = s.operands
    start, n, transposed, upper = (int(x) for x in s.args[2:])  # type: ignore[call-overload]
    k, strides = _columns(b)
    to, (r0, r1) = steps.encoder.place(s.results[0]), factor.strides
    place = steps.encoder.place(factor.buffer, factor.offset + start * (r0 + r1))
    if n <= steps.limits.solve:
        strides_of = (r1, r0) if transposed else (r0, r1)
        flags = _FORWARD if upper == transposed else 0
        steps.substitute(
            "triangle_solved", n, k, place, steps.place(b), to, steps.refused, n, *strides_of, k,
            *strides, k, 1, flags,
        )  # fmt: skip
        return
    steps.launch("nonzero", 1, place, steps.refused, n, r0 + r1)
    steps.lay(steps.place(b), to, (n, k), strides)
    # In columns both sides are transposed: the result times the factor, from the right.
    uplo, one = _LOWER if upper else _UPPER, steps.encoder.gpu.solver_one(steps.dtype.char)
    steps.call(TRIANGLE, _RIGHT, uplo, transposed, 0, k, n, one, place, r0, to, k)


def _cholesky(steps: Steps, s: CallStep) -> None:
    (a,) = s.operands
    n, upper, to = a.shape[0], triangle_of(s.args, s.kwargs), steps.encoder.place(s.results[0])
    if n <= steps.limits.block:
        strides = a.strides[::-1] if upper else a.strides
        out = (1, n) if upper else (n, 1)
        steps.factor("cholesky", n, n, steps.place(a), to, steps.refused, n, *strides, *out)
        return
    if n <= steps.limits.solve:
        _cholesky_in_blocks(steps, a, to, upper)
        return
    uplo, gpu = _LOWER if upper else _UPPER, steps.encoder.gpu
    work = gpu.solver_room("potrf", n, steps.dtype.char)
    info, room = steps.room(_ALIGNED), steps.room(work * steps.dtype.itemsize)
    steps.lay(steps.place(a), to, (n, n), a.strides)  # type: ignore[arg-type]
    steps.call(CHOLESKY, uplo, n, to, n, room, work, info)
    blocks = min(-(-n * n // THREADS), _BLOCKS)
    steps.launch("triangular", blocks, to, info, steps.refused, n, int(upper))


def _cholesky_in_blocks(steps: Steps, a: Operand, to: SlotOffset, upper: bool) -> None:
    """Factorise blocks on the diagonal; solve for what is below each, and subtract its square."""
    n = a.shape[0]
    down, right = (1, n) if upper else (n, 1)  # of the lower triangle that the result is
    steps.lay(steps.place(a), to, (n, n), a.strides, 2 if upper else 1)  # type: ignore[arg-type]
    most = min(steps.limits.block, _CHOLESKY_ROWS)
    rows = -(-n // -(-n // most))
    for begin in range(0, n, rows):
        end = min(begin + rows, n)
        size, below = end - begin, n - end
        place = steps.moved(to, begin * (n + 1))
        steps.factor(
            "cholesky", size, size, place, place, steps.refused, size, down, right, down, right
        )  # fmt: skip
        if not below:
            return
        left, rest = steps.moved(to, end * down + begin * right), steps.moved(to, end * (n + 1))
        steps.substitute(
            "triangle_solved", size, below, place, left, left, steps.refused, size, down, right,
            below, right, down, right, down, _FORWARD,
        )  # fmt: skip
        tiles = (-(-below // SQUARE)) ** 2
        steps.launch(
            "subtracted", tiles, rest, left, left, below, below, size, down, right, down, right,
            right, down, 1,
        )  # fmt: skip


def _determined(steps: Steps, s: CallStep) -> None:
    lu, pivots = s.operands
    to = [steps.encoder.place(b) for b in s.results]
    places = to[0], to[1] if len(to) > 1 else 0
    n = lu.shape[0]
    ordered = int(n <= steps.limits.solve)
    steps.launch("determined", 1, steps.place(lu), steps.place(pivots), *places, n, ordered)


_WRITERS: tuple[tuple[Any, Any], ...] = (
    (decompose, _decomposed),
    (solve_decomposed, _solved),
    (invert_decomposed, _inverted),
    (solve_triangle, _triangle_solved),
    (np.linalg.cholesky, _cholesky),
    (determinant, _determined),
    (logarithm_of_determinant, _determined),
)
_REFUSING = (solve_decomposed, invert_decomposed, solve_triangle, np.linalg.cholesky)
