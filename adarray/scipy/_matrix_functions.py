"""Functions of matrices (exponential, logarithm, roots) and equations of matrices.

The derivative of a function of matrices along E stands in the upper right block of
``f([[A, E], [0, A]])`` [1]_, [3]_ (of the exponential [2]_), and its transpose is the derivative at
the transpose of A. The derivative of a square root solves Sylvester's equation, and equations of
matrices have derivatives that solve equations of their own kind [4]_; Riccati's is solved once
more, by Newton's iteration [5]_.

References
----------
.. [1] N. J. Higham, "Functions of Matrices: Theory and Computation", SIAM 2008,
   theorem 3.6.
.. [2] A. H. Al-Mohy, N. J. Higham, "Computing the Fréchet derivative of the matrix exponential,
   with an application to condition number estimation", SIAM J. Matrix Anal. Appl. 30 (2009),
   1639-1657.
.. [3] R. Mathias, "A chain rule for matrix functions and applications", SIAM J. Matrix Anal. Appl.
   17 (1996), 610-620.
.. [4] T.-C. Kao, G. Hennequin, "Automatic differentiation of Sylvester, Lyapunov, and algebraic
   Riccati equations", arXiv:2011.11430, 2020.
.. [5] D. L. Kleinman, "On an iterative technique for Riccati equation computations", IEEE Trans.
   Automat. Control 13 (1968), 114-115.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from adarray.batching.rules import stacked
from adarray.core.protocol import traced
from adarray.ops.common import s
from adarray.scipy._drop_in import array, instead_of, is_complex, operation, over_batch, value
from adarray.scipy._triangular import h, t


def along(function: Callable[..., Any], a: Any, e: Any, **params: Any) -> Any:
    """Return the derivative of a function of matrices at `a` along `e`."""
    n = a.shape[-1]
    top = np.concatenate([a, e], axis=-1)
    bottom = np.concatenate([np.zeros_like(a), a], axis=-1)
    return function(np.concatenate([top, bottom], axis=-2), **params)[..., :n, n:]


def _precision_like(r: Any, *like: Any) -> Any:
    """Return a result in single precision where all operands are."""
    r = np.asarray(r)
    if all(np.dtype(x.dtype).char in "fF" for x in like):
        return r.astype(np.complex64 if r.dtype.kind == "c" else np.float32, copy=False)
    return r


def _sliced(function: Callable[..., Any], *arrays: Any) -> Any:
    """Call SciPy on each slice of batches, which it does by itself only since version 1.16."""
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in arrays))
    if not batch:
        return _precision_like(function(*arrays), *arrays)
    wide = [np.broadcast_to(x, batch + x.shape[-2:]) for x in arrays]
    parts = [np.asarray(function(*(x[i] for x in wide))) for i in np.ndindex(batch)]
    return _precision_like(np.reshape(np.stack(parts), batch + parts[0].shape), *arrays)


def _samples(rng: np.random.Generator) -> list[Any]:
    a = rng.normal(size=(3, 3)) / 3 + 2 * np.eye(3)
    pair = np.stack([a, a.T + 0.1])
    return [s(a), s(pair), s(a + 0.2j * rng.normal(size=(3, 3))), s(a[:1, :1].copy())]


def _mixed(rng: np.random.Generator) -> list[Any]:
    """Return matrices with eigenvalues on both sides of the imaginary axis."""
    v = rng.normal(size=(3, 3))
    return [s(v @ np.diag([2.0, -1.5, -1.0]) @ np.linalg.inv(v))]


def matrix_function(name: str, samples: Any = _samples) -> Callable[..., Any]:
    """Register a function of matrices whose derivatives come from blocks of it."""
    function = getattr(scipy.linalg, name)

    def evaluate(A: Any) -> Any:
        return _sliced(function, A)

    primitive: Any = operation(
        f"scipy.linalg.{name}",
        evaluate,
        [lambda g, out, a: along(primitive, t(a), g)],
        jvp=[lambda d, out, a: along(primitive, a, d)],
        samples=samples,
        operands=("A",),
        batch=stacked(2),
    )
    return primitive  # type: ignore[no-any-return]


_expm = matrix_function("expm")
_logm = matrix_function("logm")
_signm = matrix_function("signm", _mixed)


def _power(A: Any, t: float) -> Any:
    return _sliced(lambda a: scipy.linalg.fractional_matrix_power(a, t), A)


_fractional: Any = operation(
    "scipy.linalg.fractional_matrix_power",
    _power,
    [lambda g, out, a, t: along(_fractional, np.swapaxes(a, -1, -2), g, t=t)],
    jvp=[lambda d, out, a, t: along(_fractional, a, d, t=t)],
    samples=lambda rng: [s(x.args[0], p) for x in _samples(rng) for p in (0.3, -1.5)],
    operands=("A",),
    params=("t",),
    batch=stacked(2),
)


def _sylvester(a: Any, b: Any, q: Any) -> Any:
    return _sliced(scipy.linalg.solve_sylvester, a, b, q)


def _sylvester_samples(rng: np.random.Generator) -> list[Any]:
    a, b = rng.normal(size=(3, 3)) + 3 * np.eye(3), rng.normal(size=(2, 2)) + 3 * np.eye(2)
    q, i = rng.normal(size=(3, 2)), 0.3j * rng.normal(size=(3, 3))
    batch = np.stack([a, a.T])
    return [s(a, b, q), s(a + i, b, q), s(a + i, b, q * (1 + 0.5j)), s(batch, b, q)]


def _sum_to(g: Any, x: Any) -> Any:
    """Sum the batch axes that an operand does not have."""
    return np.sum(g, axis=tuple(range(g.ndim - x.ndim))) if g.ndim > x.ndim else g


sylvester: Any = operation(
    "scipy.linalg.solve_sylvester",
    _sylvester,
    [
        lambda g, out, a, b, q: _sum_to(-np.matmul(sylvester(t(a), t(b), g), t(out)), a),
        lambda g, out, a, b, q: _sum_to(-np.matmul(t(out), sylvester(t(a), t(b), g)), b),
        lambda g, out, a, b, q: _sum_to(sylvester(t(a), t(b), g), q),
    ],
    batch=stacked(2, 2, 2),
    jvp=[
        lambda d, out, a, b, q: sylvester(a, b, -np.matmul(d, out)),
        lambda d, out, a, b, q: sylvester(a, b, -np.matmul(out, d)),
        lambda d, out, a, b, q: sylvester(a, b, d + np.zeros_like(out)),
    ],
    samples=_sylvester_samples,
    operands=("a", "b", "q"),
    note="a X + X b = q",
)


def _sqrtm_plain(A: Any) -> Any:
    return _sliced(scipy.linalg.sqrtm, A)


_sqrtm: Any = operation(
    "scipy.linalg.sqrtm",
    _sqrtm_plain,
    [lambda g, out, a: sylvester(t(out), t(out), g)],
    batch=stacked(2),
    jvp=[lambda d, out, a: sylvester(out, out, d)],
    samples=_samples,
    operands=("A",),
)


# -- SciPy's names ------------------------------------------------------------------------------


@instead_of(scipy.linalg.expm)
def expm(A: Any) -> Any:
    return _expm(array(A))


@instead_of(scipy.linalg.logm)
def logm(A: Any) -> Any:
    return _logm(array(A))


@instead_of(scipy.linalg.sqrtm)
def sqrtm(A: Any) -> Any:
    return _sqrtm(array(A))


@instead_of(scipy.linalg.signm)
def signm(A: Any) -> Any:
    return _signm(array(A))


@instead_of(scipy.linalg.fractional_matrix_power)
def fractional_matrix_power(A: Any, t: Any) -> Any:
    if traced(t):
        return _expm(t * _logm(array(A)))
    return _fractional(array(A), value(t))


@instead_of(scipy.linalg.expm_frechet)
def expm_frechet(A: Any, E: Any, method: Any = None, compute_expm: bool = True) -> Any:
    if method not in (None, "SPS", "blockEnlarge"):
        raise ValueError(f"Unknown implementation {method}")
    A, E = array(A), array(E)
    derivative = along(_expm, A, E)
    return (_expm(A), derivative) if compute_expm else derivative


@instead_of(scipy.linalg.cosm)
def cosm(A: Any) -> Any:
    A = array(A)
    if is_complex(A):
        return (_expm(1j * A) + _expm(-1j * A)) / 2
    return np.real(_expm(1j * A))


@instead_of(scipy.linalg.sinm)
def sinm(A: Any) -> Any:
    A = array(A)
    if is_complex(A):
        return -0.5j * (_expm(1j * A) - _expm(-1j * A))
    return np.imag(_expm(1j * A))


@instead_of(scipy.linalg.tanm)
def tanm(A: Any) -> Any:
    return np.linalg.solve(cosm(A), sinm(A))


@instead_of(scipy.linalg.coshm)
def coshm(A: Any) -> Any:
    A = array(A)
    return (_expm(A) + _expm(-A)) / 2


@instead_of(scipy.linalg.sinhm)
def sinhm(A: Any) -> Any:
    A = array(A)
    return (_expm(A) - _expm(-A)) / 2


@instead_of(scipy.linalg.tanhm)
def tanhm(A: Any) -> Any:
    return np.linalg.solve(coshm(A), sinhm(A))


@instead_of(scipy.linalg.solve_sylvester)
def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    return sylvester(array(a), array(b), array(q))


@instead_of(scipy.linalg.solve_continuous_lyapunov)
def solve_continuous_lyapunov(a: Any, q: Any) -> Any:
    a = array(a)
    return sylvester(a, h(a), array(q))


solve_lyapunov = solve_continuous_lyapunov


@instead_of(scipy.linalg.solve_discrete_lyapunov)
@over_batch(("a", 2), ("q", 2))
def solve_discrete_lyapunov(a: Any, q: Any, method: Any = None) -> Any:
    method = str(method).lower() if method is not None else "direct" if len(a) < 10 else "bilinear"
    if method not in ("direct", "bilinear"):
        raise ValueError(f"Unknown solver {method}")
    n = len(a)
    eye = np.eye(n, dtype=a.dtype)
    if method == "direct":
        # Row-major: vec(a X a^H) = (a kron conj(a)) vec(X).
        other = np.conjugate(a) if is_complex(a) else a
        system = np.eye(n * n, dtype=a.dtype) - np.kron(a, other)
        return np.reshape(np.linalg.solve(system, np.reshape(q, (-1,))), (n, n))
    # With b = (a^H - 1)^-1 (a^H + 1), the equation is continuous: b^H X + X b = -2 c.
    inverse = np.linalg.inv(h(a) + eye)
    b = np.matmul(h(a) - eye, inverse)
    c = 2 * np.matmul(np.matmul(np.linalg.inv(a + eye), q), inverse)
    return sylvester(h(b), b, -c)


@instead_of(scipy.linalg.solve_continuous_are)
@over_batch(("a", 2), ("b", 2), ("q", 2), ("r", 2))
def solve_continuous_are(a: Any, b: Any, q: Any, r: Any, balanced: bool = True) -> Any:
    x = scipy.linalg.solve_continuous_are(*map(value, (a, b, q, r)), balanced=balanced)
    # Newton's iteration (Kleinman's) from the solution: its k steps have the derivatives
    # of the solution up to order 2**k - 1.
    for _ in range(3):
        closed = a - np.matmul(b, np.linalg.solve(r, np.matmul(h(b), x)))
        residual = np.matmul(h(a), x) + np.matmul(x, closed) + q
        x = x - sylvester(h(closed), closed, residual)
    return x


@instead_of(scipy.linalg.solve_discrete_are)
@over_batch(("a", 2), ("b", 2), ("q", 2), ("r", 2))
def solve_discrete_are(a: Any, b: Any, q: Any, r: Any, balanced: bool = True) -> Any:
    x = scipy.linalg.solve_discrete_are(*map(value, (a, b, q, r)), balanced=balanced)
    for _ in range(3):
        xb = np.matmul(x, b)
        k = np.linalg.solve(r + np.matmul(h(b), xb), np.matmul(h(b), np.matmul(x, a)))
        closed = a - np.matmul(b, k)
        residual = np.matmul(h(a), np.matmul(x, closed)) - x + q
        x = x + solve_discrete_lyapunov(h(closed), residual)
    return x
