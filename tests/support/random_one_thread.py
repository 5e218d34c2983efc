"""Random kernels of one thread, for tests of what is overwritten in nested loops."""

from __future__ import annotations

import random

SIZE = 48
ARRAYS = ("x", "y", "z")


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.loops: list[str] = []
        self.count = 0
        self.scalars = ["s", "t"]

    def index(self) -> str:
        """Return an index that is in range for loops of up to four iterations."""
        if self.rng.random() < 0.08:
            return f"p[{self.rng.choice([*self.loops, '1'])}]"
        if self.loops and self.rng.random() < 0.4:
            row, column = self.rng.choice(self.loops), self.rng.choice(self.loops)
            first, last = self.rng.randint(0, 3), self.rng.randint(0, 3)
            return f"({row} + {first}) * n + {column} + {last}"
        terms = [str(self.rng.randint(8, 12))]
        for v in self.loops:
            c = self.rng.choice((-1, 0, 0, 1, 1, 2, 4))
            if c:
                terms.append(f"{c} * {v}")
        return " + ".join(terms)

    def element(self) -> str:
        return f"{self.rng.choice(ARRAYS)}[{self.index()}]"

    def value(self, depth: int = 0) -> str:
        """Return an expression whose values stay small."""
        if depth > 2 or self.rng.random() < 0.35:
            return self.element() if self.rng.random() < 0.7 else self.rng.choice(self.scalars)
        a, b = self.value(depth + 1), self.value(depth + 1)
        return self.rng.choice((
            f"sin({a})", f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"(0.5 * {a} + 0.5 * {b})",
            f"({a} / (2 + {b} * {b}))", f"exp(-({a}) * ({a}))", f"sqrt(1 + {a} * {a})",
            f"fmin({a}, {b})", f"tanh({a})",
        ))  # fmt: skip

    def condition(self) -> str:
        if self.loops and self.rng.random() < 0.4:
            return f"{self.rng.choice(self.loops)} {self.rng.choice(('<', '>='))} 2"
        return f"{self.element()} < {self.rng.choice((self.element(), '0.2'))}"

    def line(self, text: str) -> None:
        self.lines.append("  " * (len(self.loops) + 1) + text)

    def statement(self, room: int) -> None:
        """Write a statement."""
        kind = self.rng.random()
        if kind < 0.3 and len(self.loops) < 3:
            self.loop(room)
        elif kind < 0.4 and room > 0:
            self.line(f"if ({self.condition()}) {{")
            self.block(room - 1)
            if self.rng.random() < 0.5:
                self.line("} else {")
                self.block(room - 1)
            self.line("}")
        elif kind < 0.5:
            self.line(f"{self.rng.choice(self.scalars)} = sin({self.value()});")
        elif kind < 0.6:
            self.line(f"{self.rng.choice(self.scalars)} += 0.1 * {self.value()};")
        elif kind < 0.66 and self.loops:
            self.line(f"p[{self.rng.choice(self.loops)}] = 4 + {self.rng.choice(self.loops)};")
        elif kind < 0.8:
            self.line(f"{self.element()} {self.rng.choice(('+=', '-='))} 0.2 * {self.value()};")
        else:
            self.line(f"{self.element()} = tanh({self.value()});")

    def loop(self, room: int) -> None:
        """Write a loop."""
        var = f"i{self.count}"
        self.count += 1
        outer = self.rng.choice(self.loops) if self.loops else None
        ranges = [("0", "n"), ("0", "n"), ("1", "n - 1"), ("0", "0")]
        if outer is not None:
            ranges = [*ranges[:3], ("0", outer), (outer, "n"), (f"{outer} + 1", "n")]
        start, stop = self.rng.choice(ranges)
        self.line(f"for (long long {var} = {start}; {var} < {stop}; {var}++) {{")
        self.loops.append(var)
        self.block(room - 1)
        self.loops.pop()
        self.line("}")

    def block(self, room: int) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.statement(room)


def source(seed: int) -> str:
    """Return the text of a kernel ``k`` on arrays of `SIZE` elements and an array of indices."""
    w = _Writer(seed)
    for _ in range(w.rng.randint(1, 3)):
        w.loop(3)
    body = "\n".join(w.lines)
    arrays = ", ".join(f"double *{a}" for a in ARRAYS)
    return (
        f"__global__ void k({arrays}, long long *p, double c, long long n) {{\n"
        f"  double s = c, t = 0.5;\n{body}\n  z[0] += s * t;\n}}"
    )
