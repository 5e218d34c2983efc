"""No stale constants: attributes of objects, classes and modules."""

from __future__ import annotations

import dataclasses
import functools
import gc
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from captured import X, agree, compiled

import adarray

# What the functions below read, and what the tests change.
space = types.SimpleNamespace(w=np.ones(4), k=1.0)


def start() -> dict[str, Any]:
    """Return what the globals hold before each test."""
    return {
        "space": types.SimpleNamespace(w=np.ones(4), k=1.0),
    }


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend, and put back what it changed."""
    globals().update(start())
    with adarray.use(backend):
        yield
    globals().update(start())


class Model:
    """A model as people write them."""

    offset = 1.0
    shared = np.ones(4)

    def __init__(self) -> None:
        self.w = np.arange(4.0)
        self.k = 2.0
        self.parts = [np.ones(4)]
        self.inner: Any = None

    def forward(self, x: Any) -> Any:
        h = x * self.w * self.k + self.offset + self.parts[0]
        return h if self.inner is None else self.inner.forward(h)

    def __call__(self, x: Any) -> Any:
        return self.forward(x) * self.shared


def changes(m: Model) -> Iterator[None]:
    """Change a model in all ways."""
    m.w[1] = 9.0
    yield
    m.w = m.w + 1.0
    yield
    m.k = 5.0
    yield
    m.k = 6.0
    yield
    m.parts[0] = m.parts[0] * 3.0
    yield
    m.inner = Model()
    yield
    m.inner.w[2] = 77.0
    yield
    m.inner.w = m.w
    yield
    Model.offset = 2.0
    yield
    m.offset = 3.0
    yield
    Model.shared[0] = 4.0
    yield
    m.shared = np.full(4, 5.0)
    yield


@pytest.mark.parametrize("how", ["method", "callable", "closure", "unbound"])
def test_attributes(how: str) -> None:
    m = Model()
    try:
        f: Any = {
            "method": m.forward, "callable": m, "closure": lambda x: m.forward(x) + m(x),
            "unbound": functools.partial(Model.__call__, m),
        }[how]  # fmt: skip
        jf = compiled(f, X)
        for _ in changes(m):
            for _ in range(2):
                agree(jf, f, X)
    finally:
        Model.offset, Model.shared = 1.0, np.ones(4)


def test_arrays_of_objects_are_inputs() -> None:
    m = Model()
    jf = compiled(m.forward, X)
    for _ in range(5):
        m.w = m.w * 1.1
        m.parts = [m.parts[0] + 1.0]
        agree(jf, m.forward, X)
    assert jf.cache_info().traces == 1


class Decorated:
    """A class with a jitted method."""

    def __init__(self, w: Any) -> None:
        self.w = w

    @adarray.jit
    def forward(self, x: Any) -> Any:
        return x * self.w


def test_a_jitted_method() -> None:
    a, b = Decorated(np.ones(4)), Decorated(np.full(4, 2.0))
    for _ in range(4):
        agree(a.forward, lambda x: x, X)
        agree(b.forward, lambda x: x * 2.0, X)
    a.w = np.full(4, 3.0)
    b.w[:] = 4.0
    agree(a.forward, lambda x: x * 3.0, X)
    agree(b.forward, lambda x: x * 4.0, X)


@pytest.mark.usefixtures("_young_heap")
def test_jitted_methods_do_not_keep_objects_alive() -> None:
    a = Decorated(np.ones(4))
    for _ in range(4):
        a.forward(X)
    reference = weakref.ref(a)
    del a
    gc.collect()
    assert reference() is None


class Slots:
    """Attributes outside of a ``__dict__``."""

    __slots__ = ("k", "w")

    def __init__(self) -> None:
        self.w, self.k = np.ones(4), 2.0


@dataclasses.dataclass
class Settings:
    """Settings as a dataclass."""

    w: Any
    k: float = 2.0


@pytest.mark.parametrize("make", [Slots, lambda: Settings(np.ones(4)), lambda: space])
def test_kinds_of_objects(make: Any) -> None:
    obj = make()

    def f(x: Any) -> Any:
        return x * obj.w + obj.k

    jf = compiled(f, X)
    obj.w[1] = 4.0
    agree(jf, f, X)
    obj.w = np.full(4, 6.0)
    agree(jf, f, X)
    obj.k = 8.0
    agree(jf, f, X)
    obj = make()
    agree(jf, f, X)


def test_a_property_and_getattr() -> None:
    class Hidden:
        def __init__(self) -> None:
            self._w = np.ones(4)
            self.other = 2.0

        @property
        def w(self) -> Any:
            return self._w * getattr(self, "oth" + "er")

    obj = Hidden()

    def f(x: Any) -> Any:
        return x * obj.w

    jf = compiled(f, X)
    obj._w = np.full(4, 3.0)
    agree(jf, f, X)
    obj.other = 5.0
    agree(jf, f, X)


def test_a_module_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("parameters_of_the_user")
    module.w, module.k = np.ones(4), 2.0  # type: ignore[attr-defined]
    monkeypatch.setitem(globals(), "space", module)

    def f(x: Any) -> Any:
        return x * space.w * space.k

    jf = compiled(f, X)
    module.w[2] = 3.0  # type: ignore[attr-defined]
    agree(jf, f, X)
    module.w = np.full(4, 3.0)  # type: ignore[attr-defined]
    agree(jf, f, X)
    module.k = 1.0  # type: ignore[attr-defined]
    agree(jf, f, X)


def test_an_object_as_an_argument() -> None:
    def f(m: Any, x: Any) -> Any:
        return m.forward(x)

    m = Model()
    jf = compiled(f, m, X)
    for _ in changes(m):
        agree(jf, f, m, X)
    Model.offset, Model.shared = 1.0, np.ones(4)
    agree(jf, f, Model(), X)


def test_a_callback_as_an_argument() -> None:
    w = np.ones(4)

    def act(x: Any) -> Any:
        return x * w

    def f(g: Any, x: Any) -> Any:
        return g(x) + g(x)

    jf = compiled(f, act, X)
    w = np.full(4, 2.0)
    agree(jf, f, act, X)
    agree(jf, f, np.sin, X)
