"""Sparse arrays and matrices whose nonzeros may be traced.

They are subclasses of SciPy's: with plain values SciPy does everything. With traced
ones, products and sums are operations on the nonzeros, and what only moves nonzeros
(indexing, transposition, change of format) is done by SciPy on their numbers. Any
other method meets `TraceError` where SciPy would take the values.
"""

from __future__ import annotations

import scipy.sparse

from adarray.scipy.sparse._arithmetic import Differentiable
from adarray.scipy.sparse._nonzeros import CLASSES


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


CLASSES.update({
    (name[:3], name[4:]): cls
    for name, cls in (
        ("csr_array", csr_array), ("csc_array", csc_array), ("coo_array", coo_array),
        ("csr_matrix", csr_matrix), ("csc_matrix", csc_matrix), ("coo_matrix", coo_matrix),
    )
})  # fmt: skip
