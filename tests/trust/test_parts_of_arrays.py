"""Elements, rows, slices and sums of arrays beside the arrays they are parts of, in every mode.

Arrays are so large that kernels compute them in pieces. ``ADARRAY_LONG=2000`` runs so many random
programs, from seed ``ADARRAY_FIRST`` on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trust import BACKENDS, COMPILED, check, seeds

import adarray

SHAPES = ((3001,), (67, 60), (1500, 3), (3, 1400), (40, 9, 11))
FUNCTIONS = ("np.sin", "np.cos", "np.tanh", "0.5 *", "np.arctan")
# No maxima, since differences would step over kinks, and no large sums: their last bits are rounded
# in another order.
FOLDS = ("np.mean", "1e-3 * np.sum", "1e-2 * np.linalg.norm")


class Writer:
    """Writes a program about values of one shape, each computed from earlier ones and their parts.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = SHAPES[self.integer(len(SHAPES))]
        self.names = ["x"]

    def integer(self, n: int) -> int:
        return int(self.rng.integers(n))

    def pick(self, *options: str) -> str:
        return options[self.integer(len(options))]

    def place(self, n: int) -> str:
        """Return an index that keeps no axis, or one of one element."""
        k = self.integer(n)
        return self.pick(str(k), str(k - n), f"{k}:{k + 1}")

    def part(self, name: str) -> str:
        """Return a part of a value that goes with the value itself."""
        kind, ndim = self.integer(7), len(self.shape)
        if kind == 0:  # an element
            return f"{name}[{', '.join(str(self.integer(n)) for n in self.shape)}]"
        if kind == 1:
            return f"{name}[{', '.join(map(self.place, self.shape))}]"
        if kind == 2:  # elements, rows or planes of it
            axis = self.integer(ndim)
            k = self.integer(self.shape[axis])
            return f"{name}[{', '.join([':'] * axis + [f'{k}:{k + 1}'])}]"
        if kind == 3:
            return f"{name}[{', '.join(self.pick(':', '::-1') for _ in self.shape)}]"
        if kind == 4:
            return f"np.roll({name}, {self.integer(5) - 2}, {self.integer(ndim)})"
        fold, axis = self.pick(*FOLDS), self.integer(ndim)
        if kind == 5:
            return f"{fold}({name}, axis={axis}, keepdims=True)"
        fold = self.pick(*FOLDS[:2])
        return f"{fold}({name}[{', '.join(map(self.place, self.shape[:-1]))}])" if ndim > 1 else (
            f"{fold}({name}[{self.integer(900)}:{1000 + self.integer(2000)}])"
        )  # fmt: skip

    def statement(self, k: int) -> str:
        a, b = self.pick(*self.names[-2:]), self.pick(*self.names)
        function, other = self.pick(*FUNCTIONS), self.pick(*FUNCTIONS)
        part = f"{other}({self.part(self.pick(a, b))})"
        if self.integer(3) == 0:
            part = f"({part} {self.pick('+', '-', '*')} {self.pick(*FUNCTIONS)}({self.part(b)}))"
        target = f"v{k}"
        self.names.append(target)
        return f"{target} = {function}({a} {self.pick('+', '-', '*')} {part})"

    def source(self) -> str:
        lines = [self.statement(k) for k in range(1 + self.integer(4))]
        last = self.names[-1]
        results = self.pick(last, f"{last} * x", f"({last}, {self.part(last)})", f"np.sum({last})")
        return "\n    ".join(["def f(x):", *lines, f"return {results}"])

    def program(self) -> tuple[Any, tuple[Any, ...], str]:
        """Return a function, its arguments, and its text."""
        text = self.source()
        names: dict[str, Any] = {"np": np}
        exec(text, names)
        return names["f"], (self.rng.uniform(0.2, 1.5, self.shape),), text


def compare(seed: int, modes: Any, backends: Any) -> None:
    f, args, text = Writer(seed).program()
    try:
        counts = check(f, args, modes=modes, backends=backends, calls=3)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}\n{text}") from error
    assert not counts["refused"], f"seed {seed}:\n{text}"


def test_parts_eagerly() -> None:
    for seed in seeds(40):
        compare(seed, ("plain", "jvp"), BACKENDS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("backend", COMPILED)
def test_parts_compiled(backend: str) -> None:
    for seed in seeds(20):
        compare(seed, ("jit", "jit(grad)"), (backend,))


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("text", ["y[2659]", "y[7]", "y[-1] * y[0]", "np.sum(y[5:8]) + y[2000]"])
def test_an_element_of_an_array_scales_all_of_it(text: str, backend: str) -> None:
    """The element was computed where it was read, from a piece that did not hold it."""
    names: dict[str, Any] = {"np": np}
    exec(f"def f(x):\n    y = np.sin(x)\n    return y * np.cos({text}) * x", names)
    x = np.linspace(0.1, 1.4, 3001)
    with adarray.use(backend):
        jitted = adarray.jit(names["f"])
        for _ in range(3):
            np.testing.assert_allclose(jitted(x), names["f"](x), rtol=1e-12)
