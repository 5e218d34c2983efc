"""Branches on the type of a value: what user code and what libraries are told."""

from __future__ import annotations

import copy
import functools
import inspect
import numbers
import operator
import pickle
from collections.abc import Container, Hashable, Iterable, Sequence, Sized
from typing import Any, SupportsFloat

import numpy as np
import pytest

import adarray

X = np.array([1.0, 2.0])


def seen(question: Any, x: Any = X, pick: Any = lambda x: x) -> Any:
    """Return the answer of a question about an argument, or what is made of it."""
    answers = []

    def f(x: Any) -> Any:
        answers.append(question(pick(x)))
        return np.sum(x * x)

    adarray.grad(f)(x)
    f(x)
    assert answers[0] is answers[1]
    return answers[0]


def pair(p: Any) -> Any:
    a, b = (p[0], p[1]) if isinstance(p, np.ndarray) else (p, 0.0)
    return np.sum(a**2 + 3 * b)


def test_a_branch_on_arrays_is_the_one_of_the_plain_run() -> None:
    # value_and_grad said (5, [2, 4]): the other branch, without a word.
    value, gradient = adarray.value_and_grad(pair)(X)
    assert value == 7
    np.testing.assert_array_equal(gradient, [2, 3])
    assert adarray.jit(pair)(X) == 7
    np.testing.assert_array_equal(adarray.jit(adarray.grad(pair))(X), [2, 3])
    np.testing.assert_array_equal(adarray.jacobian(pair)(X), [2, 3])
    np.testing.assert_array_equal(adarray.hessian(pair)(X), [[2, 0], [0, 0]])
    np.testing.assert_array_equal(adarray.vjp(pair, X)[1](1.0)[0], [2, 3])
    assert adarray.jvp(pair, [X], [np.array([0.0, 1.0])])[1] == 3


@pytest.mark.parametrize(
    "cls",
    [np.ndarray, float, (int, float), numbers.Real, numbers.Number, np.floating, np.number,
     np.generic, Iterable, Sized, Container, Sequence, Hashable, SupportsFloat, list, tuple],
    ids=str,
)  # fmt: skip
def test_classes_of_arrays_and_numbers(cls: Any) -> None:
    def question(v: Any) -> bool:
        return isinstance(v, cls)

    seen(question)
    seen(question, X, lambda x: x[0])
    seen(question, X, np.sum)
    seen(question, np.array(1.5))
    seen(question, 1.5)
    seen(question, 1.5, lambda x: 2 * x)
    seen(question, 1.5, np.sin)


@pytest.mark.parametrize("name", ["__len__", "__iter__", "shape", "sum", "dtype", "__index__"])
def test_attributes_of_arrays_and_numbers(name: str) -> None:
    for x, pick in [(X, np.sin), (X, np.sum), (1.5, np.sin), (1.5, abs), (np.array(1.5), np.copy)]:
        seen(lambda v: hasattr(v, name), x, pick)
        seen(lambda v: getattr(v, name, None) is None, x, pick)


def test_patterns_and_single_dispatch() -> None:
    @functools.singledispatch
    def kind(v: Any) -> str:
        return "other"

    kind.register(np.ndarray)(lambda v: "array")
    kind.register(float)(lambda v: "number")
    kind.register(np.floating)(lambda v: "scalar")

    def matched(v: Any) -> str:
        match v:
            case np.floating():
                return "scalar"
            case float():
                return "number"
            case np.ndarray(shape=(2,)):
                return "array"
        return "other"

    for question in (kind, matched):
        assert seen(question) == "array"
        assert seen(question, X, lambda x: x[0]) == "scalar"
        assert seen(question, 1.5, lambda x: x + 1) == "number"


def test_numpys_own_questions() -> None:
    for question in (np.isscalar, np.iterable):
        seen(question)
        seen(question, X, lambda x: x[0])
        seen(question, np.array(2.0))
        seen(question, 2.0)


def test_numbers_are_not_iterable_in_the_words_of_python() -> None:
    def messages(v: Any) -> tuple[str, ...]:
        messages = []
        for ask in (len, iter, list, lambda v: 1.0 in v, lambda v: v[()], set):
            try:
                ask(v)
            except TypeError as error:
                messages.append(str(error))
            else:
                messages.append("")
        return tuple(messages)

    def check(x: Any, pick: Any = lambda x: x) -> None:
        results = []

        def f(x: Any) -> Any:
            v = pick(x)
            assert hasattr(v, "__iter__") == isinstance(v, np.ndarray)
            results.append(messages(v))
            return np.sum(x)

        adarray.grad(f)(x)
        f(x)
        assert [m.partition(" (")[0] for m in results[0]] == list(results[1])

    check(X, np.sum)
    check(X, lambda x: x[0])
    check(1.5)


def test_python_numbers_lack_what_arrays_have() -> None:
    def rows(v: Any) -> int:
        try:
            return v.shape[0]  # type: ignore[no-any-return]
        except AttributeError:
            return 1

    assert seen(rows, 1.5) == 1
    assert seen(rows) == 2

    def f(t: Any) -> Any:
        return t.sum()

    with pytest.raises(AttributeError, match="object has no attribute 'sum'"):
        adarray.grad(f)(1.5)


def test_results_of_numbers_have_the_types_of_pythons() -> None:
    for make in (
        lambda t: t > 1, lambda t: t == t, lambda t: t // 1.0, lambda t: round(t, 1), round,
        lambda t: divmod(t, 2.0)[0], lambda t: t.conjugate(), lambda t: t.imag, copy.copy,
        lambda t: t % 1, lambda t: t**2, lambda t: t < np.float64(2), lambda t: t.is_integer(),
    ):  # fmt: skip
        seen(lambda v: v.__class__, 1.5, make)
    assert seen(lambda v: v is True, 1.5, lambda t: t > 1)


def test_copies_of_numbers_are_numbers() -> None:
    for make in (copy.copy, copy.deepcopy, lambda v: v.copy()):
        seen(lambda v: v.__class__, X, lambda x, make=make: make(x[0]))
    assert adarray.grad(lambda x: copy.copy(x[0]) * x[1])(X).tolist() == [2, 1]


def test_libraries_know_what_they_have() -> None:
    # NumPy, SciPy, adarray and the standard library get the true class.
    special = pytest.importorskip("scipy.special")
    classes = []

    def f(x: Any) -> Any:
        classes.append(operator.attrgetter("__class__")(x))  # C asks in the name of its caller
        classes.append(inspect.unwrap(x).__class__)
        assert isinstance(x, adarray.ADArray)
        assert isinstance(x, np.ndarray)
        return np.sum(special.expit(np.stack([x, x])))

    np.testing.assert_allclose(adarray.grad(f)(X), adarray.grad(f)(X.copy()))
    assert set(classes) == {np.ndarray}


def test_outside_of_transforms_an_array_is_what_it_is() -> None:
    x = adarray.array(X)
    assert not isinstance(x, np.ndarray)
    assert type(pickle.loads(pickle.dumps(x))) is adarray.ADArray
    leaf = adarray.array(X, requires_grad=True)
    assert isinstance(leaf, np.ndarray)  # as code that computes with it sees it
    assert isinstance(leaf, adarray.ADArray)
    isinstance(leaf[0], Iterable)
    (leaf[0] * leaf[1]).backward()
    np.testing.assert_array_equal(leaf.grad, [2, 1])


@pytest.mark.filterwarnings("ignore:Bitwise inversion")  # Python 3.12 warns of ~True
def test_truth_values_of_python_numbers_count_as_integers() -> None:
    # NumPy's do not: True + True is True there, and was under jit.
    for f in (
        lambda t: t * ((t > 0) + (t > 1)), lambda t: t * -(t > 0), lambda t: t * ~(t > 0),
        lambda t: t * sum([t > 0, t > 1]), lambda t: t * int(t > 0), lambda t: t * abs(t > 5),
        lambda t: t * ((t > 0) & (t > 1)), lambda t: t * ((t > 0) - 0.5),
    ):  # fmt: skip
        jitted = adarray.jit(f)
        for t in (2.0, 3.0, 0.5, -1.0):
            assert jitted(t) == f(t)
            assert type(jitted(t)) is type(f(t))
            assert adarray.grad(f)(t) == pytest.approx((f(t + 1e-6) - f(t - 1e-6)) / 2e-6)


def test_a_generic_function_is_transformed_itself() -> None:
    @functools.singledispatch
    def f(v: Any) -> Any:
        return np.sum(v) * 5

    f.register(float, lambda v: v * 7)
    f.register(np.ndarray, lambda v: np.sum(v) * 11)
    for transform in (adarray.value_and_grad, lambda g: adarray.jit(adarray.value_and_grad(g))):
        value, gradient = transform(f)(X)
        assert (value, gradient.tolist()) == (33.0, [11.0, 11.0])
        assert transform(f)(1.5) == (10.5, 7.0)
    assert adarray.jit(f)(1.5) == 10.5


def test_a_number_that_jit_rounds_lacks_what_arrays_have() -> None:
    def f(x: Any, t: Any) -> Any:
        q = round(t, 2)
        return np.sum(x) * (2.0 if hasattr(q, "fill") or hasattr(q, "shape") else 3.0) * q

    assert adarray.jit(f)(X, 1.5072) == f(X, 1.5072)


def test_dir_lists_what_the_plain_value_has() -> None:
    def f(x: Any) -> Any:
        for value, plain in ((x, np.ndarray), (x[0], np.float64)):
            names = set(dir(value))
            assert {"shape", "mean"} <= names
            assert not {"ptp", "bit_length", "hex", "to_bytes"} & names - set(dir(plain))
        return np.sum(x)

    adarray.grad(f)(np.ones(3))
    adarray.grad(lambda s: s * (2.0 if "shape" in dir(s) or "bit_count" in dir(s) else 3.0))(1.0)
    assert adarray.grad(lambda s: s * (2.0 if "shape" in dir(s) else 3.0))(1.0) == 3.0
