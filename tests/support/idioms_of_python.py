"""Idioms: control flow, functions, state, numbers and printing.

For `idiom`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import itertools
import operator
from collections import deque, namedtuple
from typing import Any

import numpy as np
from idiom import M, W, idiom

import adarray

# -- control flow --------------------------------------------------------------------------------


@idiom
def _branch_on_a_value(x: Any) -> Any:
    if x[0] > x[1]:
        y = x**2
    elif np.all(x > 0):
        y = np.log(x)
    else:
        y = x
    return y


@idiom
def _while_on_a_value(x: Any) -> Any:
    y = x
    while np.linalg.norm(y) > 0.5:
        y = y * 0.7
    return y * x


@idiom
def _newton_iteration(x: Any) -> Any:
    root = np.ones_like(x)
    for _ in range(50):
        step = (root * root - x) / (2 * root)
        root = root - step
        if np.max(np.abs(step)) < 1e-12:
            break
    return root


@idiom
def _recursion(x: Any) -> Any:
    def total(a: Any) -> Any:
        return a[0] ** 2 if len(a) == 1 else total(a[: len(a) // 2]) * total(a[len(a) // 2 :])

    return total(x)


@idiom
def _for_over_elements(x: Any) -> Any:
    product = 1.0
    for v in x:
        product = product * (1 + v)
    return product


@idiom
def _conditional_expression_and_short_circuit(x: Any) -> Any:
    y = x[0] if x[0] > 0 and x[1] > 0 else -x[0]
    return y * (x[2] or 1.0)


@idiom
def _min_and_max_of_python(x: Any) -> Any:
    return max(x[0], x[1]) * min(x) + abs(x[2])


@idiom
def _sum_of_python(x: Any) -> Any:
    return sum(x) + sum(v**2 for v in x)


@idiom
def _try_and_finally(x: Any) -> Any:
    y = x.copy()
    with contextlib.suppress(ZeroDivisionError):
        y[0] = y[1] * y[2]
        raise ZeroDivisionError
    return y


# -- functions -------------------------------------------------------------------------------------


@idiom
def _closure(x: Any) -> Any:
    scale = x[0]

    def scaled(v: Any) -> Any:
        return v * scale

    return scaled(x) + scaled(1.0)


@idiom
def _nonlocal_state(x: Any) -> Any:
    total = 0.0

    def add(v: Any) -> None:
        nonlocal total
        total = total + v**2

    for v in x:
        add(v)
    return total


@idiom
def _generator(x: Any) -> Any:
    def partial_sums(a: Any) -> Any:
        s = 0.0
        for v in a:
            s = s + v
            yield s

    return np.stack(list(partial_sums(x)))


@idiom
def _map_and_reduce(x: Any) -> Any:
    return functools.reduce(operator.mul, map(np.sin, x))


@idiom
def _comprehension_and_stack(x: Any) -> Any:
    return np.stack([v * np.cos(v) for v in x])


@idiom
def _itertools(x: Any) -> Any:
    return sum(a * b for a, b in itertools.combinations(x, 2))


@idiom
def _partial_and_lambda(x: Any) -> Any:
    return functools.partial(np.power, x)(2.0) + (lambda a, b=3.0: a * b)(x)


@idiom
def _star_arguments(x: Any) -> Any:
    def f(first: Any, *rest: Any, power: float = 2) -> Any:
        return first * sum(rest) ** power

    return f(*x, power=3)


@idiom
def _inner_derivative(x: Any) -> Any:
    return adarray.grad(lambda y: np.sum(np.sin(y) * x))(x * 1.0)


# -- state ---------------------------------------------------------------------------------------


@idiom
def _state_in_a_tuple(x: Any) -> Any:
    position, velocity = x[:3], x[3:]
    for _ in range(5):
        velocity = velocity - 0.1 * position
        position = position + 0.1 * velocity
    return np.concatenate([position, velocity])


@idiom
def _state_in_a_dict(x: Any) -> Any:
    state = {"sum": 0.0, "max": x[0]}
    for v in x:
        state["sum"] = state["sum"] + v * v
        state["max"] = v if v > state["max"] else state["max"]
    return state["sum"] * state["max"]


@idiom
def _state_in_a_list(x: Any) -> Any:
    layers = [x]
    for k in range(3):
        layers.append(np.tanh(layers[-1] * (k + 1)))
    return np.mean(layers[-1] + layers[1])


@idiom
def _deque_of_the_last(x: Any) -> Any:
    window: deque[Any] = deque(maxlen=3)
    means = []
    for v in x:
        window.append(v)
        means.append(sum(window) / len(window))
    return np.stack(means)


@idiom
def _namedtuple(x: Any) -> Any:
    point = namedtuple("point", "a b")
    p = point(x[:3], x[3:])
    p = p._replace(a=p.a * p.b)
    return p.a + p.b


@dataclasses.dataclass
class _Model:
    weights: Any
    bias: Any = 0.0
    calls: int = 0

    def __call__(self, v: Any) -> Any:
        self.calls += 1
        return v @ self.weights + self.bias


@idiom
def _object_attributes(x: Any) -> Any:
    model = _Model(x.reshape(3, 2))
    model.bias = x[0]
    model.weights = model.weights * 2
    return model(np.ones(3)) + model(np.arange(3.0))


@idiom
def _attribute_updated_in_place(x: Any) -> Any:
    model = _Model(x * 1.0)
    model.weights *= 2
    model.weights[0] += x[1]
    return model.weights**2


@idiom
def _cache_in_a_dict(x: Any) -> Any:
    cache: dict[int, Any] = {}

    def fibonacci(n: int) -> Any:
        if n < 2:
            return x[n]
        if n not in cache:
            cache[n] = fibonacci(n - 1) + 0.5 * fibonacci(n - 2)
        return cache[n]

    return fibonacci(8)


# -- numbers, randomness, printing -----------------------------------------------------------------


@idiom
def _random_noise_by_reparametrisation(x: Any) -> Any:
    rng = np.random.default_rng(0)
    return np.mean(x + x**2 * rng.normal(size=(5, 6)))


@idiom
def _random_choice_of_rows(x: Any) -> Any:
    rng = np.random.default_rng(0)
    return x[rng.permutation(6)] * W + x[rng.integers(0, 6, size=6)]


@idiom
def _item_in_arithmetic(x: Any) -> Any:
    return x * x[0].item() + x.item(1)


@idiom
def _formatted(x: Any) -> Any:
    print(f"{x[0]:.3f} {np.sum(x):8.2e}", str(x), file=io.StringIO())
    return x * 2


@idiom
def _numpy_scalars(x: Any) -> Any:
    return np.float64(2.0) * x + np.int64(3) * x**2 / np.float32(2)


@idiom
def _shape_arithmetic(x: Any) -> Any:
    n, (m,) = len(x), x.shape
    return x.reshape(n // 2, -1).sum(axis=0) / (m * x.size * x.ndim)


@idiom
def _comparison_as_a_number(x: Any) -> Any:
    return np.sum((x > 1) * x) + np.sum((x < 1).astype(float) * x**2)


@idiom
def _integer_steps(x: Any) -> Any:
    return np.floor(x) * x + np.round(x) + x // 1


@idiom
def _softmax_by_hand(x: Any) -> Any:
    e = np.exp(x - np.max(x))
    return np.log(e / e.sum())


@idiom
def _distances_by_broadcasting(x: Any) -> Any:
    points = x.reshape(3, 2)
    d = points[:, None, :] - points[None, :, :]
    return np.sum(np.sqrt(np.sum(d**2, axis=-1) + 1e-3))


@idiom
def _chained_methods(x: Any) -> Any:
    return x.reshape(2, 3).T.cumsum(axis=0).clip(0.5, 3.0).mean(axis=1).sum()


@idiom
def _where_keeps_the_safe_branch(x: Any) -> Any:
    return np.where(x > 1, np.sqrt(np.abs(x - 1)), x**2)


@idiom
def _block_matrices(x: Any) -> Any:
    a = x[:4].reshape(2, 2)
    return np.linalg.solve(np.block([[a, np.eye(2)], [np.eye(2) * 3, a.T]]), np.ones(4))


@idiom
def _einsum_and_matmul(x: Any) -> Any:
    return np.einsum("i,ij,j->", x, M, x) + x @ M @ x
