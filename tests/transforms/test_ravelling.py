"""`ravel`: nests as vectors and back, plain, differentiated and compiled."""

from __future__ import annotations

import dataclasses
import pickle
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import DTypeError, ShapeError

Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    activation: str = "tanh"


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def nest() -> dict[str, Any]:
    """Return a nest with leaves of every kind."""
    return {
        "layers": [Layer(np.arange(6.0).reshape(2, 3).T, np.float32(0.5)), Layer(0.25, 1.0)],
        "point": Point(np.array(2.0), np.arange(3, dtype=np.float16)),
        "empty": np.zeros((0, 3)),
        "rows": np.arange(3),
        "count": 7,
        "flag": True,
        "none": None,
        "call": np.sin,
    }


def assert_same(actual: Any, expected: Any) -> None:
    """Compare leaves: values, types and dtypes."""
    a, b = (sorted_leaves(t) for t in (actual, expected))
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y)
        if isinstance(x, (np.ndarray, np.generic)):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
        else:
            assert x is y or x == y


def sorted_leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [x for k in sorted(tree) for x in sorted_leaves(tree[k])]
    if dataclasses.is_dataclass(tree):
        return sorted_leaves({f.name: getattr(tree, f.name) for f in dataclasses.fields(tree)})
    if isinstance(tree, (list, tuple)):
        return [x for t in tree for x in sorted_leaves(t)]
    return [tree]


def test_there_and_back() -> None:
    tree = nest()
    vector, unravel = adarray.ravel(tree)
    assert (vector.shape, vector.dtype) == ((13,), np.float64)
    assert_same(unravel(vector), tree)
    assert_same(pickle.loads(pickle.dumps(unravel))(vector), tree)
    assert repr(unravel) == "<unravel of a vector of shape (13,)>"
    assert list(unravel(2 * vector)["layers"][0].weight.ravel()) == [0.0, 6.0, 2.0, 8.0, 4.0, 10.0]


SMALL = [0.5, 2.0j, np.float32(1.5), np.array(3.0), np.ones((2, 2)), [], {"a": 1},
         OrderedDict(b=1.0, a=np.ones(1, np.float32))]  # fmt: skip


@pytest.mark.parametrize("tree", SMALL)
def test_small_nests(tree: Any) -> None:
    vector, unravel = adarray.ravel(tree)
    assert vector.ndim == 1
    assert_same(unravel(vector), tree)


def test_nothing_is_lost_or_shared() -> None:
    x = np.ones(2)
    vector, unravel = adarray.ravel(x)
    vector[0] = 5.0
    result = unravel(vector)
    result[1] = 7.0
    np.testing.assert_array_equal(x, [1.0, 1.0])
    np.testing.assert_array_equal(vector, [5.0, 1.0])
    assert adarray.ravel([0.1, np.ones(1, np.float32)])[0][0] == 0.1  # no digit of a number
    assert adarray.ravel(np.ones(1, np.float32))[0].dtype == np.float32
    z = {"a": np.array([1.0 + 2.0j]), "b": 0.5}
    vector, unravel = adarray.ravel(z)
    assert vector.dtype == np.complex128
    assert_same(unravel(vector + 1.0j), {"a": np.array([1.0 + 3.0j]), "b": 0.5})


def energy(tree: Any) -> Any:
    w, b = tree["layers"][0].weight, tree["layers"][0].bias
    y = np.tanh(w * b + tree["point"].x) * tree["layers"][1].weight
    return np.sum(y**2) + np.sum(tree["point"].y) * tree["layers"][1].bias ** 2 + tree["count"]


def test_derivatives_through_it() -> None:
    vector, unravel = adarray.ravel(nest())
    x = vector + 0.125

    def f(v: Any) -> Any:
        return energy(unravel(v))

    g = adarray.grad(f)(x)
    for k in (0, 4, 6, 7, 8, 9, 12):  # float32 and float16 on the way
        step = np.zeros(13)
        step[k] = 2.0**-5
        difference = (f(x + step) - f(x - step)) / 2.0**-4
        assert g[k] == pytest.approx(difference, rel=5e-2, abs=1e-2)
    np.testing.assert_allclose(adarray.jit(adarray.grad(f))(x), g, rtol=1e-6)
    np.testing.assert_allclose(adarray.hvp(f)(x, np.ones(13)), adarray.hessian(f)(x).sum(1))

    def back(tree: Any) -> Any:  # ravel and unravel of what is traced
        v, again = adarray.ravel(tree)
        return np.sum(again(v * v)["a"] * np.arange(4.0)) + np.sum(np.sin(v))

    tree = {"a": np.linspace(0.0, 1.0, 4), "b": 0.5}
    expected = {"a": 2 * tree["a"] * np.arange(4.0) + np.cos(tree["a"]), "b": np.cos(0.5)}
    for gradient in (adarray.grad(back), adarray.jit(adarray.grad(back))):
        for _ in range(2):
            slope = gradient(tree)
            np.testing.assert_allclose(slope["a"], expected["a"], rtol=1e-12)
            assert slope["b"] == pytest.approx(expected["b"])


def test_writes_stay_where_they_are() -> None:
    vector, unravel = adarray.ravel({"a": np.ones(2), "b": np.ones(2)})

    def f(v: Any) -> Any:
        tree = unravel(v * 1.0)
        tree["a"][0] = 3.0 * tree["b"][1]
        return np.sum(tree["a"] ** 2) + np.sum(v)

    np.testing.assert_allclose(adarray.grad(f)(vector), [1.0, 3.0, 1.0, 19.0])


def test_adarrays() -> None:
    vector, unravel = adarray.ravel([adarray.array([1.0, 2.0]), 0.5])
    assert isinstance(vector, adarray.ADArray)
    result = unravel(vector * 2.0)
    np.testing.assert_array_equal(result[0].numpy(), [2.0, 4.0])
    assert float(result[1]) == 1.0


def test_mistakes() -> None:
    vector, unravel = adarray.ravel({"a": np.ones(2)})
    with pytest.raises(ShapeError, match=r"^unravel: the vector has shape \(3,\), and the nest .*"):
        unravel(np.ones(3))
    with pytest.raises(DTypeError, match=r"^unravel: the vector is complex128, and the nest is re"):
        unravel(vector * 1j)
    with pytest.raises(DTypeError, match=r"^ravel: tree\['a'\]: an operand is a masked array"):
        adarray.ravel({"a": np.ma.array([1.0], mask=[True])})
