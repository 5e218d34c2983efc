"""Functions that read state of many kinds, each with changes of that state.

For tests of captured state, and for the table in the documentation.
"""

from __future__ import annotations

import array
import collections
import contextvars
import functools
import operator
import os
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

X = np.linspace(0.5, 2.0, 4)
Change = Callable[[], Any]
Made = tuple[Callable[..., Any], list[Change]]
KINDS: dict[str, Callable[[], Made]] = {}


def kind(make: Callable[[], Made]) -> Callable[[], Made]:
    KINDS[make.__name__] = make
    return make


def written(source: str, **names: Any) -> dict[str, Any]:
    """Return the globals of a module of the user's with this text."""
    space: dict[str, Any] = {"np": np, "functools": functools, "__name__": "of_the_user", **names}
    exec(source, space)  # our own text
    return space


def sets(target: Any, **values: Any) -> list[Change]:
    """Return one change for each value: of an attribute, or of an entry of a dictionary."""
    if isinstance(target, dict):
        return [functools.partial(target.__setitem__, k, v) for k, v in values.items()]
    return [functools.partial(setattr, target, k, v) for k, v in values.items()]


# -- what is not there at first ----------------------------------------------------------------


@kind
def attributes_that_hide_others() -> Made:
    class Base:
        w: Any = 2.0

        def m(self, x: Any) -> Any:
            return x * self.w

    class Derived(Base):
        pass

    d = Derived()
    return (lambda x: d.m(x) * Derived.w), [
        *sets(Base, w=3.0),
        *sets(Derived, w=4.0),
        *sets(d, w=X, m=lambda x: x - 1),
        lambda: delattr(d, "w"),
        lambda: delattr(d, "m"),
        lambda: delattr(Derived, "w"),
        *sets(Base, w=X, m=lambda self, x: x + self.w),
    ]


@kind
def attributes_that_appear() -> Made:
    class Plain:
        pass

    class Slots:
        __slots__ = ("s",)

    p, q = Plain(), Slots()

    def f(x: Any) -> Any:
        return x * getattr(p, "k", 1.0) + hasattr(p, "z") + getattr(q, "s", 0.5)

    return f, [*sets(p, k=3.0, z=0), *sets(q, s=X), lambda: delattr(p, "k"), *sets(Plain, k=9.0)]


@kind
def names_that_appear() -> Made:
    space = written("""
def f(x):
    try:
        return x * later + max(2.0, 3.0)
    except NameError:
        return x * max(2.0, 3.0)
""")
    changes = [*sets(space, later=3.0, max=lambda a, b: a), *sets(space, later=X)]
    return space["f"], [*changes, lambda: space.pop("max"), lambda: space.pop("later")]


@kind
def names_in_text() -> Made:
    space = written("def f(x): return x * globals()['k'] + vars(n)['a']", k=2.0)
    space["n"] = types.SimpleNamespace(a=1.0)
    return space["f"], [*sets(space, k=3.0), *sets(space["n"], a=X), *sets(space, k=X)]


# -- containers and wrappers -------------------------------------------------------------------


@kind
def mappings_of_mappings() -> Made:
    inner: dict[str, Any] = {"a": 2.0}
    proxy = types.MappingProxyType(inner)
    chain = collections.ChainMap({"u": 1.0}, {"v": 2.0})
    user = collections.UserDict(b=1.5)

    def f(x: Any) -> Any:
        return x * proxy["a"] + chain["v"] * user["b"]

    return f, [
        *sets(inner, a=X),
        lambda: chain.__setitem__("v", 5.0),
        lambda: chain.maps[0].clear(),
        lambda: user.__setitem__("b", X),
    ]


@kind
def weak_mappings() -> Made:
    class Key:
        pass

    key = Key()
    table: Any = weakref.WeakKeyDictionary({key: 2.0})
    return (lambda x: x * table[key]), [
        lambda: table.__setitem__(key, 3.0),
        lambda: table.__setitem__(key, X),
    ]


@kind
def arrays_of_other_kinds() -> Made:
    numbers = array.array("d", [1.0, 2.0, 3.0, 4.0])
    data = bytearray(b"\x01\x02\x03\x04")

    def f(x: Any) -> Any:
        return x * np.frombuffer(data, np.uint8) + np.asarray(numbers) + numbers[1]

    return f, [lambda: numbers.__setitem__(1, 7.0), lambda: data.__setitem__(0, 9)]


@kind
def looks_at_memory() -> Made:
    table = np.zeros(2, [("a", "f8")])
    element, memory = table[1], memoryview(bytearray(b"\x01\x02\x03\x04"))

    def f(x: Any) -> Any:
        return x * element["a"] + np.frombuffer(memory, np.uint8)

    return f, [
        lambda: table.__setitem__(1, (3.0,)),
        lambda: element.__setitem__("a", 5.0),
        lambda: memory.__setitem__(0, 9),
    ]


@kind
def flags_of_an_array() -> Made:
    w = np.arange(4.0)
    return (lambda x: x * w + w.flags.writeable), [lambda: w.setflags(write=False)]


# -- places that belong to a context, a thread, a process ---------------------------------------


@kind
def context_variables() -> Made:
    variable: Any = contextvars.ContextVar("variable", default=2.0)
    return (lambda x: x * variable.get()), [
        lambda: variable.set(3.0),
        lambda: variable.set(X),
        lambda: variable.set(X * 2),
    ]


@kind
def of_a_thread() -> Made:
    local: Any = threading.local()
    local.k = 2.0
    return (lambda x: x * local.k), sets(local, k=3.0) + sets(local, k=X)


@kind
def of_the_process() -> Made:
    os.environ["ADARRAY_TEST_KINDS"] = "2.0"

    def f(x: Any) -> Any:
        return x * float(os.environ["ADARRAY_TEST_KINDS"])

    return f, [lambda: os.environ.__setitem__("ADARRAY_TEST_KINDS", "3.0")]


# -- functions behind others --------------------------------------------------------------------


@kind
def cached_functions() -> Made:
    space = written(
        """
@functools.cache
def h(n): return w * n
@functools.lru_cache(maxsize=4)
def g(n): return k * n
def f(x): return x * h(2) + g(1)
""",
        w=X * 1,
        k=2.0,
    )
    return space["f"], [
        lambda: (space.__setitem__("w", X * 3), space["h"].cache_clear()),
        lambda: (space["w"].__imul__(2), space["h"].cache_clear()),
        lambda: (space.__setitem__("k", 5.0), space["g"].cache_clear()),
    ]


@kind
def dispatched_functions() -> Made:
    space = written(
        """
@functools.singledispatch
def h(x): return x * k
@h.register(int)
def _(x): return x * j
def f(x): return x * h(1.0) + h(2)
""",
        k=2.0,
        j=3.0,
    )
    register = functools.partial(space["h"].register, float, lambda x: 7.0)
    return space["f"], [*sets(space, k=3.0, j=X), register]


@kind
def decorated_by_a_library() -> Made:
    space = written(
        """
import contextlib
@contextlib.contextmanager
def h():
    yield k
def f(x):
    with h() as scale:
        return x * scale
""",
        k=2.0,
    )
    change = [*sets(space, k=3.0), *sets(space, k=X * 1)]
    return space["f"], [*change, lambda: space["k"].__setitem__(0, 9.0)]


@kind
def partial_methods() -> Made:
    class Owner:
        k: Any = 2.0

        def m(self, x: Any, y: float) -> Any:
            return x * y * self.k

        h = functools.partialmethod(m, y=3.0)

    owner: Any = Owner()
    return (lambda x: owner.h(x)), [*sets(Owner, k=3.0), *sets(owner, k=X)]


@kind
def getters() -> Made:
    get = operator.attrgetter("z")
    space = types.SimpleNamespace(z=1.0)
    return (lambda x: x * get(space)), [*sets(space, z=5.0), *sets(space, z=X)]


@kind
def metaclasses() -> Made:
    class Meta(type):
        k: Any = 2.0

    class Owner(metaclass=Meta):
        pass

    return (lambda x: x * Owner.k), [*sets(Meta, k=3.0), *sets(Owner, k=X)]
