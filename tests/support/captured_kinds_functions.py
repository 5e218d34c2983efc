"""Functions that read other functions, and what is found by names in text; see `captured_kinds`.

For tests of captured state.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import Any

import numpy as np
from captured_kinds import Made, X, kind, sets, written

# -- functions ---------------------------------------------------------------------------------


@kind
def code_and_defaults() -> Made:
    def helper(x: Any, a: Any = 2.0, *, b: Any = 3.0) -> Any:
        return x * a + b

    def other(x: Any, a: Any = 2.0, *, b: Any = 3.0) -> Any:
        return x - a - b

    return (lambda x: helper(x)), [
        *sets(helper, __defaults__=(5.0,)),
        *sets(helper, __kwdefaults__={"b": 7.0}),
        *sets(helper, __code__=other.__code__),
    ]


@kind
def defaults_that_are_written() -> Made:
    def helper(x: Any, table: Any = [2.0, 3.0]) -> Any:  # noqa: B006
        return x * table[0] + len(table)

    table = helper.__defaults__[0]  # type: ignore[index]
    return (lambda x: helper(x)), [lambda: table.__setitem__(0, 5.0), lambda: table.append(1.0)]


@kind
def cells_of_a_closure() -> Made:
    k: Any = 2.0

    def put(v: Any) -> None:
        nonlocal k
        k = v

    return (lambda x: x * k), [lambda: put(3.0), lambda: put(4.0), lambda: put(X * 1)]


@kind
def counters_in_a_closure() -> Made:
    k = 0

    def f(x: Any) -> Any:
        nonlocal k
        k += 1
        return x * k

    return f, []


@kind
def attributes_of_functions() -> Made:
    def helper(x: Any) -> Any:
        return x * helper.k  # type: ignore[attr-defined]

    helper.k = 2.0  # type: ignore[attr-defined]
    return (lambda x: helper(x)), [*sets(helper, k=3.0), *sets(helper, k=X * 1)]


@kind
def partial_functions() -> Made:
    table = [2.0, X * 1]
    p: Any = functools.partial(lambda t, x, k=1.0: x * t[0] + t[1] * k, table, k=3.0)
    return (lambda x: p(x)), [
        lambda: table.__setitem__(0, 5.0),
        lambda: p.keywords.update(k=7.0),
        lambda: table[1].fill(1.0),  # type: ignore[attr-defined]
    ]


@kind
def dispatch_by_methods() -> Made:
    class Owner:
        k: Any = 2.0

        @functools.singledispatchmethod
        def m(self, n: Any) -> Any:
            return self.k

        @m.register
        def _(self, n: int) -> Any:
            return self.k * 2

    owner = Owner()
    return (lambda x: x * owner.m(1)), [*sets(owner, k=3.0), *sets(Owner, k=9.0)]


@kind
def cached_methods() -> Made:
    class Owner:
        @functools.lru_cache  # noqa: B019
        def m(self, n: int) -> Any:
            return np.full(4, 2.0 * n)

    owner = Owner()

    def f(x: Any) -> Any:
        return x * owner.m(2)

    return f, [lambda: owner.m(2).fill(5.0), Owner.m.cache_clear]


@kind
def results_of_caches() -> Made:
    space = written("""
@functools.lru_cache
def buffer(): return np.ones(4)
def f(x):
    b = buffer()
    b += 1.0
    return x * b
""")
    return space["f"], [lambda: space["buffer"]().fill(9.0), space["buffer"].cache_clear]


@kind
def results_of_caches_that_are_read() -> Made:
    space = written("""
@functools.lru_cache
def table(): return {"k": [2.0]}
def f(x): return x * table()["k"][0]
""")
    return space["f"], [lambda: space["table"]()["k"].__setitem__(0, 5.0)]


# -- names and text ----------------------------------------------------------------------------


@kind
def names_in_eval() -> Made:
    space = written("def f(x): return eval('x * k + n.v')", k=2.0)
    space["n"] = types.SimpleNamespace(v=1.0)
    return space["f"], [*sets(space, k=3.0), *sets(space["n"], v=5.0)]


@kind
def code_in_a_text() -> Made:
    space = written("def f(x): return eval(text)", k=2.0, text="x * k")
    return space["f"], [*sets(space, k=3.0), *sets(space, text="x - k")]


@kind
def attributes_in_formats() -> Made:
    space = written("def f(x): return x * float('{0.v}'.format(n)) + len(f'{n.t}')")
    space["n"] = types.SimpleNamespace(v=1.0, t="a")
    return space["f"], [*sets(space["n"], v=5.0), *sets(space["n"], t="abc")]


@kind
def names_of_attributes_that_are_captured() -> Made:
    n: Any = types.SimpleNamespace(a=2.0, b=3.0)
    space = written("def f(x): return x * getattr(n, which)", n=n, which="a")
    return space["f"], [*sets(n, a=5.0), *sets(space, which="b"), *sets(n, b=7.0)]


@kind
def globals_by_a_name_that_is_captured() -> Made:
    space = written("def f(x): return x * globals()[which]", k=2.0, j=3.0, which="k")
    return space["f"], [*sets(space, k=5.0), *sets(space, which="j"), *sets(space, j=7.0)]


@kind
def names_that_are_deleted() -> Made:
    space = written("def f(x): return x * k", k=2.0)
    return space["f"], [lambda: space.pop("k"), *sets(space, k=3.0)]


@kind
def builtins_that_are_hidden() -> Made:
    space = written("def f(x): return x * len([1.0, 2.0]) + abs(-2.0)")
    return space["f"], [*sets(space, len=lambda x: 7.0), *sets(space, abs=lambda x: x)]


@kind
def imports_inside_of_the_function() -> Made:
    import sys

    module: Any = types.ModuleType("adarray_tests_of_the_user")
    sys.modules["adarray_tests_of_the_user"] = module
    module.k = 2.0
    space = written("""
def f(x):
    from adarray_tests_of_the_user import k
    return x * k
""")

    def changed(v: Any) -> Any:
        return lambda: setattr(sys.modules["adarray_tests_of_the_user"], "k", v)

    return space["f"], [changed(3.0), changed(X * 1)]


@kind
def getters_of_items() -> Made:
    get, table = operator.itemgetter("a"), {"a": 2.0}
    call = operator.methodcaller("get", "b", 1.0)
    return (lambda x: x * get(table) + call(table)), [*sets(table, a=3.0, b=5.0)]
