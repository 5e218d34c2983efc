"""Generators that a function captures, makes or reaches as NumPy's global stream."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
import adarray.numpy as anp
from adarray.jitting import JitWarning
from adarray.jitting.shared.generators import Draws, state_of
from adarray.testing._ops import use_all_sizes

X = np.linspace(0.5, 2.0, 6)

Made = tuple[Callable[[Any], Any], Any]


def same_state(a: Any, b: Any) -> bool:
    """Whether two generators are in one state."""
    return repr(state_of(a)) == repr(state_of(b))


# Each returns a function and the generator that it captures.


def closure() -> Made:
    rng = np.random.default_rng(3)
    return lambda x: x * rng.normal(size=6) + rng.uniform(), rng


def legacy() -> Made:
    rng = np.random.RandomState(3)
    return lambda x: x * rng.normal(size=6) + rng.normal(), rng


def attribute() -> Made:
    class Model:
        def __init__(self) -> None:
            self.rng = np.random.default_rng(1)
            self.w = np.ones(6)

        def noise(self) -> Any:
            return self.rng.normal(size=6)

        def __call__(self, x: Any) -> Any:
            return np.sum(x * self.w + self.noise())

    model = Model()
    return model, model.rng


def bound_method() -> Made:
    rng = np.random.default_rng(3)
    normal = rng.normal
    return lambda x: x * normal(size=6), rng


def partial() -> Made:
    rng = np.random.default_rng(3)
    noise = functools.partial(rng.normal, size=6)
    return lambda x: x * noise(), rng


def default_argument() -> Made:
    rng = np.random.default_rng(3)

    def f(x: Any, random: Any = rng) -> Any:
        random = np.random.default_rng(random)
        assert isinstance(random, np.random.Generator)
        return x * random.normal(size=6)

    return f, rng


def nested_jit() -> Made:
    rng = np.random.default_rng(3)
    inner = adarray.jit(lambda x: x * rng.normal(size=6))
    return lambda x: inner(x) + inner(2 * x), rng


def rejection() -> Made:
    rng = np.random.default_rng(3)

    def f(x: Any) -> Any:
        for n in range(6):
            y = x * rng.normal(size=6)
            if np.sum(y) > 0.0:
                return np.sum(np.sin(y)) + n
        return 0.0

    return f, rng


def metropolis() -> Made:
    rng = np.random.default_rng(3)

    def f(x: Any) -> Any:
        accepted = 0
        for _ in range(4):
            y = x + 0.5 * rng.normal(size=6)
            if np.log(rng.random()) < 0.5 * (np.sum(x * x) - np.sum(y * y)):
                x = y
                accepted += 1
        return x, accepted

    return f, rng


def orders() -> Made:
    rng = np.random.default_rng(3)

    def f(x: Any) -> Any:
        y, m = x.copy(), x.reshape(3, 2)
        rng.shuffle(y)
        z = m.copy()
        rng.shuffle(z)
        rng.shuffle(z, axis=1)
        picked = rng.choice(m, 2, axis=1, replace=False)
        some = rng.choice(x, 4), rng.choice(6), rng.choice([1.0, 2.0], p=[0.3, 0.7])
        order = rng.permutation(6)
        return y, z, picked, *some, x[order], rng.permutation(x), rng.permutation(m, axis=1)

    return f, rng


def outputs() -> Made:
    rng = np.random.default_rng(3)

    def f(x: Any) -> Any:
        a, b, c = np.empty(6), np.empty(6, np.float32), x.copy()
        rng.random(out=a)
        rng.standard_normal(None, np.float32, b)
        rng.permuted(c, out=c)
        rng.standard_gamma(2.0, out=x[:3].copy())
        return a, b, c, rng.permuted(x.reshape(2, 3), axis=1)

    return f, rng


def kinds() -> Made:
    rng = np.random.default_rng(3)

    def f(x: Any) -> Any:
        return (
            rng.integers(0, 9, size=3), rng.poisson(x[0] + 1.0), rng.multinomial(10, [0.5, 0.5]),
            rng.multivariate_normal(np.zeros(2), np.eye(2) * x[1]), rng.normal(x, 0.1),
            x[rng.integers(6)], rng.standard_normal(3, dtype=np.float32),
        )  # fmt: skip

    return f, rng


CAPTURED = [closure, legacy, attribute, bound_method, partial, default_argument, nested_jit,
            rejection, metropolis, orders, outputs, kinds]  # fmt: skip


def compare(got: Any, expected: Any) -> None:
    if not isinstance(expected, tuple):
        got, expected = (got,), (expected,)
    for a, b in zip(got, expected, strict=True):
        assert np.result_type(a) == np.result_type(b)
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("make", CAPTURED, ids=lambda f: f.__name__)
def test_captured(make: Callable[[], Made], backend: str) -> None:
    (f, ours), (g, theirs) = make(), make()
    with use_all_sizes(backend), warnings.catch_warnings():
        warnings.simplefilter("error", JitWarning)
        jitted = adarray.jit(f)
        for k in range(10):
            x = X * (1 + 0.1 * (k % 3))
            compare(jitted(x), g(x))
            assert same_state(ours, theirs)
        assert jitted.cache_info().eager == 0
        assert jitted.cache_info().traces < 10


def loss(rng: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        y = np.sin(x) * rng.normal(size=6)
        return np.sum(y if rng.random() < 0.5 else y * y)

    return f


TRANSFORMED = {
    "jit of gradient": lambda f: adarray.jit(adarray.value_and_grad(f)),
    "gradient of jit": lambda f: adarray.value_and_grad(adarray.jit(f)),
    "jit of gradient of jit": lambda f: adarray.jit(adarray.value_and_grad(adarray.jit(f))),
}


@pytest.mark.parametrize("how", TRANSFORMED)
def test_gradients(how: str, backend: str) -> None:
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    expected = adarray.value_and_grad(loss(theirs))
    with use_all_sizes(backend):
        jitted = TRANSFORMED[how](loss(ours))
        for k in range(8):
            (v, g), (v2, g2) = jitted(X + k), expected(X + k)
            np.testing.assert_allclose(v, v2, rtol=1e-12)
            np.testing.assert_allclose(g, g2, rtol=1e-12)
            assert same_state(ours, theirs)


def test_gradients_of_a_function_that_is_compiled_already() -> None:
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    jitted, plain = adarray.jit(loss(ours)), loss(theirs)
    for k in range(12):
        if k % 3:
            compare(jitted(X + k), plain(X + k))
        else:
            got, expected = (adarray.grad(f)(X + k) for f in (jitted, plain))
            np.testing.assert_allclose(got, expected, rtol=1e-12)
        assert same_state(ours, theirs)


def test_errors_in_mid_way(backend: str) -> None:
    """What was drawn before the error stays drawn, once."""

    def made() -> Made:
        rng = np.random.default_rng(3)

        def f(x: Any) -> Any:
            y = x * rng.normal(size=6)
            if y[0] > 0.7:
                raise ValueError("too large")
            return np.linalg.cholesky(np.eye(2) * y[1]) + rng.random()

        return f, rng

    (f, ours), (g, theirs) = made(), made()
    jitted = adarray.jit(f)

    def outcome(h: Callable[[Any], Any]) -> Any:
        try:
            return h(X)
        except (ValueError, np.linalg.LinAlgError) as error:
            return type(error)

    with use_all_sizes(backend):
        seen = []
        for _ in range(40):
            got, expected = outcome(jitted), outcome(g)
            seen.append(expected if isinstance(expected, type) else np.ndarray)
            if isinstance(expected, type):
                assert got is expected
            else:
                np.testing.assert_allclose(got, expected, rtol=1e-12)
            assert same_state(ours, theirs)
    assert set(seen) == {ValueError, np.linalg.LinAlgError, np.ndarray}


def test_another_generator_takes_the_place() -> None:
    rng = np.random.default_rng(0)

    def f(x: Any) -> Any:
        return x * rng.normal(size=6), rng

    jitted = adarray.jit(f)
    for k in range(6):
        rng, twin = np.random.default_rng(k), np.random.default_rng(k)
        got, same = jitted(X)
        assert same is rng
        np.testing.assert_array_equal(got, X * twin.normal(size=6))
        assert same_state(rng, twin)
    assert jitted.cache_info().traces == 2


def test_generators_of_adarray_stay_smooth() -> None:
    """The derivative of a draw by its parameters is recorded too."""
    ours, theirs = anp.random.default_rng(0), anp.random.default_rng(0)

    def made(rng: Any) -> Callable[[float], Any]:
        return adarray.value_and_grad(lambda s: anp.sum(rng.normal(1.0, s, size=6)))

    jitted, plain = adarray.jit(made(ours)), made(theirs)
    for k in range(5):
        np.testing.assert_allclose(jitted(1.0 + k), plain(1.0 + k), rtol=1e-12)
        assert same_state(ours._raw, theirs._raw)
    assert jitted.cache_info().traces == 2


def test_derivatives_by_parameters_of_draws_are_refused() -> None:
    """As without `jit`: NumPy's own generator does not know of derivatives."""
    f = adarray.value_and_grad(lambda m, rng: rng.normal(m, 1.0))
    for _ in range(3):
        with pytest.raises(adarray.errors.TraceError, match=r"loc \+ scale"):
            adarray.jit(f)(0.5, np.random.default_rng(0))


def seeded(x: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return x * rng.normal(size=6) + rng.random()


def test_seeds_as_arguments(backend: str) -> None:
    """An int that has had several values is an input: the generator is made in every call."""
    with use_all_sizes(backend), warnings.catch_warnings():
        warnings.simplefilter("error", JitWarning)
        jitted = adarray.jit(seeded)
        for seed in (0, 1, 2, 3, 4, 5, 6, 7, 2, 3, 90, 91):
            np.testing.assert_array_equal(jitted(X, seed), seeded(X, seed))
        assert jitted.cache_info().traces < 9


def test_unseeded_generators() -> None:
    jitted = adarray.jit(lambda x: x * np.random.default_rng().normal(size=6))
    assert len({jitted(X).tobytes() for _ in range(6)}) == 6
    assert jitted.cache_info().traces == 2


# -- NumPy's global stream -----------------------------------------------------------------


def normals(x: Any) -> Any:
    return x * np.random.normal(size=6) + np.random.rand()  # noqa: NPY002


def reseeded(x: Any) -> Any:
    np.random.seed(4)  # noqa: NPY002
    return x * np.random.normal(size=6)  # noqa: NPY002


def many(x: Any) -> Any:
    y = x.copy()
    np.random.shuffle(y)  # noqa: NPY002
    y = y + np.random.randint(0, 5) + np.random.permutation(6)  # noqa: NPY002
    return y * np.random.choice([1.0, 2.0, 3.0])  # noqa: NPY002


def branching(x: Any) -> Any:
    if np.random.rand() > 0.5:  # noqa: NPY002
        return x
    return np.random.standard_normal() * x  # noqa: NPY002


@pytest.mark.parametrize("f", [normals, reseeded, many, branching], ids=lambda f: f.__name__)
def test_the_global_stream(f: Callable[[Any], Any], backend: str) -> None:
    before = np.random.get_state()  # noqa: NPY002
    with use_all_sizes(backend), warnings.catch_warnings():
        warnings.simplefilter("error", JitWarning)
        jitted = adarray.jit(f)
        runs = []
        for g in (jitted, f):
            np.random.seed(5)  # noqa: NPY002
            runs.append(([g(X + k) for k in range(8)], np.random.random()))  # noqa: NPY002
    np.random.set_state(before)  # noqa: NPY002
    (ours, one), (theirs, other) = runs
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert one == other
    assert jitted.cache_info().traces < 8


def scipy_draws(x: Any) -> Any:
    from scipy import stats

    return x * stats.gamma(2.0, scale=3.0).rvs(size=6) + stats.expon.rvs() + stats.norm.pdf(x)


def test_draws_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    jitted = adarray.jit(lambda x: x * stats.norm.rvs(size=6, random_state=rng))
    for _ in range(5):
        expected = X * stats.norm.rvs(size=6, random_state=twin)
        np.testing.assert_array_equal(jitted(X), expected)
    assert jitted.cache_info().traces == 2
    jitted, runs = adarray.jit(scipy_draws), []
    for g in (jitted, scipy_draws):
        np.random.seed(5)  # noqa: NPY002
        runs.append([g(X) for _ in range(5)])
    np.testing.assert_allclose(*runs, rtol=1e-13)
    assert jitted.cache_info().traces == 2


# -- threads, and what stays eager --------------------------------------------------------


def test_threads_draw_no_number_twice() -> None:
    rng = np.random.default_rng(0)

    def f(x: Any) -> Any:
        v = rng.random()
        if v < 0.3:
            return x[0] * 0 + v
        return v + x[1] * 0 if v < 0.6 else x[2] * 0 + v * 1.0

    jitted, seen = adarray.jit(f), []

    def work() -> None:
        seen.extend([float(jitted(X)) for _ in range(100)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(seen)) == 400
    assert jitted.cache_info().eager == 0


def test_draws_that_another_thread_has_followed_are_not_taken_back() -> None:
    rng = np.random.default_rng(0)
    draws = Draws()
    start = rng.bit_generator.state
    draws.note(rng, "random", (), {})
    rng.random()
    draws.undo()
    assert rng.bit_generator.state == start
    draws.note(rng, "normal", (), {"size": 3})
    rng.normal(size=3)
    rng.random()  # somebody else's
    later = rng.bit_generator.state
    draws.undo()
    assert rng.bit_generator.state == later


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x, rng: x * rng.spawn(1)[0].random(), "spawn in front of the jitted function"),
        (lambda x, rng: x * rng.bit_generator.random_raw(), "outside of the jitted function"),
        (lambda x, rng: (rng.shuffle([1, 2]), x)[1], "shuffle an array of positions"),
        (lambda x, rng: x * len(rng.bytes(3)), "returned a bytes"),
    ],
)
def test_other_uses_stay_eager(f: Callable[..., Any], why: str) -> None:
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    jitted = adarray.jit(f)
    with pytest.warns(JitWarning, match=why):
        got = [jitted(X, rng)]
    got += [jitted(X, rng) for _ in range(3)]
    np.testing.assert_array_equal(got, [f(X, twin) for _ in range(4)])
    assert same_state(rng, twin)


def test_checked_calls_draw_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    jitted = adarray.jit(lambda x: x * rng.normal(size=6))
    for _ in range(4):
        np.testing.assert_array_equal(jitted(X), X * twin.normal(size=6))
