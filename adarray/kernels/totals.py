"""Sums for elements of a cotangent that all threads of a block share, throughout the kernel.

Where an index depends on the block alone, each thread adds up what it has for the element in a
variable, and the block adds the sum of these to memory at the end: one atomic operation, in place
of one for each thread and iteration.
"""

from __future__ import annotations

from typing import NamedTuple

from adarray.compiler.ir.loopir import Apply, Const, Expr, Local, Var, walk
from adarray.compiler.ir.threads import BLOCK, SIZES, Atomic, Stmt
from adarray.kernels import build
from adarray.kernels.ssa import Def, SsaProgram

_INDICES = frozenset((*BLOCK, *SIZES))
_MOST = 24  # parts of an index that is worth computing again


class _Total(NamedTuple):
    buffer: str
    at: Expr
    variable: Var


class BlockTotals:
    """The sums of a kernel.

    Parameters
    ----------
    program : SsaProgram
    """

    def __init__(self, program: SsaProgram) -> None:
        self.program = program
        written = {w.buffer for b in program.kernel.buffers for w in program.writes(b.name)}
        self.buffers = {b.name for b in program.kernel.buffers} - written
        self.scalars = {n for n, _ in program.kernel.scalars}
        self.totals: dict[tuple[str, Expr], _Total] = {}

    def of(self, buffer: str, index: Expr, dtype: str) -> Var | None:
        """Return the variable in which a thread adds up for an element; None where it has none."""
        if buffer not in self.buffers:
            return None  # the order of its reads and writes matters
        plain = self._expanded(index)
        if plain is None or sum(1 for _ in walk(plain)) > _MOST:
            return None
        name = f"{buffer}__total{len(self.totals)}"
        total = _Total(buffer, plain, Var(dtype, name))
        return self.totals.setdefault((buffer, plain), total).variable

    def _expanded(self, e: Expr) -> Expr | None:
        """Return an expression of parameters and the block's indices; None where there is none."""
        if isinstance(e, Const):
            return e
        if isinstance(e, Var):
            if e.name in self.scalars or e.name in _INDICES:
                return e
            v = self.program.values.get(e.name)
            return self._expanded(v.value) if isinstance(v, Def) else None
        if not isinstance(e, Apply):
            return None
        args = [self._expanded(a) for a in e.args]
        known = tuple(a for a in args if a is not None)
        whole = Apply(e.dtype, e.name, known)
        # All threads compute the index, even those that do not come to the read.
        return whole if len(known) == len(args) and build.is_free(whole) else None

    def declarations(self) -> list[Stmt]:
        """Return declarations of the variables."""
        return [
            Local(t.variable.name, t.variable.dtype, None, build.const(0, t.variable.dtype))
            for t in self.totals.values()
        ]

    def additions(self) -> list[Stmt]:
        """Return statements that add the sums to memory, where all threads of a block come."""
        return [
            Atomic(f"{t.buffer}__b", t.at, "add", t.variable, same="block")
            for t in self.totals.values()
        ]
