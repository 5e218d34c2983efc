"""Programs that once gave a wrong derivative or an error, and have no better home."""

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

X = np.array([0.3, 1.2, -0.7])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.sum(x**3),
        lambda x: np.sum(x[1:] * x[:-1] * x[0]),
        lambda x: np.sum(np.linalg.slogdet(np.outer(x, np.sin(x)) + 2 * np.eye(3))[1] * x),
    ],
)
def test_reverse_through_a_tangent_that_depends_on_the_input(f: Callable[..., Any]) -> None:
    """Reverse over forward over reverse: the tangent is differentiated too."""

    def product(x: Any) -> Any:
        return adarray.jvp(adarray.grad(f), (x,), (np.sin(x),))[1]

    check_grads(product, (X,), order=1)


@pytest.mark.parametrize(
    ("f", "argument"),
    [
        (lambda x, q: np.repeat(x, q), np.array([1, 2, 1])),
        (lambda x, q: np.repeat(x, q), [1, 2, 1]),
        (lambda x, q: np.sum(x, where=q), np.array([True, False, True])),
        (lambda x, q: np.cov(x, aweights=q), np.array([1.0, 2.0, 3.0])),
        (lambda x, q: np.polyval(x, q), np.array([1.0, 2.0, 3.0])),
        (lambda x, q: x * np.asarray(q, like=x), np.array([1.0, 2.0, 3.0])),
        (lambda x, q: _added_at(x, q), np.array([0, 0, 1])),
        (lambda x, q: _added_at(x, q), [0, 0, 1]),
    ],
)
def test_arguments_may_change_before_the_rules_read_them(
    f: Callable[..., Any], argument: Any
) -> None:
    def pulled(change: bool) -> np.ndarray:
        q = argument.copy()
        out, pullback = adarray.vjp(lambda x: f(x, q), X)
        if change:
            q[:] = [2] * len(q)
        (g,) = pullback(np.cos(np.arange(np.size(out))).reshape(np.shape(out)))
        return np.asarray(g)

    np.testing.assert_array_equal(pulled(change=True), pulled(change=False))


def _added_at(x: Any, index: Any) -> Any:
    y = x * 1.0
    np.add.at(y, index, x**2)
    return y


def test_gradient_of_an_untraced_array_keeps_the_spacing() -> None:
    y = np.array([0.0, 1.0, 4.0, 9.0])
    for args in ((0.3,), (np.array([0.0, 1.0, 3.0, 4.0]),)):
        got = np.gradient(adarray.array(y), *args)
        np.testing.assert_array_equal(adarray.value_of(got), np.gradient(y, *args))


@pytest.mark.parametrize("index", [[[0], [0]], [0, 0, 0], [False]])
def test_write_into_a_view_of_a_number(index: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        v = np.reshape(y, (-1,))
        v[index] = v[index] * np.sin(x)
        return v + y

    check_grads(f, (np.float64(0.7),))


@pytest.mark.parametrize(
    "indices", [[], [True, False], np.array([True, False, True]), True, np.uint8(1)]
)
@pytest.mark.parametrize("mode", ["raise", "wrap"])
def test_take_reads_truth_values_as_numbers(indices: Any, mode: Any) -> None:
    got = adarray.vjp(lambda x: np.take(x, indices, mode=mode), X)[0]
    np.testing.assert_array_equal(got, np.take(X, indices, mode=mode))


def test_fromiter_inside_of_wrap() -> None:
    def f(x: Any) -> Any:
        return np.fromiter((v * v for v in x), float, 3)

    check_grads(adarray.wrap(f), (X,))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["kn", "yn", "expn"])
def test_orders_that_scipy_cuts_off(name: str) -> None:
    special = pytest.importorskip("scipy.special")
    f = getattr(special, name)
    for n in (0.5, 2.7):
        assert f(n, 1.3) == f(int(n), 1.3)
        np.testing.assert_allclose(
            adarray.grad(lambda x: f(n, x))(1.3),  # noqa: B023
            adarray.grad(lambda x: f(int(n), x))(1.3),  # noqa: B023
        )


def test_scipy_that_coerces_names_the_drop_in() -> None:
    stats = pytest.importorskip("scipy.stats")
    with pytest.raises(
        adarray.TraceError,
        match=r"in adarray.scipy, or use adarray.intercept.* file .*test_regressions",
    ):
        adarray.grad(lambda mu: stats.norm.logpdf(1.0, mu), intercept=False)(0.5)
    assert adarray.grad(lambda mu: stats.norm.logpdf(1.0, mu))(0.5) == 0.5


class Holder:
    def __init__(self) -> None:
        self.matrix = np.eye(2)
        self.table = {"rows": [np.eye(2)]}


HOLDER, SQUARE = Holder(), np.eye(2)


@pytest.mark.parametrize(
    "base",
    ["SQUARE", "HOLDER.matrix", 'HOLDER.table["rows"][0]', "SQUARE[:, 0]", "SQUARE.T"],
)
def test_methods_of_plain_arrays_are_named_as_they_stand_there(base: str) -> None:
    space = dict(globals())
    lines = ["def f(w):", f"    return np.sum({base}.dot(w))"]
    name = f"<{base}>"
    linecache.cache[name] = (1, None, [line + "\n" for line in lines], name)
    exec(compile("\n".join(lines), name, "exec"), space)
    with pytest.raises(adarray.TraceError) as caught:
        adarray.grad(space["f"], intercept=False)(np.ones(2))
    text = str(caught.value)
    assert text.startswith(f"{base}.dot(w): a traced value would leave the graph")
    assert f"write np.dot({base}, ...)" in text


def test_interception_is_advised_only_where_it_is_off() -> None:
    def f(w: Any) -> Any:
        return np.sum(memoryview(w.astype(float, copy=False).__array__()))

    for intercept in (False, True):
        with pytest.raises(adarray.TraceError) as caught:
            adarray.grad(f, intercept=intercept)(np.ones(2))
        assert ("use adarray.intercept()" in str(caught.value)) is not intercept
