"""What is read of a concatenation's piece is read of the whole, which is in memory as well.

A step of a stencil on a line computes the inner points, and puts the ends beside them. The next
step reads both: the points next to each inner one of the whole, and those themselves of the piece
alone, which is their shorter name. On a GPU, both would be written to memory; a piece that only
the whole has is computed where it is written.

References
----------
- K. D. Cooper, L. Torczon, "Engineering a Compiler", 3rd edition, Morgan Kaufmann 2022, section 8.4
  (redundancy: one name for values that are equal).
"""

from __future__ import annotations

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Concatenate, Map, View
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.rewrite.rebuild import keep, rebuild

# The share of the whole that a piece is, at least: others are not worth a look.
SHARE = 2


def read_in_whole(program: Program, target: Target) -> Program:
    """Return the program with large computed pieces read of the concatenations that have them."""
    if not target.along:
        return program
    places = _places(program)
    if not places:
        return program
    wholes: dict[Value, Value] = {}  # new pieces, and what is read in their place from now on

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        now = keep(b, v, tuple(wholes.get(a, a) for a in args))
        if v in places:
            k, offset = places[v]
            piece = args[k]
            wholes[piece] = b.make(
                View(offset, c_strides(v.shape)), (now,), piece.shape, piece.dtype
            )
        return now

    return rebuild(program, rule)


def _places(program: Program) -> dict[Value, tuple[int, int]]:
    """Return the concatenations that have such a piece: which operand, and where it begins.

    They are read themselves, and their pieces by what comes later.
    """
    last: dict[Value, int] = {}
    for k, v in enumerate(program.values):
        for a in v.args:
            last[a] = k
    places: dict[Value, tuple[int, int]] = {}
    taken: set[Value] = set()
    for at, v in enumerate(program.values):
        if not isinstance(v.primitive, Concatenate) or last.get(v, -1) < 0:
            continue
        begin = 0
        for k, piece in enumerate(v.args):
            large = isinstance(piece.primitive, Map) and SHARE * piece.size >= v.size
            if large and last[piece] > at and piece not in taken:
                places[v] = k, begin * c_strides(v.shape)[v.primitive.axis]
                taken.add(piece)
                break
            begin += piece.shape[v.primitive.axis]
    return places
