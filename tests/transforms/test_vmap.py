"""vmap: axes, nests, errors, in-place code, members that go different ways, other transforms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from members import assert_same, looped

import adarray
from adarray.base.op import Op, Opaque
from adarray.core.dispatch import apply

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3))
Y = RNG.normal(size=(3, 5))
W = RNG.normal(size=3)


def check(f: Callable[..., Any], *args: Any, axes: Any = None) -> None:
    """Compare with a loop."""
    axes = (0,) * len(args) if axes is None else axes
    assert_same(adarray.vmap(f, in_axes=axes)(*args), looped(f, args, axes))


# -- axes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0, 1), (0, -1), (-2, 1), (0, None), (None, 1)])
def test_in_axes(axes: Any) -> None:
    args = (X if axes[0] is not None else W, Y if axes[1] is not None else W)
    check(lambda x, y: x * y + np.sum(y), *args, axes=axes)


def test_one_axis_for_all_arguments() -> None:
    got = adarray.vmap(np.dot, in_axes=-1)(Y, Y)
    np.testing.assert_allclose(got, np.sum(Y * Y, 0))


def test_a_list_of_axes() -> None:
    got = adarray.vmap(np.multiply, in_axes=[0, None])(X, W)
    np.testing.assert_array_equal(got, X * W)


@pytest.mark.parametrize(("axis", "shape"), [(0, (5, 3, 3)), (1, (3, 5, 3)), (-1, (3, 3, 5))])
def test_out_axes(axis: int, shape: tuple[int, ...]) -> None:
    got = adarray.vmap(lambda x: np.outer(x, x), out_axes=axis)(X)
    assert got.shape == shape
    np.testing.assert_array_equal(np.moveaxis(got, axis, 0), X[:, :, None] * X[:, None, :])


def test_nests_of_arguments_and_results() -> None:
    def f(layer: dict[str, Any], x: Any) -> Any:
        return {"y": layer["w"] @ x + layer["b"], "pair": (x[0], layer["b"])}

    layer = {"w": RNG.normal(size=(2, 3)), "b": RNG.normal(size=(5, 2))}
    got = adarray.vmap(f, in_axes=({"w": None, "b": 0}, 0), out_axes={"y": 1, "pair": (0, 0)})(
        layer, X
    )
    np.testing.assert_allclose(got["y"], (X @ layer["w"].T + layer["b"]).T)
    np.testing.assert_array_equal(got["pair"][0], X[:, 0])
    np.testing.assert_array_equal(got["pair"][1], layer["b"])


def test_keyword_arguments_have_members_along_axis_0() -> None:
    got = adarray.vmap(lambda x, scale: x * scale, in_axes=(0,))(X, scale=np.arange(5.0))
    np.testing.assert_array_equal(got, X * np.arange(5.0)[:, None])


def test_results_that_are_the_same_for_all() -> None:
    got = adarray.vmap(lambda x: (np.arange(2.0), 3.0, True))(X)
    np.testing.assert_array_equal(got[0], np.tile(np.arange(2.0), (5, 1)))
    np.testing.assert_array_equal(got[1], np.full(5, 3.0))
    assert got[2].dtype == bool
    shared = adarray.vmap(lambda x: (x, np.arange(2.0)), out_axes=(0, None))(X)[1]
    np.testing.assert_array_equal(shared, np.arange(2.0))


def test_nested() -> None:
    got = adarray.vmap(lambda x: adarray.vmap(lambda y: x * np.sum(y))(X))(X)
    np.testing.assert_allclose(got, X[:, None, :] * np.sum(X, 1)[None, :, None])


def test_of_results_and_arguments_on_other_axes_nested() -> None:
    dots = adarray.vmap(adarray.vmap(np.dot, (None, 1)), (0, None))
    np.testing.assert_allclose(dots(X, Y), X @ Y)


def test_members_are_what_numpy_gives_for_them() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append((x.shape, x.ndim, x.dtype, len(x), x.size, isinstance(x, np.ndarray)))
        return x[0]

    adarray.vmap(f)(X.astype(np.float32))
    assert seen == [((3,), 1, np.dtype(np.float32), 3, 3, True)]


def test_no_members() -> None:
    got = adarray.vmap(lambda x: np.sum(x) * x)(np.zeros((0, 3)))
    assert got.shape == (0, 3)


def test_adarrays_give_adarrays() -> None:
    assert type(adarray.vmap(np.sin)(adarray.array(X))) is adarray.ADArray
    assert type(adarray.vmap(np.sin)(X)) is np.ndarray


# -- errors ----------------------------------------------------------------------------------------


def test_sizes_that_differ() -> None:
    with pytest.raises(adarray.ShapeError) as error:
        adarray.vmap(np.add)(X, Y)
    assert str(error.value).startswith(
        "vmap: argument 0 has 5 members along axis 0, and argument 1 has 3 along axis 0; "
        "they must be equal"
    )


def test_no_such_axis() -> None:
    with pytest.raises(adarray.ShapeError, match=r"argument 0\['a'\]: has shape \(5, 3\), and no"):
        adarray.vmap(lambda t: t["a"], in_axes=2)({"a": X})
    with pytest.raises(adarray.ShapeError, match=r"out_axes=2, but a result has shape \(\) for a"):
        adarray.vmap(np.sum, out_axes=2)(X)


def test_nothing_has_members() -> None:
    with pytest.raises(TypeError, match="in_axes is None for all"):
        adarray.vmap(np.sin, in_axes=None)(X)


def test_axes_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="in_axes has 1 entries and the function got 2"):
        adarray.vmap(np.add, in_axes=(0,))(X, X)
    with pytest.raises(TypeError, match="in_axes is a dict"):
        adarray.vmap(np.add, in_axes={})(X, X)
    with pytest.raises(TypeError, match="in_axes has another structure"):
        adarray.vmap(lambda t: t["a"], in_axes=({"b": 0},))({"a": X})
    with pytest.raises(TypeError, match="in_axes holds 'x'"):
        adarray.vmap(np.sin, in_axes=("x",))(X)


def test_out_axes_none_for_what_differs() -> None:
    with pytest.raises(adarray.ShapeError, match="out_axes=None, but the result differs"):
        adarray.vmap(np.sin, out_axes=None)(X)


def test_numbers_have_no_axes() -> None:
    with pytest.raises(adarray.ShapeError, match=r"argument 1: has shape \(\), and no axis 0"):
        adarray.vmap(np.multiply)(X, 2.0)


def test_an_operation_without_a_rule() -> None:
    op = Op("nothing", lambda x: x, Opaque(), [None])
    with pytest.raises(adarray.UnsupportedFunctionError, match="nothing: has no batching rule"):
        adarray.vmap(lambda x: apply(op, (x,)))(X)


def test_writing_into_what_was_made_outside() -> None:
    array = np.zeros(3)

    def f(x: Any) -> Any:
        array[0] = x[0]
        return x

    adarray.vmap(f)(X)  # one by one, as a loop does
    assert array[0] == X[-1, 0]

    def g(x: Any, out: Any) -> Any:
        out[0] = x[0]
        return x

    with pytest.raises(adarray.TraceError, match="in-place update of the memory of a plain"):
        adarray.vmap(g, in_axes=(0, None))(X, np.zeros(3))


def test_values_of_members_are_not_for_others() -> None:
    references = []

    def f(x: Any) -> Any:
        references.append(x)
        return np.sum(x)

    adarray.vmap(f)(X)
    with pytest.raises(adarray.TraceError, match="add: an operand is the array of one member"):
        np.add(references[0], 1.0)
    with pytest.raises(adarray.TraceError, match="read outside of the function"):
        np.array(references[0])
    with pytest.raises(adarray.TraceError, match="array of one member"):
        adarray.grad(lambda w: np.sum(w * references[0]))(W)


def test_rules_of_users_are_applied_member_by_member() -> None:
    def cube(x: Any) -> Any:
        assert type(x) is np.ndarray
        assert x.shape == (3,)
        return x**3

    ours = adarray.register_rule(cube, lambda g, out, x: g * 3 * x**2, name="cube of members")
    np.testing.assert_allclose(adarray.vmap(ours)(X), X**3)
    slopes = adarray.vmap(adarray.grad(lambda x: np.sum(ours(x))))(X)
    np.testing.assert_allclose(slopes, 3 * X**2)
    total = adarray.grad(lambda a: np.sum(adarray.vmap(ours)(a)))(X)
    np.testing.assert_allclose(total, 3 * X**2)


# -- in-place code ---------------------------------------------------------------------------------


def _filled(x: Any) -> Any:
    y = np.zeros(4)
    for i in range(3):
        y[i + 1] = y[i] + x[i]
    y[1:3] += x[:2]
    y[y > 1] = 0
    view = y[::2]
    view *= 2.0
    np.add(y, 1.0, out=y)
    return y


def _matrix(x: Any) -> Any:
    a = np.zeros((3, 3))
    a[np.arange(3), np.arange(3)] = x
    a[0, [1, 2]] = x[1:]
    a[:, 0][1:] = x[0]
    a.T[0, 1] = 5.0
    return a


def _by_own_index(x: Any) -> Any:
    y = np.zeros((3, 2))
    k = np.argmax(x)
    y[k] = x[k]
    y[np.argsort(x), 1] += x
    return y


def _of_argument(x: Any) -> Any:
    x[0] = 2.0 * x[1]
    x += 1.0
    return x


IN_PLACE = [_filled, _matrix, _by_own_index, _of_argument]


@pytest.mark.parametrize("f", IN_PLACE)
def test_in_place_code(f: Callable[..., Any]) -> None:
    np.testing.assert_allclose(
        adarray.vmap(f)(X.copy()), np.stack([f(x) for x in X.copy()]), rtol=1e-12
    )


@pytest.mark.parametrize("f", IN_PLACE)
def test_gradients_of_in_place_code(f: Callable[..., Any]) -> None:
    def loss(x: Any) -> Any:
        return np.sum(f(x) ** 2)

    want = np.stack([adarray.grad(loss)(x) for x in X])
    np.testing.assert_allclose(adarray.vmap(adarray.grad(loss))(X), want, rtol=1e-12)
    total = adarray.grad(lambda a: np.sum(adarray.vmap(loss)(a)))(X)
    np.testing.assert_allclose(total, want, rtol=1e-12)


# -- members that go different ways ----------------------------------------------------------------


def _branches(x: Any) -> Any:
    if x[0] > 0:
        return np.sin(x) if x[1] > 0.5 else x * x[2]
    return np.zeros(3)


def _doubles(x: Any) -> Any:
    count = 0
    while np.sum(np.abs(x)) < 20.0:
        x = x * 2.0
        count += 1
    return x + count


def _picks(x: Any) -> Any:
    return np.sum(x[x > 0]) + np.sum(np.sin(x)[: int(np.argmax(x))])


def _numbers(x: Any) -> Any:
    return x * math.floor(float(x[0]))


WAYS = [_branches, _doubles, _picks, _numbers]


@pytest.mark.parametrize("f", WAYS)
def test_members_go_different_ways(f: Callable[..., Any]) -> None:
    check(f, X)
    check(lambda x: adarray.vmap(lambda y: f(x * y))(X), X)


@pytest.mark.parametrize("f", WAYS[:3])
def test_gradients_where_members_go_different_ways(f: Callable[..., Any]) -> None:
    def loss(w: Any, x: Any) -> Any:
        return np.sum(f(w * x) ** 2)

    want = np.stack([adarray.grad(loss)(W, x) for x in X])
    got = adarray.vmap(adarray.grad(loss), in_axes=(None, 0))(W, X)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    total = adarray.grad(lambda w: np.sum(adarray.vmap(lambda x: loss(w, x))(X)))(W)
    np.testing.assert_allclose(total, want.sum(0), rtol=1e-10, atol=1e-12)


def test_shapes_that_differ_between_ways() -> None:
    with pytest.raises(adarray.ShapeError, match="go different ways return the shapes"):
        adarray.vmap(lambda x: x[x > 0])(X)


def test_code_that_catches_everything_does_not_stop_a_split() -> None:
    def f(x: Any) -> Any:
        try:
            return x if x > 0 else -x
        except Exception:
            return 0.0

    np.testing.assert_array_equal(adarray.vmap(f)(X[:, 0]), np.abs(X[:, 0]))


# -- other transforms ------------------------------------------------------------------------------


def _energy(w: Any, x: Any) -> Any:
    return np.sum(np.sin(w * x) ** 2) * np.tanh(w @ x)


def test_gradients_of_what_members_share() -> None:
    want = np.stack([adarray.grad(_energy)(W, x) for x in X])
    got = adarray.vmap(adarray.grad(_energy), in_axes=(None, 0))(W, X)
    np.testing.assert_allclose(got, want, rtol=1e-12)

    def total(w: Any) -> Any:
        return 3.0 * np.sum(w) + np.sum(adarray.vmap(lambda x: _energy(w, x))(X))

    np.testing.assert_allclose(adarray.grad(total)(W), want.sum(0) + 3.0, rtol=1e-12)


@pytest.mark.parametrize(
    "of",
    [
        adarray.hessian,
        adarray.jacfwd,
        lambda f: adarray.jacobian(adarray.grad(f)),
        lambda f: adarray.jacfwd(adarray.grad(f)),
        lambda f: adarray.jacrev(adarray.jacfwd(f)),
        lambda f: lambda w: adarray.hvp(f)(w, W),
        lambda f: adarray.grad(adarray.checkpoint(f)),
    ],
)
def test_derivatives_inside_and_outside(of: Any) -> None:
    want = np.stack([of(lambda w, x=x: _energy(w, x))(W) for x in X])
    got = adarray.vmap(lambda x: of(lambda w: _energy(w, x))(W))(X)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    total = of(lambda w: np.sum(adarray.vmap(lambda x: _energy(w, x))(X)))(W)
    np.testing.assert_allclose(total, want.sum(0), rtol=1e-10, atol=1e-12)


def test_three_levels_do_not_mix() -> None:
    """The derivative by w of the sum over members of the derivative by x of w x."""

    def f(w: Any) -> Any:
        slopes = adarray.vmap(lambda x: adarray.grad(lambda y: w * y**2 * x)(x))(X[:, 0])
        return np.sum(slopes) * w

    np.testing.assert_allclose(adarray.grad(f)(2.0), np.sum(4 * X[:, 0] ** 2) * 2.0)
    nested = adarray.grad(lambda w: adarray.jvp(f, (w,), (1.0,))[1])(2.0)
    np.testing.assert_allclose(nested, np.sum(4 * X[:, 0] ** 2))


def test_a_pullback_is_called_for_many_cotangents_at_once() -> None:
    _, pullback = adarray.vjp(lambda w: np.sin(w) * np.sum(w), W)
    rows = adarray.vmap(lambda g: pullback(g)[0])(np.eye(3))
    np.testing.assert_allclose(rows, adarray.jacobian(lambda w: np.sin(w) * np.sum(w))(W))
    _, push = adarray.linearize(lambda w: np.sin(w) * np.sum(w), W)
    np.testing.assert_allclose(adarray.vmap(push, out_axes=1)(np.eye(3)), rows)


def test_custom_rules() -> None:
    @adarray.custom_vjp
    def f(x: Any) -> Any:
        return np.sum(x**2)

    f.defvjp(lambda x: (np.sum(x**2), x), lambda x, g: (5.0 * g * x,))
    np.testing.assert_allclose(adarray.vmap(adarray.grad(f))(X), 5.0 * X)
    np.testing.assert_allclose(adarray.grad(lambda a: np.sum(adarray.vmap(f)(a)))(X), 5.0 * X)


def test_dtypes_of_python_numbers_yield() -> None:
    x = X.astype(np.float32)
    got = adarray.vmap(lambda v: v * v[0].item() + 1.0)(x)
    assert got.dtype == np.float32
    check(lambda v: v * v[0].item() + 1.0, x)


# -- jit -------------------------------------------------------------------------------------------


def test_under_jit_other_ways_are_recorded_too() -> None:
    compiled = adarray.jit(adarray.vmap(lambda x: np.sqrt(x) if x > 0 else -x))
    for _ in range(2):
        for x in (X[:, 0], -X[:, 0], np.ones(5), np.zeros(5)):
            want = np.where(x > 0, np.sqrt(np.abs(x)), -x)
            np.testing.assert_allclose(compiled(x), want, rtol=1e-12)


def test_of_jitted_functions() -> None:
    energy = adarray.jit(_energy)
    want = np.stack([_energy(W, x) for x in X])
    batch = adarray.vmap(energy, in_axes=(None, 0))
    for _ in range(2):
        np.testing.assert_allclose(batch(W, X), want, rtol=1e-12)
    assert batch.stats().compiled >= 1  # type: ignore[attr-defined]
    slopes = np.stack([adarray.grad(_energy)(W, x) for x in X])
    gradients = adarray.vmap(lambda x: adarray.grad(energy)(W, x))(X)
    np.testing.assert_allclose(gradients, slopes, rtol=1e-12)
    total = adarray.grad(lambda w: np.sum(batch(w, X)))(W)
    np.testing.assert_allclose(total, slopes.sum(0), rtol=1e-12)
    values = adarray.vmap(lambda x: 2.0 * energy(W, x))(X)
    np.testing.assert_allclose(values, 2.0 * want, rtol=1e-12)


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize(
    "of",
    [
        lambda f: adarray.jit(adarray.vmap(adarray.grad(f), in_axes=(None, 0))),
        lambda f: adarray.vmap(adarray.jit(adarray.grad(f)), in_axes=(None, 0)),
        lambda f: adarray.jit(adarray.vmap(adarray.hessian(f), in_axes=(None, 0))),
    ],
)
def test_derivatives_under_jit(of: Any, backend: str) -> None:
    with adarray.use(backend):
        compiled = of(_energy)
        results = [compiled(W, X) for _ in range(3)]
    inner = adarray.grad if results[0].ndim == 2 else adarray.hessian
    want = np.stack([inner(_energy)(W, x) for x in X])
    for got in results:
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_on_backends(backend: str) -> None:
    with adarray.use(backend):
        for f in (*IN_PLACE[:3], *WAYS):
            assert_same(adarray.vmap(f)(X), looped(f, (X,), (0,)))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.histogram(x, 3, (-2.0, 2.0))[0] * x[0],
        lambda x: np.unique(np.round(x))[:1] * x,
        lambda x: np.unique(np.round(x), return_inverse=True)[1].reshape(-1) * x,
        lambda x: np.bincount(np.array([0, 1, 1, 2, 0]), weights=x, minlength=4),
    ],
)
@pytest.mark.parametrize("transform", [lambda f: f, adarray.jit], ids=["eager", "jit"])
def test_functions_that_call_themselves_on_plain_values(f, transform) -> None:
    xs = np.random.default_rng(0).normal(size=(6, 5))
    expected = np.stack([f(x) for x in xs])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adarray.JitWarning)
        np.testing.assert_allclose(transform(adarray.vmap(f))(xs), expected, rtol=1e-14)
    slope = adarray.grad(lambda x: np.sum(f(x)))
    np.testing.assert_allclose(adarray.vmap(slope)(xs), np.stack([slope(x) for x in xs]))
