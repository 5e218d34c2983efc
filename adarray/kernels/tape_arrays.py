"""Where the values of a loop lie on the tape of one thread: in arrays, one for each value.

A loop that counts, and whose inner loops put nothing on the tape, takes what it needs before it
starts. Its values are then read by the number of the iteration, in any order, and its body is free
of checks and of counters in memory.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Expr
from adarray.compiler.ir.threads import Recall, Record
from adarray.kernels.needs import Needs
from adarray.kernels.ssa import SsaLoop, SsaProgram, Write, dtype_of


class TapeArrays:
    """Says which loops have arrays on the tape, and what these are named.

    Parameters
    ----------
    program : SsaProgram
    needs : Needs
        What goes to the tape.
    """

    def __init__(self, program: SsaProgram, needs: Needs) -> None:
        self.program = program
        self.needs = needs

    def has(self, loop: SsaLoop | None) -> bool:
        """Whether a loop has such."""
        if loop is None or loop.var is None or not self.needs.arrays:
            return False
        return bool(self._values(loop)) and not self._has_inside(loop)

    def is_backwards(self, loop: SsaLoop) -> bool:
        """Whether iterations take values off the tape: the last ones first."""
        return self._has_inside(loop) or (bool(self._values(loop)) and not self.has(loop))

    def _has_inside(self, loop: SsaLoop) -> bool:
        """Whether loops inside of one put values on the tape."""
        inner = (n for n in self.program.nodes if isinstance(n, SsaLoop) and loop in n.loops)
        return any(map(self._values, inner))

    def _values(self, loop: SsaLoop) -> list[tuple[str, str]]:
        """Return names of arrays, and their dtypes, for what an iteration puts on the tape."""
        taped = self.needs.taped.get(loop.number, ())
        values = [(self.of_value(loop, n), dtype_of(self.program, n)) for n in taped]
        writes = (self.program.nodes[k] for k in sorted(self.needs.plan.writes))
        return values + [
            (self.of_write(n), n.value.dtype)
            for n in writes
            if isinstance(n, Write) and n.home is loop
        ]

    def of_value(self, loop: SsaLoop, name: str) -> str:
        """Return the array of a value."""
        return f"{name}__tape{loop.number}"

    def of_write(self, n: Write) -> str:
        """Return the array of what a write overwrites."""
        return f"{n.buffer}__tape_w{n.order}"

    def record(self, loop: SsaLoop, count: Expr) -> Record:
        """Return the statement that takes room for a loop of so many iterations."""
        return Record(tuple(self._values(loop)), count)

    def recall(self, loop: SsaLoop, count: Expr) -> Recall:
        """Return the statement that gives the arrays back to the reverse sweep."""
        return Recall(tuple((back(n), d) for n, d in self._values(loop)), count)


def back(name: str) -> str:
    """Return the name of an array in the reverse sweep."""
    return f"{name}__r"
