"""Systems of linear equations with a matrix that is factorised already.

A derivative solves with the matrix of the function again, transposed, and that of a logarithm of a
determinant is the inverse. NumPy's functions do not hand out the factors that they compute. So in
a compiled program calls with one matrix share an LU factorisation of LAPACK's, forward and
backward; and what `numpy.linalg.cholesky` returned, or a block on its diagonal, is solved with as
the triangle that it is. It needs the LAPACK of SciPy: where that is not installed, all stays.

On a GPU even one call is written so: its backend launches factorisation and solution among the
other steps of a plan, where a call of a library's function would be a step that the host waits for.

References
----------
- E. Anderson et al., "LAPACK Users' Guide", 3rd ed., SIAM 1999, section 2.4.1 (getrf, getrs, getri,
  trtrs).
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from adarray.base.types import Function
from adarray.compiler.ir.builder import Builder, is_paired
from adarray.compiler.ir.primitives import CallResult, PythonCall, Slot, View
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import CpuTarget, GpuTarget, Target
from adarray.compiler.rewrite.rebuild import rebuild, renewed

# Rows of a matrix below which calls cost more than a factorisation.
LEAST = 48
INT32 = np.dtype(np.int32)
# Of the names of LAPACK's functions, by dtype.
_PREFIXES = {"f": "s", "d": "d", "F": "c", "D": "z"}
GPU_DTYPES = frozenset("fd")


@cache
def lapack() -> Any:
    """Return SciPy's functions of LAPACK; None without SciPy."""
    if find_spec("scipy") is None:
        return None
    from scipy.linalg import lapack

    return lapack


def factors(program: Program, target: Target) -> Program:
    """Return the program with one factorisation of each matrix that several calls factorise."""
    calls = [v for v in program.values if isinstance(v.primitive, PythonCall)]
    wholes = {v.args: v for v in program.values if is_paired(v)}
    on_gpu = isinstance(target, GpuTarget)
    if len(calls) < (1 if on_gpu else 2) or not isinstance(target, CpuTarget | GpuTarget):
        return program
    uses: dict[Value, list[_Use]] = defaultdict(list)
    for v in calls:
        if on_gpu:
            use = _use(v, GPU_DTYPES, 1, True, wholes)
        else:
            use = _use(v, _PREFIXES, LEAST, False, wholes)
        if use is not None:
            uses[use.root].append(use)
    least = 1 if on_gpu else 2
    changed = {
        use.value: use
        for root, group in uses.items()
        for use in group
        if (use.function is np.linalg.solve if _triangular(root) else len(group) >= least)
    }
    if not changed or not (on_gpu or lapack() is not None):
        return program
    decomposed: dict[Value, tuple[Value, Value]] = {}
    new: dict[Value, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        use = changed.get(v)
        if use is None:
            new[v] = renewed(b, v, args)
            return new[v]
        root = new.get(use.root, use.root)  # inputs are not rebuilt
        if _triangular(use.root):
            where = (use.start, use.size, use.transposed, _upper(use.root))
            call = PythonCall(solve_triangle, (Slot(0), Slot(1), *where), {})
            new[v] = b.make(call, (root, args[1]), v.shape, v.dtype)
            return new[v]
        if use.root not in decomposed:
            if root is use.root and is_paired(root):  # it stands behind the first use of its parts
                root = b.paired(*(new.get(p, p) for p in use.root.args))
            decomposed[use.root] = _decompose(b, root)
        new[v] = _with_factors(b, use, decomposed[use.root], args)
        return new[v]

    return rebuild(program, rule)


# -- which calls -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    """A call with a matrix: the function, and where in what array the matrix is.

    Attributes
    ----------
    value : Value
    function : callable
    root : Value
    start, size : int
        The block on the diagonal of `root`.
    transposed : bool
    """

    value: Value
    function: Function
    root: Value
    start: int
    size: int
    transposed: bool


_FUNCTIONS = (np.linalg.solve, np.linalg.inv, np.linalg.det, np.linalg.slogdet)


def may_refuse(v: Value) -> bool:
    """Whether a value is a call that refuses a singular or indefinite matrix."""
    call = v.primitive
    refusing = np.linalg.solve, np.linalg.inv, np.linalg.cholesky
    return isinstance(call, PythonCall) and any(call.function is f for f in refusing)


def _use(
    v: Value,
    dtypes: Container[str],
    least: int,
    views: bool,
    wholes: Mapping[tuple[Value, ...], Value],
) -> _Use | None:
    """Return what a call does with a matrix of so many rows; None if that is not covered.

    `views` says whether a matrix may be any view; else it is a whole array or one transposed.
    `wholes` are complex arrays by their parts.
    """
    call = v.primitive
    assert isinstance(call, PythonCall)
    function = next((f for f in _FUNCTIONS if call.function is f), None)
    plain = call.args == tuple(Slot(k) for k in range(len(v.args))) and not call.kwargs
    if function is None or not plain or len(v.args) != 1 + (function is np.linalg.solve):
        return None
    matrix = v.args[0]
    if matrix.ndim != 2 or matrix.dtype.char not in dtypes or matrix.shape[0] < least:
        return None
    if any(b.dtype != matrix.dtype or b.ndim > 2 or not b.size for b in v.args[1:]):
        return None
    n = matrix.shape[0]
    block: tuple[Value, int, bool] | None = matrix, 0, False
    if isinstance(matrix.primitive, View):
        block = _block(matrix, matrix.args[0])
    elif is_paired(matrix):
        block = _block_of_parts(matrix, wholes) or block
    if block is None or (block[0].shape[0] != n and not _triangular(block[0])):
        if not views:
            return None
        block = matrix, 0, False
    root, start, transposed = block
    return _Use(v, function, root, start, n, transposed)


def _block_of_parts(
    matrix: Value, wholes: Mapping[tuple[Value, ...], Value]
) -> tuple[Value, int, bool] | None:
    """Return the complex matrix of whose parts those of another one are the same views."""
    re, im = matrix.args
    whole = wholes.get((*re.args, *im.args))
    if not isinstance(re.primitive, View) or re.primitive != im.primitive or whole is None:
        return None
    return _block(re, whole)


def _block(shown: Value, root: Value) -> tuple[Value, int, bool] | None:
    """Return the matrix that a view is a block on the diagonal of, where, and if transposed."""
    view = shown.primitive
    assert isinstance(view, View)
    if root.ndim != 2 or root.shape[0] != root.shape[1]:
        return None
    row = root.shape[0]
    start, off = divmod(view.offset, row + 1)
    if off or view.strides not in ((row, 1), (1, row)):
        return None
    return root, start, view.strides == (1, row)


def _triangular(root: Value) -> bool:
    """Whether a value is a factor of Cholesky's."""
    call = root.primitive
    return isinstance(call, PythonCall) and call.function is np.linalg.cholesky and root.ndim == 2


def _upper(root: Value) -> bool:
    call = root.primitive
    assert isinstance(call, PythonCall)
    return triangle_of(call.args, call.kwargs)


def triangle_of(args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether a call of `numpy.linalg.cholesky` asks for the upper triangle."""
    return bool(kwargs.get("upper", args[1] if len(args) > 1 else False))


# -- calls in their place ----------------------------------------------------------------------


def _decompose(b: Builder, root: Value) -> tuple[Value, Value]:
    results = ((root.shape, root.dtype), (root.shape[:1], INT32))
    call = PythonCall(decompose, (Slot(0),), {}, results)
    both = b.make(call, (root,), root.shape, root.dtype)
    lu, pivots = (b.make(CallResult(k), (both,), *results[k]) for k in range(2))
    return lu, pivots


def _with_factors(
    b: Builder, use: _Use, decomposed: tuple[Value, Value], args: tuple[Value, ...]
) -> Value:
    v = use.value
    assert isinstance(v.primitive, PythonCall)
    slots, flag = (Slot(0), Slot(1)), use.transposed
    if use.function is np.linalg.solve:
        call = PythonCall(solve_decomposed, (*slots, Slot(2), flag), {})
    elif use.function is np.linalg.inv:
        call = PythonCall(invert_decomposed, (*slots, flag), {})
    elif use.function is np.linalg.det:
        call = PythonCall(determinant, slots, {})
    else:
        call = PythonCall(logarithm_of_determinant, slots, {}, v.primitive.results)
    return b.make(call, (*decomposed, *args[1:]), v.shape, v.dtype)


# -- what they compute, on plain arrays --------------------------------------------------------


def _routine(name: str, a: np.ndarray) -> Any:
    return getattr(lapack(), _PREFIXES[a.dtype.char] + name)


def decompose(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors L and U of the transpose of `a`, transposed in one array, and the pivots.

    LAPACK's arrays are in the order of columns: the transpose is what it finds in `a`.
    """
    lu, pivots, _ = _routine("getrf", a)(np.ascontiguousarray(a).T)
    return lu.T, pivots


def _check(lu: np.ndarray) -> None:
    if np.any(np.diagonal(lu) == 0):
        raise np.linalg.LinAlgError("Singular matrix")


def solve_decomposed(
    lu: np.ndarray, pivots: np.ndarray, b: np.ndarray, transposed: bool
) -> np.ndarray:
    """Return what `numpy.linalg.solve` does for the matrix or its transpose."""
    _check(lu)
    x: np.ndarray = _routine("getrs", lu)(lu.T, pivots, b, trans=int(not transposed))[0]
    return x.reshape(b.shape)


def invert_decomposed(lu: np.ndarray, pivots: np.ndarray, transposed: bool) -> np.ndarray:
    """Return the inverse of the matrix or its transpose."""
    _check(lu)
    lwork = int(_routine("getri_lwork", lu)(len(lu))[0].real)
    inverse: np.ndarray = _routine("getri", lu)(lu.T, pivots, lwork=lwork)[0]
    return inverse if transposed else inverse.T


def logarithm_of_determinant(lu: np.ndarray, pivots: np.ndarray) -> tuple[Any, Any]:
    """Return sign and logarithm of the determinant as `numpy.linalg.slogdet` does."""
    diagonal = np.diagonal(lu)
    sizes = np.abs(diagonal)
    if np.any(sizes == 0):
        return diagonal.dtype.type(0), sizes.dtype.type(-np.inf)
    swaps = np.count_nonzero(pivots != np.arange(len(pivots)))
    sign = np.prod(diagonal / sizes) * (-1 if swaps % 2 else 1)
    return diagonal.dtype.type(sign), np.sum(np.log(sizes))


def determinant(lu: np.ndarray, pivots: np.ndarray) -> Any:
    """Return the determinant as `numpy.linalg.det` does."""
    sign, logarithm = logarithm_of_determinant(lu, pivots)
    return sign * np.exp(logarithm)


def solve_triangle(
    factor: np.ndarray, b: np.ndarray, start: int, size: int, transposed: bool, upper: bool
) -> np.ndarray:
    """Return the solution for a block of a triangular matrix, or its transpose."""
    block = np.ascontiguousarray(factor[start : start + size, start : start + size])
    # In the order of columns it is the transpose, whose other triangle is zero.
    x, info = _routine("trtrs", block)(block.T, b, lower=int(upper), trans=int(not transposed))
    if info:
        raise np.linalg.LinAlgError("Singular matrix")
    solution: np.ndarray = x
    return solution.reshape(b.shape)
