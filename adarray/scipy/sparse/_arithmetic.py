"""Sums and products of sparse arrays: operations on their nonzeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import plain, traced
from adarray.core.trace import Handle
from adarray.ops.creation import asarray
from adarray.scipy.sparse._conversion import Convertible
from adarray.scipy.sparse._nonzeros import active, compressed, is_sparse, ours, pattern_of
from adarray.scipy.sparse._pattern import Pattern, product


class Differentiable(Convertible):
    """Arithmetic of sparse arrays with traced nonzeros; SciPy computes plain ones."""

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
        transposed = other.T if other.ndim > 1 else other
        r = self.transpose()._matmul_dispatch(transposed)
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
