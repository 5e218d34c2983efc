"""Code that asks what its values are takes the branches that it takes without adarray."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trust import COMPILED, LONG, MODES, check, seeds
from type_questions import QUESTIONS, SUBJECTS, arguments, module, program

import adarray

ARGUMENTS = (0, 1, 2, 3)


def _jvp(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(*xs: Any) -> Any:
        return adarray.jvp(f, xs, [1.0 if isinstance(x, float) else np.ones_like(x) for x in xs])

    return run


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: adarray.grad(f, ARGUMENTS),
    "intercept": lambda f: adarray.grad(f, ARGUMENTS, intercept=True),
    "vjp": lambda f: lambda *xs: adarray.vjp(f, *xs)[1](1.0),
    "jvp": _jvp,
    "nested": lambda f: _jvp(lambda *xs: sum(map(np.sum, adarray.grad(f, ARGUMENTS)(*xs)))),
    "jit": adarray.jit,
    "jit(grad)": lambda f: adarray.jit(adarray.grad(f, ARGUMENTS)),
}
# Text that is made of a value keeps a function from being compiled.
COMPILES = [q for q in QUESTIONS if "written(" not in q]


@pytest.mark.slow
@pytest.mark.parametrize("mode", TRANSFORMS)
def test_every_question_about_every_value(mode: str) -> None:
    # A list of the answers; under `jit`, which runs a function once, of some of the values.
    compiled = "jit" in mode
    questions = COMPILES if compiled else QUESTIONS
    lines = [
        f"    try: out.append(bool({q}))\n    except Exception as e: out.append(type(e))"
        for q in questions
    ]
    for subject in SUBJECTS[:: 1 if LONG or not compiled else 12]:
        head = f"    nest = {{'a': x, 'b': [t, x[0]]}}\n    q = {subject}\n    out = []"
        text = "\n".join(["def f(x, A, t, z):", head, *lines, "    seen.append(out)"])
        f = module(f"seen = []\n{text}\n    return t * x[0]\n")
        f.f(*arguments(1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", adarray.JitWarning)
            TRANSFORMS[mode](f.f)(*arguments(1))
        plain, *traced = f.seen
        assert traced, subject
        for answers in traced:
            wrong = [q for q, a, b in zip(questions, plain, answers, strict=True) if a is not b]
            assert not wrong, f"{subject}: {wrong}"


def _programs(short: int, modes: Any, backends: Any, calls: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds(short):
        f, text = program(seed, COMPILES)
        try:
            counts += check(f, arguments(seed), modes=modes, backends=backends, calls=calls)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{text}") from error
    return counts


@pytest.mark.slow
def test_random_programs() -> None:
    counts = _programs(25, MODES, ("numpy",), 2)
    assert counts["right"] > 0
    assert counts["refused"] == 0, counts


@pytest.mark.skipif(not COMPILED, reason="ADARRAY_BACKENDS names none that compiles")
@pytest.mark.slow
def test_random_programs_that_are_compiled() -> None:
    counts = _programs(3, ("jit", "jit(grad)", "jit in grad"), COMPILED, 2)
    assert counts["right"] > 0
    assert counts["refused"] == 0, counts


@pytest.mark.parametrize("text", [
    "(x[0] > 0) + (t > 0)", "(t > 0) + (x[0] > 0)", "(x[0] > 0) * (t > 0)", "(x > 0) + (t > 0)",
    "(t > 0) * (x > 0)", "(t > 0) + (t < 9)", "(t > 0) + (x[0] > 0) * 1",
    "(t > 0) + x.astype('i1')",
    "(t > 0) + True", "(t > 0) / (x > 0)", "2 ** (t > 0)", "(t > 0) * x",
])  # fmt: skip
def test_truth_values_of_python_and_numpy_make_truth_values(text: str) -> None:
    """``np.True_ + True`` was the integer 2 under `jit`, if the second was computed."""
    f = module(f"def f(x, t): return {text}").f
    x = np.array([0.7, 0.8, 0.9])
    jitted = adarray.jit(f)
    for _ in range(3):
        got, expected = jitted(x, 1.3), f(x, 1.3)
        assert type(got) is type(expected)
        assert np.result_type(got) == np.result_type(expected)
        np.testing.assert_array_equal(got, expected)
