"""`type` under other names, in tables, defaults and objects: answered, or refused."""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from repeated import X, repeat

import adarray
from adarray.core.loads import Type
from adarray.errors import TraceError
from adarray.jitting import JitWarning

items, table, pair = [type], {"t": [type]}, (type, 2.0)
part = functools.partial(type)
space = types.SimpleNamespace(t=type)
alias = type
numbers = (int, float, type)


class Holder:
    t = type
    static = staticmethod(type)

    def __init__(self) -> None:
        self.kind = type


held = Holder()


def default(v: Any, t: Any = type) -> Any:
    return t(v)


def keyword(v: Any, *, t: Any = type) -> Any:
    return t(v)


def enclosing(t: Any) -> Any:
    return lambda v: t(v)


ANSWERED: dict[str, Callable[[Any], Any]] = {
    "a default": default,
    "a keyword": keyword,
    "a closure": enclosing(type),
    "an alias": lambda v: alias(v),
    "getattr": lambda v: getattr(builtins, "type")(v),  # noqa: B009
    "getattr of an object": lambda v: getattr(v, "__class__"),  # noqa: B009
    "a local name": lambda v: (lambda t: t(v))(type),
    "a local list": lambda v: [type][0](v),
    "a local table": lambda v: {"t": type}["t"](v),
    "map": lambda v: next(map(type, [v])),
    "a key": lambda v: next(itertools.groupby([v], key=type))[0],
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "a list": lambda v: items[0](v),
    "a table": lambda v: table["t"][0](v),
    "a tuple": lambda v: pair[0](v),
    "a partial": lambda v: part(v),
    "an attribute": lambda v: space.t(v),
    "a class": lambda v: Holder.t(v),
    "an instance": lambda v: held.kind(v),
    "a static method": lambda v: Holder.static(v),
    "a list in a default": lambda v, t=items: t[0](v),
    "a list in a closure": (lambda t: lambda v: t[0](v))(items),
    "a loop": lambda v: next(t(v) for t in items),
    "a getter": lambda v: operator.attrgetter("t")(space)(v),
    "builtins": lambda v: vars(builtins)["type"](v),
}


def asking(question: Callable[[Any], Any], part: Any) -> Any:
    def make() -> Any:
        def f(x: Any) -> Any:
            v = x[part]
            kind = np.float64 if part == 0 else np.ndarray
            return np.sum(x**2) * (3.0 if question(v) is kind else 2.0)

        return f, lambda: None

    return make


@pytest.mark.parametrize("place", [0, ...], ids=["number", "array"])
@pytest.mark.parametrize("question", ANSWERED.values(), ids=ANSWERED)
def test_what_is_answered(question: Any, place: Any) -> None:
    assert not repeat(asking(question, place), calls=3)


@pytest.mark.parametrize("place", [0, ...], ids=["number", "array"])
@pytest.mark.parametrize("question", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(question: Any, place: Any) -> None:
    refused = repeat(asking(question, place), calls=3)
    assert refused.keys() >= {"grad", "protocols", "jit(grad)", "grad(jit)", "jvp"}
    assert "jit" not in refused  # it runs as plain code


def test_the_refusal_names_the_place() -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        return y * (items[0](y) is np.ndarray)

    line = f.__code__.co_firstlineno + 2
    with pytest.raises(TraceError, match=rf"line {line}\) reaches the builtin `type` as an item"):
        adarray.grad(f)(X)
    with pytest.warns(JitWarning, match="reaches the builtin `type` as an item of items"):
        np.testing.assert_array_equal(adarray.jit(f)(X), X * 2.0)


def test_classes_for_isinstance_are_no_question() -> None:
    def make() -> Any:
        def f(x: Any) -> Any:
            return np.sum(x**2) * (3.0 if isinstance(x[0], numbers) else 2.0)

        return f, lambda: None

    assert not repeat(make, calls=3)


def test_what_took_its_place_is_type_elsewhere() -> None:
    adarray.grad(lambda x: np.sum(x) * (default(x) is np.ndarray))(X)
    assert default.__defaults__ == (type,)
    x = adarray.array(X)
    assert default(x) is type(x)
    assert default(2) is int
    assert default.__defaults__ is not None
    cls = default.__defaults__[0]("Made", (), {"a": 1})
    assert (type(cls), cls.a) == (type, 1)
    assert Type(3) is int
