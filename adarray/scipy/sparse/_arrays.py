"""Sparse arrays and matrices whose nonzeros may be traced.

They are subclasses of SciPy's: with plain values SciPy does everything. With traced
ones, products and sums are operations on the nonzeros, and what only moves nonzeros
(indexing, transposition, change of format) is done by SciPy on their numbers. Any
other method meets `TraceError` where SciPy would take the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from adarray.errors import NotDifferentiableError
from adarray.ops.creation import asarray
from adarray.protocol import plain, traced
from adarray.scipy.sparse._pattern import Pattern, product, sum_of_equal
from adarray.trace import Handle


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
    kept = a.__dict__.get("_pattern")
    if kept is not None and kept[0] is a.data:
        return kept[1]  # type: ignore[no-any-return]
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
    made = Pattern(rows, cols, a.shape)
    a.__dict__["_pattern"] = (a.data, made)
    return made


def ours(a: Any) -> Any:
    """Return a sparse array of SciPy's as one of ours (of another format: as CSR)."""
    if isinstance(a, Differentiable) or not is_sparse(a):
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
    made = CLASSES["coo", kind]((summed, (rows, cols)), shape=pattern.shape)
    return made if fmt == "coo" else getattr(made, "to" + fmt)()


class Differentiable:
    """What our sparse classes add to SciPy's."""

    data: Any
    shape: tuple[int, ...]
    format: str

    def __init__(
        self, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False, **options: Any
    ) -> None:
        values: Any = None
        dense: Any = arg1
        if is_sparse(arg1) and active(arg1):
            moved = (
                arg1 if arg1.format == self.format else getattr(ours(arg1), f"to{self.format}")()
            )
            values, arg1 = moved.data, _without(moved)
        elif isinstance(arg1, Handle):
            where = np.nonzero(plain(dense))
            numbers = np.arange(1, len(where[0]) + 1)
            numbered_ = scipy.sparse.coo_array((numbers, where), dense.shape)
            order = getattr(numbered_, f"to{self.format}")()
            values = dense[where][order.data - 1]
            arg1 = _numbers_replaced(order, values.dtype)
        elif isinstance(arg1, tuple) and arg1 and isinstance(arg1[0], (Handle, list, tuple)):
            given = asarray(arg1[0])
            if isinstance(given, Handle):
                values, arg1 = self._from_parts(given, arg1[1:], shape)
        super().__init__(arg1, shape=shape, dtype=None if values is not None else dtype,
                         copy=copy, **options)  # type: ignore[call-arg]  # fmt: skip
        if values is not None:
            self.data = values if dtype is None else values.astype(dtype)

    def _from_parts(self, values: Any, rest: Any, shape: Any) -> tuple[Any, Any]:
        """Return the values in this format's order, and a SciPy array of the same pattern."""
        if len(rest) == 1:
            rows, cols = (np.asarray(plain(i)) for i in rest[0])
            if shape is None:
                shape = (int(rows.max()) + 1, int(cols.max()) + 1)
            if self.format == "coo":
                made = scipy.sparse.coo_array((np.zeros(values.shape), (rows, cols)), shape)
                return values, made
            keys, values = sum_of_equal(values, rows.astype(np.int64) * shape[1] + cols)
            rows, cols = np.divmod(keys, shape[1])
            numbered = scipy.sparse.coo_array((np.arange(1, keys.size + 1), (rows, cols)), shape)
            order = getattr(numbered, "to" + self.format)()
            return values[order.data - 1], _numbers_replaced(order, values.dtype)
        indices, indptr = (np.asarray(plain(i)) for i in rest)
        return values, (np.zeros(values.shape, values.dtype), indices, indptr)

    # What SciPy's own methods make their results of.
    @property
    def _kind(self) -> str:
        return "array" if isinstance(self, scipy.sparse.sparray) else "matrix"

    @property
    def _csr_container(self) -> Any:
        return CLASSES["csr", self._kind]

    @property
    def _csc_container(self) -> Any:
        return CLASSES["csc", self._kind]

    @property
    def _coo_container(self) -> Any:
        return CLASSES["coo", self._kind]

    # -- moving nonzeros ----------------------------------------------------------------------

    def _moved(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Run a method of SciPy's that moves nonzeros on their numbers, and pick the values."""
        r = getattr(numbered(self), name)(*args, **kwargs)
        return picked(r, self.data)

    def _canonical(self) -> Any:
        """Return COO with each position once; others as they are."""
        if self.format != "coo":
            return self
        p = pattern_of(self)
        keys = p.keys()
        if np.unique(keys).size == keys.size:
            return self
        return compressed(self.data, p, self, "coo")

    def _convert(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if not active(self):
            return ours(getattr(super(), name)(*args, **kwargs))
        return self._canonical()._moved(name, *args, **kwargs)

    def tocsr(self, copy: bool = False) -> Any:
        """As in SciPy."""
        return self._convert("tocsr", copy=copy)

    def tocsc(self, copy: bool = False) -> Any:
        """As in SciPy."""
        return self._convert("tocsc", copy=copy)

    def tocoo(self, copy: bool = True) -> Any:
        """As in SciPy."""
        return self._convert("tocoo", copy=copy)

    def transpose(self, axes: Any = None, copy: bool = False) -> Any:
        """As in SciPy."""
        return self._convert("transpose", axes=axes, copy=copy)

    @property
    def T(self) -> Any:  # noqa: N802  (NumPy's name)
        """The transpose."""
        return self.transpose()

    def reshape(self, *args: Any, **kwargs: Any) -> Any:
        """As in SciPy."""
        return self._convert("reshape", *args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        key = plain(key)
        if not active(self):
            return ours(super().__getitem__(key))  # type: ignore[misc]
        if self.format == "coo":
            return self.tocsr()[key]
        return self._moved("__getitem__", key)

    def copy(self) -> Any:
        """As in SciPy."""
        return self._with_values(self.data + 0) if active(self) else super().copy()  # type: ignore[misc]

    def _with_values(self, values: Any) -> Any:
        """Return an array with the same pattern and other values."""
        p = pattern_of(self)
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.data = values
        made.__dict__["_pattern"] = (values, p)
        return made

    def conjugate(self, copy: bool = True) -> Any:
        """As in SciPy."""
        if not active(self):
            return super().conjugate(copy)  # type: ignore[misc]
        return self._with_values(np.conjugate(self.data))

    conj = conjugate

    def astype(self, dtype: Any, casting: str = "unsafe", copy: bool = True) -> Any:
        """As in SciPy."""
        if not active(self):
            return super().astype(dtype, casting, copy)  # type: ignore[misc]
        return self._with_values(self.data.astype(dtype))

    # -- to dense -----------------------------------------------------------------------------

    def toarray(self, order: Any = None, out: Any = None) -> Any:
        """As in SciPy; an ADArray where the nonzeros are one."""
        if not active(self):
            return super().toarray(order, out)  # type: ignore[misc]
        if out is not None:
            raise NotDifferentiableError("toarray: out= is not differentiated; use the result")
        p = pattern_of(self)
        keys, values = sum_of_equal(self.data, p.keys())
        where = np.zeros(p.shape[0] * p.shape[1], int)
        where[keys] = np.arange(1, keys.size + 1)
        padded = np.concatenate([np.zeros(1, values.dtype), values])
        return np.reshape(padded[where], p.shape)

    def todense(self, order: Any = None, out: Any = None) -> Any:
        """As in SciPy; for traced nonzeros an ADArray."""
        return self.toarray(order, out) if active(self) else super().todense(order, out)  # type: ignore[misc]

    def diagonal(self, k: int = 0) -> Any:
        """As in SciPy."""
        if not active(self):
            return super().diagonal(k)  # type: ignore[misc]
        p = pattern_of(self)
        rows, columns = p.shape
        count = max(min(rows + min(k, 0), columns - max(k, 0)), 0)
        on = np.flatnonzero(p.cols - p.rows == k)
        keys, values = sum_of_equal(self.data[on], p.rows[on] + min(k, 0))
        where = np.zeros(count, int)
        where[keys] = np.arange(1, keys.size + 1)
        return np.concatenate([np.zeros(1, values.dtype), values])[where]

    def trace(self, offset: int = 0) -> Any:
        """As in SciPy."""
        return np.sum(self.diagonal(offset))

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """As in SciPy."""
        if not active(self):
            return super().sum(axis, dtype, out)  # type: ignore[misc]
        if out is not None:
            raise NotDifferentiableError("sum: out= is not differentiated; use the result")
        data = self.data if dtype is None else self.data.astype(dtype)
        if axis is None or axis == (0, 1):
            return np.sum(data)
        p, axis = pattern_of(self), int(axis) % 2
        p = p if axis == 1 else p.T
        total = product(data, np.ones(p.shape[1], data.dtype), p)
        if self._kind == "array":
            return total
        return total[:, None] if axis == 1 else total[None, :]

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """As in SciPy."""
        if not active(self):
            return super().mean(axis, dtype, out)  # type: ignore[misc]
        count = self.shape[0] * self.shape[1] if axis is None else self.shape[int(axis) % 2]
        return self.sum(axis, dtype, out) / count

    # -- arithmetic ---------------------------------------------------------------------------

    def _matmul_dispatch(self, other: Any) -> Any:
        if isinstance(other, (list, tuple)):
            other = asarray(other)
        if not (active(self) or active(other)):
            return ours(super()._matmul_dispatch(other))  # type: ignore[misc]
        if is_sparse(other):
            return _sparse_product(self, ours(other))
        if not isinstance(other, (Handle, np.ndarray)):
            other = np.asarray(other)
        if other.ndim == 0:
            raise ValueError("Scalar operands are not allowed, use '*' instead")
        if other.shape[0] != self.shape[1]:
            raise ValueError(f"dimension mismatch: {self.shape} @ {other.shape}")
        flat = np.reshape(other, (other.shape[0], -1)) if other.ndim > 2 else other
        r = product(self.data, flat, pattern_of(self))
        return np.reshape(r, (-1, *other.shape[1:])) if other.ndim > 2 else r

    def _rmatmul_dispatch(self, other: Any) -> Any:
        if not (active(self) or active(other)):
            return ours(super()._rmatmul_dispatch(other))  # type: ignore[misc]
        other = asarray(other)
        turned = other.T if other.ndim > 1 else other
        r = self.transpose()._matmul_dispatch(turned)
        return r.T if other.ndim > 1 else r

    def __matmul__(self, other: Any) -> Any:
        if np.isscalar(other):
            raise ValueError("Scalar operands are not allowed, use '*' instead")
        return self._matmul_dispatch(other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._rmatmul_dispatch(other)

    def dot(self, other: Any) -> Any:
        """As in SciPy."""
        return self * other if _scalar(other) else self @ other

    def multiply(self, other: Any) -> Any:
        """Multiply elements, as in SciPy."""
        if not (active(self) or active(other)):
            return ours(super().multiply(other))  # type: ignore[misc]
        if _scalar(other):
            return self._with_values(self.data * other)
        a = self._canonical()
        p = pattern_of(a)
        if is_sparse(other):
            return _intersection(a, ours(other)._canonical())
        other = asarray(other)
        wide = np.broadcast_to(other, p.shape)
        return a._with_values(a.data * wide[p.rows, p.cols])

    def __mul__(self, other: Any) -> Any:
        if _scalar(other):
            return self.multiply(other) if active(self) or active(other) else super().__mul__(other)  # type: ignore[misc]
        return self.multiply(other) if self._kind == "array" else self._matmul_dispatch(other)

    def __rmul__(self, other: Any) -> Any:
        if _scalar(other) or self._kind == "array":
            return self * other
        return self._rmatmul_dispatch(other)

    def __truediv__(self, other: Any) -> Any:
        if not (active(self) or active(other)):
            return ours(super().__truediv__(other))  # type: ignore[misc]
        if is_sparse(other):
            raise NotDifferentiableError(
                "divide: a quotient of two sparse arrays is dense and holds 0 / 0; use toarray()"
            )
        return self.multiply(1.0 / asarray(other) if not _scalar(other) else 1.0 / other)

    def __neg__(self) -> Any:
        return self._with_values(-self.data) if active(self) else super().__neg__()  # type: ignore[misc]

    def __abs__(self) -> Any:
        return self._with_values(np.abs(self.data)) if active(self) else super().__abs__()  # type: ignore[misc]

    def power(self, n: Any, dtype: Any = None) -> Any:
        """Raise the elements to a power, as in SciPy."""
        if not active(self):
            return super().power(n, dtype)  # type: ignore[misc]
        if not _scalar(n) or plain(n) <= 0:
            raise NotImplementedError("input is not scalar, or zero power would make it dense")
        a = self._canonical()
        return a._with_values((a.data if dtype is None else a.data.astype(dtype)) ** n)

    def __pow__(self, other: Any) -> Any:
        if not active(self):
            return super().__pow__(other)  # type: ignore[misc]
        if self._kind == "array":
            return self.power(other)
        r = self
        for _ in range(int(other) - 1):
            r = r @ self
        return r

    def _plus(self, other: Any, sign: int) -> Any:
        if _scalar(other):
            if not traced(other) and plain(other) == 0:
                return self.copy()
            raise NotImplementedError("adding a nonzero scalar to a sparse array is not supported")
        if not is_sparse(other):
            return self.toarray() + sign * asarray(other)
        other = ours(other)
        if self.shape != other.shape:
            raise ValueError(f"inconsistent shapes {self.shape} and {other.shape}")
        p, q = pattern_of(self), pattern_of(other)
        both = Pattern(np.concatenate([p.rows, q.rows]), np.concatenate([p.cols, q.cols]), p.shape)
        values = np.concatenate([self.data, sign * other.data])
        return compressed(values, both, self, "csc" if self.format == "csc" else "csr")

    def __add__(self, other: Any) -> Any:
        if not (active(self) or active(other)):
            return ours(super().__add__(other))  # type: ignore[misc]
        return self._plus(other, 1)

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Any:
        if not (active(self) or active(other)):
            return ours(super().__sub__(other))  # type: ignore[misc]
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        if not (active(self) or active(other)):
            return ours(super().__rsub__(other))  # type: ignore[misc]
        return (-self)._plus(other, 1)


def _scalar(x: Any) -> bool:
    return not is_sparse(x) and np.ndim(plain(x)) == 0


def _without(a: Any) -> Any:
    """Return the SciPy array with the same pattern and plain zeros for values."""
    zeros = np.zeros(a.data.shape, a.data.dtype)
    if a.format == "coo":
        return scipy.sparse.coo_array((zeros, (a.row, a.col)), shape=a.shape)
    made = getattr(scipy.sparse, f"{a.format}_array")
    return made((zeros, a.indices, a.indptr), shape=a.shape)


def _numbers_replaced(a: Any, dtype: Any) -> Any:
    a = a.copy()
    a.data = np.zeros(a.data.shape, dtype)
    return a


def numbered(a: Any) -> Any:
    """Return SciPy's array with the numbers of the nonzeros, from 1, for values."""
    numbers = np.arange(1, a.data.shape[0] + 1)
    kind = "array" if isinstance(a, scipy.sparse.sparray) else "matrix"
    if a.format == "coo":
        made = getattr(scipy.sparse, f"coo_{kind}")
        return made((numbers, (a.row, a.col)), shape=a.shape)
    made = getattr(scipy.sparse, f"{a.format}_{kind}")
    return made((numbers, a.indices, a.indptr), shape=a.shape)


def picked(r: Any, values: Any) -> Any:
    """Return what SciPy made of numbered nonzeros with the `values` in their places."""
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
    made = CLASSES[r.format, kind](_numbers_replaced(r, values.dtype))
    made.data = values[order]
    return made


def _intersection(a: Any, b: Any) -> Any:
    p, q = pattern_of(a), pattern_of(b)
    if a.shape != b.shape:
        raise ValueError(f"inconsistent shapes {a.shape} and {b.shape}")
    _, i, j = np.intersect1d(p.keys(), q.keys(), assume_unique=True, return_indices=True)
    both = Pattern(p.rows[i], p.cols[i], p.shape)
    return compressed(a.data[i] * b.data[j], both, a)


def _sparse_product(a: Any, b: Any) -> Any:
    """Multiply two sparse arrays: every pair of nonzeros that meet."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"dimension mismatch: {a.shape} @ {b.shape}")
    b = b.tocsr()
    p, q = pattern_of(a), pattern_of(b)
    counts = np.diff(b.indptr)[p.cols]
    left = np.repeat(np.arange(p.rows.size), counts)
    ends = np.cumsum(counts)
    right = np.arange(left.size) - np.repeat(ends - counts, counts) + b.indptr[p.cols][left]
    pairs = Pattern(p.rows[left], q.cols[right], (a.shape[0], b.shape[1]))
    return compressed(a.data[left] * b.data[right], pairs, a)


class csr_array(Differentiable, scipy.sparse.csr_array):  # type: ignore[misc]  # noqa: N801
    """`scipy.sparse.csr_array` whose nonzeros may be traced."""


class csc_array(Differentiable, scipy.sparse.csc_array):  # type: ignore[misc]  # noqa: N801
    """`scipy.sparse.csc_array` whose nonzeros may be traced."""


class coo_array(Differentiable, scipy.sparse.coo_array):  # type: ignore[misc]  # noqa: N801
    """`scipy.sparse.coo_array` of two dimensions whose nonzeros may be traced."""


class csr_matrix(Differentiable, scipy.sparse.csr_matrix):  # type: ignore[misc]  # noqa: N801
    """`scipy.sparse.csr_matrix` whose nonzeros may be traced."""


class csc_matrix(Differentiable, scipy.sparse.csc_matrix):  # type: ignore[misc]  # noqa: N801
    """`scipy.sparse.csc_matrix` whose nonzeros may be traced."""


class coo_matrix(Differentiable, scipy.sparse.coo_matrix):  # type: ignore[misc]  # noqa: N801
    """`scipy.sparse.coo_matrix` whose nonzeros may be traced."""


CLASSES: dict[tuple[str, str], Any] = {
    (name[:3], name[4:]): made
    for name, made in (
        ("csr_array", csr_array), ("csc_array", csc_array), ("coo_array", coo_array),
        ("csr_matrix", csr_matrix), ("csc_matrix", csc_matrix), ("coo_matrix", coo_matrix),
    )
}  # fmt: skip
__all__ = ["CLASSES", "Differentiable", "active", "compressed", "ours", "pattern_of"]
