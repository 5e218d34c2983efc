"""Products that a library adds to a matrix: which sums are found, and what they give."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from plan_runner import PlanRunner
from recorded import recorded

import adarray
from adarray.compiler.ir.plan import KernelStep, MatmulStep
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.rewrite import accumulate

RNG = np.random.default_rng(5)
W, X, G = (RNG.normal(size=s) for s in ((30, 20), (40, 30), (40, 20)))
plan = partial(planning.plan, target=GPU)


@pytest.fixture(autouse=True)
def small_ones(monkeypatch):
    """Let matrices of any size be added to."""
    monkeypatch.setattr(accumulate, "LEAST", 0)


def steps(f, *arrays, target=GPU):
    """Plan, check the values, and return the steps."""
    r = recorded(f, *arrays)
    new_plan = planning.plan(r.program, target=target)
    expected = f(*arrays)
    actual = PlanRunner(new_plan)([np.array(a) for a in r.arrays])
    many = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(actual, many, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    return new_plan.steps


ACCUMULATED = {
    "w - r * p": (lambda w, x, g: w - 0.1 * (x.T @ g), -0.1),
    "w - p * r": (lambda w, x, g: w - (x.T @ g) * 0.1, -0.1),
    "w - p": (lambda w, x, g: w - x.T @ g, -1.0),
    "w + r * p": (lambda w, x, g: w + 3.0 * (x.T @ g), 3.0),
    "r * p + w": (lambda w, x, g: 3.0 * (x.T @ g) + w, 3.0),
    "p + w": (lambda w, x, g: x.T @ g + w, 1.0),
}


@pytest.mark.parametrize("name", ACCUMULATED)
def test_sums_are_found(name):
    f, scale = ACCUMULATED[name]
    (step,) = steps(f, W, X, G)
    assert isinstance(step, MatmulStep)
    assert step.scale == scale
    assert step.added is not None
    assert step.added.buffer.kind == "input"
    assert len(step.operands) == 3


def test_plans_for_processors_are_as_before():
    first, second = steps(ACCUMULATED["w - r * p"][0], W, X, G, target=CPU)
    assert isinstance(first, MatmulStep)
    assert first.added is None
    assert first.operands == (first.a, first.b)
    assert isinstance(second, KernelStep)


OTHERS = {
    "the product is read twice": lambda w, x, g: ((p := x.T @ g) * 2, w - 0.1 * p),
    "nothing of it is added": lambda w, x, g: w - 0.0 * (x.T @ g),
    "the multiple is read twice": lambda w, x, g: ((p := 0.1 * (x.T @ g)), w - p),
    "the sum is read": lambda w, x, g: np.sin(w - 0.1 * (x.T @ g)),
    "the product is what is taken away from": lambda w, x, g: x.T @ g - w,
    "a row is added": lambda w, x, g: w[0] + x.T @ g,
    "computed": lambda w, x, g: np.exp(w) + x.T @ g,
    "in columns": lambda w, x, g: w + (g.T @ x),
    "a factor for each column": lambda w, x, g: w - w[0] * (x.T @ g),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_are_not(name):
    w = np.asfortranarray(RNG.normal(size=(20, 30))) if name == "in columns" else W
    plan_steps = steps(OTHERS[name], w, X, G)
    assert all(s.added is None for s in plan_steps if isinstance(s, MatmulStep))
    assert any(isinstance(s, KernelStep) for s in plan_steps)


def test_vectors_and_small_products_stay_loops():
    for w, x, g in ((W[:2, :2], X[:3, :2], G[:3, :2]), (W[:, 0], X, G[:, 0])):
        w, x, g = (np.ascontiguousarray(a) for a in (w, x, g))
        assert all(isinstance(s, KernelStep) for s in steps(ACCUMULATED["w - r * p"][0], w, x, g))


def test_a_result_may_lie_where_it_is_added_to():
    f = ACCUMULATED["w - r * p"][0]
    r = recorded(f, W, X, G)
    new_plan = plan(r.program, donated=((0, 0),))
    (step,) = new_plan.steps
    assert step.out.buffer.donor == 0
    arrays = [np.array(a) for a in r.arrays]
    PlanRunner(new_plan)(arrays)
    np.testing.assert_allclose(arrays[0], f(W, X, G))

    def square(w):
        return w - 0.1 * (w @ w)

    new_plan = plan(recorded(square, RNG.normal(size=(30, 30))).program, donated=((0, 0),))
    (step,) = new_plan.steps
    assert step.out.buffer.donor < 0  # it is read as an operand, too


def test_weights_of_a_network():
    def loss(w, v, x):
        return np.sum(np.tanh(np.tanh(x @ w) @ v))

    def step(w, v, x):
        gw, gv = adarray.grad(loss, argnums=(0, 1))(w, v, x)
        return w - 0.1 * gw, v - 0.1 * gv

    plan_steps = steps(step, W, RNG.normal(size=(20, 15)), X)
    added = [s for s in plan_steps if isinstance(s, MatmulStep) and s.added is not None]
    assert [s.scale for s in added] == [-0.1, -0.1]


def test_small_matrices_are_updated_by_kernels(monkeypatch):
    monkeypatch.setattr(accumulate, "LEAST", W.nbytes + 1)
    first, second = steps(ACCUMULATED["w - r * p"][0], W, X, G)
    assert isinstance(first, MatmulStep)
    assert first.added is None
    assert isinstance(second, KernelStep)


B = RNG.normal(size=20).astype(np.float32)
LAYER = [RNG.normal(size=s).astype(np.float32) for s in ((40, 30), (30, 20))]
LAST = RNG.normal(size=(20, 17)).astype(np.float32)
LAYERS = {
    "a vector": (lambda x, w, b, v: (x @ w + b) @ v, False),
    "a vector first": (lambda x, w, b, v: (b + x @ w) @ v, False),
    "a row": (lambda x, w, b, v: (x @ w + b[None]) @ v, False),
    "maximum": (lambda x, w, b, v: np.maximum(x @ w + b, 0) @ v, True),
    "maximum first": (lambda x, w, b, v: np.maximum(0, x @ w + b) @ v, True),
    "turned": (lambda x, w, b, v: v.T @ np.maximum(x @ w + b, 0).T, True),
    "a result": (lambda x, w, b, v: (np.maximum(x @ w + b, 0), v + 1), True),
    "both": (lambda x, w, b, v: ((h := np.maximum(x @ w + b, 0)), h @ v), True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    f, relu = LAYERS[name]
    args = (*LAYER, B, LAST)
    r = recorded(f, *args)
    new_plan = plan(r.program)
    expected = f(*args)
    many = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(PlanRunner(new_plan)(list(r.arrays)), many, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    first = new_plan.steps[0]
    assert isinstance(first, MatmulStep)
    assert first.row is not None
    assert first.relu == relu
    assert len(first.operands) == 3
    old = planning.plan(r.program, target=CPU)
    assert all(s.row is None for s in old.steps if isinstance(s, MatmulStep))


NO_LAYERS = {
    "something else reads it": lambda x, w, b, v: ((h := np.maximum(x @ w + b, 0)) @ v, np.sum(h)),
    "the sum is read": lambda x, w, b, v: ((z := x @ w + b) * 2, np.maximum(z, 0) @ v),
    "another function": lambda x, w, b, v: np.tanh(x @ w + b) @ v,
    "another bound": lambda x, w, b, v: np.maximum(x @ w + b, 1) @ v,
    "a column": lambda x, w, b, v: (x @ w + x[:, :1]) @ v,
    "a row with gaps": lambda x, w, b, v: (x @ w + v[:, 3]) @ v,
    "computed": lambda x, w, b, v: (x @ w + np.exp(b)) @ v,
    "the product is read": lambda x, w, b, v: ((p := x @ w) * 2, (p + b) @ v),
}


@pytest.mark.parametrize("name", NO_LAYERS)
def test_what_are_no_layers(name):
    new_plan = plan(recorded(NO_LAYERS[name], *LAYER, B, LAST).program).steps
    assert all(s.row is None for s in new_plan if isinstance(s, MatmulStep))
    assert any(isinstance(s, KernelStep) for s in new_plan)


def test_layers_of_networks_and_their_gradients():
    def model(w, b, v, x):
        return np.maximum(np.maximum(x @ w + b, 0) @ v, 0) @ v.T @ w.T

    def loss(w, b, v, x):
        return np.sum(model(w, b, v, x) ** 2)

    args = LAYER[1], B, LAST, LAYER[0]
    new_plan = plan(recorded(model, *args).program).steps
    assert sum(s.row is not None for s in new_plan if isinstance(s, MatmulStep)) == 1
    # Gradients need what the layer was before its maximum.
    new_plan = plan(recorded(adarray.grad(loss), *args).program).steps
    assert not any(s.row is not None for s in new_plan if isinstance(s, MatmulStep))
