"""`adarray.numpy.random`: NumPy's streams, and draws that are smooth in their parameters."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import adarray
import adarray.numpy as np
from adarray import ADArray
from adarray.testing import check_grads

SEEDED = {
    "Generator": (np.random.default_rng, numpy.random.default_rng),
    "RandomState": (np.random.RandomState, numpy.random.RandomState),
}
# Location, scale, power: NumPy's own formula of a parameter-free draw.
FORMULA = {
    "normal": (0.3, 1.2), "uniform": (0.2, 1.7), "lognormal": (0.1, 0.4), "laplace": (0.3, 1.2),
    "logistic": (0.3, 1.2), "gumbel": (0.3, 1.2), "exponential": (1.3,), "rayleigh": (1.3,),
    "weibull": (1.7,), "pareto": (2.2,), "power": (2.1,), "triangular": (0.1, 0.5, 2.0),
}  # fmt: skip
# Quantiles at fixed probability.
IMPLICIT = {
    "standard_gamma": (1.7,), "gamma": (0.8, 2.0), "chisquare": (3.1,), "beta": (1.2, 2.3),
    "f": (4.0, 7.0), "standard_t": (5.0,),
}  # fmt: skip
PLAIN = {
    "random": (), "standard_normal": (), "standard_exponential": (), "standard_cauchy": (),
    "poisson": (3.0,), "binomial": (5, 0.3), "geometric": (0.4,), "vonmises": (0.3, 1.2),
    "wald": (1.0, 2.0), "zipf": (3.0,), "dirichlet": ([1.0, 2.0, 0.5],), "permutation": (6,),
    "noncentral_chisquare": (3.0, 1.0), "multinomial": (5, [0.2, 0.8]), "choice": (5,),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(SEEDED))
@pytest.mark.parametrize("size", [None, 4, (2, 3)])
@pytest.mark.parametrize("name", sorted({**FORMULA, **IMPLICIT, **PLAIN}))
def test_plain_parameters_draw_numpys_numbers(name: str, size: Any, kind: str) -> None:
    ours, theirs = SEEDED[kind]
    args = {**FORMULA, **IMPLICIT, **PLAIN}[name]
    kwargs = {} if name == "permutation" else {"size": size}
    r = getattr(ours(3), name)(*args, **kwargs)
    wanted = getattr(theirs(3), name)(*args, **kwargs)
    assert isinstance(r, ADArray) == isinstance(wanted, (numpy.ndarray, numpy.generic))
    numpy.testing.assert_array_equal(r, wanted)


def _draws(kind: str, name: str, size: Any, seen: list[Any]) -> Callable[..., Any]:
    def draw(*parameters: Any) -> Any:
        r = getattr(SEEDED[kind][0](3), name)(*parameters, size=size)
        seen.append(numpy.array(adarray.value_of(r)))
        return r * 1.0

    return draw


@pytest.mark.parametrize("kind", sorted(SEEDED))
@pytest.mark.parametrize("size", [None, (2, 3)])
@pytest.mark.parametrize("name", sorted(FORMULA))
def test_traced_parameters_draw_the_same_numbers_smoothly(name: str, size: Any, kind: str) -> None:
    seen: list[Any] = []
    check_grads(_draws(kind, name, size, seen), FORMULA[name])
    wanted = getattr(SEEDED[kind][1](3), name)(*FORMULA[name], size=size)
    numpy.testing.assert_allclose(seen[0], wanted, rtol=1e-14)


def test_parameters_broadcast() -> None:
    loc, scale = numpy.array([[0.5], [1.0]]), numpy.array([1.0, 2.0, 3.0])

    def draw(loc: Any, scale: Any) -> Any:
        return np.random.default_rng(1).normal(loc, scale)

    check_grads(draw, (loc, scale))
    numpy.testing.assert_array_equal(
        adarray.value_of(adarray.jvp(draw, (loc, scale), (loc, scale))[0]),
        numpy.random.default_rng(1).normal(loc, scale),
    )
    check_grads(lambda a, b: np.random.default_rng(1).uniform([a, 0.0], [1.0, b]), (0.1, 2.0))
    check_grads(lambda m: np.random.default_rng(1).exponential(size=3) * m, (1.5,))


def _quantile(name: str, parameters: Any, y: Any) -> Callable[..., Any]:
    """Return the draw `y` as SciPy's quantile, at fixed probability, of the parameters."""
    stats = pytest.importorskip("scipy.stats")
    law = {
        "standard_gamma": lambda a: stats.gamma(a),
        "gamma": lambda a, scale: stats.gamma(a, scale=scale),
        "chisquare": lambda df: stats.chi2(df),
        "beta": lambda a, b: stats.beta(a, b),
        "f": lambda n, d: stats.f(n, d),
        "standard_t": lambda df: stats.t(df),
    }[name]
    p = law(*parameters).cdf(y)
    return lambda *q: law(*q).ppf(p)


@pytest.mark.parametrize("kind", sorted(SEEDED))
@pytest.mark.parametrize("name", sorted(IMPLICIT))
def test_implicit_draws(name: str, kind: str) -> None:
    parameters, seen = IMPLICIT[name], []
    draw = _draws(kind, name, 6, seen)
    wanted = getattr(SEEDED[kind][1](3), name)(*parameters, size=6)
    quantile = _quantile(name, parameters, wanted)
    for i in range(len(parameters)):
        got = adarray.jacobian(draw, argnums=i)(*parameters)
        h = 1e-5
        up, down = (
            quantile(*(p + s * h if j == i else p for j, p in enumerate(parameters)))
            for s in (1, -1)
        )
        numpy.testing.assert_allclose(got, (up - down) / (2 * h), rtol=1e-5)
    numpy.testing.assert_allclose(seen[0], wanted, rtol=1e-14)


def test_dirichlet() -> None:
    pytest.importorskip("scipy")
    alpha = numpy.array([1.5, 2.0, 0.7])
    seen = []

    def draw(a: Any) -> Any:
        r = np.random.default_rng(2).dirichlet(a, size=2)
        seen.append(adarray.value_of(r))
        return r

    j = adarray.jacobian(draw)(alpha)
    numpy.testing.assert_allclose(seen[0], numpy.random.default_rng(2).dirichlet(alpha, 2))
    numpy.testing.assert_allclose(numpy.sum(j, axis=1), 0, atol=1e-12)  # on the simplex
    assert numpy.all(numpy.diagonal(j, axis1=1, axis2=2) > 0)
    with pytest.raises(adarray.NotDifferentiableError, match=r"one of which is at least 0\.1"):
        adarray.grad(lambda a: np.sum(np.random.default_rng(2).dirichlet(a)))(alpha / 100)


def test_vonmises_location() -> None:
    def draw(mu: Any) -> Any:
        return np.random.default_rng(2).vonmises(mu, 2.0, size=3)

    numpy.testing.assert_array_equal(adarray.jacobian(draw)(0.3), numpy.ones(3))


COV = numpy.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.5]])
MEAN = numpy.array([0.5, -1.0, 2.0])


@pytest.mark.parametrize("size", [None, 4, (2, 2)])
@pytest.mark.parametrize("method", ["svd", "eigh", "cholesky", "legacy"])
def test_multivariate_normal(method: str, size: Any) -> None:
    seen = []
    options = {} if method == "legacy" else {"method": method}
    ours, theirs = SEEDED["RandomState" if method == "legacy" else "Generator"]

    def draw(mean: Any, cov: Any) -> Any:
        r = ours(5).multivariate_normal(mean, cov, size=size, **options)
        seen.append(adarray.value_of(r))
        return r

    jacobian = adarray.jacobian(draw, argnums=(0, 1))(MEAN, COV)
    wanted = theirs(5).multivariate_normal(MEAN, COV, size=size, **options)
    numpy.testing.assert_allclose(seen[0], wanted, rtol=1e-12)
    numpy.testing.assert_allclose(jacobian[0], numpy.broadcast_to(numpy.eye(3), (*wanted.shape, 3)))
    if method == "cholesky":
        # NumPy's factor is itself smooth: its differences are the derivative.
        h, d = 1e-6, numpy.array([[1.0, 0.5, 0], [0.5, 2.0, 0], [0, 0, 1.0]])
        up, down = (
            theirs(5).multivariate_normal(MEAN, COV + s * h * d, size=size, **options)
            for s in (1, -1)
        )
        got = numpy.tensordot(jacobian[1], d, 2)
        numpy.testing.assert_allclose(got, (up - down) / (2 * h), rtol=1e-5, atol=1e-7)


def test_multivariate_normal_at_equal_variances() -> None:
    """The derivative of the expected squared norm in the covariance is the identity."""

    def loss(cov: Any) -> Any:
        z = np.random.default_rng(0).multivariate_normal(numpy.zeros(2), cov, size=40_000)
        return np.mean(np.sum(z * z, axis=-1))

    numpy.testing.assert_allclose(adarray.grad(loss)(numpy.eye(2)), numpy.eye(2), atol=0.03)
    with pytest.raises(adarray.NotDifferentiableError, match="the covariance is singular"):
        adarray.grad(loss)(numpy.zeros((2, 2)))


def test_numpy_checks_traced_parameters() -> None:
    with pytest.raises(ValueError, match="scale < 0"):
        adarray.grad(lambda s: np.random.default_rng(0).normal(0.0, s))(-1.0)
    with pytest.raises(ValueError, match="left > mode"):
        adarray.grad(lambda s: np.random.default_rng(0).triangular(2.0, s, 3.0))(1.0)
    with pytest.raises(ValueError, match=r"Output size \(1,\) is not compatible with broadcast"):
        adarray.grad(lambda m: np.sum(np.random.default_rng(0).normal(m, 1.0, 1)))(MEAN)
    with pytest.raises(TypeError, match="missing the argument 'a'"):
        adarray.grad(lambda s: np.random.default_rng(0).weibull(size=s))(1.0)
    with pytest.raises(TypeError, match="got multiple values for argument 'loc'"):
        adarray.grad(lambda s: np.random.default_rng(0).normal(s, loc=s))(1.0)
    with pytest.raises(TypeError, match="takes at most 3 arguments"):
        adarray.grad(lambda s: np.random.default_rng(0).normal(s, 1.0, 2, 3))(1.0)


@pytest.mark.parametrize("shape", [(7,), (4, 3)])
@pytest.mark.parametrize("kind", sorted(SEEDED))
def test_reordering_follows_the_elements(kind: str, shape: tuple[int, ...]) -> None:
    ours, theirs = SEEDED[kind]
    x = numpy.arange(float(numpy.prod(shape))).reshape(shape)
    numpy.testing.assert_array_equal(
        ours(1).permutation(adarray.array(x)), theirs(1).permutation(x)
    )
    shuffled = x.copy()
    theirs(1).shuffle(shuffled)

    def shuffle(x: Any) -> Any:
        y = np.asarray(x) * 1.0
        ours(1).shuffle(y)
        numpy.testing.assert_array_equal(adarray.value_of(y), adarray.value_of(theirs_of(x)))
        return y**2

    def theirs_of(x: Any) -> Any:
        y = copy.copy(adarray.value_of(x))
        theirs(1).shuffle(y)
        return y

    check_grads(shuffle, (x + 0.5,))
    check_grads(lambda x: ours(1).permutation(np.asarray(x)) ** 2, (x + 0.5,))
    plain = x.copy()
    ours(1).shuffle(plain)
    numpy.testing.assert_array_equal(plain, shuffled)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_permuted(axis: int | None) -> None:
    x = numpy.arange(12.0).reshape(4, 3)
    wanted = numpy.random.default_rng(1).permuted(x, axis=axis)
    got = np.random.default_rng(1).permuted(adarray.array(x), axis=axis)
    numpy.testing.assert_array_equal(got, wanted)
    check_grads(lambda x: np.random.default_rng(1).permuted(np.asarray(x), axis=axis) ** 2, (x,))
    out = np.zeros((4, 3))
    assert np.random.default_rng(1).permuted(adarray.array(x), axis=axis, out=out) is out
    numpy.testing.assert_array_equal(out, wanted)


def test_choice_picks_traced_elements() -> None:
    x = numpy.arange(12.0).reshape(4, 3)
    options = {"size": (2, 2), "p": [0.1, 0.2, 0.3, 0.4]}
    got = np.random.default_rng(1).choice(adarray.array(x), **options)
    numpy.testing.assert_array_equal(got, numpy.random.default_rng(1).choice(x, **options))
    columns = {"size": 2, "replace": False, "axis": 1, "shuffle": False}
    got = np.random.default_rng(1).choice(adarray.array(x), **columns)
    numpy.testing.assert_array_equal(got, numpy.random.default_rng(1).choice(x, **columns))
    got = np.random.RandomState(1).choice(adarray.array(x[0]), 5)
    numpy.testing.assert_array_equal(got, numpy.random.RandomState(1).choice(x[0], 5))
    check_grads(lambda x: np.random.default_rng(1).choice(np.asarray(x), 6) ** 2, (x,))


def test_draws_into_out() -> None:
    out = np.zeros((2, 3), dtype=np.float32)
    keep = out + 0.0
    assert np.random.default_rng(4).random(out=out, dtype=np.float32) is out
    numpy.testing.assert_array_equal(out, numpy.random.default_rng(4).random((2, 3), dtype="f4"))
    numpy.testing.assert_array_equal(keep, 0.0)
    with pytest.raises(ValueError, match=r"size must match out\.shape"):
        np.random.default_rng(4).random(3, out=out)
    plain = numpy.zeros(2)
    assert np.random.default_rng(4).standard_normal(out=plain) is plain


def _global_draws(random: Any) -> list[Any]:
    random.seed(7)
    return [random.normal(1.0, 2.0), random.rand(2), random.randint(9, size=3), random.ranf(2),
            random.sample(), random.randn(2, 2)]  # fmt: skip


def test_the_global_stream_is_numpys() -> None:
    for got, want in zip(_global_draws(np.random), _global_draws(numpy.random), strict=True):
        numpy.testing.assert_array_equal(got, want)
    ours, theirs = np.random, numpy.random
    state = ours.get_state()
    a = ours.normal(size=3)
    ours.set_state(state)
    numpy.testing.assert_array_equal(theirs.normal(size=3), a)


def test_generators_are_numpys_too() -> None:
    rng = np.random.default_rng(5)
    assert isinstance(rng, numpy.random.Generator)
    assert np.random.Generator is type(rng)
    assert np.random.default_rng(rng) is rng
    plain = numpy.random.default_rng(5)
    shared = np.random.default_rng(plain)
    numpy.testing.assert_array_equal(shared.random(3), numpy.random.default_rng(5).random(3))
    assert plain.bit_generator is shared.bit_generator
    numpy.testing.assert_array_equal(
        pickle.loads(pickle.dumps(rng)).random(3), numpy.random.default_rng(5).random(3)
    )
    children = np.random.default_rng(5).spawn(2)
    assert all(isinstance(c, np.random.Generator) for c in children)
    numpy.testing.assert_array_equal(
        children[1].random(2), numpy.random.default_rng(5).spawn(2)[1].random(2)
    )
    legacy = np.random.RandomState(5)
    assert isinstance(legacy, numpy.random.RandomState)
    legacy.normal()
    twin = pickle.loads(pickle.dumps(legacy))
    numpy.testing.assert_array_equal(twin.normal(size=3), legacy.normal(size=3))
    assert np.random.PCG64 is numpy.random.PCG64
