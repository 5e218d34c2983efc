"""Extents of the loops of a kernel, where its integers are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from adarray.compiler.ir.affine import terms
from adarray.compiler.ir.loopir import Apply, Const, Expr, For, Let, Stmt, Var, statements
from adarray.compiler.schedule.gpu.loops import is_shared


def evaluate(expr: Expr, known: Mapping[str, int]) -> int | None:
    """Return an int64 expression of integer parameters; None if it holds anything else."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return known.get(expr.name)
    if not isinstance(expr, Apply):
        return None
    values = [evaluate(a, known) for a in expr.args]
    args = [a for a in values if a is not None]
    if len(args) < len(values):
        return None
    if expr.name == "where":
        return args[1] if args[0] else args[2]
    function = _FUNCTIONS.get(expr.name)
    return None if function is None else int(function(*args))


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "negative": lambda a: -a,
    "floor_divide": lambda a, b: a // b if b else 0,
    "minimum": min,
    "maximum": max,
    "less": lambda a, b: a < b,
    "greater_equal": lambda a, b: a >= b,
    "cast": lambda a: a,
}


def padded(count: int) -> int:
    """Return `count` rounded up to a multiple of 64."""
    return (count + 63) // 64 * 64


def power_of_two(count: int) -> int:
    """Return the least power of two that is not below `count`."""
    return 1 << max(0, count - 1).bit_length()


def with_lets(body: tuple[Stmt, ...], known: Mapping[str, int]) -> dict[str, int]:
    """Return the integers, and the names that statements bind to values of them."""
    values = dict(known)
    for s in body:
        if isinstance(s, Let) and s.value.dtype == "int64":
            value = evaluate(s.value, values)
            if value is not None:
                values[s.name] = value
    return values


def count_of(loop: For, known: Mapping[str, int]) -> int | None:
    """Return the iterations of a loop; None if they cannot be told."""
    start, stop = evaluate(loop.start, known), evaluate(loop.stop, known)
    return None if start is None or stop is None else max(0, stop - start)


def extents_of(body: tuple[Stmt, ...], known: Mapping[str, int]) -> list[int]:
    """Return the lengths of the vector loops in statements, of those that can be told."""
    return [n for n in counts_of(body, known) if n is not None]


def counts_of(body: tuple[Stmt, ...], known: Mapping[str, int]) -> list[int | None]:
    """Return the lengths of the vector loops in statements, None for unknown ones."""
    loops = (s for s in statements(body) if isinstance(s, For) and is_shared(s))
    return [count_of(s, known) for s in loops]


def most_of(body: tuple[Stmt, ...], known: Mapping[str, int]) -> list[int | None]:
    """Return the most iterations of the vector loops in statements, None for unknown ones.

    A loop over the rows that a block of them shares with a part of all rows, as in
    ``maximum(low, 1) .. minimum(low + 4096, n - 1)``, has no more than the block has.
    """
    lets = {s.name: s.value for s in statements(body) if isinstance(s, Let)}
    loops = (s for s in statements(body) if isinstance(s, For) and is_shared(s))
    return [_most(s, known, lets) for s in loops]


def _most(loop: For, known: Mapping[str, int], lets: Mapping[str, Expr]) -> int | None:
    """Return the most iterations of a loop; None if they cannot be told."""
    count = count_of(loop, known)
    if count is not None:
        return count
    lengths = []
    for end in _bounds(loop.stop, "minimum", lets):
        for first in _bounds(loop.start, "maximum", lets):
            (a, ends), (b, firsts) = terms(end, lets), terms(first, lets)
            rest = {e: ends.get(e, 0) - firsts.get(e, 0) for e in ends.keys() | firsts.keys()}
            values = [(n, evaluate(e, known)) for e, n in rest.items() if n]
            told = [n * value for n, value in values if value is not None]
            if len(told) == len(values):
                lengths.append(a - b + sum(told))
    return max(0, min(lengths)) if lengths else None


def _bounds(bound: Expr, name: str, lets: Mapping[str, Expr]) -> list[Expr]:
    """Return what a loop begins or ends with: that, or what it is the least or the most of."""
    found, left = [], [bound]
    while left:
        e = left.pop()
        while isinstance(e, Var) and e.name in lets:
            e = lets[e.name]
        if isinstance(e, Apply) and e.name == name:
            left += e.args
        else:
            found.append(e)
    return found
