"""How large the integers of a kernel can become: whether 32 bits hold them all.

References
----------
- W. H. Harrison, "Compiler analysis of the value ranges for variables", IEEE Trans. Softw. Eng. 3
  (1977), 243-250.
"""

from __future__ import annotations

from collections.abc import Mapping

from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Local,
    Stmt,
    Var,
    walk,
)
from adarray.compiler.schedule.vectors import expressions

Range = tuple[int, int]
LEAST, MOST = -(1 << 31), (1 << 31) - 1


def is_narrow(kernel: Kernel, ints: Mapping[str, int]) -> bool:
    """Whether every int64 in a kernel, given its integer parameters, fits into int32.

    Examples
    --------
    >>> from adarray.compiler.ir.loopir import integer
    >>> i, n = Var("int64", "i"), Var("int64", "n")
    >>> square = Let("t", Apply("int64", "multiply", (i, i)))
    >>> kernel = Kernel((), ("n",), (), (For("i", integer(0), n, (square,)),))
    >>> is_narrow(kernel, {"n": 46341}), is_narrow(kernel, {"n": 46342})
    (True, False)
    """
    return _Ranges(ints).block(kernel.body)


class _Ranges:
    def __init__(self, ints: Mapping[str, int]) -> None:
        self.known: dict[str, Range] = {n: (v, v) for n, v in ints.items()}
        self.quotients: dict[Expr, Apply] = {}  # by their names

    def block(self, body: tuple[Stmt, ...]) -> bool:
        """Whether all integers in statements fit, whose names are known from here on."""
        return all(self._fits(s) for s in body)

    def _fits(self, s: Stmt) -> bool:
        if isinstance(s, Local) and s.size is None and s.dtype == "int64":
            return False  # it changes
        for root in expressions(s):
            for e in walk(root):
                if e.dtype == "int64" and not _small(self._range(e)):
                    return False
        if isinstance(s, Let) and s.value.dtype == "int64":
            range_ = self._range(s.value)
            if range_ is not None:
                self.known[s.name] = range_
            if isinstance(s.value, Apply) and s.value.name == "floor_divide":
                self.quotients[Var("int64", s.name)] = s.value
        elif isinstance(s, If):
            return self.block(s.body) and self.block(s.orelse)
        elif isinstance(s, For):
            first, last = self._range(s.start), self._range(s.stop)
            if first is None or last is None:
                return False
            self.known[s.var] = first[0], max(first[0], last[1] - 1)
            return self.block(s.body)
        return True

    def _range(self, e: Expr) -> Range | None:
        """Return the least and the largest value; None if they are not to be told."""
        if isinstance(e, Const):
            return int(e.value), int(e.value)
        if isinstance(e, Var):
            return self.known.get(e.name)
        if not isinstance(e, Apply):
            return None
        if e.name == "subtract":
            rest = self._remainder(*e.args)
            if rest is not None:
                return rest
        if e.name == "where":
            ranges = [self._range(a) for a in e.args[1:]]
        else:
            ranges = [self._range(a) for a in e.args]
        known = [r for r in ranges if r is not None]
        return None if len(known) < len(ranges) else _result(e.name, known)

    def _remainder(self, a: Expr, b: Expr) -> Range | None:
        """Return the range of ``a - a // n * n``; None if that is not what it is."""
        if not isinstance(b, Apply) or b.name != "multiply":
            return None
        name, n = b.args
        whole = self.quotients.get(name)
        if whole is None or whole.args != (a, n):
            return None
        of, by = self._range(a), self._range(n)
        if of is None or by is None or of[0] < 0 or by[0] <= 0:
            return None
        return 0, min(of[1], by[1] - 1)


def _small(r: Range | None) -> bool:
    return r is not None and r[0] >= LEAST and r[1] <= MOST


def _result(name: str, args: list[Range]) -> Range | None:
    """Return the range of a function of int64."""
    (a, b), (c, d) = args[0], args[-1]
    if name == "add":
        return a + c, b + d
    if name == "subtract":
        return a - d, b - c
    if name == "multiply":
        ends = [a * c, a * d, b * c, b * d]
        return min(ends), max(ends)
    if name == "floor_divide" and c > 0:
        ends = [a // c, a // d, b // c, b // d]
        return min(ends), max(ends)
    if name == "minimum":
        return min(a, c), min(b, d)
    if name == "maximum":
        return max(a, c), max(b, d)
    if name == "where":
        return min(a, c), max(b, d)
    return None
