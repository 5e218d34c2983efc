"""Random programs that write through views, and through copies that might be taken for views.

Whether NumPy looks or copies depends on where an array lies in memory: arguments are slices of
others, reversed, transposed and in Fortran order, and so is what is computed from them.
``ADARRAY_LONG=2000`` runs so many, from seed ``ADARRAY_FIRST`` on.
"""

from __future__ import annotations

import itertools
from typing import Any

import device
import numpy as np
import pytest
from trust import BACKENDS, COMPILED, MODES, check, fresh, seeds

import adarray
from adarray.testing._ops import use_all_sizes

SHAPES = ((6,), (4,), (3, 4), (2, 6), (4, 4), (2, 3, 4), (3, 1, 4), (1, 5))
ORDERS = ("C", "F", "A", "K")
# What may be made of a real array, and what only of a complex one.
ANY = (
    "{}.T", "{}[::-1]", "{}[..., ::2]", "{}[..., ::-1]", "{}[1:]", "{}[None]", "{}[...]",
    "{}.view()", "np.squeeze({})", "{}.squeeze()", "np.flip({})", "np.flip({}, 0)",
    "{}.swapaxes(0, -1)", "np.moveaxis({}, 0, -1)", "np.atleast_1d({})", "np.atleast_2d({})",
    "np.atleast_3d({})", "np.expand_dims({}, 1)", "np.rollaxis({}, -1)", "np.real({})", "{}.real",
    "np.array_split({}, 2)[1]", "np.rot90({})", "np.fliplr({})", "{}.mT", "np.conj({})",
    "{}.copy()", "np.copy({})", "{}.flatten()", "{}[[0, 1]]", "np.positive({})", "{}.conj()",
    "{}.conjugate()", "np.real_if_close({})", "{}.astype({}.dtype, copy=False)",
    "np.astype({}, {}.dtype, copy=False)", "np.trim_zeros({}, trim='b')", "{}.transpose()",
    "np.broadcast_to({}, (2, *{}.shape)).copy()", "np.ravel({})", "{}.reshape(-1)",
    "np.split({}, 1)[0]", "next(iter({}))", "np.matrix_transpose({})",
)  # fmt: skip
FRESH = (
    "np.sin({})", "{} * 1.0", "{}.copy('K')", "{} + np.zeros_like({})", "{}.copy('F')",
    "0.5 * {}[::-1]", "np.where({} > 9.0, 0.0, {})", "np.cumsum({}, axis=0)", "np.flip({}) * 2.0",
    "np.stack([{}, {}], axis=-1)[..., 0]", "np.concatenate([{}])", "({}.T * 2.0).T",
)  # fmt: skip


class Writer:
    """Writes one program.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.x = self.argument()
        self.complex = self.rng.random() < 0.15

    def pick(self, choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def argument(self) -> np.ndarray:
        """Return an array that lies in memory in any way."""
        shape = self.pick(SHAPES)
        order = tuple(int(a) for a in self.rng.permutation(len(shape)))
        steps = [int(self.pick((1, 1, 1, 2, 3, -1, -1, -2))) for _ in shape]
        if self.rng.random() < 0.4:
            steps = [1 if s > 0 else -1 for s in steps]
        own = [shape[a] * abs(s) for a, s in zip(order, steps, strict=True)]
        memory = self.rng.uniform(0.5, 1.5, own)
        x = memory[tuple(slice(None, None, s) for s in steps)]
        return x.transpose(np.argsort(order))

    def chain(self, name: str, value: Any) -> tuple[str, Any]:
        """Return an expression for a view, or a copy, of what has a name, and what it is."""
        text = name
        for _ in range(int(self.rng.integers(1, 4))):
            if self.rng.random() < 0.45:
                shape = self.pick(self.shapes(value.size))
                order = self.pick(("C", "C", "F", "A"))
                step = self.pick((
                    f"{{}}.reshape({shape}, order='{order}')",
                    f"np.reshape({{}}, {shape}, order='{order.replace('A', 'C')}')",
                    f"{{}}.ravel('{self.pick(ORDERS)}')",
                    f"np.ravel({{}}, order='{self.pick(ORDERS)}')",
                ))  # fmt: skip
            elif value.dtype.kind == "c" and self.rng.random() < 0.5:
                step = self.pick(("{}.imag", "{}.real", "np.imag({})"))
            else:
                step = self.pick(ANY)
            new = step.replace("{}", text)
            try:
                result = eval(new, {"np": np, name: value})
            except (ValueError, IndexError, TypeError):
                continue
            if result.size and result.ndim and result.flags.writeable:
                text = new
                actual = result
                if len(text) > 90:
                    return text, actual
        return text, eval(text, {"np": np, name: value})

    @staticmethod
    def shapes(size: int) -> list[tuple[int, ...]]:
        ways = [(-1,)]
        for a, b in itertools.product(range(1, size + 1), repeat=2):
            if size % (a * b) == 0:
                ways.append((a, b, size // (a * b)) if a * b < size else (a, b))
        return ways

    def write(self, name: str, value: np.ndarray) -> str:
        """Return a statement that writes a part of an array."""
        k = int(self.rng.integers(value.shape[0]))
        return str(
            self.pick((
                f"{name}[{k}] = 0.25",
                f"{name}[{k}] *= s",
                f"{name} *= 1.5",
                f"{name}[::2] += s",
                f"{name}[...] = {name}[::-1] * s",
                f"np.multiply({name}, s, out={name})",
                f"{name}.flat[0] = s",
                f"{name}.fill(s)",
            ))
        )  # fmt: skip

    def source(self) -> str:
        lines, x = [], self.x
        if self.rng.random() < 0.4:
            lines.append(self.write("x", x))
        origin, value = "x", x
        if self.complex or self.rng.random() < 0.4:
            new = "x * (1.0 + 0.5j)" if self.complex else self.pick(FRESH).replace("{}", "x")
            lines.append(f"y = {new}")
            origin, value = "y", eval(new, {"np": np, "x": x})
        text, v = self.chain(origin, value)
        lines += [f"v = {text}", self.write("v", v)]
        if self.rng.random() < 0.5:
            text, w = self.chain("v", v)
            lines += [f"w = {text}", self.write("w", w)]
        if self.rng.random() < 0.5:
            lines.append(self.write(origin, value))
        results = [f"{n} * 1.0" for n in dict.fromkeys(("x", origin, "v"))]
        if self.complex:
            results = [f"{r.split()[0]}.{p} * 1.0" for r in results for p in ("real", "imag")]
            results = [r for r in results if r != "x.imag * 1.0"]
        lines.append(f"return {', '.join(results)}")
        return "\n    ".join(["def f(x, s):", *lines])

    def program(self) -> tuple[Any, tuple[Any, ...], str]:
        """Return a function, its arguments, and its text."""
        text = self.source()
        names: dict[str, Any] = {"np": np}
        exec(text, names)
        return names["f"], (self.x, 0.75), text


def compare(seed: int, modes: Any, backends: Any) -> Any:
    f, args, text = Writer(seed).program()
    try:
        return check(f, args, modes=modes, backends=backends)
    except Exception as error:
        raise AssertionError(f"seed {seed}: strides {args[0].strides}\n{text}") from error


def test_programs_look_and_copy() -> None:
    views = copies = 0
    for seed in range(200):
        w = Writer(seed)
        _, v = w.chain("x", w.x)
        views += np.shares_memory(v, w.x)
        copies += not np.shares_memory(v, w.x)
    assert min(views, copies) > 30


def test_views_and_copies_eagerly() -> None:
    for seed in seeds(60):
        counts = compare(seed, ("plain", "intercept", "jvp", "nested"), ("numpy",))
        assert not counts["refused"], counts


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_copies_compiled(backend: str) -> None:
    modes = [m for m in MODES if "jit" in m]
    for seed in seeds(60 if backend == "numpy" else 12):
        counts = compare(seed + 10_000, modes, (backend,))
        assert not counts["refused"], counts


@pytest.mark.parametrize("backend", COMPILED)
def test_views_and_copies_of_results_of_a_backend(backend: str) -> None:
    for seed in seeds(40):
        counts = compare(seed + 20_000, ("plain", "jvp"), (backend,))
        assert not counts["refused"], counts


def test_views_and_copies_of_a_device(monkeypatch: Any) -> None:
    """Libraries of devices write results in C order, and lack some of NumPy's views."""
    device.installed(monkeypatch)
    for seed in seeds(25):
        counts = compare(seed + 30_000, ("plain", "jit"), ("standin",))
        assert not counts["refused"], counts


@pytest.mark.parametrize("layout", ["reversed", "steps", "Fortran", "turned"])
@pytest.mark.parametrize(
    "look", ["x.reshape(-1)", "x.ravel()", "x.ravel('K')", "x.T.reshape(-1)", "x.reshape(4, 3)"]
)
def test_captured_arrays_are_looked_at_and_copied_as_by_numpy(layout: str, look: str) -> None:
    """A captured array is written through what NumPy gives."""
    memory = np.arange(1.0, 49.0).reshape(6, 8)
    x = {
        "reversed": memory[:3, :4][::-1],
        "steps": memory[::2, ::2],
        "Fortran": np.asfortranarray(memory[:3, :4]),
        "turned": memory[:4, :3].T[:, ::-1],
    }[layout]

    def program(x: np.ndarray) -> Any:
        names = {"np": np, "x": x}
        exec(
            f"def f(s):\n    x[0, 0] += s\n    v = {look}\n    v[0] = 9 * s\n    return x * s",
            names,
        )
        return names["f"]

    with use_all_sizes("numpy"):
        (plain,) = fresh((x,))
        f, jitted = program(plain), adarray.jit(program(x))
        for k in range(3):
            np.testing.assert_array_equal(jitted(k + 1.0), f(k + 1.0))
            np.testing.assert_array_equal(x, plain)


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")  # of nan_to_num, traced
@pytest.mark.parametrize("view_of", [
    lambda x: np.ones(3), lambda x: np.array([1.0, 2.0, 3.0]), lambda x: np.zeros_like(x),
    lambda x: np.sin(x), lambda x: x.copy(),
])  # fmt: skip
@pytest.mark.parametrize("view", [
    np.squeeze, lambda b: b.squeeze(), lambda b: np.squeeze(b, axis=()),
    lambda b: np.broadcast_arrays(b, b)[0], lambda b: np.broadcast_arrays(2.0, b)[1],
    lambda b: np.transpose(b), lambda b: np.reshape(b, 3), lambda b: np.moveaxis(b, 0, 0),
    lambda b: np.atleast_1d(b), lambda b: np.permute_dims(b), lambda b: np.ravel(b),
    lambda b: np.nan_to_num(b, copy=False),
])  # fmt: skip
def test_views_that_leave_an_array_as_it_is(view_of: Any, view: Any) -> None:
    """A write through one of a constant was lost under jit; those of broadcasts were copies."""

    def f(x: Any) -> Any:
        b = view_of(x)
        v = view(b)
        v[0] = 3.0 * x[1]
        return x * b * v

    x = np.array([0.8, 1.25, 0.5])
    derivative = adarray.grad(lambda x: np.sum(f(x)))
    total = [np.sum(f(x + h) - f(x - h)) / 2e-6 for h in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(derivative(x), total, rtol=1e-6, atol=1e-8)
    for jitted, expected in ((adarray.jit(f), f(x)), (adarray.jit(derivative), derivative(x))):
        for _ in range(3):
            np.testing.assert_allclose(jitted(x), expected, rtol=1e-12)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(6, 2), (2, 6), (3, 3), (5, 3)])
def test_resizing_keeps_elements_where_they_are_in_memory(shape: tuple[int, int]) -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        y.resize(shape, refcheck=False)
        return y * np.arange(float(np.prod(shape))).reshape(shape)

    x = np.arange(12.0).reshape(3, 4) + 0.5
    for argument in (x, np.asfortranarray(x), x.T):
        check(f, (argument,))
