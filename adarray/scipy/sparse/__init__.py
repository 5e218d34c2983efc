"""Drop-in for `scipy.sparse`: arrays and matrices with nonzeros that may be traced.

SciPy's own sparse arrays can be multiplied by a traced `x`, as in ``A @ x``. The arrays made here
do all that those do, and are differentiated with respect to the nonzeros, too.

>>> import numpy as np, adarray
>>> from adarray.scipy import sparse
>>> A = sparse.csr_array(np.array([[2.0, 0.0], [1.0, 3.0]]))
>>> adarray.grad(lambda x: np.sum((A @ x) ** 2))(np.array([1.0, 1.0]))
array([16., 24.])
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from adarray.core.protocol import plain
from adarray.scipy._drop_in import REPLACEMENTS, array, fill_in, holds

# isort: off
from adarray.scipy.sparse._arrays import (
    coo_array as coo_array,
    coo_matrix as coo_matrix,
    csc_array as csc_array,
    csc_matrix as csc_matrix,
    csr_array as csr_array,
    csr_matrix as csr_matrix,
)
from adarray.scipy.sparse._nonzeros import (
    CLASSES,
    active,
    is_sparse,
    numbered,
    ours,
    pattern_of,
    picked,
)

# isort: on
from adarray.core.trace import Handle
from adarray.scipy.sparse._pattern import Pattern


def _any_active(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_any_active, x))
    return active(x)


def _moving(name: str) -> Callable[..., Any]:
    """Return a function of SciPy's that puts nonzeros together, for traced ones too."""
    function = getattr(scipy.sparse, name)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _any_active(args):
            return ours(function(*args, **kwargs))
        values: list[Any] = []
        count = [0]

        def number(x: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return type(x)(number(i) for i in x)
            if isinstance(x, Handle) or (isinstance(x, np.ndarray) and x.ndim == 2):
                x = csr_array(x)
            if not is_sparse(x):
                return x
            x = ours(x)._canonical()
            numbers = x.copy() if not active(x) else None
            shell = scipy.sparse.coo_array if x._kind == "array" else scipy.sparse.coo_matrix
            p = pattern_of(x)
            first = count[0] + 1
            count[0] += p.rows.size
            values.append(x.data)
            del numbers
            return shell((np.arange(first, count[0] + 1), (p.rows, p.cols)), shape=x.shape)

        numbered = [number(x) for x in args]
        kwargs.pop("dtype", None)
        moved = function(*numbered, **kwargs)
        return picked(moved, np.concatenate(values))

    REPLACEMENTS[function] = call
    return call


hstack, vstack, tril, triu = (_moving(n) for n in ("hstack", "vstack", "tril", "triu"))
block_diag, bmat, block_array = (_moving(n) for n in ("block_diag", "bmat", "block_array"))


def _diagonals(diagonals: Any, offsets: Any, shape: Any) -> tuple[Any, Pattern]:
    """Return values and positions of nonzeros on diagonals."""
    lines = [diagonals] if np.ndim(plain(offsets)) == 0 else list(diagonals)
    ks = [int(k) for k in np.atleast_1d(offsets)]
    lines = [np.atleast_1d(array(d)) for d in lines]
    if len(lines) != len(ks):
        raise ValueError("Different number of diagonals and offsets.")
    if shape is None:
        m = lines[0].shape[0] + abs(ks[0])
        shape = (m, m)
    values, rows, cols = [], [], []
    for d, k in zip(lines, ks, strict=True):
        length = min(shape[0] + min(k, 0), shape[1] - max(k, 0))
        if length < 0 or d.shape[0] not in (1, length):
            raise ValueError(
                f"Diagonal length (index {k}: {d.shape[0]} at offset {k}) does not agree with "
                f"array size ({shape[0]}, {shape[1]})."
            )
        i = np.arange(length)
        values.append(np.broadcast_to(d, (length,)))
        rows.append(i - min(k, 0))
        cols.append(i + max(k, 0))
    return np.concatenate(values), Pattern(np.concatenate(rows), np.concatenate(cols), shape)


def _diagonal_maker(name: str, kind: str) -> Callable[..., Any]:
    function = getattr(scipy.sparse, name)

    @functools.wraps(function)
    def call(
        diagonals: Any, offsets: Any = 0, shape: Any = None, format: Any = None, dtype: Any = None,
        **rest: Any,
    ) -> Any:  # fmt: skip
        if not holds(diagonals):
            if kind == "array":
                rest.update(offsets=offsets, shape=shape, format=format, dtype=dtype)
                return ours(function(diagonals, **rest))
            return ours(function(diagonals, offsets, shape, format, dtype))
        values, p = _diagonals(diagonals, offsets, shape)
        values = values if dtype is None else values.astype(dtype)
        diagonal = CLASSES["coo", kind]((values, (p.rows, p.cols)), shape=p.shape)
        return getattr(diagonal, "to" + (format if format in ("csr", "csc", "coo") else "csr"))()

    REPLACEMENTS[function] = call
    return call


diags_array = _diagonal_maker("diags_array", "array")
diags = _diagonal_maker("diags", "matrix")


@functools.wraps(scipy.sparse.kron)
def kron(A: Any, B: Any, format: Any = None) -> Any:
    if not (active(A) or active(B)):
        return ours(scipy.sparse.kron(A, B, format))
    a, b = (ours(x) if is_sparse(x) else csr_array(x) for x in (A, B))
    p, q = pattern_of(a), pattern_of(b)
    (m, n), shape = b.shape, (a.shape[0] * b.shape[0], a.shape[1] * b.shape[1])
    rows = (p.rows[:, None] * m + q.rows[None, :]).ravel()
    cols = (p.cols[:, None] * n + q.cols[None, :]).ravel()
    values = np.reshape(a.data[:, None] * b.data[None, :], (-1,))
    product = CLASSES["coo", a._kind]((values, (rows, cols)), shape=shape)
    return getattr(product, "to" + (format if format in ("csr", "csc", "coo") else "csr"))()


REPLACEMENTS[scipy.sparse.kron] = kron


@functools.wraps(scipy.sparse.find)
def find(A: Any) -> Any:
    a = ours(A) if is_sparse(A) else csr_array(A)
    if not active(a):
        return scipy.sparse.find(A)
    a = a._canonical()
    rows, cols, numbers = scipy.sparse.find(numbered(a))
    nonzero = np.flatnonzero(plain(a.data)[numbers - 1])
    return rows[nonzero], cols[nonzero], a.data[numbers[nonzero] - 1]


_getattr, __dir__, __all__ = fill_in(globals(), scipy.sparse)
_MAKERS = ("eye", "eye_array", "identity", "random", "random_array", "rand", "load_npz", "spdiags",
           "kronsum")  # fmt: skip


def _returning_ours(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return ours(function(*args, **kwargs))

    return call


def __getattr__(name: str) -> Any:
    if name == "linalg":
        return importlib.import_module("adarray.scipy.sparse.linalg")
    if name in _MAKERS:
        maker = _returning_ours(getattr(scipy.sparse, name))
        globals()[name] = maker
        return maker
    member = getattr(scipy.sparse, name, None)
    if isinstance(member, types.FunctionType) and name.startswith(("isspmatrix", "issparse")):
        return member
    return _getattr(name)


_OURS = (coo_array, coo_matrix, csc_array, csc_matrix, csr_array, csr_matrix)
__all__ = sorted({*__all__, *(function.__name__ for function in _OURS)})
