"""Which scalar functions of a kernel have versions of ours, and which are called out of line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from adarray.compiler.ir.loopir import Apply, Const, Expr, For, Let, Stmt, Var, walk
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.schedule.vectors import expressions

FAR = 12  # calls of mathematical functions from which on they are not inlined


@dataclass(frozen=True)
class ScalarChoices:
    """How the scalar functions of a kernel are computed.

    Parameters
    ----------
    far : bool
        Whether calls are out of line: inlined hundreds of times they do not fit the instruction
        cache (200 sines took 150 us in place of 10).
    pairs : frozenset
        Dtypes and operands of which both the sine and the cosine are computed.
    varying : frozenset of str or None
        Names that vary from iteration to iteration, where quotients by other numbers are
        multiplications by what these were inverted to; None if nothing is.
    """

    far: bool
    pairs: frozenset[tuple[str, tuple[Expr, ...]]]
    varying: frozenset[str] | None

    def is_quotient(self, e: Expr) -> bool:
        """Whether the iterations of a loop over a register-resident row divide by one number."""
        if self.varying is None or not isinstance(e, Apply):
            return False
        if e.name != "divide" or e.dtype != "float32":
            return False
        return isinstance(e.args[1], Var) and e.args[1].name not in self.varying

    def careful(self, e: Expr) -> str | None:
        """Return the name of a version that tells of rare operands; None for other functions."""
        if not isinstance(e, Apply) or e.dtype != "float32":
            return None
        name, first = e.name, e.args[0]
        if self.is_quotient(e):
            return "quotient"
        if name == "divide" and isinstance(first, Const) and first.value == 1:
            name = "reciprocal"
        far = self.far and name != "reciprocal"  # out of line, with care
        return None if far else FUNCTIONS[name].cuda_careful or None


def applied(body: Iterable[Stmt]) -> list[Expr]:
    """Return all expressions in statements."""
    return [e for s in body for x in expressions(s) for e in walk(x)]


def scalar_choices(body: list[Stmt], applied: list[Expr], quotients: bool) -> ScalarChoices:
    """Return how the scalar functions of statements are computed.

    Parameters
    ----------
    body : list of statements
        All of the kernel.
    applied : list of Expr
        What they apply.
    quotients : bool
        Whether rows are register-resident.
    """
    calls = sum(isinstance(e, Apply) and FUNCTIONS[e.name].is_call for e in applied)
    loops = (s for s in body if isinstance(s, For) and s.kind == "vector")
    varying = frozenset(x.name for s in loops for x in s.body if isinstance(x, Let))
    return ScalarChoices(calls > FAR, _pairs(applied), varying if quotients else None)


def _pairs(applied: list[Expr]) -> frozenset[tuple[str, tuple[Expr, ...]]]:
    both: dict[str, set[tuple[str, tuple[Expr, ...]]]] = {"sin": set(), "cos": set()}
    for e in applied:
        if isinstance(e, Apply) and e.name in both and isinstance(e.args[0], Var):
            both[e.name].add((e.dtype, e.args))
    return frozenset(both["sin"] & both["cos"])
