"""Triangles of matrices, and systems with triangular matrices.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from adarray.ops.common import s, unbroadcast
from adarray.scipy._drop_in import instead_of, is_complex, operation, over_batch


def t(a: Any) -> Any:
    """Return the transpose of the last two axes."""
    return np.swapaxes(a, -1, -2)


def conj(a: Any) -> Any:
    """Return the conjugate; a real array as it is."""
    return np.conjugate(a) if is_complex(a) else a


def h(a: Any) -> Any:
    """Return the conjugate transpose of the last two axes."""
    return conj(t(a))


def from_triangle(a: Any, lower: bool, hermitian: bool = True) -> Any:
    """Return the symmetric or Hermitian matrix of which one triangle of `a` is given."""
    part = np.tril(a) if lower else np.triu(a)
    strict = np.tril(a, -1) if lower else np.triu(a, 1)
    if not (hermitian and is_complex(a)):
        return part + t(strict)
    whole = part + h(strict)
    return (whole + h(whole)) / 2  # LAPACK takes the diagonal as real


def outer(x: Any, y: Any, a: Any) -> Any:
    """Return ``x y^T`` for vectors or columns, summed to the shape of the matrix `a`."""
    if x.ndim == 1:
        return x[:, None] * y[None, :]
    return unbroadcast(np.matmul(x, t(y)), a.shape)


_CODES = {"N": 0, "T": 1, "C": 2, 0: 0, 1: 1, 2: 2}


def _evaluate(a: Any, b: Any, trans: int = 0, lower: bool = False, unit: bool = False) -> Any:
    return scipy.linalg.solve_triangular(a, b, trans, lower, unit, check_finite=False)


def _pull_b(g: Any, out: Any, a: Any, b: Any, trans: int, lower: bool, unit: bool) -> Any:
    if trans == 2:
        return conj(triangular(a, conj(g), 0, lower, unit))
    return triangular(a, g, 1 - trans, lower, unit)


def _masked(m: Any, lower: bool, unit: bool) -> Any:
    return np.tril(m, -int(unit)) if lower else np.triu(m, int(unit))


def _rule_a(
    g: Any, out: Any, a: Any, b: Any, trans: int = 0, lower: bool = False, unit: bool = False
) -> Any:
    m = -outer(_pull_b(g, out, a, b, trans, lower, unit), out, a)
    m = m if trans == 0 else t(m) if trans == 1 else h(m)
    return _masked(m, lower, unit)


def _rule_b(
    g: Any, out: Any, a: Any, b: Any, trans: int = 0, lower: bool = False, unit: bool = False
) -> Any:
    return _pull_b(g, out, a, b, trans, lower, unit)


def _jvp_a(
    d: Any, out: Any, a: Any, b: Any, trans: int = 0, lower: bool = False, unit: bool = False
) -> Any:
    d = _masked(d, lower, unit)
    d = d if trans == 0 else t(d) if trans == 1 else h(d)
    return -triangular(a, np.matmul(d, out), trans, lower, unit)


def _jvp_b(
    d: Any, out: Any, a: Any, b: Any, trans: int = 0, lower: bool = False, unit: bool = False
) -> Any:
    return triangular(a, d, trans, lower, unit)


def _samples(rng: np.random.Generator) -> list[Any]:
    a = rng.normal(size=(4, 4)) + 4 * np.eye(4)
    c = a + 1j * rng.normal(size=(4, 4))
    samples = [s(a, rng.normal(size=4)), s(a, rng.normal(size=(4, 2)), lower=True)]
    for trans in (0, 1, 2):
        samples.append(s(a, rng.normal(size=(4, 2)), trans, True, True))
        samples.append(s(c, rng.normal(size=(4, 2)) + 1j, trans, trans == 1))
    return samples


triangular: Any = operation(
    "scipy.linalg.solve_triangular",
    _evaluate,
    [_rule_a, _rule_b],
    jvp=[_jvp_a, _jvp_b],
    samples=_samples,
    operands=("a", "b"),
    params=("trans", "lower", "unit"),
    drops=True,  # the other triangle
)


@instead_of(scipy.linalg.solve_triangular)
@over_batch(("a", 2), ("b", "1|2"))
def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError("expected square matrix")
    if a.shape[0] != b.shape[0]:
        raise ValueError(f"shapes of a {a.shape} and b {b.shape} are incompatible")
    return triangular(a, b, _CODES[trans], bool(lower), bool(unit_diagonal))
