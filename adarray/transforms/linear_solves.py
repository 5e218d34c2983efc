"""custom_linear_solve: derivatives of solutions of linear systems, however they were found.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
- B. Christianson, "Reverse accumulation and attractive fixed points", Optim. Methods Softw. 3
  (1994), 311-326.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.ad.reverse import WALK
from adarray.arrays.adarray import ADArray
from adarray.base.aval import Symbolic, aval_of
from adarray.base.errors import ShapeError
from adarray.base.op import Op, Opaque
from adarray.core.dispatch import pick
from adarray.core.graph import Node, merge_spans
from adarray.core.inplace import plain_value, sync_if_view
from adarray.core.protocol import plain, traced
from adarray.core.tangents import attach, save_tangents, strip, tangent_of
from adarray.core.trace import Extras, Handle, is_weak, save
from adarray.transforms.calls import plain_number, untraced
from adarray.transforms.modes import shape_of, vjp
from adarray.transforms.replay import (
    Replay,
    is_forward_over_reverse,
    mark,
    nodes_before,
    tangents_of,
    walk_level,
)
from adarray.transforms.running import check_function, prepared
from adarray.transforms.tree import flatten

_Map = Callable[[Any], Any]
_NAME = "custom_linear_solve"


def custom_linear_solve(
    matvec: _Map,
    b: Any,
    solve: Callable[[_Map, Any], Any],
    transpose_solve: Callable[[_Map, Any], Any] | None = None,
    symmetric: bool = False,
) -> Any:
    """Solve a linear system by any method, and differentiate the solution rather than the method.

    Parameters
    ----------
    matvec : callable
        ``matvec(x)`` returns the product of the matrix with a vector, and must be linear. Whatever
        else it reads, such as the matrix, receives its derivative.
    b : array, number, or nest of them
        The right-hand side.
    solve : callable
        ``solve(matvec, b)`` returns x, with the structure and shapes of `b`, such that ``matvec(x)
        == b``. It is not differentiated, so it may iterate and call compiled code.
    transpose_solve : callable, optional
        ``transpose_solve(vecmat, b)`` does the same for the transposed matrix; `vecmat` multiplies
        by it. Reverse mode needs this function, unless the matrix is symmetric.
    symmetric : bool
        Whether the matrix equals its transpose (not conjugated), so that `solve` can be used for
        both.

    Returns
    -------
    structure of `b`

    Raises
    ------
    TypeError
        If reverse mode needs `transpose_solve` and it is not given.
    ShapeError
        If `solve` returns another structure or shapes than those of `b`.

    Notes
    -----
    For ``A x = b``, forward mode solves ``A dx = db - dA x``. Reverse mode solves ``A.T l = g``,
    where l is the cotangent of b; the cotangent of A is the pullback of ``-matvec(x)`` for l. So
    each derivative, of any order, takes one more system, and is as accurate as `solve`.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> def by_lapack(matvec, b):
    ...     return np.linalg.solve(np.stack([matvec(e) for e in np.eye(2)], axis=1), b)
    >>> def f(a, b):
    ...     x = adarray.custom_linear_solve(lambda x: a @ x, b, by_lapack, by_lapack)
    ...     return np.sum(x)
    >>> a, b = np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 5.0])
    >>> adarray.grad(f, (0, 1))(a, b)
    (array([[-0.375, -0.375],
           [-0.25 , -0.25 ]]), array([0.375, 0.25 ]))
    """
    for f in (matvec, solve, *(() if transpose_solve is None else (transpose_solve,))):
        check_function(_NAME, f)
    if symmetric and transpose_solve is None:
        transpose_solve = solve
    return _System(prepared(matvec, True), solve, transpose_solve, symmetric).solved(b)


class _System:
    """A matrix, and how systems with it and with its transpose are solved.

    Parameters
    ----------
    product : callable
        Of the user's.
    solve, transpose_solve : callable
    symmetric : bool
    changes : tuple of callable
        Applied to the leaves of products, such as to leave out what is traced.
    """

    def __init__(
        self,
        product: _Map,
        solve: Any,
        transpose_solve: Any,
        symmetric: bool,
        changes: tuple[Callable[[Any], Any], ...] = (),
    ) -> None:
        self.product = product
        self.solve = solve
        self.transpose_solve = transpose_solve
        self.symmetric = symmetric
        self.changes = changes

    def matvec(self, x: Any) -> Any:
        """Return the product with a vector."""
        y = self.product(x)
        if not self.changes:
            return y
        leaves, rebuild = flatten(y)
        for change in self.changes:
            leaves = [change(leaf) for leaf in leaves]
        return rebuild(leaves)

    def along(self, change: Callable[[Any], Any]) -> _System:
        """Return the system whose products are those of this one, with their leaves changed."""
        return _System(
            self.product, self.solve, self.transpose_solve, self.symmetric, (*self.changes, change)
        )

    def transposed(self, like: Any) -> _System:
        """Return the system with the transposed matrix."""
        if self.transpose_solve is None:
            raise TypeError(
                f"{_NAME}: reverse mode solves with the transposed matrix; pass transpose_solve=, "
                "or symmetric=True"
            )
        if self.symmetric:
            return self
        leaves, rebuild = flatten(like)
        zeros = [np.zeros(shape_of(x), _dtype(x))[()] for x in leaves]

        def product(v: Any) -> Any:
            return vjp(self.product, rebuild(list(zeros)), intercept=False)[1](v)[0]

        return _System(product, self.transpose_solve, self.solve, False, self.changes)

    def solved(self, b: Any) -> Any:
        """Return the solution, with all derivatives that are taken."""
        b_leaves, rebuild = flatten(b)
        b_leaves = [sync_if_view(x) if isinstance(x, Handle) else x for x in b_leaves]
        start = mark()
        values = self._values(rebuild([_value(x) for x in b_leaves]), b_leaves)
        products = flatten(self.matvec(rebuild(list(values))))[0]
        seen = [x for x in (*products, *b_leaves) if traced(x)]
        if not seen:
            return rebuild(values)
        captured = nodes_before(start, [x._node for x in products if traced(x)])
        nodes = [x._node for x in b_leaves if isinstance(x, Handle)]
        levels = {t.level for t in tangents_of(seen)}
        if not levels:
            return rebuild(self._with_node(values, b_leaves, captured, rebuild))
        if any(n is not None for n in (*nodes, *captured)) and is_forward_over_reverse(
            seen, captured
        ):
            inner = self.along(untraced).solved(rebuild([untraced(x) for x in b_leaves]))
            return rebuild(self._with_node(flatten(inner)[0], b_leaves, captured, rebuild))
        moved = self._moved(max(levels), b_leaves, rebuild)
        if any(n is not None for n in (*nodes, *captured)):
            # Walks of inner traces differentiate the rule, with all tangents.
            moved = self._with_node(moved, b_leaves, captured, rebuild)
        return rebuild(moved)

    def _values(self, b: Any, like: Sequence[Any]) -> list[Any]:
        """Return the leaves of the solution as values alone."""
        solution = flatten(prepared(self.solve, True)(self.along(_value).matvec, b))[0]
        if [shape_of(x) for x in solution] != [shape_of(x) for x in like]:
            raise ShapeError(
                f"{_NAME}: solve returned shapes {[shape_of(x) for x in solution]}, and the "
                f"right-hand side has {[shape_of(x) for x in like]}; they must be equal"
            )
        return [_value(x) for x in solution]

    def _moved(self, level: int, b: list[Any], rebuild: Any) -> list[Any]:
        """Return the solution with its tangent at a level, the highest one."""
        system = self.along(lambda x: strip(_synced(x), level))
        x = system.solved(rebuild([strip(y, level) for y in b]))
        leaves = flatten(x)[0]
        along_matrix: list[Any] = [
            tangent_of(_synced(y), level) for y in flatten(self.matvec(x))[0]
        ]
        right = []
        for y, t in zip(b, along_matrix, strict=True):
            own: Any = tangent_of(y, level)
            zero = np.zeros(shape_of(y), _dtype(y))[()]
            right.append((zero if own is None else own) - (0.0 if t is None else t))
        tangents = flatten(system.solved(rebuild(right)))[0]
        solution = []
        for y, t in zip(leaves, tangents, strict=True):
            solution.append(_apart(y))
            attach(solution[-1], level, t)
        return solution

    # -- reverse ------------------------------------------------------------------------------

    def _with_node(
        self, values: list[Any], b: list[Any], captured: list[Node], rebuild: Any
    ) -> list[Any]:
        """Return the solution on a node, whose rule solves the transposed system."""
        nodes = [*(x._node if isinstance(x, Handle) else None for x in b), *captured]
        spans = [n.span for n in nodes if n is not None]
        span = spans[0]
        for other in spans[1:]:
            span = merge_spans(span, other)
        out = [_apart(x) for x in values]
        avals = tuple(aval_of(x._plain) for x in out)
        memory: list[Any] = []

        def rule(g: dict[int, Any], i: int, xs: Any, *bs: Any) -> Any:  # noqa: ARG001
            known = next((m for m in memory if m[0] is g), None)
            if known is None:
                known = (g, self._pulled(g, xs, avals, nodes, captured, rebuild))
                memory[:] = [known]
            level = walk_level()
            if not any(n is not None and n.span[1] >= level for n in nodes[i + 1 :]):
                memory.clear()
            return known[1][i]

        op = Op(_NAME, self.solve, Opaque(), (rule,), operands=("*inputs",), outputs=len(out))
        saved = (tuple(save(x) for x in out), *[None] * len(nodes))
        node = Node(op, tuple(nodes), saved, None, avals[0], span)
        save_tangents(node, (tuple(out),))
        for k, x in enumerate(out):
            x._node = pick(node, k, avals[k])
        return out

    def _pulled(
        self, g: dict[int, Any], xs: tuple[Any, ...], avals: Any, nodes: list[Any],
        captured: list[Node], rebuild: Any,
    ) -> dict[int, Any]:  # fmt: skip
        """Return the cotangents of the right-hand side, and of the nodes that the matrix reads."""
        around = WALK.get()
        keep = around is not None and (around.record or any(map(traced, xs)))
        system = self if keep else self.along(_value)
        full = [g[k] if k in g else np.zeros(a.shape, a.dtype)[()] for k, a in enumerate(avals)]
        x = rebuild(list(xs))
        ls = flatten(system.transposed(x).solved(rebuild(full)))[0]
        parts: dict[int, Any] = {k: plain_number(_unwrapped(y)) for k, y in enumerate(ls)}
        if captured:
            level = walk_level()
            targets = [n for n in captured if n.span[1] >= level]
            replay = Replay(_NAME, lambda *vs: self.matvec(rebuild(list(vs))), list(xs))
            pulled = replay.pull([-y for y in ls], targets)[len(xs) :]
            at = {id(n): len(nodes) - len(captured) + k for k, n in enumerate(captured)}
            parts |= {at[id(n)]: v for n, v in zip(targets, pulled, strict=True)}
        return parts


def _unwrapped(x: Any) -> Any:
    """Return a cotangent that nothing follows as a plain value; `jit` follows those it records."""
    followed = traced(x) or isinstance(plain_value(x), Symbolic)
    return x if followed else plain(x)


def _synced(x: Any) -> Any:
    return sync_if_view(x) if isinstance(x, Handle) else x


def _apart(x: Any) -> ADArray:
    """Return a value on its own, without a node and with its tangents."""
    if not isinstance(x, Handle):
        return ADArray(x, None, None, True)
    tangents = x._x.tangents if x._x is not None else ()
    rest = Extras(tangents=tangents, weak=is_weak(x)) if tangents or is_weak(x) else None
    return ADArray(x._plain, None, rest, True)


def _value(x: Any) -> Any:
    """Return a leaf without its trace."""
    if not isinstance(x, Handle):
        return x
    return ADArray(sync_if_view(x)._plain, None, Extras(weak=True) if is_weak(x) else None, True)


def _dtype(x: Any) -> Any:
    return x.dtype if hasattr(x, "dtype") else np.result_type(x)
