"""Leaves of nests that are not floating: they pass through, by one rule in every transform."""

from __future__ import annotations

import array
import dataclasses
import functools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import DTypeError, ShapeError, TraceError

W = np.array([0.3, -0.7, 1.1])
V = {"w": np.array([1.0, 0.5, -2.0]), "b": 0.25}


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def params() -> dict[str, Any]:
    """Return a nest with variables and all else."""
    return {
        "w": W.copy(), "b": 0.5, "count": 3, "flag": True, "name": "tanh",
        "index": np.array([2, 0]), "mask": np.array([True, False, True]), "none": None,
        "call": np.sin, "object": object(), "number": np.int32(2),
    }  # fmt: skip


OTHERS = ("count", "flag", "name", "index", "mask", "none", "call", "object", "number")


def loss(p: Any) -> Any:
    assert type(p["count"]) is int
    assert p["flag"] is True
    assert p["none"] is None
    y = p["call"](p["w"]) ** p["count"] * getattr(np, p["name"])(p["b"])
    return np.sum(y[p["index"]]) * p["number"] + np.sum(y[p["mask"]] ** 2)


def bare(w: Any, b: Any) -> Any:
    y = np.sin(w) ** 3 * np.tanh(b)
    return np.sum(y[np.array([2, 0])]) * 2 + np.sum(y[np.array([True, False, True])] ** 2)


def assert_none(tree: Any) -> None:
    assert all(tree[k] is None for k in OTHERS)


def assert_gradient(actual: Any, expected: tuple[Any, Any]) -> None:
    """Compare with the derivatives by `w` and `b` of the function of these two alone."""
    assert_none(actual)
    np.testing.assert_allclose(actual["w"], expected[0], rtol=1e-10)
    np.testing.assert_allclose(actual["b"], expected[1], rtol=1e-10)
    assert type(actual["b"]) is float


# When a test asks, not when tests are collected, which all processes do.
@functools.cache
def gradient() -> Any:
    """Return the gradient of `bare`, which has no nest."""
    with adarray.use("numpy"):
        return adarray.grad(bare, (0, 1))(W, 0.5)


@functools.cache
def hessian_product() -> Any:
    """Return the product of its Hessian with V."""
    with adarray.use("numpy"):
        return adarray.hvp(bare, (0, 1))(W, 0.5, (V["w"], V["b"]))


# What may stand in a tangent where there is no variable.
TANGENTS: list[Callable[[], Any]] = [
    lambda: V | dict.fromkeys(OTHERS),
    lambda: params() | V,
    lambda: V | dict.fromkeys(OTHERS) | {"count": 0, "name": ""},
]


def test_gradients() -> None:
    p = params()
    assert_gradient(adarray.grad(loss)(p), gradient())
    value, g = adarray.value_and_grad(loss)(p)
    assert_gradient(g, gradient())
    assert value == pytest.approx(bare(W, 0.5))
    assert_gradient(
        adarray.grad(lambda *ps: loss(ps[1]), argnums=(1, 0))(params(), p)[0], gradient()
    )
    _, pullback = adarray.vjp(loss, p)
    assert_gradient(pullback(1.0)[0], gradient())
    assert_gradient(adarray.elementwise_grad(loss)(p), gradient())
    assert_gradient(adarray.grad(lambda q: loss(q["in"][0]))({"in": [p]})["in"][0], gradient())
    vector, _ = adarray.ravel(adarray.grad(loss)(p))  # a gradient fits its argument
    np.testing.assert_allclose(vector, adarray.ravel({"w": gradient()[0], "b": gradient()[1]})[0])


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_jacobians(mode: str) -> None:
    def f(p: Any) -> Any:
        return {"y": p["call"](p["w"]) * p["b"], "n": p["count"], "s": p["name"]}

    j = adarray.jacobian(f, mode=mode)(params())
    assert_none(j["y"])
    np.testing.assert_allclose(j["y"]["w"], np.diag(np.cos(W) * 0.5))
    np.testing.assert_allclose(j["y"]["b"], np.sin(W))
    np.testing.assert_array_equal(j["n"]["w"], np.zeros(3))  # a number: it does not move
    assert j["s"] is None
    h = adarray.hessian(loss)(params())
    expected = adarray.hessian(bare, (0, 1))(W, 0.5)
    assert_none(h)
    assert_none(h["w"])
    for k, row in zip("wb", expected, strict=True):
        for i, block in zip("wb", row, strict=True):
            np.testing.assert_allclose(h[k][i], block, rtol=1e-10)


def test_by_single_modes() -> None:
    for transform in (adarray.jacfwd, adarray.jacrev):
        assert_gradient(transform(loss)(params()), gradient())


@pytest.mark.parametrize("tangent", TANGENTS)
def test_along_a_direction(tangent: Callable[[], Any]) -> None:
    slope = np.sum(gradient()[0] * V["w"]) + gradient()[1] * V["b"]
    p, t = params(), tangent()
    y, dy = adarray.jvp(loss, (p,), (t,))
    assert (float(y), float(dy)) == (pytest.approx(bare(W, 0.5)), pytest.approx(slope))
    assert adarray.directional_derivative(loss)(p, t) == pytest.approx(slope)
    _, tangent_map = adarray.linearize(loss, p)
    assert tangent_map(t) == pytest.approx(slope)
    assert_gradient(adarray.hvp(loss)(p, t), hessian_product())
    product, g = adarray.make_hvp(loss)(p)
    assert_gradient(g, gradient())
    assert_gradient(product(t), hessian_product())


def test_tangents_of_results_that_do_not_move() -> None:
    def f(x: Any) -> Any:
        return [x * 2.0, x > 0.0, 3, "text", None, np.sin, True]

    _, dy = adarray.jvp(f, (W,), (W,))
    _, tangent_map = adarray.linearize(f, W)
    for tangent in (dy, tangent_map(W)):
        np.testing.assert_allclose(tangent[0], 2.0 * W)
        np.testing.assert_array_equal(tangent[1], np.zeros(3))
        assert (float(tangent[2]), *tangent[3:6], float(tangent[6])) == (0.0, None, None, None, 0.0)
    _, pullback = adarray.vjp(f, W)
    for g in ([W, None, None, None, None, None, None], [W, W > 0.0, 3, "text", None, np.sin, True]):
        np.testing.assert_allclose(pullback(g)[0], 2.0 * W)


@dataclasses.dataclass
class Model:
    w: Any
    steps: int
    kind: str = "a"
    step: Any = np.multiply


def test_dataclasses() -> None:
    def f(m: Model) -> Any:
        for _ in range(m.steps):
            m.w = m.step(m.w, m.w)
        return np.sum(m.w)

    g = adarray.grad(f)(Model(W.copy(), 2))
    np.testing.assert_allclose(g.w, 4 * W**3)
    assert (g.steps, g.kind, g.step) == (None, "a", None)
    h = adarray.hvp(f)(Model(W.copy(), 2), g)  # a gradient is a direction
    np.testing.assert_allclose(h.w, 12 * W**2 * g.w)


@pytest.mark.slow_on("openmp")
def test_compiled() -> None:
    p = {k: v for k, v in params().items() if k not in ("object", "call")}

    def f(p: Any) -> Any:
        return loss(p | {"call": np.sin})

    for result, args in (
        (adarray.grad(f), (p,)),
        (adarray.hvp(f), (p, V | dict.fromkeys(set(p) - set(V)))),
        (adarray.jacfwd(f), (p,)),
        (lambda p: adarray.linearize(f, p)[1](p), (p,)),
    ):
        jitted = adarray.jit(result)
        expected = result(*args)
        for _ in range(3):
            actual = jitted(*args)
            if not isinstance(expected, dict):
                assert float(actual) == pytest.approx(float(expected))
                continue
            assert list(actual) == list(expected)
            np.testing.assert_allclose(actual["w"], expected["w"], rtol=1e-10)
            assert actual["b"] == pytest.approx(expected["b"])
            assert all(actual[k] is None for k in p if k not in "wb")
        assert jitted.cache_info().eager == 0
    jitted = adarray.jit(adarray.grad(f))
    for count in (3, 2, 4, 3):  # what is no variable is no constant either
        q = p | {"count": count}
        g = adarray.grad(lambda w, k=count: np.sum(np.sin(w) ** k))
        np.testing.assert_allclose(
            adarray.jit(adarray.grad(lambda q: np.sum(np.sin(q["w"]) ** q["count"])))(q)["w"], g(W)
        )


def test_second_order_and_nesting() -> None:
    def inner(p: Any) -> Any:
        return np.sum(adarray.grad(loss)(p)["w"] ** 2)

    def plain(w: Any, b: Any) -> Any:
        return np.sum(adarray.grad(bare)(w, b) ** 2)

    assert_gradient(adarray.grad(inner)(params()), adarray.grad(plain, (0, 1))(W, 0.5))


def test_whole_arguments_of_other_dtypes() -> None:
    def f(x: Any, n: Any) -> Any:
        return np.sum(np.asarray(x) ** n)

    with pytest.raises(DTypeError, match=r"^grad: argument 1: has non-floating dtype int"):
        adarray.grad(f, 1)(W, 2)
    with pytest.raises(DTypeError, match=r"^vjp: argument 1: .* or allow_int=True for None in its"):
        adarray.vjp(f, W, 2)
    with pytest.raises(DTypeError, match=r"^jvp: primals\[1\]: has non-floating dtype int"):
        adarray.jvp(f, (W, 2), (W, 0))
    with pytest.raises(DTypeError, match=r"^hvp: argument 1\['n'\]: has non-floating dtype int"):
        adarray.hvp(lambda x, p: f(x, p["n"]), 1)(W, {"s": "a", "n": 2}, None)
    for transform in (adarray.grad, adarray.jacfwd, adarray.jacrev, adarray.elementwise_grad):
        g = transform(f, (0, 1), allow_int=True)(W, 2)
        np.testing.assert_allclose(g[0], 2 * W)
        assert g[1] is None
        assert transform(f, 1, allow_int=True)(W, 2) is None
    _, pullback = adarray.vjp(f, W, 2, allow_int=True)
    assert pullback(1.0)[1] is None
    h = adarray.hessian(f, (0, 1), allow_int=True)(W, 2)
    np.testing.assert_allclose(h[0][0], 2 * np.eye(3))
    assert (h[0][1], h[1]) == (None, None)
    t = np.sum(2 * W * W)
    for tangents in ((W, None), (W, 7)):
        assert adarray.jvp(f, (W, 2), tangents, allow_int=True)[1] == pytest.approx(t)
        assert adarray.linearize(f, W, 2, allow_int=True)[1](*tangents) == pytest.approx(t)
        slope = adarray.directional_derivative(f, (0, 1), allow_int=True)
        assert slope(W, 2, tangents) == pytest.approx(t)
        assert adarray.hvp(f, (0, 1), allow_int=True)(W, 2, tangents)[1] is None
        assert adarray.make_hvp(f, (0, 1), allow_int=True)(W, 2)[0](tangents)[1] is None
    assert adarray.grad(lambda p: 1.0, allow_int=False)({}) == {}


class Foreign:
    """An array of a library that nobody knows."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise AssertionError


@pytest.mark.parametrize("name", ["grad", "jacobian", "hessian", "elementwise_grad", "make_hvp"])
def test_arrays_of_others_are_refused(name: str) -> None:
    """They might be meant as variables: their derivative would be lost."""
    with pytest.raises(DTypeError, match=rf"^{name}: argument 0\['x'\]: is a Foreign, not an arr"):
        getattr(adarray, name)(lambda p: np.sum(p["w"]))({"w": W, "x": Foreign()})


def test_structures_that_differ() -> None:
    p = params()
    with pytest.raises(
        ShapeError, match=r"jvp: primals hold 2 arrays and tangents 1; their struct"
    ):
        adarray.jvp(loss, (p,), ({"w": W},))
    with pytest.raises(ShapeError, match=r"linearize: the tangents have shapes"):
        adarray.linearize(loss, p)[1]({"w": W})
    with pytest.raises(ShapeError, match="vjp: the cotangent has another structure than the resu"):
        adarray.vjp(lambda p: (p["w"], p["b"], "s"), p)[1]((W, None, "s"))


def test_indices_that_share_memory_with_a_variable() -> None:
    x = np.array([1.0, 2.0, 3.0])

    def f(p: Any) -> Any:
        p["x"] *= 2.0
        return np.sum(p["x"]) + p["bits"][0]

    with pytest.raises(TraceError, match="shares memory with"):
        adarray.grad(f)({"x": x, "bits": x.view(np.int64)})
    assert list(x) == [1.0, 2.0, 3.0]


def test_transposes() -> None:
    def f(p: Any) -> Any:
        return p["x"][p["rows"]] * p["count"]

    transpose = adarray.linear_transpose(f, {"x": W, "rows": np.array([2, 2]), "count": 3})
    (g,) = transpose(np.array([1.0, 10.0]))
    np.testing.assert_allclose(g["x"], [0.0, 0.0, 33.0])
    assert (g["rows"], g["count"]) == (None, None)


def test_checks_of_gradients() -> None:
    adarray.testing.check_grads(loss, (params(),))
    adarray.testing.check_grads(lambda n, p: loss(p) * n, (2, params()), order=1)
    with pytest.raises(TypeError, match="check_grads: argument 0, leaf 0: has no floating point"):
        adarray.testing.check_grads(loss, ({"n": 3},), argnums=[0])


class Holder:
    def __init__(self) -> None:
        self.w = np.ones(2)


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (None, "is None, not an array or a number; choose the arguments to differentiate"),
        ({1.0, 2.0}, r"is a set, not an array or a number; pass a list, such as list\(x\)"),
        ((v for v in (1.0, 2.0)), "is a generator, not an array or a number; pass a list"),
        (Fraction(1, 2), r"is a Fraction, not an array or a number; pass float\(x\)"),
        (array.array("d", [1.0]), r"is an array.array, not an array or a number; pass np.asarray"),
        (
            Holder(),
            r"is a Holder, not an array or a number; pass its arrays in a dict, such as",
        ),
        (np.zeros(2, [("a", float)]), r"\('a', '<f8'\).*; pass its fields in a dict, such as {'a'"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else "",
)
def test_objects_that_cannot_be_differentiated_are_told_what_to_pass(x: Any, message: str) -> None:
    for call in (adarray.grad(np.sum), adarray.jit(adarray.grad(np.sum)), adarray.hessian(np.sum)):
        with pytest.raises(DTypeError, match=f"argument 0: .*{message}"):
            call(x)


def test_objects_of_other_packages_are_told_what_to_pass() -> None:
    pd, xr = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    sparse = pytest.importorskip("scipy.sparse")
    for x, message in (
        (pd.Series([1.0]), r"is a pandas Series, not an array or a number; pass x.to_numpy\(\)"),
        (pd.DataFrame({"a": [1.0]}), r"is a pandas DataFrame, .* pass x.to_numpy\(\)"),
        (pd.Index([1.0]), r"is a pandas Index, .* pass x.to_numpy\(\)"),
        (xr.DataArray([1.0]), r"is an xarray DataArray, .* pass x.to_numpy\(\)"),
        (xr.Dataset({"a": 1.0}), r"is an xarray Dataset, .* pass x\['name'\].to_numpy\(\)"),
        (sparse.csr_array([[1.0]]), r"is a csr_array, .* pass its nonzeros, x.data"),
    ):
        with pytest.raises(DTypeError, match=f"^grad: argument 0: {message}"):
            adarray.grad(np.sum)(x)
        nest = {"a": x, "w": np.ones(2)}  # where None in its place would be taken for its gradient
        if "Dataset" not in message:
            with pytest.raises(DTypeError, match=rf"^grad: argument 0\['a'\]: {message}"):
                adarray.grad(lambda p: np.sum(p["w"]))(nest)
    pattern = sparse.csr_array(np.array([[1, 0]]))  # integers are no variables
    nest = {"a": pattern, "w": np.ones(2)}
    assert adarray.grad(lambda p: np.sum(p["w"]))(nest)["a"] is None
    assert adarray.grad(lambda w, b: np.sum(w), argnums=(0, 1))(np.ones(2), None)[1] is None
