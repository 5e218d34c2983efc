"""Random programs that write regions of an array from other regions of the same array.

Steps of every size and sign, one to three axes in any order, broadcasting, and every way to write:
assignments, augmented ones, ``out=``, ``where=``, ``copyto``, methods of ufuncs, arrays of indices.
``ADARRAY_LONG=2000`` runs so many, from seed ``ADARRAY_FIRST`` on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from trust import BACKENDS, COMPILED, MODES, check, seeds

SHAPES = ((5,), (6,), (9,), (4, 5), (5, 5), (3, 7), (2, 3, 4), (3, 3, 3), (4, 1, 5))
# More elements than are computed by one small kernel: threads share these.
LARGE = ((3001,), (67, 60), (15, 18, 16), (2100, 3))


class Writer:
    """Writes one program.

    Parameters
    ----------
    seed : int
    large : bool
    """

    def __init__(self, seed: int, large: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        shapes = LARGE if large else SHAPES
        self.shape = shapes[self.rng.integers(len(shapes))]

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def axis(self, length: int, count: int) -> str:
        """Return an index of `count` places of an axis, of any step and sign."""
        most = (length - 1) // (count - 1) if count > 1 else length
        step = int(self.rng.integers(1, max(1, min(most, 4)) + 1))
        low = int(self.rng.integers(0, length - step * (count - 1)))
        high = low + step * (count - 1)
        if self.rng.random() < 0.5:
            return f"{low}:{high + 1}:{step}"
        return f"{high}:{low - 1 if low else ''}:{-step}"

    def counts(self) -> tuple[int, ...]:
        """Return the shape of a region."""
        lengths = []
        for n in self.shape:
            most = self.pick(n, n - n // 4, (n + 1) // 2, (n + 1) // 2, (n + 1) // 2, (n + 2) // 3)
            few = n <= 20 and self.rng.random() < 0.4
            lengths.append(int(self.rng.integers(1, most + 1)) if few else most)
        return tuple(lengths)

    def region(self, counts: tuple[int, ...], name: str = "y") -> str:
        parts = [self.axis(n, c) for n, c in zip(self.shape, counts, strict=True)]
        return f"{name}[{', '.join(parts)}]"

    def read(self, counts: tuple[int, ...]) -> str:
        """Return what reads a region of `counts`, or what broadcasts to it."""
        kind = self.rng.random()
        if kind < 0.6:
            return self.region(counts)
        if kind < 0.75:  # axes in another order
            order = tuple(int(a) for a in self.rng.permutation(len(counts)))
            transposed = tuple(counts[order.index(k)] for k in range(len(counts)))
            if all(c <= n for c, n in zip(transposed, self.shape, strict=True)):
                return f"{self.region(transposed)}.transpose({order})"
            return self.region(counts)
        if kind < 0.9:  # one row for all
            axis = int(self.rng.integers(len(counts)))
            return self.region(tuple(1 if a == axis else c for a, c in enumerate(counts)))
        place = ", ".join(str(self.rng.integers(n)) for n in self.shape)
        return f"y[{place}]"

    def value(self, counts: tuple[int, ...]) -> str:
        r = self.read(counts)
        return str(
            self.pick(
                r,
                r,
                f"0.5 * {r}",
                f"np.sin({r})",
                f"{r} * {self.region(counts, 'x')}",
                f"({r} + {self.read(counts)})",
                f"np.where({r} > 9.0, 0.0, {self.read(counts)})",
            )
        )

    def statement(self) -> str:
        counts = self.counts()
        target, value = self.region(counts), self.value(counts)
        some = f"np.arange({math.prod(counts)}).reshape({counts}) % 3 != 1"
        kind = int(self.rng.integers(11))
        if len(counts) == 1 and kind in (0, 1, 7, 8) and value.startswith("y["):
            # NumPy itself copies one-dimensional regions of different steps in the wrong order.
            value = f"1.0 * {value}"
        whole = f"np.broadcast_to({value}, {counts})"
        if kind < 2:
            return f"{target} = {value}"
        if kind < 6:
            return f"{target} {self.pick('+', '-', '*')}= {value}"
        if kind == 6:
            name = self.pick("add", "subtract", "multiply")
            return f"np.{name}({self.read(counts)}, {self.region(counts)}, out={target})"
        if kind == 7:
            return f"np.copyto({target}, {value})"
        if kind == 8:
            return f"np.copyto({target}, {whole}, where={some})"
        if kind == 9:
            return f"np.add({target}, {whole}, out={target}, where={some})"
        row = (1, *counts[1:])
        rows = self.rng.integers(0, self.shape[0], min(7, self.shape[0]))
        index = f"[{', '.join(map(str, rows))}]"
        rest = ", ".join(self.axis(n, c) for n, c in zip(self.shape[1:], row[1:], strict=True))
        if self.rng.random() < 0.5:
            where = f"y[{', '.join([index, rest] if rest else [index])}]"
            return f"{where} {self.pick('+', '-')}= {self.value(row)}"
        added = self.region((1, *self.shape[1:]))
        return f"np.{self.pick('add', 'subtract')}.at(y, {index}, {added})"

    def source(self) -> str:
        first = self.pick("np.sin(x)", "x * 1.0", "x[::-1] * 0.7", "x.copy()", "np.cos(x) + x")
        lines = [f"y = {first}"]
        lines += [self.statement() for _ in range(int(self.rng.integers(1, 5)))]
        last = self.pick("y * x", "np.sin(y)", "np.sum(y * y)", "(y, y[::-1] * x)")
        return "\n    ".join(["def f(x):", *lines, f"return {last}"])

    def program(self) -> tuple[Any, tuple[Any, ...], str]:
        """Return a function, its arguments, and its text."""
        text = self.source()
        names: dict[str, Any] = {"np": np}
        exec(text, names)
        return names["f"], (self.rng.uniform(0.2, 1.5, self.shape),), text


def compare(seed: int, modes: Any, backends: Any, large: bool = False) -> Any:
    f, args, text = Writer(seed, large).program()
    try:
        return check(f, args, modes=modes, backends=backends)
    except Exception as error:
        raise AssertionError(f"seed {seed}:\n{text}") from error


def test_programs_write_in_every_way() -> None:
    texts = "\n".join(Writer(seed).source() for seed in range(300))
    for part in ("= y[", "+= ", "-= ", "*= ", "out=", "copyto", "where=", ".at(", "transpose"):
        assert texts.count(part) >= 10, part
    for step in (":-1", ":-2", ":-3", ":2", ":3"):
        assert texts.count(step) >= 10, step


def test_regions_of_one_array_eagerly() -> None:
    for seed in seeds(60):
        counts = compare(seed, ("plain", "jvp", "nested", "intercept"), ("numpy",))
        assert not counts["refused"], counts


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_regions_of_one_array_compiled(backend: str) -> None:
    modes = [m for m in MODES if "jit" in m]
    for seed in seeds(60 if backend == "numpy" else 10):
        counts = compare(seed + 10_000, modes, (backend,))
        assert not counts["refused"], counts


@pytest.mark.slow
@pytest.mark.parametrize("backend", COMPILED)
def test_large_regions_of_one_array_compiled(backend: str) -> None:
    for seed in seeds(5):
        counts = compare(seed + 20_000, ("jit", "jit(grad)"), (backend,), large=True)
        assert not counts["refused"], counts


@pytest.mark.parametrize("seed", [110_106, 110_737])
def test_memory_that_was_taken_over_is_not_taken_twice(seed: int) -> None:
    # What a base is recomputed from has its memory no more: another value was written there.
    compare(seed, ("jit(grad)",), COMPILED[:1])
