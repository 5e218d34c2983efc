"""No stale constants: whatever a jitted function reads besides its arguments may change."""

from __future__ import annotations

import dataclasses
import functools
import gc
import random
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jit import JitWarning

X = np.linspace(0.5, 2.0, 4)

# What the functions below read, and what the tests change.
weights = np.arange(4.0)
scale = 2.0
count = 3
mode = "plain"
table: dict[str, Any] = {"w": np.ones(4), "k": 2.0}
layers: list[Any] = [np.ones(4), np.full(4, 2.0)]
pair: tuple[Any, ...] = (np.ones(4), 3.0)
space = types.SimpleNamespace(w=np.ones(4), k=1.0)
log: list[Any] = []
state = np.zeros(4)
total = 0.0


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend, and put back what it changed."""
    saved = {k: v for k, v in globals().items() if k in _CHANGED}
    fresh = {
        "weights": np.arange(4.0), "table": {"w": np.ones(4), "k": 2.0}, "log": [],
        "layers": [np.ones(4), np.full(4, 2.0)], "pair": (np.ones(4), 3.0),
        "space": types.SimpleNamespace(w=np.ones(4), k=1.0), "state": np.zeros(4),
    }  # fmt: skip
    globals().update(fresh)
    with adarray.use(backend):
        yield
    globals().update(saved)


_CHANGED = ("weights", "scale", "count", "mode", "table", "layers", "pair", "space", "log",
            "state", "total")  # fmt: skip


def agree(jf: Any, f: Callable[..., Any], *args: Any) -> None:
    """Check that a jitted function does what the plain one does."""
    got, expected = jf(*args), f(*args)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def compiled(f: Callable[..., Any], *args: Any) -> Any:
    """Return `f` jitted and called until it is compiled."""
    jf = adarray.jit(f)
    for _ in range(3):
        agree(jf, f, *args)
    info = jf.cache_info()
    assert info.eager == 0
    assert info.compiled > 0
    assert info.traces == 2
    return jf


# -- globals -----------------------------------------------------------------------------


def reads_weights(x: Any) -> Any:
    return x * weights + np.sum(weights)


def helper(x: Any) -> Any:
    return x * scale + weights


def calls_helper(x: Any) -> Any:
    return helper(x) * 2.0


def test_a_global_array_changed_in_place() -> None:
    jf = compiled(reads_weights, X)
    weights[2] = 100.0
    agree(jf, reads_weights, X)
    weights[:] = -1.0
    agree(jf, reads_weights, X)
    assert jf.cache_info().traces == 2  # an input: nothing is recorded again


def test_a_global_array_replaced() -> None:
    global weights
    jf = compiled(reads_weights, X)
    weights = np.full(4, 7.0)
    agree(jf, reads_weights, X)
    assert jf.cache_info().traces == 2
    weights = np.full(4, 7, dtype=np.float32)  # of another signature
    agree(jf, reads_weights, X)
    assert jf(X).dtype == np.float64
    weights = np.ones((3, 4))
    agree(jf, reads_weights, X)
    assert jf(X).shape == (3, 4)
    weights = np.ones((4, 6))[:, ::2].T
    agree(jf, reads_weights, X)


def test_a_global_array_reshaped_in_place() -> None:
    global weights
    weights = np.arange(8.0).reshape(2, 4)
    jf = compiled(reads_weights, X)
    weights.shape = (1, 8)
    weights = weights[:, :4]
    agree(jf, reads_weights, X)


def test_a_global_number_changes_and_becomes_an_input() -> None:
    global scale
    jf = compiled(calls_helper, X)
    for scale in (3.0, 4.0, 5.0, 6.0, 7.0, 8.0):  # noqa: B007  (a global)
        agree(jf, calls_helper, X)
    assert jf.cache_info().traces == 4
    scale = 2.0
    agree(jf, calls_helper, X)


def test_a_global_number_that_python_looks_at() -> None:
    global scale

    def f(x: Any) -> Any:
        return x if scale > 4.0 else -x

    jf = compiled(f, X)
    for scale in (3.0, 5.0, 3.5, 6.0, 2.0, 9.0, 1.0):  # noqa: B007
        agree(jf, f, X)


def test_a_global_number_changes_type() -> None:
    global scale
    jf = compiled(calls_helper, X.astype(np.float32))
    scale = np.float64(2.0)  # no longer weak
    agree(jf, calls_helper, X.astype(np.float32))
    scale = 2
    agree(jf, calls_helper, X.astype(np.float32))


def test_a_global_int_used_as_a_length() -> None:
    global count

    def f(x: Any) -> Any:
        for _ in range(count):
            x = x * 1.5
        return x

    jf = compiled(f, X)
    for count in (5, 2, 5, 7, 1, 9):  # noqa: B007
        agree(jf, f, X)


def test_global_text_chooses() -> None:
    global mode

    def f(x: Any) -> Any:
        return np.sin(x) if mode == "plain" else np.cos(x)

    jf = compiled(f, X)
    mode = "other"
    agree(jf, f, X)
    agree(jf, f, X)
    agree(jf, f, X)
    mode = "plain"
    agree(jf, f, X)
    assert jf.cache_info().traces == 4


def test_a_helper_replaced() -> None:
    global helper
    jf = compiled(calls_helper, X)
    before = helper
    try:
        helper = np.negative
        agree(jf, calls_helper, X)
        helper = before
        agree(jf, calls_helper, X)
    finally:
        helper = before


def test_what_a_helper_reads_is_seen() -> None:
    global weights
    jf = compiled(calls_helper, X)
    weights = weights + 1.0
    agree(jf, calls_helper, X)


# -- closures and defaults ---------------------------------------------------------------


def test_closure_cells() -> None:
    w, k = np.ones(4), 2.0

    def f(x: Any) -> Any:
        return x * w + k

    jf = compiled(f, X)
    w[1] = 5.0
    agree(jf, f, X)
    w = np.full(4, 3.0)
    agree(jf, f, X)
    for k in (4.0, 5.0, 6.0, 7.0):  # noqa: B007  (in the closure)
        agree(jf, f, X)
    assert jf.cache_info().traces == 4


def test_a_function_in_a_closure() -> None:
    def make(w: Any) -> Any:
        return lambda x: x * w

    inner = make(np.ones(4))

    def f(x: Any) -> Any:
        return inner(x)

    jf = compiled(f, X)
    inner = make(np.full(4, 9.0))
    agree(jf, f, X)


def test_defaults() -> None:
    def f(x: Any, w: Any = np.ones(4), *, k: float = 2.0) -> Any:  # noqa: B008
        return x * w + k

    jf = compiled(f, X)
    f.__defaults__[0][2] = 8.0  # type: ignore[index]
    agree(jf, f, X)
    f.__defaults__ = (np.full(4, 4.0),)
    agree(jf, f, X)
    f.__kwdefaults__["k"] = 11.0
    agree(jf, f, X)


def test_partials() -> None:
    w = np.ones(4)
    f = functools.partial(lambda a, x, b=1.0: a * x + b, w, b=2.0)
    jf = compiled(f, X)
    w[0] = 12.0
    agree(jf, f, X)
    f.keywords["b"] = 7.0
    agree(jf, f, X)


# -- containers --------------------------------------------------------------------------


def test_dict_entries() -> None:
    def f(x: Any) -> Any:
        return x * table["w"] * table["k"]

    jf = compiled(f, X)
    table["w"][3] = 6.0
    agree(jf, f, X)
    table["w"] = np.full(4, 2.5)
    agree(jf, f, X)
    table["k"] = 10.0
    agree(jf, f, X)
    table["new"] = 1
    agree(jf, f, X)


def test_a_dict_replaced_as_by_an_optimiser() -> None:
    global table

    def f(x: Any) -> Any:
        return x * table["w"]

    jf = compiled(f, X)
    for i in range(5):
        table = {"w": table["w"] * (0.5 + i), "k": 2.0}
        agree(jf, f, X)
    assert jf.cache_info().traces == 2


def test_lists_and_tuples() -> None:
    global pair

    def f(x: Any) -> Any:
        for w in layers:
            x = np.tanh(x * w)
        return x + pair[0] * pair[1]

    jf = compiled(f, X)
    layers[0] = layers[0] * 2.0
    agree(jf, f, X)
    layers.append(np.full(4, 0.1))
    agree(jf, f, X)
    del layers[0]
    agree(jf, f, X)
    pair = (np.zeros(4), 3.0)
    agree(jf, f, X)
    pair = (np.ones(4), 4.0)
    agree(jf, f, X)


def test_a_function_found_in_a_table() -> None:
    choices = {"a": np.sin, "b": np.cos}
    key = "a"

    def f(x: Any) -> Any:
        return choices[key](x)

    jf = compiled(f, X)
    key = "b"
    agree(jf, f, X)
    choices["b"] = np.exp
    agree(jf, f, X)


# -- objects -----------------------------------------------------------------------------


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
    assert jf.cache_info().traces == 2


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


def test_jitted_methods_do_not_keep_objects_alive() -> None:
    a = Decorated(np.ones(4))
    for _ in range(4):
        a.forward(X)
    gone = weakref.ref(a)
    del a
    gc.collect()
    assert gone() is None


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


# -- plain code that reads captured arrays -----------------------------------------------


def test_plain_code_on_captured_arrays() -> None:
    """It is recorded as well: arrays are inputs wherever they are read."""
    global weights

    def f(x: Any) -> Any:
        centred = weights - weights.mean()
        return x * centred / weights.std() + float(weights[0]) + len(weights[weights > 1.0])

    jf = compiled(f, X)
    weights[0] = 3.0
    agree(jf, f, X)
    weights[:] = [5.0, 4.0, 3.0, 2.0]
    agree(jf, f, X)
    weights = np.array([0.1, 0.2, 0.3, 7.0])
    agree(jf, f, X)


def test_branches_on_captured_arrays() -> None:
    def f(x: Any) -> Any:
        return x if weights[0] > 1.0 else -x

    jf = compiled(f, X)
    weights[0] = 5.0
    agree(jf, f, X)
    weights[0] = 0.0
    agree(jf, f, X)


def test_class_attributes_read_by_plain_code() -> None:
    class Holder:
        table = np.arange(4.0)

    def f(x: Any) -> Any:
        return x if Holder.table.sum() > 10.0 else x * Holder.table

    jf = compiled(f, X)
    Holder.table[0] = 50.0
    agree(jf, f, X)
    Holder.table = np.zeros(4)
    agree(jf, f, X)


def test_big_arrays_behind_a_class_are_compared_whole() -> None:
    class Holder:
        table = np.zeros(200_001)

    def f(x: Any) -> Any:
        return x + Holder.table.sum()

    jf = compiled(f, X)
    for at in (0, 77_777, 200_000):
        Holder.table[at] += 1.0
        agree(jf, f, X)


# -- what the function changes -----------------------------------------------------------


def test_a_counter_is_kept() -> None:
    calls = 0

    def f(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * calls

    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="changes what it captured"):
        np.testing.assert_array_equal(jf(X), X)
    for i in range(2, 6):
        np.testing.assert_array_equal(jf(X), X * i)
    assert calls == 5


def test_an_appended_list_is_kept() -> None:
    def f(x: Any) -> Any:
        log.append(np.sum(x))
        return x * 2.0

    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="changes what it captured"):
        jf(X)
    for _ in range(3):
        jf(X)
    assert log == [X.sum()] * 4
    assert all(type(v) is np.float64 for v in log)


def test_state_in_attributes_is_kept() -> None:
    class Cell:
        def __init__(self) -> None:
            self.h = np.zeros(4)

        def step(self, x: Any) -> Any:
            self.h = np.tanh(self.h + x)
            return self.h

    one, two = Cell(), Cell()
    jf = adarray.jit(one.step)
    with pytest.warns(JitWarning, match="changes what it captured"):
        jf(X)
    two.step(X)
    for _ in range(4):
        np.testing.assert_array_equal(jf(X), two.step(X))
    assert type(one.h) is np.ndarray


def test_a_global_rebound_is_kept() -> None:
    def f(x: Any) -> Any:
        global total
        total = total + np.sum(x)
        return x * 2.0

    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="changes what it captured"):
        jf(X)
    jf(X)
    jf(X)
    assert total == pytest.approx(3 * X.sum())


def test_writes_into_captured_arrays_compile() -> None:
    def f(x: Any) -> Any:
        state[1:] += x[1:]
        return state * 2.0

    jf = adarray.jit(f)
    expected = np.zeros(4)
    for i in range(5):
        expected[1:] += X[1:] + i
        np.testing.assert_allclose(jf(X + i), expected * 2.0)
        np.testing.assert_allclose(state, expected)
    assert jf.cache_info().traces == 2


# -- randomness --------------------------------------------------------------------------


def test_a_captured_generator_stays_eager() -> None:
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    jf = adarray.jit(lambda x: x + rng.normal(size=4))
    with pytest.warns(JitWarning, match=r"draws from the random generator rng.*as an argument"):
        first = jf(X)
    for got in (first, jf(X), jf(X), jf(X)):
        np.testing.assert_array_equal(got, X + twin.normal(size=4))


def test_global_random_states_stay_eager() -> None:
    jf = adarray.jit(lambda x: x + np.random.random(4))  # noqa: NPY002
    with pytest.warns(JitWarning, match="random state of NumPy"):
        draws = [jf(X)]
    draws += [jf(X) for _ in range(3)]
    assert len({d.tobytes() for d in draws}) == 4
    jf = adarray.jit(lambda x: x * random.random())
    with pytest.warns(JitWarning, match="random state of Python"):
        draws = [jf(X)]
    draws += [jf(X) for _ in range(3)]
    assert len({d.tobytes() for d in draws}) == 4


def test_values_from_nowhere_stay_eager() -> None:
    """Two runs that differ, and nothing that was captured explains it."""
    source = iter(range(1, 100))
    jf = adarray.jit(lambda x: x * next(source))
    got = [jf(X) for _ in range(3)]
    with pytest.warns(JitWarning, match="two runs on the same signature"):
        got.append(jf(X))
    got += [jf(X) for _ in range(3)]
    for i, value in enumerate(got, 1):
        np.testing.assert_array_equal(value, X * i)


def test_what_keeps_changing_stays_eager() -> None:
    global mode

    def f(x: Any) -> Any:
        return x * len(mode)

    jf = adarray.jit(f)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i in range(12):
            mode = "a" * (i + 1)
            agree(jf, f, X)
    assert [w.category for w in said] == [JitWarning]
    assert "keeps changing" in str(said[0].message)
    agree(jf, f, X)


def test_captured_leaves_of_backward_stay_eager() -> None:
    w = adarray.array(np.ones(4), requires_grad=True)
    jf = adarray.jit(lambda x: np.sum(w * x))
    with pytest.warns(JitWarning, match="requires_grad"):
        y = jf(X)
    y.backward()
    np.testing.assert_array_equal(w.grad, X)


def test_captured_adarrays_are_inputs() -> None:
    w = adarray.array(np.ones(4))

    def f(x: Any) -> Any:
        return x * w

    jf = adarray.jit(f)
    for i in range(5):
        w[1] = float(i)
        np.testing.assert_array_equal(np.asarray(jf(X)), X * w.numpy())
    assert jf.cache_info().traces == 2
