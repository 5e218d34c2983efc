"""Whether the length of a kernel's tapes follows from its launch alone.

Then it is counted once for a launch, and no later one waits for the GPU to read it.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Assign, Expr, For, If, Let, Local
from adarray.compiler.ir.threads import (
    Atomic,
    Pop,
    Push,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    loads,
    operands,
    variables,
)


class _Dependence:
    """Finds the variables of a kernel that depend on arrays and floating-point parameters."""

    def __init__(self, kernel: ThreadKernel) -> None:
        self.tables = {t.name for t in kernel.tables}
        self.names = {n for n, dtype in kernel.scalars if dtype.startswith("float")}
        self.pushes = False  # whether it depends on them what goes to the tape

    def expr(self, e: Expr) -> bool:
        """Whether an expression does."""
        if any(x.buffer not in self.tables for x in loads(e)):
            return True
        return bool(variables(e) & self.names)

    def block(self, body: tuple[Stmt, ...], whether: bool) -> None:
        """Note what does in statements; `whether` says if it depends on data that they run."""
        for s in body:
            whole = whether or any(map(self.expr, operands(s)))
            if (isinstance(s, (Let, Assign, Local)) and whole) or isinstance(s, (WarpOp, Pop)):
                self.names.add(s.name)
            elif isinstance(s, Atomic) and s.result is not None:
                self.names.add(s.result)
            elif isinstance(s, Push):
                self.pushes |= whether
            elif isinstance(s, If):
                self.block(s.body, whole)
                self.block(s.orelse, whole)
            elif isinstance(s, For):
                if whole:
                    self.names.add(s.var)
                self.block(s.body, whole)
            elif isinstance(s, While):
                self.block(s.body, whether or s.condition in self.names)


def fixed(kernel: ThreadKernel) -> bool:
    """Whether each thread of a launch puts as much on its tape whatever arrays hold.

    Parameters
    ----------
    kernel : ThreadKernel
        The forward part of an adjoint.
    """
    dependence = _Dependence(kernel)
    while True:
        known = len(dependence.names)
        dependence.block(kernel.body, False)
        if len(dependence.names) == known:
            return not dependence.pushes
