"""`adarray.intercept` as a context: where it reaches, what it leaves, threads, imports."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import gc
import importlib
import inspect
import math
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.base.scope import SCOPE
from adarray.intercepting import rebinding
from adarray.intercepting.standins import FunctionStandIn, ModuleStandIn


def real(name: str) -> types.ModuleType:
    """Return a module itself: the names here are rebound, since this is a client too."""
    return sys.modules[name]


SOURCE = """
import numpy as np
import numpy
from numpy import array as make, exp
import numpy.linalg as la
import math
from math import sqrt

TABLE = np.array([1.0, 2.0, 3.0])

def pair(x):
    return make([x, exp(x)])

def filled(x):
    out = np.zeros(3)
    for i in range(3):
        out[i] = math.sin(x) * i
    return out.sum()

def coerced(x):
    return np.asarray(x, dtype=float) * 2.0
"""


def test_names_are_rebound_whatever_they_are_called(client) -> None:
    module = client("client_names", SOURCE)
    assert module.np is real("numpy")
    with adarray.intercept("client_names"):
        assert float(adarray.grad(module.filled)(0.3)) == pytest.approx(3 * math.cos(0.3))
    for name in ("np", "numpy", "la", "math"):
        assert isinstance(vars(module)[name], ModuleStandIn)
    assert module.np is module.numpy
    for name in ("make", "exp", "sqrt"):
        assert type(vars(module)[name]) is FunctionStandIn
    assert type(module.TABLE) is np.ndarray


def test_star_import(client) -> None:
    module = client(
        "client_star",
        "from numpy import *\nfrom math import erf as _e, *\n".replace(", *", "")
        + "def f(x):\n    return array([x, 2.0 * x]).sum() + zeros(2).dot(array([x, x]))\n",
    )
    assert adarray.grad(adarray.wrap(module.f))(1.5) == 3.0


def test_outside_raises_as_ever(client) -> None:
    module = client("client_outside", SOURCE)
    adarray.jacobian(adarray.wrap(module.pair))(0.5)
    with pytest.raises(adarray.TraceError):
        adarray.grad(lambda x: module.coerced(x), intercept=False)(1.0)
    assert type(module.pair(0.5)) is np.ndarray


def test_numpy_and_sys_modules_are_untouched(client) -> None:
    before = {n: id(v) for n, v in vars(real("numpy")).items()}
    listed = {n: id(m) for n, m in sys.modules.items()}
    module = client("client_untouched", SOURCE)
    with adarray.intercept():
        adarray.grad(module.filled)(0.3)
        assert {n: id(v) for n, v in vars(real("numpy")).items()} == before
        assert all(id(sys.modules[n]) == i for n, i in listed.items())
    assert real("math") is not module.math


def test_only_the_named_packages(client) -> None:
    one = client("client_one", SOURCE)
    two = client("client_two", SOURCE)
    with adarray.intercept(one):
        assert adarray.grad(one.filled, intercept=False)(0.3) == pytest.approx(3 * math.cos(0.3))
        with pytest.raises((adarray.TraceError, ValueError)):
            adarray.grad(two.filled, intercept=False)(0.3)
        with adarray.intercept("client_two"):  # both, now
            adarray.grad(two.filled, intercept=False)(0.3)
            adarray.grad(one.filled)(0.3)
        with pytest.raises((adarray.TraceError, ValueError)):
            adarray.grad(two.filled, intercept=False)(0.3)
    assert SCOPE.get() is None


def test_intercept_takes_names_and_modules() -> None:
    with pytest.raises(TypeError, match="intercept: expected names of packages or modules, got "
                       "int; pass for instance 'mypackage', or nothing for all"):  # fmt: skip
        adarray.intercept(3)  # type: ignore[arg-type]


def test_an_exception_inside_restores(client) -> None:
    module = client("client_raises", SOURCE)
    imports = builtins.__import__
    with adarray.intercept():
        assert builtins.__import__ is not imports
    with pytest.raises(ZeroDivisionError), adarray.intercept():
        1 / 0  # noqa: B018
    assert SCOPE.get() is None
    assert builtins.__import__ is imports
    with pytest.raises(TypeError):
        adarray.wrap(module.filled)()
    assert SCOPE.get() is None
    assert builtins.__import__ is imports


def test_a_context_can_be_entered_again() -> None:
    context = adarray.intercept()
    for _ in range(2):
        with context, context:
            assert SCOPE.get() is not None
        assert SCOPE.get() is None


def test_other_threads_are_outside(client) -> None:
    module = client("client_threads", SOURCE)
    seen = []
    with adarray.intercept():
        assert isinstance(module.pair(0.5), adarray.ADArray)
        thread = threading.Thread(target=lambda: seen.append(type(module.pair(0.5))))
        thread.start()
        thread.join()
        # A copy of the context takes it along.
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: seen.append(type(context.run(module.pair, 0.5))))
        thread.start()
        thread.join()
    assert seen == [np.ndarray, adarray.ADArray]


def test_threads_inside_and_outside_at_once(client) -> None:
    module = client("client_many", SOURCE)
    barrier, wrong = threading.Barrier(4), []

    def work(k: int) -> None:
        barrier.wait()
        for i in range(60):
            x = 0.1 * (i + 1)
            if k % 2:
                g = adarray.grad(adarray.wrap(module.filled))(x)
                if abs(g - 3 * math.cos(x)) > 1e-12:
                    wrong.append(g)
            elif type(module.pair(x)) is not np.ndarray or type(module.filled(x)) is not np.float64:
                wrong.append(type(module.pair(x)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_async_tasks_are_independent(client) -> None:
    module = client("client_async", SOURCE)

    async def inside() -> type:
        with adarray.intercept():
            await asyncio.sleep(0)
            return type(module.pair(0.1))

    async def outside() -> type:
        await asyncio.sleep(0)
        return type(module.pair(0.1))

    async def both() -> list[type]:
        return list(await asyncio.gather(inside(), outside()))

    assert asyncio.run(both()) == [adarray.ADArray, np.ndarray]


def test_a_generator_computes_where_it_is_resumed(client) -> None:
    module = client(
        "client_generator",
        SOURCE
        + """
def steps(x):
    while True:
        yield np.array([x, x])
""",
    )
    steps = module.steps(1.0)
    assert type(next(steps)) is np.ndarray
    with adarray.intercept():
        assert type(next(steps)) is adarray.ADArray
    assert type(next(steps)) is np.ndarray


def test_a_context_in_a_generator_lasts_until_it_is_left(client) -> None:
    def inside() -> Iterator[int]:
        with adarray.intercept():
            yield 1

    for _ in inside():
        assert SCOPE.get() is not None  # as every context variable: the caller sees it
    assert SCOPE.get() is None


def test_reload_is_rebound_again(client) -> None:
    module = client("client_reload", SOURCE)
    adarray.grad(adarray.wrap(module.filled))(0.3)
    importlib.reload(module)
    assert module.np is real("numpy")
    assert adarray.grad(adarray.wrap(module.filled))(0.3) == pytest.approx(3 * math.cos(0.3))
    importlib.reload(module)
    with adarray.intercept():
        adarray.grad(module.filled)(0.3)
        importlib.reload(module)
        # The body of a module runs outside, and its constants are plain.
        assert type(module.TABLE) is np.ndarray


def test_modules_imported_inside(client, tmp_path) -> None:
    module = client(
        "client_importer",
        """
import numpy as np

def f(x):
    import client_lazy
    assert type(client_lazy.TABLE) is np.ndarray or type(client_lazy.TABLE).__name__ == "ndarray"
    return client_lazy.filled(x)
""",
    )
    (tmp_path / "client_lazy.py").write_text(SOURCE)
    try:
        with adarray.intercept():
            assert adarray.grad(module.f)(0.3) == pytest.approx(3 * math.cos(0.3))
        lazy = sys.modules["client_lazy"]
        assert type(lazy.TABLE) is np.ndarray
        assert isinstance(lazy.np, ModuleStandIn)
    finally:
        sys.modules.pop("client_lazy", None)


LOCAL = """
def f(x):
    import numpy as np
    from math import exp
    import numpy.linalg as la
    from numpy import zeros as z
    buffer = z(2)
    buffer[0] = exp(x)
    return la.norm(np.array([x, 2.0])) + buffer.sum()

def module():
    import numpy
    return numpy
"""


def test_imports_in_functions(client) -> None:
    module = client("client_local", LOCAL)
    g = adarray.grad(adarray.wrap(module.f))(0.5)
    assert g == pytest.approx(0.5 / math.hypot(0.5, 2.0) + math.exp(0.5))
    assert module.module() is real("numpy")
    with adarray.intercept("another_package"):
        assert module.module() is real("numpy")
        import numpy

        assert numpy is real("numpy")


def test_defaults_closures_and_class_attributes(client) -> None:
    module = client(
        "client_captured",
        """
import functools
import numpy as np

def maker():
    xp = np
    def f(x):
        return xp.array([x, 1.0]).sum()
    return f

closed = maker()

def default(x, xp=np, *, make=np.array):
    return xp.zeros(1).dot(make([x])) + make([x, x]).sum()

class Model:
    xp = np
    make = staticmethod(np.array)
    def __init__(self, data):
        self.data = data
    def __call__(self, x):
        return self.xp.zeros(1).dot(self.make([x])) + self.make([x, x, x]).sum()
    @property
    def doubled(self):
        return float(self.data) * 2.0
    @functools.cached_property
    def tripled(self):
        return np.asarray(self.data).dot(3.0)
""",
    )
    assert adarray.grad(adarray.wrap(module.closed))(0.5) == 1.0
    assert adarray.grad(adarray.wrap(module.default))(0.5) == 2.0
    assert adarray.grad(adarray.wrap(module.Model(None)))(0.5) == 3.0
    assert module.default(0.5) == 1.0
    with adarray.intercept():
        assert adarray.grad(lambda x: module.Model(x).doubled)(0.5) == 2.0
        assert adarray.grad(lambda x: module.Model(x).tripled)(0.5) == 3.0
    assert list(inspect.signature(module.default).parameters) == ["x", "xp", "make"]


def test_cached_functions_keep_nothing_of_the_context(client) -> None:
    module = client(
        "client_cached",
        """
import functools
import numpy as np

calls = []

@functools.lru_cache(maxsize=8)
def nodes(n):
    calls.append(n)
    return np.linspace(0.0, 1.0, n)

class Rule:
    @functools.cache
    def weights(self, n):
        return np.full(n, 1.0 / n)

rule = Rule()

def integral(x):
    return sum(rule.weights(3)[i] * np.exp(x * nodes(3)[i]) for i in range(3))
""",
    )
    g = adarray.grad(adarray.wrap(module.integral))(0.3)
    assert g == pytest.approx((0.5 * math.exp(0.15) + math.exp(0.3)) / 3)
    assert module.calls == [3]
    assert module.nodes.cache_info().currsize == 1
    assert type(module.nodes(3)) is np.ndarray
    assert type(module.rule.weights(3)) is np.ndarray
    assert module.nodes.cache_info().currsize == 1
    assert module.nodes.__name__ == "nodes"
    module.nodes(3).fill(0.0)  # what is in the cache now is what the function returns
    module.rule.weights(3)[:] = 1.0
    assert adarray.grad(module.integral)(0.3) == 0.0


CAPTURED = """
import functools
import numpy as np

class Model:
    def __init__(self, w):
        self.w = w

    @functools.lru_cache
    def scaled(self, i):
        return self.w[i] * 2.0

    @functools.cache
    def row(self, i):
        return np.array([self.w[i], 1.0])

kept = Model(None)

def loss(w):
    kept.w = w
    model = Model(w)

    @functools.cache
    def fibonacci(n):
        return w[n] if n < 2 else fibonacci(n - 1) + fibonacci(n - 2) * w[0]

    return model.scaled(0) * kept.scaled(1) + np.sum(model.row(0)) + fibonacci(6)
"""


@pytest.mark.parametrize("transform", [adarray.grad, lambda f: adarray.jit(adarray.grad(f))])
def test_cached_functions_of_what_is_traced(client, transform) -> None:
    module = client("client_cached_traced", CAPTURED)
    g = transform(module.loss)

    def value(w: np.ndarray) -> float:
        module.Model.scaled.cache_clear()  # the plain function would remember the last arguments
        value = module.loss(w)
        module.Model.scaled.cache_clear()
        return value

    for w in ([1.0, 2.0], [3.0, 2.0], [1.0, 2.0], [0.5, 1.0]):
        steps = 1e-6 * np.eye(2)
        expected = [(value(np.add(w, h)) - value(np.subtract(w, h))) / 2e-6 for h in steps]
        w = np.array(w)
        np.testing.assert_allclose(g(w), expected, rtol=1e-7)
        assert module.Model.scaled.cache_info().currsize == 0


def test_lazy_and_strange_modules_are_left_alone(client) -> None:
    class Angry(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

    class Proxy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise AssertionError

        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    sys.modules["client_angry"] = Angry("client_angry")
    sys.modules["client_none"] = None  # type: ignore[assignment]
    module = client("client_proxy", SOURCE)
    module.proxy = Proxy()
    try:
        with adarray.intercept():
            assert adarray.grad(module.filled)(0.3) == pytest.approx(3 * math.cos(0.3))
    finally:
        del sys.modules["client_angry"], sys.modules["client_none"]


class Collector:
    """The module `gc`, which counts how often the whole heap was searched."""

    def __init__(self) -> None:
        self.searches = 0

    def get_referrers(self, *objects: object) -> list[Any]:
        self.searches += 1
        return gc.get_referrers(*objects)


def test_the_heap_is_searched_for_functions_that_no_name_leads_to(client, monkeypatch) -> None:
    collector = Collector()
    with adarray.intercept():
        pass
    monkeypatch.setattr(rebinding, "gc", collector)
    named = client(
        "client_named",
        """
import dataclasses
import functools
def f(x):
    return float(x) * 2.0
class Pair:
    def g(self, x):
        return float(x) * 3.0
    @property
    def h(self):
        return self.g
@functools.lru_cache
def cached(n):
    return n
@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0
def assigns(x):
    global last
    last = x
""",
    )
    with adarray.intercept():
        assert adarray.grad(lambda x: named.f(x) + named.Pair().h(x))(1.5) == 5.0
    assert collector.searches == 0
    table: list[Any] = []
    monkeypatch.setattr(math, "_table", table, raising=False)  # no name of a client's
    client(
        "client_tabled",
        "import math\ndef f(x):\n    return float(x) * 7.0\nmath._table.append(f)\ndel f\n",
    )
    with adarray.intercept():
        assert collector.searches == 1
        assert adarray.grad(lambda x: table[0](x))(1.5) == 7.0


def test_entering_is_cheap(client) -> None:
    import time

    module = client("client_cheap", SOURCE)
    run = adarray.wrap(module.coerced)
    x = adarray.array(1.0)
    run(x)
    start = time.perf_counter()
    for _ in range(100):
        run(x)
    assert time.perf_counter() - start < 0.5


def test_globals_that_functions_assign(client) -> None:
    module = client(
        "client_assigned",
        """
import numpy as np

make = None

def f(x):
    global make
    if make is None:
        from numpy import array as make
    return make([x, x]).sum()

def g(x):
    return np.array([x]).sum()
""",
    )
    assert adarray.grad(adarray.wrap(module.g))(1.0) == 1.0  # the module is rebound by now
    assert module.f(1.0) == 2.0
    assert module.make is np.array
    assert adarray.grad(adarray.wrap(module.f))(1.0) == 2.0
    with adarray.intercept():
        assert adarray.grad(module.f)(1.0) == 2.0


def test_names_that_a_script_binds_between_calls() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "adarray": adarray}
    exec(
        "import numpy as np\n"
        "def f(x):\n    y = np.zeros(1)\n    y[0] = scaled(x)\n    return y[0]\n"
        "def scaled(x): return x * rate\n"
        "g = adarray.grad(f, intercept=True)\nrate = 2.0\n",
        space,
    )
    assert space["g"](1.0) == 2.0
    for step in range(3):  # data alone
        space["step"], space["rate"] = step, 3.0 + step
        assert space["g"](1.0) == 3.0 + step
    exec("from math import exp as scaled", space)  # what is rebound
    assert space["g"](1.0) == np.exp(1.0)
    exec("def scaled(x): return float(x) * 5.0", space)  # what is looked into
    assert space["g"](1.0) == 5.0
    exec("def double(x): return 2 * x\nfloat = double", space)  # what hides a builtin
    assert space["g"](1.0) == 10.0
    del space["float"]
    assert space["g"](1.0) == 5.0
    space["float"] = 3.0
    with pytest.raises(TypeError, match="not callable"):
        space["g"](1.0)
