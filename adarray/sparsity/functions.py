"""sparse_jacobian and sparse_hessian."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any

from adarray.base.transformed import again, global_name
from adarray.sparsity.prepared import DerivativeTask, Prepared
from adarray.transforms.inputs import Argnums

# Signatures that are kept.
MANY = 64


class SparseFunction:
    """A function that computes a sparse derivative; see `sparse_jacobian`."""

    def __init__(self, task: DerivativeTask) -> None:
        with contextlib.suppress(AttributeError, TypeError):
            functools.update_wrapper(self, task.f)
        self._task = task
        self._prepared: dict[Hashable, Prepared] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{self._task.name} of {self._task.f!r}>"

    def __reduce__(self) -> Any:
        task = self._task
        make = sparse_hessian if task.hessian else sparse_jacobian
        options = {"argnums": task.argnums, **task.options}
        return global_name(self) or (again, (make, task.f, options))

    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        """Return a prepared function for arguments like these."""
        return Prepared(self._task, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the matrix; the first call with arguments of some shapes prepares."""
        key = self._task.key(args, kwargs)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self.prepare(*args, **kwargs)
            with self._lock:
                while len(self._prepared) >= MANY:
                    del self._prepared[next(iter(self._prepared))]
                self._prepared[key] = prepared
        return prepared(*args, **kwargs)


def sparse_jacobian(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    mode: str = "auto",
    *,
    format: str = "csr",  # noqa: A002  (as in SciPy)
    jit: bool = True,
    pattern: Any = None,
    check: bool = True,
    intercept: bool = True,
) -> SparseFunction:
    """Return a function that computes the Jacobian of `f` as a sparse matrix.

    Parameters
    ----------
    f : callable
        Returns one array of real floating-point numbers.
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate; each an array or a nest.
    mode : {"auto", "forward", "reverse", "both"}
        ``forward`` computes several columns with one tangent, ``reverse`` several rows with one
        cotangent; ``both`` computes a few dense rows by cotangents and the rest by tangents, or a
        few dense columns by tangents and the rest by cotangents. ``auto`` chooses what needs fewest
        passes.
    format : {"csr", "coo"}
        Format of the matrix.
    jit : bool
        Whether the evaluation is compiled (see `adarray.jit`).
    pattern : sparse matrix or array_like, optional
        The entries that may be nonzero, if you know them: the pattern is then not detected.
    check : bool
        Whether the matrix of the first call is compared with the derivative along a random
        direction, which shows that `pattern` lacks an entry; it takes one derivative.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`).

    Returns
    -------
    callable
        Takes the arguments of `f`; returns a `scipy.sparse.csr_array` of shape ``(y.size,
        x.size)``, with elements counted in C order. For a nest, returns the structure of the
        argument with a matrix for each leaf; for a sequence of `argnums`, a tuple. All results
        share their index arrays, which are read-only: copy a matrix before you change its
        structure.

        Its method ``prepare(*args)`` detects the pattern, colours it, and returns an object that
        evaluates the matrix and has the attributes ``pattern``, ``colors``, ``n_colors``, ``mode``
        and ``shape``. A plain call does this itself for arguments of new shapes.

    Raises
    ------
    ImportError
        If SciPy is not installed.
    ShapeError, DTypeError
        If the result is not one real array, an argument is not real floating point, or a prepared
        object is called with arguments of different shapes.
    ValueError
        If `pattern` is found to lack entries.
    NotDifferentiableError
        If `f` cannot be recorded, so that the pattern is unknown; if the pattern is not sparse; or
        if an argument is traced by another transform.

    Notes
    -----
    One run of `f` is recorded, as by `adarray.jit`, and the dependence of each element on those of
    the argument is followed through all operations, including loops and in-place writes. The
    pattern is valid for all inputs that take the same path through `f`. If Python takes another
    path (``if`` on a value), or something that `f` captured has changed, it is detected again.
    ``np.where`` and ``np.maximum`` depend on both operands. Zeros of captured arrays, such as a
    constant matrix, are zeros of the pattern as long as these arrays do not change, which each call
    checks. Operations that couple everything, such as ``np.linalg.solve``, count as dense.

    The number of passes, ``n_colors``, does not depend on the size of a problem whose pattern is
    local: columns that have no row in common share a colour.

    References
    ----------
    A. H. Gebremedhin, F. Manne, A. Pothen: What Color Is Your Jacobian? Graph Coloring for
    Computing Derivatives, SIAM Review 47 (2005); T. F. Coleman, A. Verma: The Efficient Computation
    of Sparse Jacobian Matrices Using Automatic Differentiation, SIAM J. Sci. Comput. 19 (1998).

    Examples
    --------
    >>> import numpy as np, adarray
    >>> jacobian = adarray.sparse_jacobian(lambda x: x[1:] ** 2 - x[:-1])
    >>> prepared = jacobian.prepare(np.ones(1000))
    >>> prepared
    <prepared sparse_jacobian: 999 by 1000, 1998 entries, 2 colours, forward mode>
    >>> prepared(np.arange(1000.0))[:2, :3].toarray()
    array([[-1.,  2.,  0.],
           [ 0., -1.,  4.]])
    """
    if mode not in ("auto", "forward", "reverse", "both"):
        raise ValueError(
            f"sparse_jacobian: mode {mode!r}; one of 'auto', 'forward', 'reverse', 'both'"
        )
    options = {"mode": mode, "format": format, "jit": jit, "pattern": pattern,
               "check": check, "intercept": intercept}  # fmt: skip
    return SparseFunction(DerivativeTask("sparse_jacobian", f, argnums, False, options))


def sparse_hessian(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    recovery: str = "direct",
    *,
    format: str = "csr",  # noqa: A002  (as in SciPy)
    jit: bool = True,
    pattern: Any = None,
    check: bool = True,
    intercept: bool = True,
) -> SparseFunction:
    """Return a function that computes the Hessian of a scalar function as a sparse matrix.

    Parameters
    ----------
    f : callable
        Returns a real scalar.
    argnums : int, str, or sequence of them
        Positions or names of the arguments to differentiate; each an array or a nest.
    recovery : {"direct", "substitution"}
        ``direct`` reads each entry from one product (star colouring). ``substitution`` needs fewer
        products, and computes some entries from others (acyclic colouring), which accumulates
        rounding errors.
    format : {"csr", "coo"}
        Format of the matrix.
    jit : bool
        Whether the evaluation is compiled (see `adarray.jit`).
    pattern : sparse matrix or array_like, optional
        The entries that may be nonzero, if you know them: the pattern is then not detected.
    check : bool
        Whether the matrix of the first call is compared with the derivative along a random
        direction, which shows that `pattern` lacks an entry; it takes one derivative.
    intercept : bool
        Whether `f` may convert its arguments with ``np.asarray``, call `math` or SciPy, and fill
        arrays that it creates (see `adarray.intercept`).

    Returns
    -------
    callable
        Takes the arguments of `f`; returns a `scipy.sparse.csr_array` of shape ``(x.size,
        x.size)``, with elements counted in C order. For a nest, returns a nest in which each leaf
        is a nest of such matrices. Its method ``prepare(*args)`` works as for `sparse_jacobian`.

    Raises
    ------
    ImportError
        If SciPy is not installed.
    ShapeError, DTypeError
        If the value is not a real scalar, an argument is not real floating point, or a prepared
        object is called with arguments of different shapes.
    ValueError, NotDifferentiableError
        As from `sparse_jacobian`.

    Notes
    -----
    The pattern is that of the Jacobian of the gradient, found as in `sparse_jacobian`. Products
    with the Hessian are forward mode over reverse mode.

    References
    ----------
    A. H. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen: New Acyclic and Star Coloring Algorithms
    with Application to Computing Hessians, SIAM J. Sci. Comput. 29 (2007).

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def rosenbrock(x):
    ...     return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)
    >>> hessian = adarray.sparse_hessian(rosenbrock)
    >>> hessian(np.ones(4)).toarray()
    array([[ 802., -400.,    0.,    0.],
           [-400., 1002., -400.,    0.],
           [   0., -400., 1002., -400.],
           [   0.,    0., -400.,  200.]])
    >>> hessian.prepare(np.ones(1000)).n_colors
    3
    """
    if recovery not in ("direct", "substitution"):
        raise ValueError(f"sparse_hessian: recovery {recovery!r}; one of 'direct', 'substitution'")
    options = {"recovery": recovery, "format": format, "jit": jit, "pattern": pattern,
               "check": check, "intercept": intercept}  # fmt: skip
    return SparseFunction(DerivativeTask("sparse_hessian", f, argnums, True, options))
