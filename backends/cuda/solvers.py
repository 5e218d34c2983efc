"""Factorisations and solutions of linear systems, written down as steps of a plan.

Matrices of up to `MOST` rows are factorised by one block of threads, in a graph like all kernels;
for larger ones cuSOLVER is called, which launches what it needs and waits for nothing. A matrix
that NumPy would refuse is refused as data of kernels are: nobody waits for the GPU before the
plan ends.

A matrix that lies in rows is its transpose in columns, and that is what is factorised: see
`adarray.compiler.rewrite.factors`. Pivots count from 1.

References
----------
- G. H. Golub, C. F. Van Loan, "Matrix Computations", 4th ed., Johns Hopkins 2013, algorithms 3.1.3
  (substitution by columns), 3.4.1 (LU with partial pivoting), 4.2.2 (Cholesky by outer products).
- NVIDIA, "cuSOLVER API Reference" (getrf, getrs, potrf) and "cuBLAS" (trsm), 2025.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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

MOST = {"f": 100, "d": 64}  # rows of a matrix that one block keeps in 48 KiB of shared memory
COLUMNS = 16  # that a block solves for
THREADS = 256
LU, SOLVE, CHOLESKY, TRIANGLE = range(4)  # as device_steps.h has them
NAMES = ("getrf", "getrs", "potrf", "trsm")
_REALS = {"f": "float", "d": "double"}
_BLOCKS = 1024  # of kernels that go over whole matrices
_ALIGNED = 256  # bytes
_LOWER, _UPPER, _RIGHT = 0, 1, 1  # cuBLAS's numbers
KERNELS = (
    "decomposed", "solved", "triangle_solved", "cholesky", "laid", "nonzero", "triangular",
    "determined",
)  # fmt: skip
_TEXT = """
typedef long long i64;
typedef %(real)s real;
enum { SIDE = 16 };  // of the square that the threads of a block are

__device__ static real size_of(real x) { return x < 0 ? -x : x; }

// The transpose of a matrix is factorised in columns, where the matrix lies in rows.
extern "C" __global__ void __launch_bounds__(%(threads)d)
decomposed(const real *a, real *lu, int *pivots, i64 n, i64 s0, i64 s1) {
    __shared__ real w[%(most)d * %(most)d];
    __shared__ int at;
    const int t = threadIdx.x;
    for (int e = t; e < n * n; e += %(threads)d) w[e] = a[e / n * s0 + e %% n * s1];
    __syncthreads();
    for (int k = 0; k < n; k++) {
        if (t < 32) {
            real best = -1;
            int row = n;
            for (int i = k + t; i < n; i += 32) {
                const real x = size_of(w[k * n + i]);
                if (x > best) {
                    best = x;
                    row = i;
                }
            }
            for (int far = 16; far; far /= 2) {
                const real x = __shfl_xor_sync(~0u, best, far);
                const int other = __shfl_xor_sync(~0u, row, far);
                if (x > best || (x == best && other < row)) {
                    best = x;
                    row = other;
                }
            }
            if (t == 0) {
                at = row < n ? row : k;  // nothing but nan
                pivots[k] = at + 1;
            }
        }
        __syncthreads();
        const int p = at;
        for (int j = t; j < n && p != k; j += %(threads)d) {
            const real x = w[j * n + k];
            w[j * n + k] = w[j * n + p];
            w[j * n + p] = x;
        }
        __syncthreads();
        const real pivot = w[k * n + k];
        for (int i = k + 1 + t; i < n && pivot != 0; i += %(threads)d) w[k * n + i] /= pivot;
        __syncthreads();
        for (int j = k + 1 + t / SIDE; j < n; j += SIDE)
            for (int i = k + 1 + t %% SIDE; i < n; i += SIDE)
                w[j * n + i] -= w[k * n + i] * w[j * n + k];
        __syncthreads();
    }
    for (int e = t; e < n * n; e += %(threads)d) lu[e] = w[e];
}

// Solve for the columns of x, in place; element (i, j) of the triangle is m[i * row + j * column].
__device__ static void substitute(const real *m, real *x, int n, int row, int column, bool forward,
                                  bool unit) {
    const int c = threadIdx.x %% %(columns)d, first = threadIdx.x / %(columns)d;
    const int step = %(threads)d / %(columns)d;
    for (int s = 0; s < n; s++) {
        const int i = forward ? s : n - 1 - s;
        const real known = x[i * %(columns)d + c];
        const real y = unit ? known : known / m[i * (row + column)];
        const int begin = forward ? i + 1 : 0, end = forward ? n : i;
        for (int r = begin + first; r < end; r += step)
            x[r * %(columns)d + c] -= m[r * row + i * column] * y;
        __syncthreads();
    }
    for (int r = first; r < n && !unit; r += step)
        x[r * %(columns)d + c] /= m[r * (row + column)];
    __syncthreads();
}

__device__ static void exchange(real *x, const int *pivots, int n, bool forward) {
    const int c = threadIdx.x;
    for (int s = 0; s < n && c < %(columns)d; s++) {
        const int k = forward ? s : n - 1 - s, p = pivots[k] - 1;
        const real y = x[k * %(columns)d + c];
        x[k * %(columns)d + c] = x[p * %(columns)d + c];
        x[p * %(columns)d + c] = y;
    }
    __syncthreads();
}

// x becomes the columns of b that this block solves for, or of the identity where b is null.
__device__ static void begin(real *x, const real *b, i64 n, i64 k, i64 s0, i64 s1) {
    for (int e = threadIdx.x; e < n * %(columns)d; e += %(threads)d) {
        const i64 i = e / %(columns)d, j = (i64)blockIdx.x * %(columns)d + e %% %(columns)d;
        x[e] = j >= k ? 0 : b ? b[i * s0 + j * s1] : i == j;
    }
}

__device__ static void finish(const real *x, real *to, i64 n, i64 k) {
    for (int e = threadIdx.x; e < n * %(columns)d; e += %(threads)d) {
        const i64 i = e / %(columns)d, j = (i64)blockIdx.x * %(columns)d + e %% %(columns)d;
        if (j < k) to[i * k + j] = x[e];
    }
}

extern "C" __global__ void __launch_bounds__(%(threads)d)
solved(const real *lu, const int *pivots, const real *b, real *to, int *refused, i64 n, i64 k,
       i64 s0, i64 s1, i64 transposed) {
    __shared__ real w[%(most)d * %(most)d], x[%(most)d * %(columns)d];
    for (int e = threadIdx.x; e < n * n; e += %(threads)d) {
        w[e] = lu[e];
        if (e / n == e %% n && w[e] == 0) *refused = 1;
    }
    begin(x, b, n, k, s0, s1);
    __syncthreads();
    if (transposed) {  // of what the caller has, which is what was factorised
        exchange(x, pivots, n, true);
        substitute(w, x, n, 1, n, true, true);
        substitute(w, x, n, 1, n, false, false);
    } else {
        substitute(w, x, n, n, 1, true, false);
        substitute(w, x, n, n, 1, false, true);
        exchange(x, pivots, n, false);
    }
    finish(x, to, n, k);
}

extern "C" __global__ void __launch_bounds__(%(threads)d)
triangle_solved(const real *f, const real *b, real *to, int *refused, i64 n, i64 r0, i64 r1, i64 k,
                i64 s0, i64 s1, i64 upper, i64 transposed) {
    __shared__ real w[%(most)d * %(most)d], x[%(most)d * %(columns)d];
    for (int e = threadIdx.x; e < n * n; e += %(threads)d) {
        w[e] = f[e / n * r0 + e %% n * r1];
        if (e / n == e %% n && w[e] == 0) *refused = 1;
    }
    begin(x, b, n, k, s0, s1);
    __syncthreads();
    substitute(w, x, n, transposed ? 1 : n, transposed ? n : 1, upper == transposed, false);
    finish(x, to, n, k);
}

extern "C" __global__ void __launch_bounds__(%(threads)d)
cholesky(const real *a, real *to, int *refused, i64 n, i64 s0, i64 s1, i64 upper) {
    __shared__ real w[%(most)d * %(most)d];
    const int t = threadIdx.x;
    for (int e = t; e < n * n; e += %(threads)d) {
        const i64 i = e / n, j = e %% n;
        w[e] = j > i ? 0 : upper ? a[j * s0 + i * s1] : a[i * s0 + j * s1];
    }
    __syncthreads();
    for (int k = 0; k < n; k++) {
        const real d = w[k * n + k], root = sqrt(d);
        if (!(d > 0) && t == 0) *refused = 1;
        __syncthreads();
        for (int i = k + t; i < n; i += %(threads)d)
            w[i * n + k] = i == k ? root : w[i * n + k] / root;
        __syncthreads();
        for (int i = k + 1 + t / SIDE; i < n; i += SIDE)
            for (int j = k + 1 + t %% SIDE; j <= i; j += SIDE)
                w[i * n + j] -= w[i * n + k] * w[j * n + k];
        __syncthreads();
    }
    for (int e = t; e < n * n; e += %(threads)d) to[e] = upper ? w[e %% n * n + e / n] : w[e];
}

// A matrix in rows without gaps; the identity where there is none to copy.
extern "C" __global__ void __launch_bounds__(%(threads)d)
laid(const real *from, real *to, i64 rows, i64 columns, i64 s0, i64 s1) {
    for (i64 e = (i64)blockIdx.x * %(threads)d + threadIdx.x; e < rows * columns;
         e += (i64)gridDim.x * %(threads)d) {
        const i64 i = e / columns, j = e %% columns;
        to[e] = from ? from[i * s0 + j * s1] : i == j;
    }
}

extern "C" __global__ void __launch_bounds__(%(threads)d)
nonzero(const real *diagonal, int *refused, i64 n, i64 step) {
    for (i64 i = threadIdx.x; i < n; i += %(threads)d)
        if (diagonal[i * step] == 0) *refused = 1;
}

// The other triangle becomes zero; a diagonal that is not above zero is refused.
extern "C" __global__ void __launch_bounds__(%(threads)d)
triangular(real *to, const int *info, int *refused, i64 n, i64 upper) {
    for (i64 e = (i64)blockIdx.x * %(threads)d + threadIdx.x; e < n * n;
         e += (i64)gridDim.x * %(threads)d) {
        const i64 i = e / n, j = e %% n;
        if (upper ? i > j : i < j) to[e] = 0;
        if (i == j && (*info != 0 || !(to[e] > 0))) *refused = 1;
    }
}

// Sign and logarithm of the determinant, or the determinant.
extern "C" __global__ void __launch_bounds__(%(threads)d)
determined(const real *lu, const int *pivots, real *to, real *logarithm, i64 n) {
    __shared__ double sums[%(threads)d];
    __shared__ int signs[%(threads)d];
    const int t = threadIdx.x;
    double sum = 0;
    int sign = 1;
    for (i64 i = t; i < n; i += %(threads)d) {
        const real d = lu[i * n + i];
        sign = d == 0 ? 0 : (d < 0) != (pivots[i] != i + 1) ? -sign : sign;
        sum += d == 0 ? 0 : log((double)size_of(d));
    }
    sums[t] = sum;
    signs[t] = sign;
    __syncthreads();
    for (int far = %(threads)d / 2; far; far /= 2) {
        if (t < far) {
            sums[t] += sums[t + far];
            signs[t] *= signs[t + far];
        }
        __syncthreads();
    }
    if (t) return;
    const double size = signs[0] ? sums[0] : log(0.0);
    if (logarithm) *logarithm = size;
    *to = logarithm ? (double)signs[0] : signs[0] * exp(size);
}
"""


class SolverText(NamedTuple):
    """The kernels for one dtype as text: the name of the first one, and those of the others."""

    name: str
    followers: tuple[str, ...]
    text: str


def text_of(char: str) -> SolverText:
    """Return the kernels for float32 or float64, "f" or "d"."""
    sizes = {"real": _REALS[char], "threads": THREADS, "most": MOST[char], "columns": COLUMNS}
    return SolverText(KERNELS[0], KERNELS[1:], _TEXT % sizes)


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
    most : int
        Rows of a matrix that one block factorises.
    """

    def __init__(self, encoder: CudaEncoder, dtype: np.dtype[Any], refused: SlotOffset) -> None:
        self.encoder = encoder
        self.refused = refused
        self.dtype = dtype
        self.most = MOST[dtype.char]
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

    def launch(self, name: str, blocks: int, *arguments: SlotOffset | int) -> None:
        """Note the launch of a kernel."""
        function = self.encoder.gpu.solver_kernel(name, self.dtype.char)
        grid, threads = (blocks, 1, 1), (THREADS, 1, 1)
        self.records.append(KernelRecord(function, grid, threads, 0, arguments))

    def call(self, which: int, *arguments: SlotOffset | int) -> None:
        """Note a call of a library, which gets its handle before the arguments."""
        library = "cublas" if which == TRIANGLE else "cusolver"
        handle = SlotOffset(self.encoder.handle(library))
        function = self.encoder.gpu.solver_function(NAMES[which], self.dtype.char)
        self.records.append(LinalgRecord(function, which, (handle, *arguments)))

    def lay(
        self, of: SlotOffset | int, to: SlotOffset, shape: tuple[int, int],
        strides: tuple[int, int],
    ) -> None:  # fmt: skip
        """Copy a matrix into rows without gaps; the identity if `of` is 0."""
        blocks = min(-(-shape[0] * shape[1] // THREADS), _BLOCKS)
        self.launch("laid", blocks, of, to, *shape, *strides)


def _columns(o: Operand) -> tuple[int, tuple[int, int]]:
    """Return how many right-hand sides there are, and the strides of rows and columns."""
    return (1, (o.strides[0], 0)) if len(o.shape) == 1 else (o.shape[1], (*o.strides,))  # type: ignore[return-value]


def _decomposed(steps: Steps, s: CallStep) -> None:
    (a,) = s.operands
    n = a.shape[0]
    lu, pivots = map(steps.encoder.place, s.results)
    if n <= steps.most:
        steps.launch("decomposed", 1, steps.place(a), lu, pivots, n, *a.strides)
        return
    work = steps.encoder.gpu.solver_room("getrf", n, steps.dtype.char)
    info, room = steps.room(_ALIGNED), steps.room(work * steps.dtype.itemsize)
    steps.lay(steps.place(a), lu, (n, n), a.strides)  # type: ignore[arg-type]
    steps.call(LU, n, n, lu, n, room, pivots, info)


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
    if n <= steps.most:
        numbers = n, k, *strides, int(transposed)
        steps.launch("solved", -(-k // COLUMNS), *factors, b, to, steps.refused, *numbers)
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
    if n <= steps.most:
        steps.launch(
            "triangle_solved", -(-k // COLUMNS), place, steps.place(b), to, steps.refused,
            n, r0, r1, k, *strides, upper, transposed,
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
    if n <= steps.most:
        steps.launch("cholesky", 1, steps.place(a), to, steps.refused, n, *a.strides, int(upper))
        return
    uplo, gpu = _LOWER if upper else _UPPER, steps.encoder.gpu
    work = gpu.solver_room("potrf", n, steps.dtype.char)
    info, room = steps.room(_ALIGNED), steps.room(work * steps.dtype.itemsize)
    steps.lay(steps.place(a), to, (n, n), a.strides)  # type: ignore[arg-type]
    steps.call(CHOLESKY, uplo, n, to, n, room, work, info)
    blocks = min(-(-n * n // THREADS), _BLOCKS)
    steps.launch("triangular", blocks, to, info, steps.refused, n, int(upper))


def _determined(steps: Steps, s: CallStep) -> None:
    lu, pivots = s.operands
    to = [steps.encoder.place(b) for b in s.results]
    places = to[0], to[1] if len(to) > 1 else 0
    steps.launch("determined", 1, steps.place(lu), steps.place(pivots), *places, lu.shape[0])


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
