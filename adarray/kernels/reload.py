"""Values that the reverse sweep reads again from memory that it restores step by step.

A kernel of one thread may put what an element held on the tape before it is overwritten. The
reverse sweep takes it back at the adjoint of the write; so memory is at each of its points what it
was at that point of the forward sweep, and what was read there is read again. (Hascoet and Pascual,
*The Tapenade automatic differentiation tool*, 2013.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adarray.compiler.ir.loopir import Expr, Let, Load, Var
from adarray.compiler.ir.threads import variables
from adarray.kernels.needs import Needs
from adarray.kernels.ssa import Def, Node, Read, SsaLoop, SsaProgram, Write, inner


class Apart:
    """Says which accesses may touch the same element: all, where nothing is known of indices."""

    def between(self, w: Write, r: Read | Write) -> bool:
        """Whether a write may touch what was read, or written, in an iteration of that loop."""
        return w.buffer == r.buffer

    def meet(self, a: Read | Write, b: Read | Write, same: int) -> bool:  # noqa: ARG002
        """Whether two accesses may touch the same element, in the same iteration of some loops."""
        return a.buffer == b.buffer

    def collide(self, a: Read | Write, b: Read | Write) -> bool:
        """Whether two accesses may touch the same element in different iterations of their loop."""
        return a.buffer == b.buffer

    def stride(self, a: Read | Write) -> int | None:  # noqa: ARG002
        """Return how far apart are the elements of two iterations of a loop, if that is known."""
        return None

    def trips(self, loop: SsaLoop) -> int | None:  # noqa: ARG002
        """Return how many iterations a loop has, if that is always the same and known."""
        return None

    def follows(self, w: Write, r: Read | Write) -> bool:
        """Whether a write may touch what was read, or written, before it."""
        return w.buffer == r.buffer and (w.order > r.order or bool(set(w.loops) & set(r.loops)))


class Settled(Apart):
    """Says nothing against what a plan reads again: it has been looked at when it was made."""

    def between(self, w: Write, r: Read | Write) -> bool:  # noqa: ARG002
        """Whether a write may touch what was read, or written, in an iteration of that loop."""
        return False


class Reload:
    """Brings values that follow from overwritten memory to where the reverse sweep reads them.

    Attributes
    ----------
    scopes : list of dict
        Names of values that have been read again, by their names in the program; those of the
        innermost block last.
    """

    def __init__(self, program: SsaProgram, needs: Needs, apart: Apart) -> None:
        self.program = program
        self.needs = needs
        self.apart = apart
        self.scopes: list[dict[str, str]] = [{}]
        self.count = 0
        # Memory is as it was before the node of this order, in an iteration of these loops.
        self.point = 0
        self.around: tuple[SsaLoop, ...] = ()

    # -- where the reverse sweep is ------------------------------------------------------------

    def before(self, n: Node) -> None:
        """Note that all but what came before a node is restored."""
        self.point, self.around = n.order, n.loops

    def behind(self, n: Node, body: list[Node] | None = None) -> None:
        """Note that a node itself, or one of its bodies, is not restored yet."""
        self.point, self.around = _last(n, body) + 1, n.loops

    def end_of(self, loop: SsaLoop) -> None:
        """Note that the reverse sweep begins with an iteration of a loop."""
        self.point, self.around = _last(loop, None) + 1, (*loop.loops, loop)

    def restores(self, loop: SsaLoop) -> bool:
        """Whether iterations of a loop put old values on the tape."""
        nodes = self.program.nodes
        return any(o in self.needs.plan.writes for o in range(loop.order, _last(loop, None) + 1)
                   if isinstance(nodes[o], Write))  # fmt: skip

    # -- values --------------------------------------------------------------------------------

    def name(self, name: str) -> str | None:
        """Return the name of what was read again for a value."""
        return next((s[name] for s in reversed(self.scopes) if name in s), None)

    def bring(self, e: Expr, shown: Callable[[Expr], Expr], out: list[Any]) -> None:
        """Have everything that an expression reads at hand."""
        for name in sorted(variables(e)):
            if self.name(name) is not None:
                continue
            if not self.needs.late(name):
                self.needs.require(name)
                continue
            unknown = self._unknown(name)
            if not unknown:
                self._read_again(name, shown, out)
                continue
            # A truth value is one value on the tape, whatever it is made of.
            truth = isinstance(e, Var) and e.dtype == "bool"
            for n in (name,) if truth else sorted(unknown):
                self.needs.forced.add(n)
                self.needs.require(n)

    def _unknown(self, name: str) -> set[str]:
        """Return what a late value is made of and is not to be had here."""
        if self.name(name) is not None or not self.needs.late(name):
            return set()
        v = self.program.values[name]
        if isinstance(v, Def):
            if self._left(v) is not None:
                return set()
            return set().union(*(self._unknown(n) for n in variables(v.value)))
        if not isinstance(v, Read):
            return {name}
        if v.buffer in self.needs.plan.buffers and self._overwritten(v):
            return {name}
        return set().union(*(self._unknown(n) for n in variables(v.index)))

    def _left(self, v: Def) -> Write | None:
        """Return a write that has left a value in memory, where it is still."""
        if not self.needs.plan.revisits or v.home not in self.around:
            return None
        for w in self.needs.stored.get(v.name, ()):
            here = w.order < self.point and w.buffer in self.needs.plan.buffers
            if (
                here
                and not self._overwritten(w)
                and not any(map(self._unknown, variables(w.index)))
            ):
                return w
        return None

    def _overwritten(self, r: Read | Write) -> bool:
        """Whether an element may have been written since it was accessed in this iteration."""
        home = r.home
        assert home is not None
        if home not in self.around:
            return True
        deeper = self.around[self.around.index(home) + 1 :]
        for w in self.program.writes(r.buffer):
            if home not in w.loops:
                continue
            since = r.order < w.order < self.point or any(x in w.loops for x in deeper)
            if since and self.apart.between(w, r):
                return True
        return False

    def _read_again(self, name: str, shown: Callable[[Expr], Expr], out: list[Any]) -> None:
        v = self.program.values[name]
        assert isinstance(v, (Def, Read))
        w = self._left(v) if isinstance(v, Def) else None
        e = w.index if w is not None else v.value if isinstance(v, Def) else v.index
        self.bring(e, shown, out)
        value: Expr = shown(e)
        if w is not None:
            self.needs.revisit(w)
            value = Load(w.value.dtype, w.buffer, value)
        elif isinstance(v, Read):
            self.needs.reload(v)
            value = Load(v.dtype, v.buffer, value)
        self.count += 1
        self.scopes[-1][name] = f"{name}__m{self.count}"
        out.append(Let(f"{name}__m{self.count}", value))


def _last(n: Node, body: list[Node] | None) -> int:
    """Return the order of the last node inside of a node, or of one of its bodies."""
    last = n.order
    for part in inner(n) if body is None else [body]:
        for x in part[-1:]:
            last = max(last, _last(x, None))
    return last
