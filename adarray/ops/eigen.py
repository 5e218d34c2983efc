"""Eigenvalues and eigenvectors of `numpy.linalg`.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44; in full as "An
  extended collection of matrix derivative results for forward and reverse mode automatic
  differentiation", report NA-08/01, Oxford University.
- J. R. Magnus, "On differentiating eigenvalues and eigenvectors", Econometric Theory 1 (1985),
  179-191.
- C. Boeddeker, P. Hanebrink, L. Drude, J. Heymann, R. Haeb-Umbach, "On the computation of
  complex-valued gradients with application to statistically optimum beamforming", arXiv:1701.00392,
  2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Op, Opaque, Sample, register
from adarray.batching.rules import stacked
from adarray.core.protocol import plain
from adarray.ops.common import s
from adarray.ops.complex import conjugate_of, is_complex
from adarray.ops.matrices import (
    adjoint,
    diagonal,
    diagonal_matrix,
    folded,
    hermitian,
    is_zero,
    negligible,
    precision,
    reciprocal,
    refuse,
    transposed,
)


def _equal(w: Any) -> Any:
    """Return which pairs of different eigenvalues are equal to rounding, shape (..., n, n)."""
    v = plain(w)
    bound = 4 * v.shape[-1] * precision(v) * np.max(np.abs(v), axis=-1, initial=0.0)
    apart = np.abs(v[..., None, :] - v[..., :, None])
    equal: Any = (apart <= bound[..., None, None]) & ~np.eye(v.shape[-1], dtype=bool)
    return equal


def _by_difference(name: str, w: Any, numerators: Any, fix: str) -> Any:
    """Return ``numerators[i, j] / (w[j] - w[i])`` off the diagonal, 0 on it.

    Equal eigenvalues with a numerator that is not 0 raise.
    """
    equal = _equal(w)
    if np.any(equal):
        touched = equal & ~(negligible(numerators) & transposed(negligible(numerators)))
        refuse(name, touched, "eigenvalues are equal, and their vectors not unique", fix)
    without = equal | np.eye(equal.shape[-1], dtype=bool)
    return numerators * reciprocal(w[..., None, :] - w[..., :, None], without)


# -- Hermitian -----------------------------------------------------------------------------

_FIX = (
    "use eigvalsh for functions of the eigenvalues alone, or add a small diagonal matrix that "
    "separates them"
)


def _eigh(g: Any, out: Any, a: Any, UPLO: Any = "L") -> Any:
    """Return ``conj(V) (diag(gw) + F * V^T gV) V^T``, with the F of the tangent (Giles 2008)."""
    w, v = out
    inner = diagonal_matrix(g[0])
    if not is_zero(g[1]):
        inner = inner + _by_difference("eigh", w, np.matmul(transposed(v), g[1]), _FIX)
    return folded(np.matmul(np.matmul(conjugate_of(v), inner), transposed(v)), UPLO.upper())


def _eigh_tangent(t: Any, out: Any, a: Any, UPLO: Any = "L") -> Any:
    """Return the tangents of w and V (Magnus 1985; Giles 2008).

    With ``X = V^H dA V`` and ``F[i, j] = 1 / (w[j] - w[i])``, 0 for i = j::

        dw = Re diag(X),    dV = V (F * X)
    """
    w, v = out
    x = np.matmul(adjoint(v), np.matmul(hermitian(t, UPLO.upper()), v))
    return np.real(diagonal(x)), np.matmul(v, _by_difference("eigh", w, x, _FIX))


def _invariants(out: Any) -> Any:
    """Return eigenvalues and the projectors on eigenvectors, shape (..., n, n, n)."""
    w, v = out
    columns = transposed(v)
    return w, columns[..., :, None] * conjugate_of(columns)[..., None, :]


def _hermitian_samples(rng: np.random.Generator) -> list[Sample]:
    spread = np.diag([0.0, 4.0, 9.0])
    return [
        s(rng.normal(size=(3, 3)) + spread),
        s(rng.normal(size=(2, 3, 3)) + spread),
        s(rng.normal(size=(3, 3)) + spread, UPLO="U"),
        s(rng.normal(size=(1, 1))),
    ]


register(
    Op(
        "eigh",
        np.linalg.eigh,
        Opaque(),
        [_eigh],
        jvp=[_eigh_tangent],
        batch=stacked(2),
        samples=_hermitian_samples,
        operands=("a",),
        params=("UPLO",),
        outputs=2,
        invariants=_invariants,
        note="NumPy reads one triangle: the other has gradient 0. Where eigenvalues are equal and "
        "the function depends on their vectors, NotDifferentiableError. Complex eigenvectors keep "
        "their phase: v.conj() @ dv is 0",
    )
)


def _eigvalsh(g: Any, out: Any, a: Any, UPLO: Any = "L") -> Any:
    _, v = np.linalg.eigh(a, UPLO)
    ct = np.matmul(conjugate_of(v) * g[..., None, :], transposed(v))
    return folded(ct, UPLO.upper())


def _eigvalsh_tangent(t: Any, out: Any, a: Any, UPLO: Any = "L") -> Any:
    _, v = np.linalg.eigh(a, UPLO)
    moved = np.matmul(hermitian(t, UPLO.upper()), v)
    return np.real(np.sum(conjugate_of(v) * moved, axis=-2))


register(
    Op(
        "eigvalsh",
        np.linalg.eigvalsh,
        Opaque(),
        [_eigvalsh],
        jvp=[_eigvalsh_tangent],
        batch=stacked(2),
        samples=_hermitian_samples,
        operands=("a",),
        params=("UPLO",),
        note="NumPy reads one triangle: the other has gradient 0. Right for every smooth function "
        "of the eigenvalues, equal ones included (the second order needs distinct ones)",
    )
)

# -- general -------------------------------------------------------------------------------

_DEFECTIVE = (
    "the eigenvectors do not span the space (a defective matrix), and eigenvalues have no "
    "derivative; use functions such as det, trace or matrix_power, or move the matrix"
)


def _check_basis(name: str, w: Any, v: Any) -> None:
    """Raise if equal eigenvalues lack eigenvectors."""
    if np.any(_equal(w)):
        sizes = np.linalg.svdvals(plain(v))
        if np.any(sizes[..., -1] <= precision(v) ** 0.5 * sizes[..., 0]):
            raise NotDifferentiableError(f"{name}: {_DEFECTIVE}")


def _eigvals(g: Any, out: Any, a: Any) -> Any:
    w, v = np.linalg.eig(a)
    _check_basis("eigvals", w, v)
    return np.linalg.solve(transposed(v), g[..., None] * transposed(v))


def _eigvals_tangent(t: Any, out: Any, a: Any) -> Any:
    """Return ``diag(inv(V) dA V)`` (Giles 2008)."""
    w, v = np.linalg.eig(a)
    _check_basis("eigvals", w, v)
    return diagonal(np.linalg.solve(v, np.matmul(t, v)))


def _general_samples(rng: np.random.Generator) -> list[Sample]:
    spread = np.diag([0.0, 4.0, 9.0])
    turning = np.array([[1.0, -3.0, 0.2], [2.0, 1.5, 0.1], [0.3, 0.2, 6.0]])
    return [
        s(rng.normal(size=(3, 3)) + spread),
        s(rng.normal(size=(2, 3, 3)) + spread),
        s(turning),
        s(rng.normal(size=(1, 1)) + 2),
    ]


register(
    Op(
        "eigvals",
        np.linalg.eigvals,
        Opaque(),
        [_eigvals],
        jvp=[_eigvals_tangent],
        batch=stacked(2),
        samples=_general_samples,
        operands=("a",),
        note="complex where eigenvalues of a real matrix are; NotDifferentiableError at matrices "
        "whose eigenvectors do not span the space",
    )
)


def _leading(v: Any) -> Any:
    """Return 1 at the largest component of each eigenvector, which is real, and 0 elsewhere."""
    at = np.argmax(np.abs(plain(v)), axis=-2)
    real = plain(v).real.dtype
    return (np.arange(v.shape[-2])[:, None] == at[..., None, :]).astype(real)


_GENERAL_FIX = (
    "use eigvals for functions of the eigenvalues alone, or add a small diagonal matrix that "
    "separates them"
)


def _eig(g: Any, out: Any, a: Any) -> Any:
    """Return the pullback: the formulas of the tangent, transposed."""
    w, v = out
    _check_basis("eig", w, v)
    inner = diagonal_matrix(g[0])
    if not is_zero(g[1]):
        gv = g[1]
        # Lengths stay 1, and the largest components real: see `_eig_tangent`.
        c = np.sum(gv * v, axis=-2, keepdims=True)
        gz = gv - np.real(c) * conjugate_of(v)
        if is_complex(v):
            lead = _leading(v)
            size = np.sum(np.real(v) * lead, axis=-2, keepdims=True)
            gz = gz - (1j * np.imag(c) / size) * lead
        inner = inner + _by_difference("eig", w, np.matmul(transposed(v), gz), _GENERAL_FIX)
    return np.linalg.solve(transposed(v), np.matmul(inner, transposed(v)))


def _eig_tangent(t: Any, out: Any, a: Any) -> Any:
    """Return the tangents of w and V (Giles 2008; lengths and phases: Boeddeker et al. 2017).

    With ``X = inv(V) dA V``, ``F[i, j] = 1 / (w[j] - w[i])``, 0 for i = j, and ``Z = V (F * X)``::

        dw = diag(X),    dv = z - v (Re(v^H z) + i Im(z[k]) / v[k])

    for each column, whose largest component v[k] is real and stays so, as the length stays 1.
    """
    w, v = out
    _check_basis("eig", w, v)
    x = np.linalg.solve(v, np.matmul(t, v))
    z = np.matmul(v, _by_difference("eig", w, x, _GENERAL_FIX))
    along = np.real(np.sum(conjugate_of(v) * z, axis=-2, keepdims=True))
    if is_complex(v):
        lead = _leading(v)
        size = np.sum(np.real(v) * lead, axis=-2, keepdims=True)
        along = along + 1j * (np.imag(np.sum(z * lead, axis=-2, keepdims=True)) / size)
    return diagonal(x), z - v * along


register(
    Op(
        "eig",
        np.linalg.eig,
        Opaque(),
        [_eig],
        jvp=[_eig_tangent],
        batch=stacked(2),
        samples=_general_samples,
        operands=("a",),
        outputs=2,
        note="complex where eigenvalues of a real matrix are. Eigenvectors have length 1 and a "
        "largest component that is real, as LAPACK makes them; where eigenvalues are equal and "
        "the function depends on their vectors, NotDifferentiableError",
    )
)
