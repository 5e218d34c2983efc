"""What the reverse half is put together from: places to fill in, and names that statements set."""

from __future__ import annotations

from typing import Any

from adarray.compiler.ir.loopir import Assign, Expr, For, If, Var
from adarray.kernels.ssa import Branch, Def, Exchange, Node, Read, SsaLoop, Write


class Prologue:
    """Stands where values of an iteration come from the tape, or are computed again."""

    def __init__(self, loop: SsaLoop) -> None:
        self.loop = loop


class OldValue:
    """Stands where an element's old value comes from the tape, and is named."""

    def __init__(self, write: Write, name: str) -> None:
        self.write = write
        self.name = name


class Segment:
    """Stands where iterations from a checkpoint on run again."""

    def __init__(self, loop: SsaLoop, first: Expr, last: Expr) -> None:
        self.loop = loop
        self.first = first
        self.last = last


class SteadyElements:
    """Elements of derivatives that stay the same in a loop, as variables by memory and index."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: dict[tuple[str, Expr], Var] = {}
        self.totals: dict[tuple[str, Expr], Var] = {}

    def value(self, memory: str, index: Expr, dtype: str) -> Var:
        """Return an element's value."""
        return self._of(self.values, memory, index, dtype, "is")

    def total(self, memory: str, index: Expr, dtype: str) -> Var:
        """Return the sum of what is added to an element."""
        return self._of(self.totals, memory, index, dtype, "sum")

    def _of(
        self, known: dict[tuple[str, Expr], Var], memory: str, index: Expr, dtype: str, kind: str
    ) -> Var:
        name = f"{memory}_{kind}{self.number}_{len(known)}"
        return known.setdefault((memory, index), Var(dtype, name))


def defined_by(n: Node) -> set[str]:
    """Return the values that a node defines in its block."""
    if isinstance(n, (Def, Read, Exchange)):
        return {n.name}
    if isinstance(n, Write):
        return {n.result} if n.result else set()
    if isinstance(n, Branch):
        return {p.name for p in n.phis}
    return {c.out for c in n.carried} if isinstance(n, SsaLoop) else set()


def assigned_by(chunk: list[Any]) -> set[str]:
    """Return the names that statements assign to."""
    names: set[str] = set()
    for s in chunk:
        if isinstance(s, Assign):
            names.add(s.name)
        elif isinstance(s, For):
            names |= assigned_by(list(s.body))
        elif isinstance(s, If):
            names |= assigned_by(list(s.body)) | assigned_by(list(s.orelse))
    return names
