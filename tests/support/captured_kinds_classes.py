"""Functions that read objects and functions of the user's; see `captured_kinds`.

For tests of captured state.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import types
from typing import Any, NamedTuple

import numpy as np
from captured_kinds import Made, X, kind, sets, written

# -- what is derived from builtin classes ------------------------------------------------------


@kind
def attributes_of_numbers() -> Made:
    class Scale(float):
        k: Any = 2.0

    class Count(int):
        k: Any = 2.0

    class Name(str):
        k: Any = 2.0

    scale, count, name = Scale(2.0), Count(3), Name("a")

    def f(x: Any) -> Any:
        return x * scale * scale.k + count * count.k + name.k

    return f, [*sets(scale, k=3.0), *sets(count, k=5.0), *sets(name, k=7.0), *sets(Count, k=1.0)]


@kind
def values_of_derived_numbers() -> Made:
    class Scale(float):
        pass

    n = types.SimpleNamespace(v=Scale(2.0))
    return (lambda x: x * n.v), [*sets(n, v=Scale(3.0)), *sets(n, v=3.0), *sets(n, v=Scale(4.0))]


@kind
def attributes_of_derived_arrays() -> Made:
    class Field(np.ndarray):
        k: Any = 2.0

    w: Any = np.arange(4.0).view(Field)
    return (lambda x: x * w.k), [*sets(w, k=3.0), *sets(w, k=X * 1), lambda: w.k.fill(5.0)]


@kind
def members_of_enumerations() -> Made:
    class Mode(enum.Enum):
        A = 1.0
        B = 2.0

    n = types.SimpleNamespace(mode=Mode.A)
    Mode.A.w = 2.0  # type: ignore[attr-defined]
    Mode.B.w = 5.0  # type: ignore[attr-defined]

    def f(x: Any) -> Any:
        return x * n.mode.w + n.mode.value + (n.mode is Mode.B)

    return f, [*sets(Mode.A, w=3.0), *sets(n, mode=Mode.B), *sets(Mode.B, w=7.0)]


@kind
def flags_of_enumerations() -> Made:
    class Options(enum.IntFlag):
        A = 1
        B = 2

    n = types.SimpleNamespace(o=Options.A)
    return (lambda x: x * (Options.B in n.o) + n.o), [
        *sets(n, o=Options.A | Options.B),
        *sets(n, o=Options.B),
    ]


@kind
def lists_of_a_class() -> Made:
    class Items(list):  # type: ignore[type-arg]
        k: Any = 1.0

    items = Items([2.0, X * 1])
    return (lambda x: x * items[0] + items[1] + items.k), [
        lambda: items.__setitem__(0, 5.0),
        lambda: items[1].fill(2.0),
        *sets(items, k=9.0),
        lambda: items.__setitem__(1, X * 3),
    ]


@kind
def dictionaries_of_a_class() -> Made:
    class Table(dict):  # type: ignore[type-arg]
        k: Any = 1.0

        def __missing__(self, key: Any) -> Any:
            return 7.0

    table = Table(a=2.0)
    return (lambda x: x * table["a"] + table["b"] + table.k), [
        *sets(table, a=5.0, b=2.0),
        lambda: setattr(table, "k", 9.0),
        lambda: table.pop("b"),
    ]


@kind
def sets_of_a_class() -> Made:
    class Group(set):  # type: ignore[type-arg]
        k: Any = 1.0

    group = Group([2.0])
    return (lambda x: x * sum(group) + group.k), [lambda: group.add(5.0), *sets(group, k=3.0)]


@kind
def queues_of_a_class() -> Made:
    class Recent(collections.deque):  # type: ignore[type-arg]
        k: Any = 1.0

    recent = Recent([2.0])
    return (lambda x: x * recent[0] + recent.k), [
        lambda: recent.appendleft(5.0),
        *sets(recent, k=3.0),
    ]


@kind
def errors_of_a_class() -> Made:
    class TroubleError(ValueError):
        pass

    trouble = TroubleError(2.0)
    return (lambda x: x * trouble.args[0]), sets(trouble, args=(3.0,))


@kind
def named_tuples() -> Made:
    class Pair(NamedTuple):
        a: Any
        b: Any

        def total(self) -> Any:
            return self.a + self.b * space["k"]

    space = {"k": 1.0}
    n = types.SimpleNamespace(p=Pair(1.0, X * 1))
    return (lambda x: x * n.p.total()), [
        *sets(space, k=3.0),
        lambda: n.p.b.fill(2.0),
        *sets(n, p=Pair(4.0, 5.0)),
    ]


# -- classes -----------------------------------------------------------------------------------


@kind
def classes_that_swap_names() -> Made:
    class Base:
        k = 2.0

    class Derived(Base):
        other = 1.0

    d = Derived()

    def swap() -> None:
        del Derived.other
        Derived.k = 5.0  # type: ignore[misc]

    return (lambda x: x * d.k), [swap, *sets(Base, k=9.0), lambda: delattr(Derived, "k")]


@kind
def attributes_that_are_asked_for() -> Made:
    class Plain:
        pass

    def helper() -> None:
        pass

    module = types.ModuleType("of_the_user_again")

    def f(x: Any) -> Any:
        a = getattr(Plain, "k", 1.0) + getattr(helper, "k", 1.0) + getattr(module, "k", 1.0)
        return x * a

    return f, [*sets(Plain, k=2.0), *sets(helper, k=3.0), *sets(module, k=5.0)]


@kind
def attributes_that_are_tried() -> Made:
    def helper() -> None:
        pass

    def f(x: Any) -> Any:
        try:
            return x * helper.k  # type: ignore[attr-defined]
        except AttributeError:
            return x

    return f, [*sets(helper, k=3.0), *sets(helper, k=X * 1)]


@kind
def patterns() -> Made:
    space = written("""
class Point:
    __match_args__ = ("u", "v")
    def __init__(self, u, v):
        self.u, self.v = u, v
def f(x):
    match p:
        case Point(a, 0.0):
            return x * a
        case Point(v=b):
            return x - b
""")
    space["p"] = p = space["Point"](2.0, 0.0)
    return space["f"], [*sets(p, u=3.0), *sets(p, v=1.0), *sets(p, v=7.0)]


@kind
def patterns_of_attributes() -> Made:
    space = written("""
class Box:
    pass
p = Box()
p.size = 2.0
def f(x):
    match p:
        case Box(size=2.0):
            return x
        case Box(size=s):
            return x * s
""")
    return space["f"], [*sets(space["p"], size=3.0), *sets(space["p"], size=5.0)]


@kind
def classes_that_are_registered() -> Made:
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Box:
        pass

    box = Box()
    return (lambda x: x * (2.0 if isinstance(box, Shape) else 3.0)), [lambda: Shape.register(Box)]


@kind
def descriptors() -> Made:
    class Field:
        def __init__(self, v: Any) -> None:
            self.v = v

        def __get__(self, obj: Any, cls: Any = None) -> Any:
            return self.v * cls.scale

    class Owner:
        scale: Any = 1.0
        w = Field(2.0)

    owner = Owner()
    field = Owner.__dict__["w"]
    return (lambda x: x * owner.w), [*sets(field, v=3.0), *sets(Owner, scale=5.0)]


@kind
def attributes_made_on_demand() -> Made:
    class Lazy:
        def __init__(self) -> None:
            self.table: dict[str, Any] = {"w": 2.0}

        def __getattr__(self, name: str) -> Any:
            try:
                return self.__dict__["table"][name]
            except KeyError:
                raise AttributeError(name) from None

    lazy = Lazy()
    return (lambda x: x * lazy.w), [*sets(lazy.table, w=3.0), *sets(lazy, w=5.0)]


@kind
def modules_that_make_attributes() -> Made:
    module: Any = types.ModuleType("lazy_of_the_user")
    table = {"w": 2.0}
    module.__getattr__ = lambda name: table[name]
    return (lambda x: x * module.w), [*sets(table, w=3.0), *sets(module, w=5.0)]


@kind
def cached_properties() -> Made:
    class Owner:
        k = 2.0

        @functools.cached_property
        def w(self) -> Any:
            return self.k * 2.0

    owner = Owner()
    return (lambda x: x * owner.w), [
        *sets(owner, k=3.0),
        lambda: owner.__dict__.pop("w", None),
        *sets(owner, w=9.0),
    ]


@kind
def slots_of_dataclasses() -> Made:
    @dataclasses.dataclass(slots=True)
    class Settings:
        w: Any
        k: Any = 2.0

    s = Settings(X * 1)
    return (lambda x: x * s.w + s.k), [
        lambda: s.w.fill(2.0),
        *sets(s, k=5.0),
        *sets(s, k=6.0),
        *sets(s, w=X * 3, k=X * 1),
    ]


@kind
def frozen_dataclasses() -> Made:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Settings:
        w: Any
        k: Any = 2.0

    n = types.SimpleNamespace(s=Settings(X * 1))
    return (lambda x: x * n.s.w + n.s.k), [
        lambda: n.s.w.fill(2.0),
        *sets(n, s=Settings(X * 2, 3.0)),
    ]


@kind
def class_attributes_of_bases_and_instances() -> Made:
    class Base:
        table: Any = X * 1

    class Derived(Base):
        def get(self) -> Any:
            return super().__getattribute__("table")

    d = Derived()
    return (lambda x: x * d.get() + Derived.table), [
        lambda: Base.table.fill(3.0),
        *sets(Derived, table=X * 5),
    ]
