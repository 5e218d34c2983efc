"""Random NumPy programs: plain source text with branches, loops, views and in-place writes.

`random_program(choose)` writes one; `choose(n)` gives the choices, each a number below n, so
that Hypothesis (`programs`) or a seed (`seeded`) can make them. Magnitudes are tracked while
writing and kept small, arguments of functions stay inside of their domains, and writes go to
arrays that the program made, so every program is valid for every input.

For tests of transforms, passes, planning and `jit`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from array_statements import ArrayWriter
from hypothesis import strategies as st
from program_parts import UNARY
from program_writer import LARGEST, Cell, Choose, Var, fits
from programs import Argument, RandomProgram

SHAPES: tuple[tuple[int, ...], ...] = (
    (5,), (3, 4), (1,), (2, 3, 4), (4, 1), (), (37,), (6, 6), (0,), (2, 0), (1, 1), (17, 9),
)  # fmt: skip


class Writer(ArrayWriter):
    """Writes one program, statement by statement."""

    # -- statements: writing in place -----------------------------------------------------------

    def target(self) -> Var | None:
        """Return an array that may be written to, made if there is none."""
        v = self.var(lambda v: v.writeable)
        if v is None:
            a = self.var(lambda v: v.shape != ())
            if a is None:
                return None
            v = self.let(f"{a.name} * 1.0", a.shape, a.cell.mag, a.cell.exact)
        return v

    def write(self) -> None:
        a = self.target()
        if a is None:
            return
        n, rest = a.shape[0], a.shape[1:]
        keys = [
            ("[...]", a.shape),
            ("[::2]", ((n + 1) // 2, *rest)),
            ("[1:]", (max(n - 1, 0), *rest)),
        ]
        if n:
            keys += [("[0]", rest), ("[-1:]", (1, *rest)), ("[[0, -1]]", (2, *rest))]
        if len(a.shape) > 1:
            keys.append(("[:, 0]", (n, *a.shape[2:])) if a.shape[1] else ("[:, :0]", (n, 0)))
        key, shape = self.pick(keys)
        b = self.var(lambda v: fits(v.shape, shape)) if self.flip() else None
        value, mag, exact = (self.constant(), 1.2, True) if b is None else self.unary(b)
        value, mag = self.scaled(value, mag)
        sign = self.pick(("=", "+=", "*=", "-="))
        if sign == "*=":
            value, mag = f"np.cos({value})", a.cell.mag
            exact = exact and b is not None and b.shape != ()
        elif sign != "=":
            mag += a.cell.mag
        if mag > 4 * LARGEST:
            return
        self.line(f"{a.name}{key} {sign} {value}")
        a.cell.mag = max(a.cell.mag, mag)
        a.cell.exact = a.cell.exact and exact

    def update(self) -> None:
        """Change a whole array, or a part of it through a mask or ``out=``."""
        a = self.target()
        if a is None:
            return
        kind = self.choose(4)
        if kind == 0:
            self.line(f"{a.name} *= 0.5")
        elif kind == 1:
            self.line(f"{a.name}[{a.name} > {self.constant()}] *= 0.5")
        elif kind == 2:
            self.line(f"np.multiply({a.name}, {self.constant()[-3:]}, out={a.name})")
        else:
            self.line(f"{a.name} += {self.constant()}")
            a.cell.mag += 1.2

    # -- statements: control flow -----------------------------------------------------------------

    def condition(self) -> str | None:
        """Return a host read of a value."""
        a = self.var(lambda v: v.size > 0)
        if a is None:
            return None
        x, c = a.name, self.constant()
        forms = [
            "np.sum({x}) > {c}",
            "np.mean({x}) < {c}",
            "np.max({x}) > {c} and np.min({x}) < 0.2",
            "not np.any({x} > 1.1)",
            "np.sum(np.abs({x})) > 1.7",
        ]
        if len(a.shape) == 1:
            forms += ["{x}[0] > {c}", "{x}[-1] * {x}[0] < 0.1"]
        return self.pick(forms).format(x=x, c=c)  # type: ignore[no-any-return]

    def block(self, statements: int) -> None:
        """Write an indented block; names made in it are forgotten after it."""
        known = len(self.env)
        self.depth += 1
        for _ in range(statements):
            self.pick((self.elementwise, self.update, self.view, self.write, self.reduction))()
        del self.env[known:]
        self.depth -= 1

    def branch(self) -> None:
        test, a = self.condition(), self.var()
        if test is None or a is None:
            return
        name, mags, exacts = self.name(), [], []
        for head in (f"if {test}:", "else:"):
            self.line(head)
            if head == "else:" or self.flip():
                self.block(self.choose(2))
            expr, mag, exact = self.of_same_shape(a)
            self.line(f"    {name} = {expr}")
            mags.append(mag)
            exacts.append(exact)
        self.env.append(Var(name, a.shape, Cell(max(mags), all(exacts), True)))

    def early(self) -> None:
        """Write a branch without else that changes an array in place."""
        test, a = self.condition(), self.target()
        if test is None or a is None:
            return
        self.line(f"if {test}:")
        self.line(f"    {a.name} += {self.pick(('0.3', 'np.float64(0.2)', f'0.1 * {a.name}'))}")
        a.cell.mag = 1.1 * a.cell.mag + 0.3

    def loop(self) -> None:
        """Write a loop over numbers: a recurrence, in place or by rebinding."""
        times = 2 + self.choose(4)
        a = self.var(lambda v: v.writeable and v.shape[0] > 1)
        if a is not None and self.flip():
            b = self.var(
                lambda v: v.shape != () and fits(v.shape[1:], a.shape[1:]) and v.shape[0] > 0
            )
            self.line(
                f"for i in range(1, {a.shape[0]}):" if a.shape[0] < 9 else "for i in range(1, 9):"
            )
            end = "" if b is None else f" + 0.1 * {b.name}[i % {b.shape[0]}]"
            self.line(f"    {a.name}[i] = 0.5 * {a.name}[i - 1] + np.tanh({a.name}[i]){end}")
            a.cell.mag = 2 * max(a.cell.mag, 1 + (b.cell.mag if b else 0))
            a.cell.exact = False
            return
        a = self.var()
        b = self.var(lambda v: a is not None and fits(v.shape, a.shape))
        if a is None or b is None:
            return
        name, expr = self.name(), f"{b.name} * (0.1 * i)"
        self.line(f"{name} = {a.name} * 1.0")
        self.line(f"for i in range({times}):")
        if self.flip():
            self.line("    if i == 2:")
            self.line("        continue")
        self.line(f"    {name} = 0.5 * {name} + np.sin({expr})")
        exact = a.cell.exact and b.cell.exact and b.shape != ()
        self.env.append(Var(name, a.shape, Cell(a.cell.mag + 2, exact, True)))

    def while_loop(self) -> None:
        a = self.var(lambda v: v.size > 0)
        if a is None:
            return
        name, k, kind = self.name(), self.name(), self.choose(3)
        self.line(f"{name} = {a.name} + 0.01")
        self.line(f"{k} = 0")
        test = ("np.max(np.abs({x})) > 0.4", "np.sum({x} * {x}) > 0.6", "np.mean({x}) > 0.13")[kind]
        self.line(f"while {test.format(x=name)} and {k} < 5:")
        self.line(f"    {name} = {self.pick((f'0.6 * {name}', f'np.sin({name}) - 0.1'))}")
        self.line(f"    {k} += 1")
        mag, exact = a.cell.mag + 1, a.cell.exact and a.shape != ()
        self.env.append(Var(name, a.shape, Cell(mag, exact, True)))
        if self.flip():
            self.let(f"{name} * {k}", a.shape, 5 * mag, exact)

    # -- statements: functions ------------------------------------------------------------------

    def helper(self) -> None:
        """Write a function beside the program, and call it."""
        a = self.var()
        assert a is not None
        name = f"helper{len(self.top)}"
        text, mag, sure = self.pick(UNARY)
        scale = self.constant()
        if self.flip():
            body = f"    return {text.format(a='u')} * s"
        else:  # a host read inside of a function, and two returns
            body = (
                f"    if np.sum(u) > s:\n        return u * s\n    return {text.format(a='u')} * s"
            )
        self.top.append(f"def {name}(u, s={scale}):\n{body}")
        biggest = 1.2 * max(mag(a.cell.mag), a.cell.mag)
        self.let(f"{name}({a.name})", a.shape, biggest,
                 a.cell.exact and (sure or (sure is not None and a.shape != ())))  # fmt: skip

    def closure(self) -> None:
        """Write a function inside of the program that reads a variable of it."""
        a = self.var()
        b = self.var(lambda v: a is not None and fits(v.shape, a.shape))
        if a is None or b is None:
            return
        name = self.name()
        self.line(f"def {name}(u, depth=2):")
        if self.flip():
            self.line("    if depth == 0:")
            self.line("        return u")
            self.line(f"    return {name}(0.5 * u + {b.name}, depth - 1)")
        else:
            self.line(f"    return u * 0.5 + {b.name}")
        self.let(f"{name}({a.name})", a.shape, a.cell.mag + 2 * b.cell.mag,
                 a.cell.exact and b.cell.exact)  # fmt: skip

    def rows(self) -> None:
        """Take an array apart and put it together again."""
        a = self.var(lambda v: v.shape != () and 0 < v.shape[0] <= 6)
        if a is None:
            return
        x, n = a.name, a.shape[0]
        kind = self.choose(3)
        if kind == 0:
            self.let(f"np.stack([{x}[i] * (i + 0.5) for i in range({n})])", a.shape,
                     n * a.cell.mag, a.cell.exact)  # fmt: skip
        elif kind == 1:
            self.let(f"sum(0.5 * row for row in {x})", a.shape[1:], n * a.cell.mag,
                     a.cell.exact)  # fmt: skip
        else:
            if math.prod(a.shape) == 0:
                return
            position = f"int(np.argmax(np.sum({x}, axis={tuple(range(1, len(a.shape)))})))"
            self.let_view(f"{x}[{position}]", a, a.shape[1:])

    def masked(self) -> None:
        """Pick elements whose number depends on values."""
        a = self.var(lambda v: v.shape != () and v.size > 0)
        if a is None:
            return
        n = a.size
        form = self.pick(
            ("np.sum({x}[{x} > {c}])", "np.sum({x}[np.nonzero({x} < {c})] ** 2) * 0.1")
        )
        mag = n * max(a.cell.mag, a.cell.mag**2)
        self.let(form.format(x=a.name, c=self.constant()), (), mag, False)

    def captured(self) -> None:
        """Read an array of the module."""
        a = self.var(lambda v: v.shape != () and 0 < v.shape[-1] < 8)
        if a is None:
            return
        name, n = f"C{len(self.top)}", a.shape[-1]
        self.top.append(f"{name} = np.linspace(-1.0, 1.0, {n})")
        self.let(f"{a.name} * {name}", a.shape, a.cell.mag, a.cell.exact)


STATEMENTS: tuple[Callable[[Writer], None], ...] = (
    Writer.elementwise, Writer.reduction, Writer.view, Writer.branch, Writer.write,
    Writer.elementwise, Writer.product, Writer.loop, Writer.rearrange, Writer.helper,
    Writer.elementwise, Writer.normalise, Writer.while_loop, Writer.update, Writer.outer,
    Writer.closure, Writer.rows, Writer.early, Writer.captured, Writer.masked, Writer.einsum,
)  # fmt: skip


# Of the arguments; those of half precision.
DTYPES, HALVES = ("f8", "f8", "f4"), ("f2", "f2", "f2")


def arguments(w: Writer, dtypes: tuple[str, ...] = DTYPES) -> list[Argument]:
    """Choose the arguments: dtypes, shapes, strides, kinds of values."""
    arrays = []
    for k in range(1 + w.choose(3)):
        shape = w.pick(SHAPES)
        dtype = w.pick(dtypes)
        layout = w.pick(("C", "C", "F", "strided", "reversed"))
        if shape == ():
            layout = w.pick(("C", "python"))
        arrays.append(Argument("xyz"[k], shape, dtype, layout, rounded=w.choose(6) == 5))
    return arrays


def random_program(
    choose: Choose, statements: int = 12, dtypes: tuple[str, ...] = DTYPES
) -> RandomProgram:
    """Write a program, with ``choose(n)`` giving a number below n for each choice."""
    w = Writer(choose)
    w.arguments = arguments(w, dtypes)
    for a in w.arguments:
        w.env.append(Var(a.name, a.shape, Cell(2.0, True, False)))
    for _ in range(1 + choose(statements)):
        w.pick(STATEMENTS)(w)
    variables = [v for v in w.env if v.name.startswith("v")] or w.env
    results = [variables[-1], *(w.pick(variables) for _ in range(choose(3)))]
    names = ", ".join(v.name for v in results)
    head = f"def f({', '.join(a.name for a in w.arguments)}):"
    body = [
        head,
        *w.lines,
        f"    return {names}," if len(results) > 1 or w.flip() else f"    return {names}",
    ]
    source = "\n\n\n".join([*w.top, "\n".join(body)]) + "\n"
    return RandomProgram(source, w.arguments, tuple(v.cell.exact for v in results))


def seeded(seed: int, statements: int = 12, dtypes: tuple[str, ...] = DTYPES) -> RandomProgram:
    """Return the random program number `seed`."""
    return random_program(random.Random(seed).randrange, statements, dtypes)


@st.composite
def programs(draw: st.DrawFn, statements: int = 12) -> RandomProgram:
    """Draw a program; Hypothesis shrinks it to few statements and simple choices."""
    return random_program(lambda n: draw(st.integers(0, n - 1)), statements)
