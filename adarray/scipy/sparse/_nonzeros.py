"""Nonzeros of sparse arrays: where they are, what moves them, and arrays made of them anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from adarray.base.errors import NotDifferentiableError
from adarray.core.trace import Handle
from adarray.scipy.sparse._pattern import Pattern, sum_of_equal

# Our classes by format and kind: _arrays.py has them.
CLASSES: dict[tuple[str, str], Any] = {}


def is_sparse(x: Any) -> bool:
    """Whether `x` is one of SciPy's sparse arrays or matrices, or of ours."""
    return bool(scipy.sparse.issparse(x))


def active(x: Any) -> bool:
    """Whether `x` is an ADArray, or a sparse array with ADArrays in it."""
    if isinstance(x, Handle):
        return True
    return is_sparse(x) and isinstance(getattr(x, "data", None), Handle)


def pattern_of(a: Any) -> Pattern:
    """Return the positions of the nonzeros of a sparse array, in the order of its data."""
    cached = a.__dict__.get("_pattern")
    if cached is not None and cached[0] is a.data:
        return cached[1]  # type: ignore[no-any-return]
    if a.format == "coo":
        if a.ndim != 2:
            raise NotDifferentiableError(
                f"sparse: an array of {a.ndim} dimensions is not differentiated; use 2"
            )
        rows, cols = a.row, a.col
    else:
        major = np.repeat(np.arange(len(a.indptr) - 1), np.diff(a.indptr))
        minor = a.indices
        rows, cols = (major, minor) if a.format == "csr" else (minor, major)
    pattern = Pattern(rows, cols, a.shape)
    a.__dict__["_pattern"] = (a.data, pattern)
    return pattern


def ours(a: Any) -> Any:
    """Return a sparse array of SciPy's as one of ours (of another format: as CSR)."""
    if isinstance(a, tuple(CLASSES.values())) or not is_sparse(a):
        return a
    kind = "array" if isinstance(a, scipy.sparse.sparray) else "matrix"
    if getattr(a, "ndim", 2) != 2:
        return a
    name = a.format if a.format in ("csr", "csc", "coo") else "csr"
    return CLASSES[name, kind](a)


def compressed(values: Any, pattern: Pattern, like: Any, fmt: str = "csr") -> Any:
    """Return the sparse array with `values` at the positions, equal positions added."""
    keys, summed = sum_of_equal(values, pattern.keys())
    rows, cols = np.divmod(keys, pattern.shape[1])
    kind = "array" if isinstance(like, scipy.sparse.sparray) else "matrix"
    array = CLASSES["coo", kind]((summed, (rows, cols)), shape=pattern.shape)
    return array if fmt == "coo" else getattr(array, "to" + fmt)()


def zeroed(a: Any) -> Any:
    """Return the SciPy array with the same pattern and plain zeros for values."""
    zeros = np.zeros(a.data.shape, a.data.dtype)
    if a.format == "coo":
        return scipy.sparse.coo_array((zeros, (a.row, a.col)), shape=a.shape)
    make = getattr(scipy.sparse, f"{a.format}_array")
    return make((zeros, a.indices, a.indptr), shape=a.shape)


def with_zeros(a: Any, dtype: Any) -> Any:
    """Return a copy with plain zeros for values."""
    a = a.copy()
    a.data = np.zeros(a.data.shape, dtype)
    return a


def numbered(a: Any) -> Any:
    """Return SciPy's array with the numbers of the nonzeros, from 1, for values."""
    numbers = np.arange(1, a.data.shape[0] + 1)
    kind = "array" if isinstance(a, scipy.sparse.sparray) else "matrix"
    if a.format == "coo":
        make = getattr(scipy.sparse, f"coo_{kind}")
        return make((numbers, (a.row, a.col)), shape=a.shape)
    make = getattr(scipy.sparse, f"{a.format}_{kind}")
    return make((numbers, a.indices, a.indptr), shape=a.shape)


def picked(r: Any, values: Any) -> Any:
    """Return SciPy's result of numbered nonzeros with `values` in place of the numbers."""
    if not is_sparse(r):  # an element, or a dense row
        padded = np.concatenate([np.zeros(1, values.dtype), values])
        return padded[np.asarray(r)]
    if r.ndim != 2:  # rows of sparse arrays: of one dimension
        dense = np.concatenate([np.zeros(1, values.dtype), values])
        return dense[r.toarray()]
    kind = "array" if isinstance(r, scipy.sparse.sparray) else "matrix"
    if r.format not in ("csr", "csc", "coo"):
        r = r.tocsr()
    order = r.data - 1
    array = CLASSES[r.format, kind](with_zeros(r, values.dtype))
    array.data = values[order]
    return array
