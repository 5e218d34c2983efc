"""Types of numbers: those of Python, and NumPy's dtypes; what becomes of several of them.

A variable may be a Python int in the first iteration and a NumPy number in all others, as in
``s = 0`` before ``s += x[i]``. So a number has a set of kinds, of which it has one when it runs.
NumPy itself says what an operation makes of dtypes and of weak Python numbers (NEP 50).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from adarray.compiler.scalars.dtypes import INTEGERS as WHOLE
from adarray.kernels.types import FLOATS, INTEGERS

BOOL, INT, FLOAT = "python bool", "python int", "python float"
PYTHON = frozenset((BOOL, INT, FLOAT))
DTYPES = frozenset((*INTEGERS, *FLOATS))
# Complex numbers are pairs of real ones, of these dtypes.
PARTS = {"complex128": "float64", "complex64": "float32", "python complex": "float64"}
COMPLEX = frozenset(("complex128", "complex64"))
_STORED = {BOOL: "bool", INT: "int64", FLOAT: "float64", "python complex": "complex128"}
# What stands for a kind where NumPy resolves dtypes: a Python bool is one of NumPy's.
_WEAK: dict[str, Any] = {BOOL: np.dtype(bool), INT: int, FLOAT: float,
                         "python complex": complex}  # fmt: skip

# Numbers of kinds, in kernels that find out which one a number has.
CODES = {k: i for i, k in enumerate((*sorted(PYTHON), *sorted(DTYPES)))}

Kinds = frozenset[str]


def dtype_of(kind: str) -> str:
    """Return the dtype in which a kernel has numbers of a kind."""
    return _STORED.get(kind, kind)


def kind_of(value: Any) -> str | None:
    """Return the kind of a real number of Python or NumPy; None for all else."""
    if isinstance(value, np.generic):
        name = value.dtype.name
        return name if name in DTYPES else None
    return {bool: BOOL, int: INT, float: FLOAT}.get(type(value))


def stored(kinds: Kinds) -> str | None:
    """Return a dtype that has numbers of any of some kinds exactly; None if there is none.

    Whole numbers among floats are those below 2**53.
    """
    dtypes = {dtype_of(k) for k in kinds}
    if len(dtypes) == 1:
        return dtypes.pop()
    if dtypes & set(FLOATS):
        return None if "uint64" in dtypes else "float64"
    wide: str = np.result_type(*dtypes).name
    return wide if wide in INTEGERS else None


def is_truth(kinds: Kinds) -> bool:
    """Whether numbers of some kinds are truth values."""
    return kinds <= {BOOL, "bool"}


def is_float(kind: str) -> bool:
    """Whether numbers of a kind are floats."""
    return dtype_of(kind) in FLOATS


def is_whole(kind: str) -> bool:
    """Whether numbers of a kind are integers, and no truth values."""
    return dtype_of(kind) in WHOLE


@functools.cache
def resolved(ufunc: np.ufunc, kinds: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the dtypes that a ufunc works in, its result's last; None where it raises."""
    operands = tuple(_WEAK.get(k) or np.dtype(k) for k in kinds)
    if all(k in PYTHON or k == "python complex" for k in kinds):
        # Without a NumPy number, Python's are converted as arrays.
        operands = tuple(np.dtype(dtype_of(k)) for k in kinds)
    try:
        dtypes = ufunc.resolve_dtypes((*operands, *[None] * ufunc.nout))
    except TypeError:
        return None
    names = tuple(d.name for d in dtypes)
    return names if all(n in DTYPES or n in COMPLEX for n in names) else None


def common(kinds: Iterable[str]) -> str | None:
    """Return the dtype of an array that is made of numbers of some kinds."""
    samples = {BOOL: False, INT: 0, FLOAT: 0.0, "python complex": 0j}
    name: str = np.result_type(*(samples.get(k, np.dtype(dtype_of(k))) for k in kinds)).name
    return name if name in DTYPES or name in COMPLEX else None
