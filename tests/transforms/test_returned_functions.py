"""What transforms and `jit` return: named after the transform, pickled, of the same signature."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest

import adarray

W = np.array([1.0, 2.0])


def loss(x, scale=1.0):
    return np.sum(np.sin(x) ** 2 * W) * scale


@adarray.grad
def decorated(x):
    return np.sum(x**3)


class Model:
    power = 3

    def loss(self, x):
        return np.sum(x**self.power)

    slope = adarray.grad(loss, argnums=1)


TRANSFORMS = {
    "grad": adarray.grad(loss),
    "value_and_grad": adarray.value_and_grad(loss, has_aux=False),
    "jacobian": adarray.jacobian(loss, mode="reverse"),
    "hessian": adarray.hessian(loss, intercept=True),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_repr_names_the_transform(name):
    """It was the repr of the function that adarray had made inside of itself."""
    transformed = TRANSFORMS[name]
    assert repr(transformed) == f"<{name} of {loss!r}>"
    assert repr(adarray.jit(transformed)) == f"<jit of {transformed!r}>"
    assert transformed.__name__ == f"{name}(loss)"
    assert inspect.signature(transformed) == inspect.signature(loss)
    assert transformed.__wrapped__ is loss


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("jitted", [False, True])
def test_transforms_are_pickled(name, jitted):
    transformed = adarray.jit(TRANSFORMS[name]) if jitted else TRANSFORMS[name]
    again = pickle.loads(pickle.dumps(transformed))
    np.testing.assert_equal(again(W), transformed(W))
    np.testing.assert_equal(again(W, scale=2.0), transformed(W, scale=2.0))


def test_what_is_decorated_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_options_are_kept_by_pickle():
    gradient = pickle.loads(pickle.dumps(adarray.grad(both, argnums=(0, 1), has_aux=True)))
    (dx, dy), aux = gradient(2.0, 3.0)
    assert (dx, dy, aux) == (3.0, 2.0, "aux")


def both(x, y):
    return x * y, "aux"


POOL = """
import multiprocessing
import numpy as np, adarray

def loss(x):
    return np.sum(np.sin(x) ** 2)

if __name__ == "__main__":
    xs = [np.array([0.1, 0.2]), np.array([0.3, 0.4])]
    with multiprocessing.Pool(1) as pool:
        got = pool.map(adarray.grad(loss), xs)
    np.testing.assert_allclose(got, np.sin(2 * np.array(xs)))
"""


def test_a_pool_of_processes_maps_them(tmp_path):
    (tmp_path / "pooled.py").write_text(POOL)
    subprocess.run([sys.executable, "pooled.py"], check=True, cwd=tmp_path, timeout=100)


def test_copies_are_the_function_itself():
    transformed = TRANSFORMS["grad"]
    assert copy.copy(transformed) is transformed
    assert copy.deepcopy([transformed])[0] is transformed


def test_an_attribute_of_a_class_is_a_method():
    model = Model()
    np.testing.assert_allclose(model.slope(W), 3 * W**2)
    model.power = 2
    np.testing.assert_allclose(model.slope(W), 2 * W)
    np.testing.assert_allclose(adarray.grad(model.loss)(W), 2 * W)


def test_jit_reads_what_a_transformed_function_captures():
    """The function inside is looked at as if it were called itself."""
    table = {"w": np.array([1.0, 1.0])}

    def inner(x):
        return np.sum(x**2 * table["w"])

    gradient = adarray.grad(inner)
    functions = [
        adarray.jit(gradient), adarray.jit(lambda x: gradient(x) * 1.0),
        adarray.jit(lambda x, g: g(x)),
    ]  # fmt: skip
    for k in range(5):
        table["w"] = np.array([1.0 + k, 2.0])
        for i, f in enumerate(functions):
            got = f(W, gradient) if i == 2 else f(W)
            np.testing.assert_allclose(got, 2 * W * table["w"])


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacobian", "hessian", "jit"])
def test_what_is_no_function_is_refused_by_the_name_that_was_called(name):
    with pytest.raises(TypeError, match=f"^{name}: expected a function, got int"):
        getattr(adarray, name)(3)


# -- numbers by numbers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "kind"),
    [(2.0, float), (np.float64(2.0), np.float64), (np.array(2.0), np.ndarray),
     (np.float32(2.0), np.float32), (adarray.array(2.0), adarray.ADArray)],
)  # fmt: skip
@pytest.mark.parametrize("transform", [adarray.hessian, adarray.jacobian])
def test_derivatives_of_numbers_by_numbers_are_what_grad_gives(x, kind, transform):
    """They were arrays without dimensions."""
    transformed = transform(np.sin)(x)
    assert type(transformed) is kind
    assert type(adarray.grad(np.sin)(x)) is kind
    expected = -np.sin(2.0) if transform is adarray.hessian else np.cos(2.0)
    assert abs(float(transformed) - expected) < 1e-6


def test_numbers_in_nests_and_under_jit():
    def f(p):
        return p["a"] ** 3 * np.sum(p["b"] ** 2)

    h = adarray.hessian(f)({"a": 2.0, "b": W})
    assert type(h["a"]["a"]) is float
    assert h["a"]["a"] == 12.0 * np.sum(W**2)
    assert h["a"]["b"].shape == h["b"]["a"].shape == (2,)
    jitted = adarray.jit(adarray.hessian(np.sin))
    for _ in range(4):
        result = jitted(2.0)
        assert type(result) is float
        assert abs(result + np.sin(2.0)) < 1e-12
    assert abs(adarray.grad(adarray.hessian(np.sin))(2.0) + np.cos(2.0)) < 1e-12


# -- rules of reverse mode alone ------------------------------------------------------------------


cube = adarray.register_rule(
    lambda x: np.asarray(x) ** 3, lambda g, out, x: g * 3 * x**2, name="cube without a jvp"
)


def cubes(x):
    return np.sum(cube(x) * x * np.array([1.0, 2.0]))


def test_a_hessian_goes_back_twice_where_a_rule_has_no_forward_mode():
    """It raised, and said that grad or vjp are to be used."""
    expected = np.diag(12 * W**2 * [1.0, 2.0])
    np.testing.assert_allclose(adarray.hessian(cubes)(W), expected)
    np.testing.assert_allclose(adarray.hessian(cubes, intercept=True)(W), expected)
    rows = adarray.jacobian(lambda x: np.concatenate([cube(x), x, x]))(W)
    np.testing.assert_allclose(rows, np.vstack([np.diag(3 * W**2), np.eye(2), np.eye(2)]))


def test_what_is_gone_another_way_is_no_refusal_to_the_trace_around():
    gradient = adarray.grad(lambda x: np.sum(adarray.hessian(cubes)(x)))(W)
    np.testing.assert_allclose(gradient, 24 * W * [1.0, 2.0])
    nested = adarray.hessian({"of": cubes}["of"], argnums=(0,))(W)
    np.testing.assert_allclose(nested[0][0], np.diag(12 * W**2 * [1.0, 2.0]))


def test_forward_mode_that_is_asked_for_still_says_what_is_missing():
    with pytest.raises(adarray.NotDifferentiableError, match="no forward-mode derivative"):
        adarray.jacobian(cube, mode="forward")(W)
    with pytest.raises(adarray.NotDifferentiableError, match="no forward-mode derivative"):
        adarray.jvp(cube, (W,), (W,))


@adarray.checkpoint
def checkpointed(x):
    return np.sum(np.sin(x) ** 2)


@adarray.custom_vjp
def with_vjp(x):
    return np.sum(x**2)


def with_vjp_forward(x):
    return np.sum(x**2), x


def with_vjp_backward(x, g):
    return (3.0 * g * x,)  # not the derivative, to tell them apart


with_vjp.defvjp(with_vjp_forward, with_vjp_backward)
renamed_vjp = adarray.custom_vjp(loss)
renamed_vjp.defvjp(with_vjp_forward, with_vjp_backward)


@adarray.custom_jvp
def with_jvp(x):
    return np.sum(x**2)


@with_jvp.defjvp
def with_jvp_rule(primals, tangents):
    return with_jvp(*primals), 3.0 * np.sum(primals[0] * tangents[0])


def squares(x):
    return x**2


def slopes(x):
    return 3.0 * np.diag(x)


def boxed_sum(x):
    return np.sum(boxed(x))


boxed = adarray.black_box(squares, slopes)
DECORATED = {"checkpoint": checkpointed, "custom_vjp": with_vjp, "custom_jvp": with_jvp}
OVER_OTHERS = {
    "checkpoint": adarray.checkpoint(loss), "custom_vjp": renamed_vjp, "black_box": boxed,
}  # fmt: skip


@pytest.mark.parametrize("name", DECORATED)
def test_decorated_functions_with_rules_are_pickled_by_their_names(name):
    transformed = DECORATED[name]
    assert pickle.loads(pickle.dumps(transformed)) is transformed
    assert copy.copy(transformed) is transformed
    assert copy.deepcopy([transformed])[0] is transformed
    for transform in (adarray.grad(transformed), adarray.jit(adarray.grad(transformed))):
        np.testing.assert_equal(pickle.loads(pickle.dumps(transform))(W), transform(W))


@pytest.mark.parametrize("name", OVER_OTHERS)
def test_functions_with_rules_are_pickled_with_their_rules(name):
    transformed = OVER_OTHERS[name]
    again = pickle.loads(pickle.dumps(transformed))
    assert again is not transformed
    np.testing.assert_equal(again(W), transformed(W))
    of = adarray.jacobian(again)(W), adarray.jacobian(transformed)(W)
    np.testing.assert_equal(*of)
    if name != "checkpoint":
        np.testing.assert_equal(of[0], np.diag(3 * W) if name == "black_box" else 3 * W)


def test_black_boxes_compile_and_have_names():
    assert repr(boxed) == f"<black_box of {squares!r}>"
    fast = adarray.jit(adarray.grad(boxed_sum))
    for _ in range(3):
        np.testing.assert_equal(fast(W), 3 * W)


def test_sparse_derivatives_are_pickled():
    pytest.importorskip("scipy")
    transformed = adarray.sparse_jacobian(squares, mode="forward", format="coo")
    again = pickle.loads(pickle.dumps(transformed))
    assert repr(again) == repr(transformed)
    np.testing.assert_equal(again(W).toarray(), np.diag(2 * W))
    assert again(W).format == "coo"
    hessian = pickle.loads(pickle.dumps(adarray.sparse_hessian(loss, jit=False)))
    np.testing.assert_allclose(hessian(W).toarray(), np.diag(2 * np.cos(2 * W) * W))
