"""Construction and conversion of sparse arrays with traced nonzeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import plain
from adarray.core.trace import Handle
from adarray.ops.creation import asarray
from adarray.scipy.sparse._nonzeros import (
    CLASSES,
    active,
    compressed,
    is_sparse,
    numbered,
    ours,
    pattern_of,
    picked,
    with_zeros,
    zeroed,
)
from adarray.scipy.sparse._pattern import product, sum_of_equal


class Convertible:
    """Construction and conversion of our sparse arrays, in place of SciPy's methods."""

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
            values, arg1 = moved.data, zeroed(moved)
        elif isinstance(arg1, Handle):
            where = np.nonzero(plain(dense))
            numbers = np.arange(1, len(where[0]) + 1)
            numbered_ = scipy.sparse.coo_array((numbers, where), dense.shape)
            order = getattr(numbered_, f"to{self.format}")()
            values = dense[where][order.data - 1]
            arg1 = with_zeros(order, values.dtype)
        elif isinstance(arg1, tuple) and arg1 and isinstance(arg1[0], (Handle, list, tuple)):
            first = asarray(arg1[0])
            if isinstance(first, Handle):
                values, arg1 = self._from_parts(first, arg1[1:], shape)
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
                like = scipy.sparse.coo_array((np.zeros(values.shape), (rows, cols)), shape)
                return values, like
            keys, values = sum_of_equal(values, rows.astype(np.int64) * shape[1] + cols)
            rows, cols = np.divmod(keys, shape[1])
            numbered = scipy.sparse.coo_array((np.arange(1, keys.size + 1), (rows, cols)), shape)
            order = getattr(numbered, "to" + self.format)()
            return values[order.data - 1], with_zeros(order, values.dtype)
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
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied.data = values
        copied.__dict__["_pattern"] = (values, p)
        return copied

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
