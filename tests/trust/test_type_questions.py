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


def _asking(questions: list[str]) -> str:
    """Return statements that put the answers to questions about ``q`` into ``out``."""
    lines = (
        f"    try: out.append(bool({q}))\n    except Exception as e: out.append(type(e))"
        for q in questions
    )
    return "\n".join(["    out = []", *lines])


def _answered_alike(mode: str, text: str, questions: list[str], subjects: list[str]) -> None:
    """Check that `f` of a text, which keeps ``[(subject, answers), ...]``, finds what it should."""
    result = module(f"seen = []\n{text}")
    result.f(*arguments(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adarray.JitWarning)
        TRANSFORMS[mode](result.f)(*arguments(1))
    plain, *traced = result.seen
    assert traced
    assert len(plain) == len(subjects)
    for run in traced:
        for subject, expected, answers in zip(subjects, plain, run, strict=True):
            pairs = zip(questions, expected, answers, strict=True)
            wrong = [q for q, a, b in pairs if a is not b]
            assert not wrong, f"{subject}: {wrong}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", TRANSFORMS)
def test_every_question_where_the_value_is_made(mode: str) -> None:
    questions = COMPILES if "jit" in mode else QUESTIONS
    for subject in SUBJECTS[:: 1 if LONG else 40]:
        head = f"def f(x, A, t, z):\n    nest = {{'a': x, 'b': [t, x[0]]}}\n    q = {subject}"
        tail = "    seen.append([out])\n    return t * x[0]\n"
        _answered_alike(mode, "\n".join([head, _asking(questions), tail]), questions, [subject])


@pytest.mark.slow
@pytest.mark.parametrize("mode", [m for m in TRANSFORMS if "jit" not in m])
def test_every_question_about_every_value(mode: str) -> None:
    """Asked by one function: `jit` would compile the answers to all of them into one."""
    lines = [f"    found.append(answers({subject}))" for subject in SUBJECTS]
    # Where text was made of a value, each ValueError that is caught later may come of it.
    for questions in (COMPILES, [q for q in QUESTIONS if q not in COMPILES]):
        text = "\n".join([
            "def answers(q):", _asking(questions), "    return out",
            "def f(x, A, t, z):", "    nest = {'a': x, 'b': [t, x[0]]}", "    found = []", *lines,
            "    seen.append(found)", "    return t * x[0]\n",
        ])  # fmt: skip
        _answered_alike(mode, text, questions, SUBJECTS)


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
    counts = _programs(5, MODES, ("numpy",), 2)
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
