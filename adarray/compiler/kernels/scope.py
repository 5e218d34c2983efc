"""Writing loop IR: nested levels of statements, and where a computed value may stand.

Level 0 is the kernel, level 1 an iteration of the outer loop, further ones are inner loops. A
value is named at the outermost level at which everything that it reads is known; so what
does not change in a loop is computed before it.

References
----------
- A. V. Aho, M. S. Lam, R. Sethi, J. D. Ullman, "Compilers: Principles, Techniques, and Tools", 2nd
  ed., Addison-Wesley 2006, chapter 9 (code motion).
"""

from __future__ import annotations

from typing import NamedTuple

from adarray.compiler.ir.loopir import STRIDE, Apply, Const, Expr, Let, Stmt, Var, integer


class Affine(NamedTuple):
    """An index: ``const + sum(coef * name)``; terms are sorted by name."""

    const: int
    terms: tuple[tuple[str, int], ...] = ()


NOTHING = Affine(0)
# Constants and coefficients so small stand in the text of a kernel; others are parameters.
LITERAL = 4


def combine(parts: list[tuple[int, Affine]], const: int = 0) -> Affine:
    """Return ``const + sum(coef * affine)``."""
    terms: dict[str, int] = {}
    for coef, a in parts:
        const += coef * a.const
        for name, c in a.terms:
            terms[name] = terms.get(name, 0) + coef * c
    if len(terms) > 1:
        return Affine(const, tuple((n, c) for n, c in sorted(terms.items()) if c))
    return Affine(const, tuple((n, c) for n, c in terms.items() if c))


class Level:
    """Statements of one loop body in the making."""

    __slots__ = ("keys", "names", "statements")

    def __init__(self) -> None:
        self.statements: list[Stmt] = []
        self.keys: list[object] = []
        self.names: list[str] = []


class LoopScope:
    """Levels, names and integer parameters of a kernel in the making.

    With `beside`, the text says which elements lie beside each other in memory: what is a few
    elements from whole rows further on is written as so many elements beside these.
    """

    def __init__(self, beside: bool = False) -> None:
        self.beside = beside
        self.levels: list[Level] = [Level()]
        self.memo: dict[object, tuple[Expr, int]] = {}
        self.depth: dict[str, int] = {}
        # Smallest and largest value of each index name.
        self.range: dict[str, tuple[int, int]] = {}
        self.ints: dict[tuple[str, int], str] = {}
        # Of the quotient and the rest of an index by a number: that index, and the number.
        self.parts: dict[tuple[str, str], tuple[str, int]] = {}
        self.count = 0

    # -- levels ---------------------------------------------------------------------------

    def open(self) -> Level:
        """Begin a loop body inside the present one."""
        self.levels.append(Level())
        return self.levels[-1]

    def close(self) -> tuple[Stmt, ...]:
        """End the innermost loop body; what it named is forgotten."""
        level = self.levels.pop()
        for key in level.keys:
            self.memo.pop(key, None)
        for name in level.names:
            self.depth.pop(name, None)
            self.range.pop(name, None)
        return tuple(level.statements)

    @property
    def here(self) -> int:
        """Depth of the innermost level."""
        return len(self.levels) - 1

    def emit(self, *statements: Stmt, depth: int = -1) -> None:
        """Add statements to a level, the innermost by default."""
        self.levels[depth].statements.extend(statements)

    # -- names ----------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        """Return a name that nothing has."""
        self.count += 1
        return f"{prefix}{self.count}"

    def index_name(self, prefix: str, low: int, high: int, depth: int) -> str:
        """Return a new name of an int64 between `low` and `high` inclusive."""
        name = self.fresh(prefix)
        self.depth[name] = depth
        self.range[name] = (low, high)
        self.levels[depth].names.append(name)
        return name

    def let(self, key: object, expr: Expr, depth: int) -> tuple[Expr, int]:
        """Name a value at a level, and remember it under `key`."""
        name = self.fresh("t")
        level = self.levels[depth]
        level.statements.append(Let(name, expr))
        variable = (Var(expr.dtype, name), depth)
        self.memo[key] = variable
        level.keys.append(key)
        return variable

    def number(self, role: str, value: int, literal: bool = True) -> Expr:
        """Return an integer: in the text if it is small, else as a parameter."""
        if literal and abs(value) <= LITERAL:
            return integer(value)
        name = self.ints.get((role, value))
        if name is None:
            name = self.ints[role, value] = f"{role}{len(self.ints)}"
        return Var("int64", name)

    def bounds(self, a: Affine) -> tuple[int, int]:
        """Return the smallest and the largest value of an index."""
        low = high = a.const
        for name, c in a.terms:
            lo, hi = self.range[name]
            low += c * (lo if c > 0 else hi)
            high += c * (hi if c > 0 else lo)
        return low, high

    def depth_of(self, a: Affine) -> int:
        """Return the level at which an index is known."""
        return max((self.depth[name] for name, _ in a.terms), default=0)

    def index(self, a: Affine, role: str = "at") -> tuple[Expr, int]:
        """Return an index as an expression, its parts named where they are known."""
        a = self._whole(a)
        shift = self._beside(a) if self.beside else 0
        if shift:
            whole, known_at = self.index(Affine(a.const - shift, a.terms), role)
            return Apply("int64", "add", (whole, integer(shift))), known_at
        expr: Expr | None = self.number(role, a.const) if a.const else None
        if not a.terms:
            return expr or integer(0), 0
        by_depth: dict[int, list[tuple[str, int]]] = {}
        for name, c in a.terms:
            by_depth.setdefault(self.depth[name], []).append((name, c))
        depths = sorted(by_depth)
        known: tuple[tuple[str, int], ...] = ()
        for depth in depths:
            known += tuple(by_depth[depth])
            for name, c in by_depth[depth]:
                expr = self._plus(expr, name, c)
            assert expr is not None
            if depth != depths[-1] and not isinstance(expr, Var):
                key = ("index", a.const, known)
                hit = self.memo.get(key)
                expr = (hit or self.let(key, expr, depth))[0]
        assert expr is not None
        return expr, depths[-1]

    def _whole(self, a: Affine) -> Affine:
        """Return an index with those put together whose parts it holds as they were taken apart."""
        for (quotient, rest), (name, n) in reversed(self.parts.items()):
            terms = dict(a.terms)
            step = terms.get(rest, 0)
            if step and terms.get(quotient, 0) == step * n:
                del terms[quotient], terms[rest]
                a = Affine(a.const, tuple(sorted({**terms, name: step}.items())))
        return a

    @staticmethod
    def _beside(a: Affine) -> int:
        """Return how many elements an index is beside whole rows, 0 if these are many."""
        if abs(a.const) <= LITERAL:
            return 0
        rest = a.const
        for step in sorted({abs(c) for _, c in a.terms if abs(c) > 2 * LITERAL}, reverse=True):
            rest = (rest + step // 2) % step - step // 2
        return rest if abs(rest) <= LITERAL else 0

    def _plus(self, expr: Expr | None, name: str, coef: int) -> Expr:
        term: Expr = Var("int64", name)
        if coef == -1 and expr is not None:
            return Apply("int64", "subtract", (expr, term))
        if coef != 1:
            term = Apply("int64", "multiply", (term, self.number(STRIDE, coef)))
        return term if expr is None else Apply("int64", "add", (expr, term))


def neutral(combine_: str, dtype: str) -> Const:
    """Return what a fold begins with."""
    import numpy as np

    if combine_ in ("add", "logical_or"):
        value: object = 0
    elif combine_ in ("multiply", "logical_and"):
        value = 1
    elif dtype == "bool":
        value = combine_ == "minimum"
    elif dtype.startswith("float"):
        value = float("-inf") if combine_ == "maximum" else float("inf")
    else:
        info = np.iinfo(dtype)
        value = int(info.min if combine_ == "maximum" else info.max)
    if dtype == "bool":
        value = bool(value)
    elif dtype.startswith("float"):
        value = float(value)  # type: ignore[arg-type]
    return Const(dtype, value)
