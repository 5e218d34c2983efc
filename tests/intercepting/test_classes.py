"""Classes that client code calls, looks at and derives from, beside and inside of transforms."""

from __future__ import annotations

import functools
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from numpy import vectorize

import adarray
from adarray.errors import TraceError

SOURCE = """
import functools
import numpy as np
from numpy import float32, vectorize
DT = np.float64
kinds = [float, DT]

class Meta(type):
    pass

class Strict:
    "Takes classes as other libraries do: by identity."
    known = {float: "d", np.float64: "d", complex: "D"}
    def __init__(self, dtype):
        self.code = next(c for k, c in self.known.items() if k is dtype)

@functools.singledispatch
def kind_of(x):
    return "other"

@kind_of.register
def _(x: float):
    return "float"

def loss(x):
    return DT(x) * float(x) + complex(x).real

def beside(v):
    class X(float, metaclass=Meta):
        pass
    def matched(u):
        match u:
            case float():
                return "float"
            case int():
                return "int"
        return "none"
    def default(dtype=float, other=DT):
        return dtype is float, other is DT
    return (
        type(v) is float, type(v) is DT, type(v) == DT, float is DT, {float: 1, DT: 2}.get(type(v)),
        {float: str, DT: repr, int: abs, float32: str}[type(v)](v),
        Strict(float).code, Strict(dtype=DT).code,
        type(X) is Meta, X(2.5) + 1, X.__mro__[1] is float, float in kinds, DT in (float, DT),
        kinds[0] is float, id(float) == id(kinds[0]), matched(v), kind_of(v), default(),
        float.__name__, DT.__name__, float32(v), float32.__name__, issubclass(DT, float),
        isinstance(v, float), float("1.5"), float.fromhex("0x1p1"), type("Y", (), {}).__module__,
        np.dtype(float), np.dtype(DT), np.zeros(1, dtype=DT).dtype, list(map(float, ("1", "2"))),
        type(v).__name__, type(type(v)) is type, sorted(map(str, kinds)), DT(3).dtype,
    )

def names():
    return sorted(globals())
"""


def calls(module: Any) -> list[Any]:
    return [module.beside(v) for v in (1.5, np.float64(2.5), 3, np.float32(0.5))]


def test_other_functions_mean_the_classes_themselves(client: Any) -> None:
    plain = client("client_classes_plain", SOURCE)
    expected = repr(calls(plain)).replace("_plain", "")
    module = client("client_classes", SOURCE)
    names = plain.names()
    seen: list[str] = []

    def during(x: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append(repr(calls(module))))
        thread.start()
        thread.join()
        seen.append(repr(calls(module)))
        return module.loss(x)

    assert repr(calls(module)) == expected
    for transform in (
        adarray.wrap,
        lambda f: lambda x: adarray.grad(f, intercept=True)(x),
        adarray.jit,
        lambda f: adarray.jit(adarray.grad(f)),
    ):
        transform(module.loss)(1.5)
        assert repr(calls(module)) == expected
        with adarray.intercept("client_classes"):
            assert adarray.grad(during)(1.5) == 4.0
        assert repr(calls(module)) == expected
    assert seen == [expected] * len(seen)
    assert module.names() == [n.replace("_plain", "") for n in names]
    assert pickle.loads(pickle.dumps(module.DT)) is np.float64


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("jit", [False, True])
def test_type_answers_as_in_a_plain_run(client: Any, jit: bool, intercept: bool) -> None:
    module = client(
        f"client_type_{jit}_{intercept}",
        """
import builtins
import numpy as np
kind = type

class Model:
    def scaled(self, v):
        return 3.0 * v if type(v) is np.ndarray else v

def doubled(v):
    return 2.0 * v if type(v) == np.float64 else 0.0 * v

model = Model()
TABLE = {np.ndarray: lambda v: np.sum(v * v), float: lambda v: v}

def of_arrays(x):
    assert type(x) in (list, np.ndarray)
    assert type(x).__name__ == "ndarray" and kind(x) is np.ndarray
    assert builtins.type(1.0) is float and type(1) is int and type([]) is list
    assert type("Made", (), {}).__module__ == __name__
    return np.sum(model.scaled(x)) + doubled(x[0]) + TABLE[type(x)](x)

def of_numbers(v):
    return (lambda u: 5.0 * u if type(u) is float else 0.0 * u)(v)
""",
    )
    x = np.array([1.0, 2.0])

    def transformed(f: Any) -> Any:
        g = adarray.grad(f, intercept=intercept)
        return adarray.jit(g) if jit else g

    for _ in range(2):
        assert transformed(module.of_arrays)(x).tolist() == [7.0, 7.0]
        assert transformed(module.of_numbers)(1.5) == 5.0
        assert module.of_arrays(x) == 16.0
        assert module.of_numbers(1.5) == 7.5
        assert module.of_numbers(np.float64(1.5)) == 0.0


def test_type_of_what_knows_adarray(client: Any) -> None:
    module = client(
        "client_knowing",
        """
import adarray
def f(x):
    assert type(x) is adarray.ADArray
    return x * x
def g(x):
    return type(x).__name__
""",
    )
    assert adarray.grad(module.f)(1.5) == 3.0
    assert adarray.grad(lambda x: x * len(module.g(x)))(1.5) == 5.0  # "float"
    assert module.g(adarray.array(1.0)) == "ADArray"  # outside of a transform


def test_helpers_that_are_bound_anew(client: Any) -> None:
    module = client(
        "client_anew",
        "import numpy as np\n"
        "def helper(x):\n    return x * 2.0\n"
        "def f(x):\n    return np.sum(helper(x))\n",
    )
    x = np.array([1.0, 2.0])
    g = adarray.grad(module.f)
    assert g(x).tolist() == [2.0, 2.0]
    exec(
        "def helper(x):\n    return x * 3.0 if type(x) is np.ndarray else x * 0.0\n",
        module.__dict__,
    )
    assert g(x).tolist() == [3.0, 3.0]


def test_functions_in_tables_and_closures(client: Any) -> None:
    module = client(
        "client_tables",
        """
import numpy as np
def maker():
    return lambda v: float(v) * 2.0
TABLE = {"a": lambda v: float(v) * 3.0, "b": [maker()]}
class Holder:
    pass
holder = Holder()
holder.f = maker()
def f(x):
    return TABLE["a"](x) + TABLE["b"][0](x) + holder.f(x)
""",
    )
    assert adarray.grad(adarray.wrap(module.f))(1.5) == 7.0
    assert adarray.grad(module.f, intercept=True)(1.5) == 7.0


def test_functions_made_by_a_frame_that_runs() -> None:
    def helper(v: Any) -> Any:
        return float(v) * 2.0

    with adarray.intercept():
        assert adarray.grad(lambda x: helper(x) * float(x))(1.5) == 6.0
        assert adarray.grad(lambda x: sum(map(float, [x, x])))(1.5) == 2.0


def test_objects_that_are_called_hold_functions_of_their_own(client: Any) -> None:
    module = client(
        "client_callables",
        """
import functools
class Called:
    def __init__(self, f):
        self.f = f
    def __call__(self, x):
        return self.f(x)
    def method(self, x):
        return self.f(x)
def one(x):
    return 2.0 * x if type(x) is float else x
def maker(k):
    return lambda x: k * x if type(x) is float else x
def two(k, x):
    return k * x if type(x) is float else x
""",
    )
    called, maker = module.Called, module.maker
    assert adarray.grad(called(module.one))(1.0) == 2.0
    for k in (3.0, 4.0):
        f = maker(k)
        assert adarray.grad(called(f))(1.0) == k
        assert adarray.grad(called(maker(k)).method)(1.0) == k
        assert adarray.grad(adarray.jit(f))(1.0) == k
        assert adarray.grad(functools.partial(module.two, k))(1.0) == k
        assert adarray.grad(lambda x, k=k: maker(k)(x))(1.0) == k


def test_functions_made_in_a_loop(client: Any) -> None:
    source = """
def helper(x):
    return 2.0 * x
def made(grad):
    return [grad(lambda x: helper(x) * (3.0 if type(x) is float else 1.0))(1.0) for _ in range(3)]
"""
    module = client("client_loop", source)
    assert module.made(adarray.grad) == [6.0] * 3
    exec("def helper(x):\n    return 5.0 * x if type(x) is float else x\n", module.__dict__)
    assert module.made(adarray.grad) == [15.0] * 3


def test_functions_and_modules_are_themselves_outside(client: Any) -> None:
    source = """
import math, sys, types
import numpy as np
from math import sqrt
from numpy import exp, array as make
def looks():
    return (
        np is sys.modules["numpy"], exp is np.exp, sqrt is math.sqrt, type(exp) is np.ufunc,
        type(np) is types.ModuleType, type(sqrt).__name__, make is np.array, make([1.0]).tolist(),
        exp, {exp: 1}[np.exp], (lambda f=None: exp)() is np.exp,
    )
def f(x):
    known = {sqrt: 2.0, exp: 3.0}
    return known[math.sqrt] * sqrt(x) + list(map(exp, [x]))[0] * (type(exp) is np.ufunc)
"""
    module = client("client_themselves", source)
    expected = module.looks()
    g = adarray.grad(module.f, intercept=True)(4.0)
    assert g == pytest.approx(0.5 + np.exp(4.0))
    assert module.looks() == expected
    assert all(x is True for x in expected[:5])
    assert type(module.looks()[8]) is np.ufunc
    with adarray.intercept():
        threads: list[Any] = []
        thread = threading.Thread(target=lambda: threads.append(module.looks()))
        thread.start()
        thread.join()
    assert threads == [expected]


def test_classes_that_decorate() -> None:
    def f(x: Any) -> Any:
        scale = 2.0

        @np.vectorize
        def sine(v: Any) -> Any:
            return scale * math.sin(v)

        @vectorize
        def square(v: Any) -> Any:
            return v * v if v > 0.2 else math.sqrt(v)

        return sine(x).sum() + square(x).sum()

    x = np.array([0.1, 0.4, 0.3])
    expected = 2 * np.cos(x) + np.where(x > 0.2, 2 * x, 0.5 / np.sqrt(x))
    np.testing.assert_allclose(adarray.grad(f)(x), expected)


def test_nditer_refuses_what_it_cannot_follow() -> None:
    """NumPy's own error spoke of objects that cannot be written back to."""

    def writes(x):
        y = x * 2.0
        for v in np.nditer(y, op_flags=["readwrite"]):
            v[...] = v * 2
        return np.sum(y)

    def reads(x):
        weights = np.array([3.0, 5.0])
        return sum(float(w) * x[i] for i, w in enumerate(np.nditer(weights)))

    x = np.array([0.5, 1.5])
    with pytest.raises(TraceError, match=r"np\.nditer: a traced value would leave .*x\.flat"):
        adarray.grad(writes)(x)
    np.testing.assert_array_equal(adarray.grad(reads)(x), [3.0, 5.0])
    with pytest.warns(adarray.JitWarning, match="np.nditer"):
        assert adarray.jit(writes)(x) == 8.0
