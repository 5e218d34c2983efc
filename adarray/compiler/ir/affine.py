"""How indices of loop IR depend on a loop variable.

References
----------
- R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001,
  chapter 3.
"""

from __future__ import annotations

from collections.abc import Mapping

from adarray.compiler.ir.loopir import Apply, Const, Expr, Load, Var, integer

Slope = Expr | None
ZERO, ONE = integer(0), integer(1)


def plus(a: Expr, b: Expr, name: str = "add") -> Expr:
    """Return a + b (or a - b) of int64 expressions, with constants computed."""
    if isinstance(a, Const) and isinstance(b, Const):
        return integer(a.value + b.value if name == "add" else a.value - b.value)
    if b == ZERO:
        return a
    if a == ZERO and name == "add":
        return b
    return Apply("int64", name, (a, b))


def times(a: Expr, b: Expr) -> Expr:
    """Return a * b of int64 expressions, with constants computed."""
    if isinstance(a, Const) and isinstance(b, Const):
        return integer(a.value * b.value)
    if ZERO in (a, b):
        return ZERO
    if a == ONE:
        return b
    return a if b == ONE else Apply("int64", "multiply", (a, b))


def slope(expr: Expr, var: str, lets: Mapping[str, Expr], usually: bool = False) -> Slope:
    """Return what `expr` grows by from one iteration of the loop over `var` to the next.

    Parameters
    ----------
    expr : Expr
    var : str
    lets : mapping
        Values of the names that are bound inside the loop.
    usually : bool
        Whether what holds for most iterations is wanted: a choice such as that of an index which
        wraps around at the ends of an axis grows like the operand that grows.

    Returns
    -------
    Expr or None
        ``Const("int64", 0)`` where it does not change; None where it is not affine.

    Examples
    --------
    >>> i, n = Var("int64", "i"), Var("int64", "n")
    >>> slope(plus(n, times(i, integer(2))), "i", {}).value
    2
    """
    # By hand, each expression and name once: chains may be long, and names shared.
    done: dict[int, Slope] = {}
    stack = [(expr, False)]
    while stack:
        e, ready = stack.pop()
        if id(e) in done:
            continue
        below = _below(e, var, lets)
        if below and not ready:
            stack.append((e, True))
            stack += [(b, False) for b in below]
        else:
            done[id(e)] = _one(e, var, [done[id(b)] for b in below], usually)
    return done[id(expr)]


def _below(e: Expr, var: str, lets: Mapping[str, Expr]) -> tuple[Expr, ...]:
    """Return the expressions on which the slope of `e` depends."""
    if isinstance(e, Apply):
        return e.args
    if isinstance(e, Load):
        return (e.index,)
    if isinstance(e, Var) and e.name != var and e.name in lets:
        return (lets[e.name],)
    return ()


def _one(e: Expr, var: str, below: list[Slope], usually: bool) -> Slope:
    """Return the slope of `e` from those of the expressions below it."""
    if isinstance(e, Var):
        return ONE if e.name == var else below[0] if below else ZERO
    if all(s == ZERO for s in below):
        return ZERO
    if not isinstance(e, Apply) or e.dtype != "int64":
        return None
    if usually and e.name == "where":
        grows = {s for s in below[1:] if s != ZERO}
        return ZERO if not grows else grows.pop() if len(grows) == 1 else None
    if any(s is None for s in below):
        return None
    return _combined(e, [s for s in below if s is not None])


def _combined(expr: Apply, slopes: list[Expr]) -> Slope:
    """Return the slope of a function of affine operands that are not all constant."""
    if expr.name in ("add", "subtract"):
        return plus(slopes[0], slopes[1], expr.name)
    if expr.name == "negative":
        return times(integer(-1), slopes[0])
    if expr.name == "multiply" and ZERO in slopes:
        moving = 0 if slopes[1] == ZERO else 1
        return times(slopes[moving], expr.args[1 - moving])
    return slopes[0] if expr.name == "cast" and expr.args[0].dtype == "int64" else None


def at(expr: Expr, var: str, place: Expr, lets: Mapping[str, Expr]) -> Expr:
    """Return an affine `expr` for ``var == place``, without names bound inside the loop."""
    if isinstance(expr, Var):
        if expr.name == var:
            return place
        if expr.name in lets and slope(expr, var, lets) != ZERO:
            return at(lets[expr.name], var, place, lets)
        return expr
    if not isinstance(expr, Apply) or slope(expr, var, lets) == ZERO:
        return expr
    if expr.name == "cast":
        return at(expr.args[0], var, place, lets)
    return Apply(expr.dtype, expr.name, tuple(at(a, var, place, lets) for a in expr.args))


def terms(expr: Expr, lets: Mapping[str, Expr], depth: int = 16) -> tuple[int, dict[Expr, int]]:
    """Return an int64 expression as a constant and multiples of what is not taken apart.

    Examples
    --------
    >>> i, k = Var("int64", "i"), Var("int64", "k")
    >>> const, found = terms(plus(k, integer(3)), {"k": times(i, integer(2))})
    >>> const, found[i]
    (3, 2)
    """
    if isinstance(expr, Const):
        return int(expr.value), {}
    if isinstance(expr, Var) and expr.name in lets and depth:
        return terms(lets[expr.name], lets, depth - 1)
    if isinstance(expr, Apply) and expr.dtype == "int64" and depth:
        parts = [terms(a, lets, depth - 1) for a in expr.args]
        if expr.name in ("add", "subtract"):
            return _sum(parts[0], parts[1], 1 if expr.name == "add" else -1)
        if expr.name == "negative":
            return _sum((0, {}), parts[0], -1)
        if expr.name == "multiply":
            for one, other in (parts, parts[::-1]):
                if not one[1]:
                    return _sum((0, {}), other, one[0])
    return 0, {expr: 1}


def _sum(
    a: tuple[int, dict[Expr, int]], b: tuple[int, dict[Expr, int]], times_: int
) -> tuple[int, dict[Expr, int]]:
    coefs = dict(a[1])
    for e, n in b[1].items():
        coefs[e] = coefs.get(e, 0) + times_ * n
    return a[0] + times_ * b[0], {e: n for e, n in coefs.items() if n}
