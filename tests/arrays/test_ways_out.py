"""Every way by which a traced value could become a plain one: it raises, or it is right."""

from __future__ import annotations

import array as stdlib_array
import copy
import decimal
import fractions
import io
import itertools
import json
import math
import operator
import pickle
import random
import re
import statistics
import struct

import numpy as np
import pytest

import adarray
from adarray import ADArray, TraceError
from adarray.testing import check_grads

X = np.linspace(0.2, 1.4, 4)
MESSAGE = "a traced value would leave the graph, and its gradient would be lost"
RNG = np.random.default_rng(5)
MAPPED = np.zeros(3).view(np.memmap)


def into(buffer, index=0):
    return lambda x: operator.setitem(buffer, index, x[0] if index == 0 else x)


# What raises a TraceError, or an error that a TraceError caused.
REFUSED = {
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "complex": lambda x: complex(x[0]),
    "float of weak": lambda x: float(x[0].item()),
    "index": lambda x: [1, 2, 3][x[0]],
    "range": lambda x: range(x[0]),
    "math.exp": lambda x: math.exp(x[0]),
    "math.sqrt": lambda x: math.sqrt(x[0]),
    "math.hypot": lambda x: math.hypot(x[0], x[1]),
    "math.fsum": lambda x: math.fsum(x),
    "math.isnan": lambda x: math.isnan(x[0]),
    "math.pow": lambda x: math.pow(x[0], 2),
    "cmath": lambda x: __import__("cmath").exp(x[0]),
    "statistics": lambda x: statistics.fmean(x),
    "decimal": lambda x: decimal.Decimal(x[0]),
    "fraction": lambda x: fractions.Fraction(x[0]),
    "np.asarray": lambda x: np.asarray(x),
    "np.array": lambda x: np.array(x),
    "np.array of a list": lambda x: np.array([x[0], 1.0]),
    "np.array of lists": lambda x: np.array([[x[0], 1.0], [2.0, x[1]]]),
    "np.array of float": lambda x: np.array(x, dtype=float),
    "np.array of integers": lambda x: np.array(x, dtype=int),
    "np.asarray of float32": lambda x: np.asarray(x, np.float32),
    "np.ascontiguousarray": lambda x: np.ascontiguousarray(x),
    "np.asanyarray": lambda x: np.asanyarray(x[0]),
    "np.float64": lambda x: np.float64(x[0]),
    "np.float32": lambda x: np.float32(x[0]),
    "np.int64": lambda x: np.int64(x[0]),
    "np.fromiter": lambda x: np.fromiter(x, float),
    "np.frombuffer": lambda x: np.frombuffer(x),
    "np.from_dlpack": lambda x: np.from_dlpack(x),
    "np.full": lambda x: np.full(3, x[0]),
    "np.ma.array": lambda x: np.ma.array(x),
    "np.r_": lambda x: np.r_[x, 1.0],
    "np.vectorize": lambda x: np.vectorize(math.exp)(x),
    "np.ndarray.dot": lambda x: np.ones((2, 4)).dot(x),
    "np.array with None": lambda x: np.array([x[0], None]),
    "np.random": lambda x: np.random.RandomState(0).normal(x),
    "rng.normal": lambda x: RNG.normal(x, 1.0),
    "rng.normal scalar": lambda x: RNG.normal(x[0]),
    "rng.uniform": lambda x: RNG.uniform(0.0, x[1]),
    "rng.poisson": lambda x: RNG.poisson(x),
    "rng.choice": lambda x: RNG.choice(x),
    "rng.permutation": lambda x: RNG.permutation(x),
    "rng.choice p": lambda x: RNG.choice(4, p=x),
    "random.gauss": lambda x: float(random.gauss(x[0], 1.0)),
    "item assignment": into(np.zeros(3)),
    "slice assignment": into(np.zeros(4), slice(None)),
    "integer buffer": into(np.zeros(3, int)),
    "structured buffer": lambda x: operator.setitem(np.zeros(3, [("t", float)])["t"], 0, x[0]),
    "masked buffer": into(np.ma.zeros(3)),
    "array.array": into(stdlib_array.array("d", [0.0])),
    "flat assignment": lambda x: operator.setitem(np.zeros(4).flat, slice(None), x),
    "fill": lambda x: np.zeros(3).fill(x[0]),
    "itemset": lambda x: np.zeros(3).put(0, x[0]),
    "put": lambda x: np.put(np.zeros(3), 0, x[0]),
    "copyto": lambda x: np.copyto(np.zeros(4), x),
    "place": lambda x: np.place(np.zeros(4), [True] * 4, x),
    "putmask": lambda x: np.putmask(np.zeros(4), [True] * 4, x),
    "fill_diagonal": lambda x: np.fill_diagonal(np.zeros((2, 2)), x[:2]),
    "put_along_axis": lambda x: np.put_along_axis(np.zeros(4), np.array([1]), x[:1], 0),
    "out": lambda x: np.sin(x, out=np.zeros(4)),
    "out with where": lambda x: np.sin(x, out=np.zeros(4), where=np.ones(4, bool)),
    "two outs": lambda x: np.divmod(x, 2.0, out=(np.zeros(4), np.zeros(4))),
    "function's out": lambda x: np.sum(x, out=np.zeros(())),
    "reduce out": lambda x: np.add.reduce(x, out=np.zeros(())),
    "at": lambda x: np.add.at(np.zeros(4), [0], x[0]),
    "object to float": lambda x: np.array([x[0], None])[:1].astype(float),
    "tolist": lambda x: x.tolist(),
    "tobytes": lambda x: x.tobytes(),
    "bytes": lambda x: bytes(x),
    "bytearray": lambda x: bytearray(x),
    "memoryview": lambda x: memoryview(x),
    "data": lambda x: x.data,
    "ctypes attribute": lambda x: x.ctypes,
    "tofile": lambda x: x.tofile(io.BytesIO()),
    "dump": lambda x: x.dump(io.BytesIO()),
    "dumps": lambda x: x.dumps(),
    "pickle": lambda x: pickle.dumps(x),
    "pickle in a dict": lambda x: pickle.dumps({"x": x * 2}),
    "dlpack": lambda x: x.__dlpack__(),
    "view": lambda x: x.view(np.int64),
    "np.save": lambda x: np.save(io.BytesIO(), x),
    "np.savez": lambda x: np.savez(io.BytesIO(), x),
    "np.savetxt": lambda x: np.savetxt(io.StringIO(), x),
    "flat to array": lambda x: np.asarray(x.flat),
    "struct": lambda x: struct.pack("d", x[0]),
    "json": lambda x: json.dumps(x[0]),
    "json of a list": lambda x: json.dumps(list(x)),
    "str %": lambda x: f"{x[0]:d}",
    "%": lambda x: "%.3f" % x[0],  # noqa: UP031
    "datetime": lambda x: __import__("datetime").timedelta(seconds=x[0]),
    "sleep": lambda x: __import__("time").sleep(x[0]),
    "complex()": lambda x: complex(x[0], x[1]),
    "np.nditer": lambda x: [v for v in np.nditer(x)],  # noqa: C416
    "np.ndenumerate": lambda x: list(np.ndenumerate(x)),
    "initial of a plain reduction": lambda x: np.add.reduce(np.ones(3), initial=x[0]),
    "initial of a plain sum": lambda x: np.sum(np.ones(3), initial=x[0]),
    "plain item +=": lambda x: operator.setitem((b := np.ones(3)), 0, b[0] + x[0]),
    "plain slice +=": lambda x: operator.iadd(np.ones(4)[:], x),
    "plain @=": lambda x: operator.imatmul(np.eye(4), np.outer(x, x)),
    "assert_allclose": lambda x: np.testing.assert_allclose(x, X),
    "np.lib.format": lambda x: np.lib.format.write_array(io.BytesIO(), x),
    "np.memmap": lambda x: operator.setitem(MAPPED, 0, x[0]),
    "list of traced alone": lambda x: np.hypot([x[1], x[2]], 3.0),
    "np.float16": lambda x: np.float16(x[0]),
}
# Errors of Python or NumPy that hide the TraceError they come from, or stand before it.
OWN_ERRORS = {
    "struct", "json", "json of a list", "datetime", "decimal", "fraction", "bytearray",
    "memoryview", "np.frombuffer", "str %", "array.array", "np.nditer", "np.lib.format",
    "index", "range", "sleep",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    result = []

    def f(x):
        result.append(REFUSED[name](x))
        return x.sum()

    with pytest.raises((TypeError, ValueError, struct.error)) as caught:
        adarray.grad(f, intercept=False)(X)
    assert not result
    error: BaseException | None = caught.value
    chain = []
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    if name not in OWN_ERRORS:
        traced = [e for e in chain if isinstance(e, TraceError)]
        assert traced, chain
        assert MESSAGE in str(traced[0])
        assert "adarray.value_of(x)" in str(traced[0])


def test_forward_mode_refuses_as_well():
    for f in (float, np.asarray, pickle.dumps, lambda x: np.copyto(np.zeros(()), x)):
        with pytest.raises(TraceError, match=re.escape(MESSAGE)):
            adarray.jvp(lambda x: f(x[0]), (X,), (X,), intercept=False)  # noqa: B023


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: RNG.normal(x, 1.0),
        lambda x: RNG.normal(x[0]),
        lambda x: RNG.normal(0.0, x[0]),
        lambda x: np.random.RandomState(1).standard_normal() * np.random.RandomState(1).normal(x),
    ],
)
def test_random_draws_say_how_to_reparametrise(draw):
    with pytest.raises(TraceError, match=re.escape("loc + scale * rng.normal(size=...)")):
        adarray.grad(lambda x: np.sum(draw(x)), intercept=False)(X)


def objects(x):
    array = np.empty(len(x), object)
    for k, v in enumerate(x):
        array[k] = v
    return array


def stored(buffer, value):
    buffer[0] = value
    return buffer[0]


# What stays in the graph, against the same code on plain arrays.
KEPT = {
    "random.choice": lambda x: random.Random(3).choice(x) ** 2,
    "random.gauss": lambda x: random.Random(3).gauss(x[0], x[1]),
    "sum": sum,
    "max": max,
    "min": lambda x: min(x, key=lambda v: -v),
    "sorted": lambda x: sorted(x, reverse=True)[1] ** 2,
    "list": lambda x: list(x)[2] * 2,
    "tuple unpacking": lambda x: operator.mul(*x[:2]),
    "star": lambda x: (lambda first, *rest: first * rest[-1])(*x),
    "pairwise": lambda x: sum(a * b for a, b in itertools.pairwise(x)),
    "enumerate": lambda x: sum(k * v for k, v in enumerate(x)),
    "reversed": lambda x: next(iter(reversed(x))) * 3,
    "map": lambda x: sum(map(np.sin, x)),
    "reduce": lambda x: __import__("functools").reduce(operator.mul, x),
    "accumulate": lambda x: list(itertools.accumulate(x, operator.mul))[2],
    "math.prod": lambda x: math.prod(x),
    "math.sumprod": lambda x: sum(p * q for p, q in zip(x, X, strict=True)),
    "item": lambda x: x[1].item() * x[2].item(),
    "copy": lambda x: copy.copy(x)[0] * copy.deepcopy({"x": x})["x"][1],
    "object array": lambda x: objects(x).dot(X),
    "sum of objects": lambda x: np.sum(objects(x * x)),
    "ufunc of objects": lambda x: np.multiply(objects(x), objects(x[::-1]))[0],
    "object buffer": lambda x: stored(np.empty(1, object), x[0] * 2),
    "pow": lambda x: pow(x[0], 3),
    "abs": lambda x: abs(-x[0]),
    "round": lambda x: x[0] * round(x[1]) * (1 + round(x[1], 1)),
    "floor": lambda x: x[0] * math.floor(x[3]) + math.ceil(x[2]) * math.trunc(x[1] + 3),
    "divmod": lambda x: divmod(x[3], 0.3)[1],
    "bool buffer": lambda x: x.sum() * stored(np.zeros(1, bool), x[0]),
    "comparison": lambda x: x[0] if x[0] < x[1] else x[2],
    "index": lambda x: x[np.argmax(x)] * X[np.argmin(x)],
    "dict": lambda x: {"a": x[0], "b": x[1]}["b"] ** 2,
    "statistics": lambda x: sum(x) / len(x),
    "generator": lambda x: sum(v * v for v in x),
    "format": lambda x: x[0] * len(f"{x[1]:.3f}") * ("0." in str(x)),
    "ndarray @": lambda x: (np.ones((2, 4)) @ x).sum(),
    "ndarray.clip": lambda x: np.full(4, 5.0).clip(0.0, x).sum(),
    "ndarray *=": lambda x: operator.mul(np.ones(4), x).sum(),
    "list of traced": lambda x: np.add(x[:2], [x[0], 1.0]).sum(),
    "sum of arrays": lambda x: sum([np.ones(4), x * 2, X]).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    check_grads(KEPT[name], (X + 0.013,))


def test_text_shows_the_values_and_lets_go_of_nothing():
    def f(x):
        y = x * 2.0
        assert repr(y) == "ADArray([0.4, 1.2, 2. , 2.8], traced)"
        assert str(y) == "[0.4 1.2 2.  2.8]"
        print(f"{y[0]:.3f}|{y[1]:>6.2f}|{y.sum():e}", file=shown)
        assert f"{y}" == "[0.4 1.2 2.  2.8]"
        assert {str(y): 1} == {"[0.4 1.2 2.  2.8]": 1}
        print("{:.1f}".format(x[0].item()), file=shown)  # noqa: UP032
        assert repr(x.astype(np.float32)[:1]) == "ADArray([0.2], dtype=float32, traced)"
        with pytest.raises(TypeError, match="unsupported format string"):
            f"{y:.3f}"
        print(y, file=shown)
        return np.sum(y**2)

    shown = io.StringIO()
    np.testing.assert_allclose(adarray.grad(f)(X), 8 * X)
    assert shown.getvalue() == "0.400|  1.20|6.400000e+00\n0.2\n[0.4 1.2 2.  2.8]\n"
    assert repr(adarray.array([1, 2])) == "ADArray([1, 2], dtype=int64)"


def test_untraced_arrays_leave_freely():
    x = adarray.array(X)
    assert math.exp(x[0]) == math.exp(X[0])
    assert json.dumps(x.tolist()) == json.dumps(X.tolist())
    assert struct.unpack("d", struct.pack("d", x[0])) == (X[0],)
    assert bytes(x) == X.tobytes()
    assert math.fsum(x) == math.fsum(X)
    np.testing.assert_array_equal(np.fromiter(x, float), X)
    np.testing.assert_array_equal(RNG.permutation(x).shape, (4,))
    np.testing.assert_array_equal(np.r_[x, 1.0], np.r_[X, 1.0])
    buffer = np.zeros(4)
    buffer[:] = x
    buffer.flat[0] = x[1]
    np.testing.assert_array_equal(buffer[1:], X[1:])
    for f in (copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))):
        y = f(x)
        assert type(y) is ADArray
        y[0] = 9.0
        assert x[0] == X[0]
    plain = np.asarray(x)
    plain[0] = 7.0
    assert x[0] == 7.0
    assert np.shares_memory(np.asarray(x, copy=False), plain)
    assert not np.shares_memory(np.array(x), plain)
    with pytest.raises(ValueError, match="copy=False, and the values have to be copied"):
        np.asarray(x, np.float32, copy=False)
    for f in (memoryview, io.BytesIO(bytes(32)).readinto):
        with pytest.raises(TypeError):  # as a copy, it would take writes and lose them
            f(x)


def test_leaves_pickle_and_copy_as_leaves():
    leaf = adarray.array(X, requires_grad=True)
    np.sum(leaf**2).backward()
    for f in (copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))):
        other = f({"w": leaf})["w"]
        assert other.requires_grad
        np.testing.assert_array_equal(other.grad, leaf.grad)
        np.sum(other * 3).backward()
        np.testing.assert_allclose(other.grad, 2 * X + 3)
        np.testing.assert_allclose(leaf.grad, 2 * X)
    with pytest.raises(TraceError, match=r"pickle x\.numpy"):
        pickle.dumps(leaf * 2)


def test_rows_are_views():
    def f(x):
        y = np.outer(x, x)
        for k, row in enumerate(y):
            row *= k
            for j, v in enumerate(row):
                row[j] = v + x[0]
        first, *_ = y
        first[...] = x
        return np.sum(y**2)

    check_grads(f, (X,), order=2)
