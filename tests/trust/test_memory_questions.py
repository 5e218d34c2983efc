"""Code that asks which arrays share memory, or how they lie there, is answered as for plain arrays.

Arguments are views of one array, interleaved and overlapping, and written into before they are
asked; others cannot be written into, or repeat their elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trust import BACKENDS, MODES, check, fresh, seeds

import adarray
from adarray.errors import TraceError

# Two views of an array of twelve elements; the first nine share no element.
PAIRS = (
    ("[::2]", "[1::2]"), ("[:5]", "[5:10]"), ("[1::3]", "[2::3]"), ("[::-2]", "[:9:2]"),
    ("[4:8]", "[8:]"), (".reshape(3, 4)[0]", ".reshape(3, 4)[1]"), ("[::4]", "[1:8:2]"),
    (".reshape(3, 4)[:, 0]", ".reshape(3, 4)[:, 2]"), (".reshape(4, 3).T[0]", "[1::3][:4]"),
    ("[:6]", "[3:9]"), ("[::2]", "[2:8]"), ("[5::-1]", "[:6]"),
)  # fmt: skip
APART = 9
QUESTIONS = (
    "np.may_share_memory(a, b)", "np.shares_memory(a, b)", "np.may_share_memory(a[1:], b[:1])",
    "np.may_share_memory(b[::-1], a)", "np.may_share_memory(a[:1], a[1:])", "a.base is b.base",
    "a.base is None", "a[1:].base is a", "a[1:].base is a.base", "(a * 1.0).base is None",
    "a.flags.owndata", "np.may_share_memory(a, a * 1.0)", "helped(a, b)",
    "a[::2][1:].base is b.base", "np.may_share_memory(a.T, b.T)", "a.base is a",
)  # fmt: skip
TEXT = """
def helped(p, q):
    return np.may_share_memory(p, q) and p.base is not q
def f(a, b, s):
    {write}
    r = s * a[0] * b[-1]
    for k, answer in enumerate([{questions}]):
        r = r + (a[0] ** 2 if answer else b[0]) * (k + 1.0)
    return r
"""


def program(seed: int) -> tuple[Any, tuple[Any, ...], bool]:
    """Return a function, its arguments, and whether these share elements."""
    rng = np.random.default_rng(seed)
    pair = int(rng.integers(len(PAIRS)))
    base = rng.uniform(0.5, 1.5, 12)
    a, b = (eval(f"base{view}", {"base": base}) for view in PAIRS[pair])
    written = pair < APART and rng.random() < 0.4
    chosen = rng.choice(len(QUESTIONS), 4, replace=False)
    text = TEXT.format(
        write="a[1] *= s" if written else "pass", questions=", ".join(QUESTIONS[i] for i in chosen)
    )
    space: dict[str, Any] = {"np": np}
    exec(text, space)
    return space["f"], (a, b, 0.75), pair >= APART


def test_questions_about_memory() -> None:
    for seed in seeds(30):
        f, args, shared = program(seed)
        modes = [m for m in MODES if not (shared and m == "nested")]
        backend = BACKENDS[seed % len(BACKENDS)]
        try:
            counts = check(f, args, modes, (backend,), 3, derivatives=not shared)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {PAIRS}: {error}") from error
        assert not counts["refused"], (seed, counts)


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_inside_of_another_transform(question: str) -> None:
    base = np.linspace(0.5, 1.5, 12)
    space: dict[str, Any] = {"np": np}
    exec(TEXT.format(write="pass", questions=question), space)
    f = space["f"]

    def outer(a: Any, b: Any) -> Any:
        return adarray.grad(lambda s: f(a, b, s) * s)(1.5)

    for a, b in ((base[::2], base[1::2]), (base[:6], base[6:])):
        h = 1e-6
        expected = (f(a, b, 1.5 + h) * (1.5 + h) - f(a, b, 1.5 - h) * (1.5 - h)) / (2 * h)
        np.testing.assert_allclose(outer(a, b), expected, rtol=1e-7)
        value, _ = adarray.value_and_grad(outer, argnums=(0, 1))(a, b)
        np.testing.assert_allclose(value, expected, rtol=1e-7)


def _writes(x: Any) -> Any:
    try:
        x[0] = 2.0
    except ValueError:
        return np.sum(x * x)
    return np.sum(x)


@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
def test_arguments_that_are_read_only() -> None:
    """Writes were taken where NumPy refuses them."""
    x = np.array([0.5, 1.5, 2.5])
    x.flags.writeable = False
    ones = np.ones(3)
    grad = adarray.grad(_writes)
    for call in (
        grad,
        adarray.jit(adarray.grad(_writes)),
        lambda x: adarray.vjp(_writes, x)[1](1.0)[0],
        lambda x: adarray.grad(lambda y: adarray.value_and_grad(_writes)(y)[0])(x),
        lambda x: adarray.grad(adarray.jit(_writes))(x),
    ):
        for _ in range(3):
            np.testing.assert_array_equal(call(x), 2 * x)
    assert adarray.jvp(_writes, (x,), (ones,))[1] == 9.0
    jitted = adarray.jit(_writes)
    for _ in range(3):
        assert jitted(x) == np.sum(x * x)
    np.testing.assert_array_equal(grad(x.copy()), [0.0, 1.0, 1.0])


def _locked(x: Any, y: Any) -> Any:
    y[0] = 3.0
    y.flags.writeable = False
    return _writes(y) + np.sum(y * x)


@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
@pytest.mark.parametrize(
    "text",
    ["x.view()", "x[:2]", "np.sin(x)", "x * 2.0", "x.reshape(-1)", "x", "x.copy()[::-1]"],
)
def test_arrays_that_code_makes_read_only(text: str) -> None:
    """Views of arguments were written into nevertheless, and under `jit` all."""
    space: dict[str, Any] = {"np": np, "locked": _locked}
    exec(f"def f(x, s):\n    return locked(np.sin(x) * s, ({text}).view())\n", space)
    counts = check(space["f"], (np.array([0.5, 1.5]), 0.75), backends=("numpy",), calls=3)
    assert not counts["refused"], counts


@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
def test_imaginary_parts_of_real_arrays_are_read_only() -> None:
    def f(x: Any) -> Any:
        return _writes(x.imag) + np.sum(x * x)

    jitted, gradient = adarray.jit(f), adarray.jit(adarray.grad(f))
    x = np.array([0.5, 1.5])
    for _ in range(3):
        assert jitted(x) == f(x)
        np.testing.assert_array_equal(gradient(x), 2 * x)


def test_arguments_that_repeat_their_elements() -> None:
    def asks(x: Any) -> Any:
        return np.sum(x * x) * (2.0 if 0 in x.strides else 3.0)

    def writes(x: Any) -> Any:
        x[0, 0] = 2.0
        return np.sum(x * x)

    row = np.array([0.5, 1.5])
    for x in (np.broadcast_to(row, (3, 2)), np.broadcast_to(row[:, None], (2, 3))):
        for call in (adarray.grad(asks), adarray.jit(adarray.grad(asks))):
            for _ in range(3):
                np.testing.assert_array_equal(call(x), 4 * x)
    windows = np.lib.stride_tricks.as_strided(np.arange(1.0, 6.0), (4, 2), (8, 8))
    with pytest.raises(TraceError, match=r"has elements that share memory.*pass a copy"):
        adarray.grad(writes)(windows)
    (copy,) = fresh((windows.copy(),))
    expected = 2 * copy
    expected[0, 0] = 0.0
    np.testing.assert_array_equal(adarray.grad(writes)(copy), expected)


def test_a_captured_array_is_looked_at_again_as_it_was() -> None:
    """The reverse walk of a jitted function ran it over a copy that could be written into."""
    w = np.arange(6.0)

    def f(x: Any) -> Any:
        return np.sum(x * w) * (2.0 if w.flags.writeable else 3.0)

    run = adarray.value_and_grad(adarray.jit(f))
    for k in range(5):
        w.flags.writeable = k % 2 == 1
        value, gradient = run(np.ones(6))
        assert value == f(np.ones(6))
        np.testing.assert_array_equal(gradient, w * (2.0 if k % 2 else 3.0))
