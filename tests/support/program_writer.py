"""What writes random programs: names, what is known of their values, expressions.

Magnitudes are tracked while writing and kept small, so that arguments of functions stay inside
of their domains.

For `random_programs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from program_parts import BINARY, UNARY
from programs import Argument

Choose = Callable[[int], int]
LARGEST = 40.0  # magnitudes above are scaled down
MOST_ELEMENTS = 400


class Cell:
    """What is known of one stretch of memory: all views of it share this."""

    def __init__(self, mag: float, exact: bool, owned: bool) -> None:
        self.mag = mag
        self.exact = exact
        self.owned = owned


class Var:
    """A name in the program."""

    def __init__(
        self, name: str, shape: tuple[int, ...], cell: Cell, writeable: bool = True
    ) -> None:
        self.name = name
        self.shape = shape
        self.cell = cell
        self.writeable = cell.owned and writeable and shape != ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        shape = np.broadcast_shapes(a, b)
    except ValueError:
        return None
    return shape if math.prod(shape) <= MOST_ELEMENTS else None


def fits(small: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array of shape `small` may be assigned to one of `shape`."""
    return broadcast(small, shape) == shape


class BaseWriter:
    """Writes programs, statement by statement."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.lines: list[str] = []
        self.top: list[str] = []
        self.env: list[Var] = []
        self.depth = 1
        self.count = 0
        self.arguments: list[Argument] = []

    # -- small choices ---------------------------------------------------------------------

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.choose(len(options))]

    def flip(self) -> bool:
        return bool(self.choose(2))

    def constant(self) -> str:
        return self.pick(("0.3", "-0.7", "1.2", "0.05", "-0.11"))

    def var(self, test: Callable[[Var], bool] = lambda v: True) -> Var | None:
        """Return a variable, late ones first; None if none will do."""
        fit = [v for v in reversed(self.env) if test(v)]
        return self.pick(fit) if fit else None

    # -- writing -----------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def scaled(self, expr: str, mag: float) -> tuple[str, float]:
        if mag <= LARGEST:
            return expr, mag
        factor = float(f"{8 / mag:.2g}")
        return f"{factor} * ({expr})", mag * factor

    def let(self, expr: str, shape: tuple[int, ...], mag: float, exact: bool) -> Var:
        expr, mag = self.scaled(expr, mag)
        v = Var(self.name(), shape, Cell(mag, exact, True))
        self.line(f"{v.name} = {expr}")
        self.env.append(v)
        return v

    def let_view(self, expr: str, of: Var, shape: tuple[int, ...], writeable: bool = True) -> Var:
        """Name a view; without axes it is a number of its own."""
        cell = of.cell if shape else Cell(of.cell.mag, of.cell.exact, False)
        v = Var(self.name(), shape, cell, writeable and of.writeable)
        self.line(f"{v.name} = {expr}")
        self.env.append(v)
        return v

    # -- expressions ---------------------------------------------------------------------------

    def unary(self, a: Var) -> tuple[str, float, bool]:
        """Return an elementwise expression of `a`, its magnitude, whether its bits are sure."""
        text, mag, rounds_correctly = self.pick(UNARY)
        sure = rounds_correctly or (rounds_correctly is not None and a.shape != ())
        return text.format(a=a.name), mag(a.cell.mag), a.cell.exact and sure

    def binary(self, a: Var, b: Var) -> tuple[str, float, bool]:
        text, mag, rounds_correctly = self.pick(BINARY)
        # What only concerns numbers without axes is computed by NumPy in eager code.
        sure = a.cell.exact and b.cell.exact and (rounds_correctly or () not in (a.shape, b.shape))
        return text.format(a=a.name, b=b.name), mag(a.cell.mag, b.cell.mag), sure

    def of_same_shape(self, a: Var) -> tuple[str, float, bool]:
        """Return an expression of the shape of `a`."""
        b = self.var(lambda b: fits(b.shape, a.shape)) if self.flip() else None
        expr, mag, exact = self.unary(a) if b is None else self.binary(a, b)
        return (*self.scaled(expr, mag), exact)
