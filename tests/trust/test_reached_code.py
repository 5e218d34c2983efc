"""Code that a transform reaches by an argument, a table, a text or a slot asks ``type(x)``, too.

It met the class ADArray there, and took another branch.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from trust import check, fresh

import adarray

X = np.array([0.8, 1.25, 0.5])


def asking() -> Any:
    """Return a function that no name of a module leads to."""
    space = {"np": np, "__name__": "asker"}
    text = "np.sum(x**2) if type(x) is np.ndarray else np.sum(3.0 * x)"
    exec(f"def ask(x):\n    return {text}\n", space)
    return space["ask"]


class Owner:
    def __init__(self, f: Any) -> None:
        self.f = f

    def __call__(self, x: Any) -> Any:
        return self.f(x)

    def method(self, x: Any) -> Any:
        return np.sum(x**2) if type(x) is np.ndarray else np.sum(x)


class Slotted:
    __slots__ = ("f", "unset")

    def __init__(self, f: Any) -> None:
        self.f = f


class Pair(NamedTuple):
    f: Any
    g: Any


LONG_TABLE = {i: asking() for i in range(200)}
LONG_LIST = [*range(100), *(asking() for _ in range(100))]
OWNED = Owner([asking()])
TABLES = [
    collections.OrderedDict(a=asking()), collections.defaultdict(list, a=asking()),
    collections.ChainMap({}, {"a": asking()}), types.MappingProxyType({"a": asking()}),
]  # fmt: skip
QUEUE = collections.deque([asking()])
SLOTTED = Slotted(asking())
KEYS = {asking(): 1}
NESTED = [[[asking()]]]
named_by_text = asking()
elsewhere = types.ModuleType("adarray_tests_elsewhere")
elsewhere.ask = asking()  # type: ignore[attr-defined]
sys.modules[elsewhere.__name__] = elsewhere

CALLS = {
    "long table": lambda x: LONG_TABLE[150](x),
    "long list": lambda x: LONG_LIST[190](x),
    "list of an object": lambda x: OWNED.f[0](x),
    "tables": lambda x: sum(t["a"](x) for t in TABLES),
    "queue": lambda x: QUEUE[0](x),
    "slot": lambda x: SLOTTED.f(x),
    "keys": lambda x: sum(f(x) for f in KEYS),
    "nested": lambda x: NESTED[0][0][0](x),
    "text": lambda x: globals()["named_by_text"](x),
    "module": lambda x: getattr(sys.modules["adarray_tests_elsewhere"], "ask")(x),  # noqa: B009
}
ARGUMENTS = {
    "function": (lambda x, f: f(x), asking),
    "list": (lambda x, f: f[0](x), lambda: [asking()]),
    "long list": (lambda x, f: f[-1](x), lambda: [*range(100), asking()]),
    "table": (lambda x, f: f["a"]["b"](x), lambda: {"a": {"b": asking()}}),
    "partial": (lambda x, f: f(x), lambda: functools.partial(asking())),
    "object": (lambda x, f: f(x), lambda: Owner(asking())),
    "bound method": (lambda x, f: f(x), lambda: Owner(1).method),
    "its method": (lambda x, f: f.method(x), lambda: Owner(1)),
    "class": (lambda x, f: f(1).method(x), lambda: Owner),
    "named tuple": (lambda x, f: f.f(x), lambda: Pair(asking(), 1)),
    "slot": (lambda x, f: f.f(x), lambda: Slotted(asking())),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_names_lead_to(name: str) -> None:
    assert check(CALLS[name], (X,), calls=2)["refused"] == 0


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_arguments_lead_to(name: str, inside: bool) -> None:
    f, make = ARGUMENTS[name]
    for transform in (adarray.grad, lambda f, **k: adarray.jit(adarray.grad(f, **k))):
        np.testing.assert_allclose(transform(f, intercept=inside)(fresh(X), make()), 2 * X)
    args = make()
    _, slope = adarray.jvp(lambda x: f(x, args), (X,), (X,))
    np.testing.assert_allclose(slope, 2 * np.sum(X**2))
    np.testing.assert_allclose(adarray.jit(f)(X, make()), np.sum(X**2))


def _running(question: str) -> Any:
    """Return a generator of code that no transform has met."""
    space = {"np": np, "__name__": "asker"}
    text = f"np.sum(x**2) if {question} else np.sum(x)"
    exec(f"def running():\n  x = yield\n  while True:\n    x = yield {text}\n", space)
    return space["running"]


def test_code_that_runs_already_is_refused_if_it_asks() -> None:
    make = _running("type(x) is np.ndarray")
    running, going_on = make(), _running("isinstance(x, np.ndarray)")()
    next(running)
    next(going_on)
    for f, args in ((lambda x: running.send(x), ()), (lambda x, g: g.send(x), (running,))):
        with pytest.raises(adarray.TraceError, match=r"running\(\) was made before the transform"):
            adarray.grad(f)(X, *args)
    np.testing.assert_allclose(adarray.grad(lambda x: going_on.send(x))(X), 2 * X)

    def made_inside(x: Any) -> Any:
        steps = make()
        next(steps)
        return steps.send(x)

    np.testing.assert_allclose(adarray.grad(made_inside)(X), 2 * X)
