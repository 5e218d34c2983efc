"""A writer of realistic array programs: plain NumPy text, its arguments, and nothing to tune for.

`write(seed, elements)` returns the same program wherever it runs. Values stay near one, so that
float32 suffices, and every result is used.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Shape = tuple[int, ...]
LEAST = 6  # elements of an axis
WIDEST = 512  # columns of a weight
STEPS = (1, 2, 5, 10)  # of a stencil


class Argument(NamedTuple):
    """An argument of a program.

    Parameters
    ----------
    name : str
    shape : tuple of int
    dtype : str
    most : int
        Integers are below it; 0 for normal numbers and truth values.
    scale : float
        Of normal numbers.
    """

    name: str
    shape: Shape
    dtype: str = "float32"
    most: int = 0
    scale: float = 1.0

    @property
    def varies(self) -> bool:
        """Whether the gradient by it is taken."""
        return self.dtype.startswith("float")

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """Return its values."""
        if self.most:
            return rng.integers(0, self.most, self.shape).astype(self.dtype)
        if self.dtype == "bool":
            return rng.random(self.shape) < 0.7
        dtype = np.float64 if self.dtype == "float64" else np.float32
        return rng.standard_normal(self.shape, dtype) * dtype(self.scale)


class Program(NamedTuple):
    """A program.

    Parameters
    ----------
    seed : int
    text : str
        Of a function ``f(np, ...)`` that returns a number.
    arguments : tuple of Argument
        Those that are differentiated by come first.
    kinds : tuple of str
        The statements that it was made of.
    """

    seed: int
    text: str
    arguments: tuple[Argument, ...]
    kinds: tuple[str, ...]


class Array(NamedTuple):
    """A value of the program: its name and shape."""

    name: str
    shape: Shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


UNARY = (
    "np.tanh({})", "np.sin({})", "np.cos({})", "np.exp(-{0} * {0})", "np.sqrt(1.0 + {0} * {0})",
    "np.log1p({0} * {0})", "np.abs({})", "np.maximum({}, 0.0)", "1.0 / (1.0 + np.exp(-{}))",
    "np.arctan({})", "{0} / (1.0 + np.abs({0}))", "np.minimum({}, 1.5)", "0.5 * {0} * {0}",
    "np.where({0} > 0.3, {0}, 0.1 * {0})",
)  # fmt: skip
BINARY = ("{0} * {1}", "{0} + {1}", "{0} - {1}", "{0} / (1.0 + {1} * {1})",
          "np.maximum({0}, {1})", "np.sqrt({0} * {0} + {1} * {1} + 0.1)",
          "np.where({0} > {1}, {0}, 0.5 * {1})")  # fmt: skip
# Rows of an array, along an axis.
ROWS = {
    "softmax": (
        "e = np.exp({x} - np.max({x}, axis={a}, keepdims=True))",
        "{y} = e / np.sum(e, axis={a}, keepdims=True) * {n}",
    ),
    "layer norm": (
        "m = np.mean({x}, axis={a}, keepdims=True)",
        "v = np.mean(({x} - m) ** 2, axis={a}, keepdims=True)",
        "{y} = ({x} - m) / np.sqrt(v + 1e-3)",
    ),
    "norm": ("{y} = {x} / np.sqrt(np.mean({x} * {x}, axis={a}, keepdims=True) + 0.01)",),
    "centred": ("{y} = {x} - np.mean({x}, axis={a}, keepdims=True)",),
    "logsumexp": ("{y} = {x} - np.log(np.mean(np.exp({x}), axis={a}, keepdims=True))",),
}
PAIRS = (
    "np.exp(-0.5 * ({}))", "1.0 / np.sqrt(({}) + 0.1)", "1.0 / (1.0 + ({}))",
    "np.sqrt(({}) + 0.01)", "np.log1p({})", "np.where(({0}) < 1.0, 1.0 - ({0}), 0.0)",
)  # fmt: skip


class Writer:
    """Writes one program, statement by statement."""

    def __init__(self, seed: int, elements: int) -> None:
        self.choice = random.Random(seed)
        self.elements = elements
        self.lines: list[str] = []
        self.arguments: list[Argument] = []
        self.unused: dict[str, Array] = {}
        self.kinds: list[str] = []
        self.count = 0

    # -- parts ----------------------------------------------------------------------------------

    def argument(
        self, shape: Shape, dtype: str = "float32", most: int = 0, scale: float = 1.0
    ) -> Array:
        """Return a new argument."""
        name = f"x{len(self.arguments)}"
        self.arguments.append(Argument(name, shape, dtype, most, scale))
        return Array(name, shape)

    def name(self) -> str:
        """Return a new name."""
        self.count += 1
        return f"a{self.count}"

    def let(self, text: str, shape: Shape, *read: Array) -> Array:
        """Write ``name = text``, of a value with this shape that reads others."""
        a = Array(self.name(), shape)
        self.lines.append(f"{a.name} = {text}")
        return self.noted(a, *read)

    def noted(self, a: Array, *read: Array) -> Array:
        """Note that a value is there, and that others are used."""
        for r in read:
            self.unused.pop(r.name, None)
        self.unused[a.name] = a
        return a

    def shape(self) -> Shape:
        """Return a shape of about as many elements as the program is to have."""
        n, c = self.elements, self.choice
        ndim = c.choices((1, 2, 3, 4), (3, 5, 3, 1))[0]
        sizes = []
        for rest in range(ndim - 1, 0, -1):
            most = max(LEAST, n // LEAST**rest)
            size = self.log_uniform(LEAST, most)
            if c.random() < 0.4:
                size = 1 << max(3, round(math.log2(size)))
            sizes.append(min(size, most))
            n = max(LEAST, n // sizes[-1])
        sizes.append(n)
        if ndim > 2 or c.random() < 0.5:
            c.shuffle(sizes)
        return tuple(sizes)

    def log_uniform(self, low: int, high: int) -> int:
        """Return a number between these, small ones as likely as large ones."""
        return round(math.exp(self.choice.uniform(math.log(low), math.log(max(low, high)))))

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Return some axes, in order."""
        picked = [a for a in range(ndim) if self.choice.random() < 0.5]
        return tuple(picked or [self.choice.randrange(ndim)])

    def broadcast(self, shape: Shape) -> Shape:
        """Return a shape that broadcasts to this one."""
        kept = [n if self.choice.random() < 0.5 else 1 for n in shape]
        while len(kept) > 1 and kept[0] == 1:
            kept.pop(0)
        return tuple(kept)

    def function(self, x: str) -> str:
        """Return a chain of functions of a name."""
        for _ in range(self.choice.randint(1, 3)):
            f = self.choice.choice(UNARY)
            if f.count("{") > 1 and not x.isidentifier():
                x = f"({x})"
                if len(x) > 60:
                    break
            x = f.format(x)
        return x

    # -- statements -----------------------------------------------------------------------------

    def pointwise(self, a: Array) -> Array:
        """Apply functions."""
        return self.let(self.function(a.name), a.shape, a)

    def combined(self, a: Array) -> Array:
        """Combine it with a value of its shape, or with an argument that broadcasts to it."""
        same = [b for b in self.unused.values() if b.shape == a.shape and b is not a]
        b = same[0] if same and self.choice.random() < 0.5 else self.argument(
            a.shape if self.choice.random() < 0.3 else self.broadcast(a.shape)
        )  # fmt: skip
        text = self.choice.choice(BINARY).format(a.name, b.name)
        return self.let(self.choice.choice(("{}", "np.tanh({})")).format(text), a.shape, a, b)

    def row(self, a: Array) -> Array | None:
        """Apply a function of rows along some axis."""
        axis = self.choice.choice((-1, -1, self.choice.randrange(len(a.shape))))
        if not 2 <= a.shape[axis] <= 1 << 20:
            return None
        y = Array(self.name(), a.shape)
        kind = self.choice.choice(list(ROWS))
        values = {"x": a.name, "y": y.name, "a": axis, "n": float(a.shape[axis])}
        self.lines += [line.format(**values) for line in ROWS[kind]]
        return self.noted(y, a)

    def reduced(self, a: Array) -> Array:
        """Reduce some axes."""
        axes = self.axes(len(a.shape))
        f = self.choice.choice(("np.mean", "np.mean", "np.max", "np.var"))
        axis = axes[0] if len(axes) == 1 else axes
        shape = tuple(n for k, n in enumerate(a.shape) if k not in axes)
        text = f"{f}({self.choice.choice((a.name, f'{a.name} * {a.name}'))}, axis={axis})"
        return self.let(f"np.sqrt({text} + 0.1)" if f == "np.var" else text, shape, a)

    def product(self, a: Array) -> Array | None:
        """Multiply by a matrix of weights."""
        rows, k = a.size // a.shape[-1], a.shape[-1]
        if len(a.shape) < 2 or k > 4096:
            return None
        most = min(WIDEST, 4 * self.elements // rows, int(2e3 * self.elements) // a.size)
        if most < 4:
            return None
        m = self.log_uniform(4, most)
        w = self.argument((k, m), scale=k**-0.5)
        b = self.argument((m,))
        return self.let(f"np.tanh({a.name} @ {w.name} + {b.name})", (*a.shape[:-1], m), a, w, b)

    def pairs(self, _: Array | None = None) -> Array:
        """Combine all points of one set with all of another."""
        n = self.log_uniform(64, max(64, self.elements // 64))
        m = n if self.choice.random() < 0.4 else max(16, self.elements // n)
        n = min(n, max(16, self.elements // m))
        d = self.choice.choice((0, 1, 2, 3, 3, 5, 16))
        p = self.argument((n, d) if d else (n,), scale=max(d, 1) ** -0.5)
        q = p if n == m and self.choice.random() < 0.6 else self.argument(
            (m, d) if d else (m,), scale=max(d, 1) ** -0.5
        )  # fmt: skip
        x, y = Array(self.name(), ()), Array(self.name(), (n, m))
        inner = ", :" if d else ""
        self.lines.append(f"{x.name} = {p.name}[:, None{inner}] - {q.name}[None, :{inner}]")
        squared = f"{x.name} * {x.name}"
        f = self.choice.choice(PAIRS).format(f"np.sum({squared}, axis=-1)" if d else squared)
        if f.count("np.sum") > 1:
            self.lines.append(f"s = np.sum({squared}, axis=-1)")
            f = f.replace(f"np.sum({squared}, axis=-1)", "s")
        self.lines.append(f"{y.name} = {f}")
        end = self.choice.choice(("vectors", "weighted", "rows", "columns", "all"))
        if end == "vectors" and d:
            weights = f"{y.name}[:, :, None]"
            return self.let(f"np.sum({x.name} * {weights}, axis=1) * {2 / m}", (n, d))
        if end == "weighted":
            w = self.argument((m,))
            return self.let(f"{y.name} @ {w.name} * {m**-0.5}", (n,))
        if end == "all":
            return self.let(f"np.mean({y.name})", ())
        axis = 0 if end == "columns" else 1
        return self.let(f"np.mean({y.name}, axis={axis})", (m if axis == 0 else n,))

    def stencil(self, a: Array) -> Array | None:
        """March steps of neighbours along one to three axes: rolled, or within fixed edges."""
        long = [k for k, n in enumerate(a.shape) if n >= 8]
        if not long:
            return None
        axes = sorted(self.choice.sample(long, self.choice.randint(1, min(3, len(long)))))
        steps = self.choice.choice(STEPS)
        y = Array(self.name(), a.shape)
        indent = ""
        self.lines.append(f"{y.name} = np.tanh({a.name})")
        if steps > 1:
            self.lines.append(f"for _ in range({steps}):")
            indent = "    "
        nonlinear = self.choice.choice(("", f"{y.name} * np.tanh", "np.tanh"))

        def rolled(k: int, by: int) -> str:
            return f"np.roll({y.name}, {by}, axis={k})"

        if len(axes) > 1 or self.choice.random() < 0.5:
            around = " + ".join(f"{rolled(k, 1)} + {rolled(k, -1)}" for k in axes)
            change = f"{nonlinear}({around} - {2.0 * len(axes)} * {y.name})"
            self.lines.append(f"{indent}{y.name} = {y.name} + 0.1 * {change}")
            return self.noted(y, a)
        (axis,) = axes

        def cut(s: str) -> str:
            return f"{y.name}[{', '.join([':'] * axis + [s])}]"

        left, here, right = cut(":-2"), cut("1:-1"), cut("2:")
        change = f"({left} - 2.0 * {here} + {right})"
        if nonlinear:
            change += f" - 0.2 * {here} * ({right} - {left})"
        self.lines.append(f"{indent}c = {here} + 0.1 * {change}")
        self.lines.append(
            f"{indent}{y.name} = np.concatenate([{cut(':1')}, c, {cut('-1:')}], axis={axis})"
        )
        return self.noted(y, a)

    def convolved(self, a: Array) -> Array | None:
        """Convolve the last one to three axes by slices."""
        ndim = min(self.choice.randint(1, 3), len(a.shape))
        sizes = a.shape[-ndim:]
        if min(sizes) < 6:
            return None
        w = self.argument((3,) * ndim, scale=3 ** (-ndim / 2))
        shape = a.shape[: len(a.shape) - ndim] + tuple(n - 2 for n in sizes)
        terms = []
        for place in np.ndindex((3,) * ndim):
            cuts = ", ".join(f"{i}:{n - 2 + i}" for i, n in zip(place, sizes, strict=True))
            index = ", ".join(map(str, place))
            terms.append(f"{w.name}[{index}] * {a.name}[..., {cuts}]")
        y = Array(self.name(), shape)
        self.lines.append(f"{y.name} = {terms[0]}")
        self.lines += [f"{y.name} = {y.name} + {t}" for t in terms[1:]]
        return self.noted(y, a, w)

    def gathered(self, a: Array) -> Array:
        """Take rows along an axis at indices, with repetitions."""
        axis = self.choice.randrange(len(a.shape))
        n = a.shape[axis]
        m = self.choice.choice(
            (n, max(2, n // 3), min(2 * n, max(n, 4 * self.elements * n // a.size)))
        )
        k = self.argument((m,), "int64", n)
        shape = (*a.shape[:axis], m, *a.shape[axis + 1 :])
        return self.let(f"np.take({a.name}, {k.name}, axis={axis})", shape, a)

    def scanned(self, a: Array) -> Array:
        """Add up along an axis."""
        axis = self.choice.randrange(len(a.shape))
        scale = 2 * a.shape[axis] ** -0.5
        return self.let(f"np.cumsum({a.name}, axis={axis}) * {scale}", a.shape, a)

    def transformed(self, a: Array) -> Array | None:
        """Filter, or take the spectrum."""
        n = a.shape[-1]
        if n % 2 or not 8 <= n <= 1 << 22:
            return None
        if self.choice.random() < 0.5:
            h = self.argument((n // 2 + 1,))
            text = f"np.fft.irfft(np.fft.rfft({a.name}) * {h.name})"
            return self.let(text, a.shape, a, h)
        z = self.name()
        self.lines.append(f"{z} = np.fft.rfft({a.name}) * {n**-0.5}")
        text = f"np.log1p(np.real({z}) ** 2 + np.imag({z}) ** 2)"
        return self.let(text, (*a.shape[:-1], n // 2 + 1), a)

    def solved(self, _: Array | None = None) -> Array:
        """Solve or factor a positive definite system."""
        k = self.choice.choice((8, 24, 100, 256, 512))
        k = min(k, 8 * int(self.elements ** (1 / 4)))
        n = max(k, min(self.elements // k, 4096))
        x = self.argument((n, k))
        m, r = self.name(), self.argument((k, self.choice.choice((1, 4, 32))))
        self.lines.append(f"{m} = {x.name}.T @ {x.name} * {1 / n} + np.eye({k}, dtype=np.float32)")
        if self.choice.random() < 0.5:
            return self.let(f"np.linalg.solve({m}, {r.name})", r.shape)
        self.lines.append(f"l = np.linalg.cholesky({m})")
        return self.let(f"np.tanh(l @ {r.name})", r.shape)

    def mixed(self, a: Array) -> Array:
        """Meet arrays of other types: truth values, small integers, float64."""
        dtype = self.choice.choice(("bool", "int16", "int16", "float64"))
        if dtype == "float64":
            b = self.argument(self.broadcast(a.shape[-1:]), dtype)
            return self.let(f"({a.name} * {b.name}).astype(np.float32)", a.shape, a)
        b = self.argument(self.broadcast(a.shape), dtype, 4 if dtype == "int16" else 0)
        text = f"np.where({b.name}, {a.name}, 0.1)" if dtype == "bool" else (
            f"{a.name} * ({b.name} + 1) * 0.4"
        )  # fmt: skip
        return self.let(text, a.shape, a)

    def moved(self, a: Array) -> Array | None:
        """Transpose, flip, or join."""
        if len(a.shape) < 2:
            return self.let(f"{a.name} * {a.name}[::-1]", a.shape, a)
        i, j = sorted(self.choice.sample(range(len(a.shape)), 2))
        shape = list(a.shape)
        shape[i], shape[j] = shape[j], shape[i]
        b = self.argument(self.broadcast(tuple(shape)))
        return self.let(f"np.swapaxes({a.name}, {i}, {j}) * {b.name}", tuple(shape), a, b)

    def recurrent(self, _: Array | None = None) -> Array:
        """March a state through time."""
        steps, k = self.choice.choice((8, 16, 30)), self.choice.choice((16, 64, 200))
        n = max(4, min(self.elements // (steps * k), 1 << 16))
        x = self.argument((steps, n, k))
        w, u = (self.argument((k, k), scale=k**-0.5) for _ in range(2))
        h = Array(self.name(), (n, k))
        self.lines += [
            f"{h.name} = np.tanh({x.name}[0] @ {w.name})", f"for t in range(1, {steps}):",
            f"    {h.name} = np.tanh({x.name}[t] @ {w.name} + {h.name} @ {u.name})",
        ]  # fmt: skip
        return self.noted(h)

    # -- the program ----------------------------------------------------------------------------

    def begin(self) -> Array:
        """Write what a program begins with."""
        kind = self.choice.choices(("array", "pairs", "solved", "recurrent"), (14, 4, 1, 1))[0]
        if kind == "array":
            a = self.argument(self.shape())
            self.unused[a.name] = a
            return a
        self.kinds.append(kind)
        start: Callable[[], Array] = getattr(self, kind)
        return start()

    def write(self) -> None:
        """Write all statements."""
        a = self.begin()
        for _ in range(self.choice.randint(2, 6)):
            if not a.shape:
                a = self.argument(self.shape())
                self.unused[a.name] = a
            kind = self.choice.choices(list(STATEMENTS), list(STATEMENTS.values()))[0]
            statement: Callable[[Array], Array | None] = getattr(self, kind)
            b = statement(a)
            if b is not None:
                self.kinds.append(kind)
                a = b


STATEMENTS = {
    "pointwise": 4, "combined": 4, "row": 3, "reduced": 2, "product": 2, "pairs": 1, "stencil": 3,
    "convolved": 2, "gathered": 2, "scanned": 1, "transformed": 1, "solved": 0.5, "mixed": 2,
    "moved": 1,
}  # fmt: skip


def write(seed: int, elements: int) -> Program:
    """Return the program of a seed, whose largest arrays have about so many elements."""
    writer = Writer(seed, elements)
    writer.write()
    ends = [f"np.mean({a.name} * {a.name})" if a.shape else a.name for a in writer.unused.values()]
    arguments = sorted(writer.arguments, key=lambda x: not x.varies)
    names = ", ".join(x.name for x in arguments)
    body = "\n".join(f"    {line}" for line in [*writer.lines, f"return {' + '.join(ends)}"])
    return Program(seed, f"def f(np, {names}):\n{body}\n", tuple(arguments), tuple(writer.kinds))
