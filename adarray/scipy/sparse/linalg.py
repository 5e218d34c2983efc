"""Drop-in for `scipy.sparse.linalg`: systems with traced nonzeros and right-hand sides.

The derivative of an iterative solver is another solution by it, to its tolerance.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
- B. Christianson, "Reverse accumulation and attractive fixed points", Optim. Methods Softw. 3
  (1994), 311-326.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import plain, traced
from adarray.scipy._drop_in import REPLACEMENTS, array, fill_in
from adarray.scipy.sparse._arrays import csr_array
from adarray.scipy.sparse._nonzeros import active, is_sparse, ours, pattern_of
from adarray.scipy.sparse._pattern import LUSolver, RepeatedSolver, product, solution


def _system(name: str, A: Any) -> Any:
    """Return the matrix of a system as one of our sparse arrays."""
    if is_sparse(A):
        return ours(A)
    if isinstance(A, scipy.sparse.linalg.LinearOperator):
        raise NotDifferentiableError(
            f"{name}: a LinearOperator is not differentiated; pass a sparse array"
        )
    return csr_array(array(A))


def _solved(name: str, A: Any, b: Any, solver: Any) -> Any:
    a = _system(name, A)
    if is_sparse(b):
        raise NotDifferentiableError(
            f"{name}: a sparse right-hand side is not differentiated; pass b.toarray()"
        )
    b = array(b)
    if a.shape[0] != a.shape[1] or b.shape[0] != a.shape[0]:
        raise ValueError(f"{name}: the matrix has shape {a.shape} and b {b.shape}; they must fit")
    return solution(a._canonical().data, b, pattern_of(a._canonical()), solver)


@functools.wraps(scipy.sparse.linalg.spsolve)
def spsolve(A: Any, b: Any, permc_spec: Any = None, use_umfpack: bool = True) -> Any:
    if not (active(A) or active(b)):
        return scipy.sparse.linalg.spsolve(A, b, permc_spec, use_umfpack)
    options = {} if permc_spec is None else {"permc_spec": permc_spec}
    flat = array(b) if not is_sparse(b) else b
    if not is_sparse(b) and flat.ndim == 2 and flat.shape[1] == 1:  # SciPy's result is a vector
        return _solved("spsolve", A, flat[:, 0], LUSolver(**options))
    return _solved("spsolve", A, flat, LUSolver(**options))


class SparseFactors:
    """Factors of a sparse matrix with traced nonzeros, as `scipy.sparse.linalg.splu` returns.

    Attributes that are not differentiated (``L``, ``U``, ``perm_r``) hold the values.
    """

    def __init__(self, A: Any, options: dict[str, Any]) -> None:
        self._a = _system("splu", A)._canonical()
        self._solver = LUSolver(**options)
        self._plain = scipy.sparse.linalg.splu(
            pattern_of(self._a).matrix(plain(self._a.data)).tocsc(), **options
        )
        self.shape = self._a.shape

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """Solve for one or more right-hand sides; `trans` as in SciPy."""
        p, data = pattern_of(self._a), self._a.data
        if trans == "N":
            return solution(data, array(rhs), p, self._solver)
        if trans == "T":
            return solution(data, array(rhs), p.T, self._solver)
        if trans != "H":
            raise ValueError("trans must be N, T, or H")
        return np.conjugate(solution(data, np.conjugate(array(rhs)), p.T, self._solver))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


@functools.wraps(scipy.sparse.linalg.splu)
def splu(A: Any, *args: Any, **options: Any) -> Any:
    named = dict(zip(("permc_spec", "diag_pivot_thresh", "relax", "panel_size", "options"), args,
                     strict=False))  # fmt: skip
    if active(A) or _is_ours(A):
        return SparseFactors(A, {**named, **options})
    return scipy.sparse.linalg.splu(A, *args, **options)


def _is_ours(A: Any) -> bool:
    return is_sparse(A) and hasattr(A, "_canonical")


@functools.wraps(scipy.sparse.linalg.factorized)
def factorized(A: Any) -> Callable[[Any], Any]:
    if active(A) or _is_ours(A):
        return SparseFactors(A, {}).solve
    return scipy.sparse.linalg.factorized(A)  # type: ignore[no-any-return]


@functools.wraps(scipy.sparse.linalg.spsolve_triangular)
def spsolve_triangular(
    A: Any, b: Any, lower: bool = True, overwrite_A: bool = False, overwrite_b: bool = False,
    unit_diagonal: bool = False,
) -> Any:  # fmt: skip
    if not (active(A) or active(b)):
        return scipy.sparse.linalg.spsolve_triangular(
            A, b, lower, overwrite_A, overwrite_b, unit_diagonal
        )
    from adarray.scipy.sparse import eye_array, tril, triu

    a = _system("spsolve_triangular", A)
    part = (tril if lower else triu)(a, k=(-1 if lower else 1) if unit_diagonal else 0)
    if unit_diagonal:
        part = part + eye_array(a.shape[0])

    def solve(matrix: Any, b: Any, forward: bool) -> tuple[Any, int]:
        side = lower if forward else not lower
        return scipy.sparse.linalg.spsolve_triangular(matrix.tocsr(), b, lower=side), 0

    return _solved("spsolve_triangular", part, b, RepeatedSolver(solve))


def _iterative(name: str) -> Callable[..., Any]:
    function = getattr(scipy.sparse.linalg, name)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        A, b = bound.pop("A"), bound.pop("b")
        if not (active(A) or active(b)):
            return function(A, b, **{k: plain(v) for k, v in bound.items()})
        x0 = bound.pop("x0", None)
        if traced(x0):
            x0 = plain(x0)  # where the iteration begins is not where it ends
        preconditioners = {k: bound.pop(k, None) for k in ("M", "M1", "M2", "M_t") if k in bound}
        callback = bound.pop("callback", None)

        def solve(matrix: Any, b: Any, forward: bool) -> Any:
            operators = {
                k: m if forward or m is None else scipy.sparse.linalg.aslinearoperator(m).T
                for k, m in preconditioners.items()
            }
            if not forward:
                return function(matrix, b, **bound, **operators)
            return function(matrix, b, x0=plain(x0), callback=callback, **bound, **operators)

        solver = RepeatedSolver(solve)
        b = array(b)
        flat = np.reshape(b, (-1,)) if b.ndim == 2 and b.shape[1] == 1 else b
        return _solved(name, A, flat, solver), solver.info

    REPLACEMENTS[function] = call
    return call


cg, cgs, bicg, bicgstab = (_iterative(n) for n in ("cg", "cgs", "bicg", "bicgstab"))
gmres, lgmres, minres, qmr = (_iterative(n) for n in ("gmres", "lgmres", "minres", "qmr"))
tfqmr, gcrotmk = (_iterative(n) for n in ("tfqmr", "gcrotmk"))


# -- exponentials and norms ------------------------------------------------------------------------


def _scaled_steps(size: float) -> tuple[int, int]:
    """Return into how many steps to divide, and how many terms of the series each takes."""
    steps = max(int(np.ceil(size / 2)), 1)
    each, terms, bound = size / steps, 1, size / steps
    while bound > 1e-17 and terms < 60:
        terms += 1
        bound *= each / terms
    return steps, terms


def _exponential_times(data: Any, pattern: Any, b: Any, time: float) -> Any:
    """Return ``expm(time * A) @ b`` by Taylor's series in steps of norm 2 at most."""
    sizes = np.bincount(pattern.cols, np.abs(plain(data)), pattern.shape[1])
    steps, terms = _scaled_steps(abs(time) * float(np.max(sizes, initial=0.0)))
    for _ in range(steps):
        term = total = b
        for k in range(1, terms + 1):
            term = product(data, term, pattern) * (time / (steps * k))
            total = total + term
        b = total
    return b


@functools.wraps(scipy.sparse.linalg.expm_multiply)
def expm_multiply(A: Any, B: Any, start: Any = None, stop: Any = None, num: Any = None,
                  endpoint: Any = None, traceA: Any = None) -> Any:  # fmt: skip
    if not (active(A) or active(B)):
        return scipy.sparse.linalg.expm_multiply(A, B, start, stop, num, endpoint, traceA)
    if traced((start, stop)):
        raise NotDifferentiableError(
            "expm_multiply: the times start and stop are not differentiated; scale the matrix"
        )
    a, b = _system("expm_multiply", A)._canonical(), array(B)
    p = pattern_of(a)
    if all(x is None for x in (start, stop, num, endpoint)):
        return _exponential_times(a.data, p, b, 1.0)
    times = np.linspace(
        start, stop, **{k: v for k, v in (("num", num), ("endpoint", endpoint)) if v is not None}
    )
    state = _exponential_times(a.data, p, b, float(times[0]))
    states = [state]
    for gap in np.diff(times).tolist():
        state = _exponential_times(a.data, p, state, gap)
        states.append(state)
    return np.stack(states)


@functools.wraps(scipy.sparse.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None) -> Any:
    if not active(x):
        return scipy.sparse.linalg.norm(x, ord, axis)
    a = ours(x)._canonical()
    if axis is not None or ord not in (None, "fro", "f", 1, np.inf):
        raise NotDifferentiableError(
            f"norm: the order {ord!r} with axis={axis!r} of a sparse array is not differentiated; "
            "use toarray()"
        )
    if ord in (1, np.inf):
        return np.max(abs(a).sum(axis=0 if ord == 1 else 1))
    return np.linalg.norm(a.data)


for _function, _ours in (
    (scipy.sparse.linalg.spsolve, spsolve),
    (scipy.sparse.linalg.splu, splu),
    (scipy.sparse.linalg.factorized, factorized),
    (scipy.sparse.linalg.spsolve_triangular, spsolve_triangular),
    (scipy.sparse.linalg.expm_multiply, expm_multiply),
    (scipy.sparse.linalg.norm, norm),
):
    REPLACEMENTS[_function] = _ours

__getattr__, __dir__, __all__ = fill_in(globals(), scipy.sparse.linalg)
