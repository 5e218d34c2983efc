"""Every way in which Python reads a value: recorded, or eager with the reason; never stale."""

from __future__ import annotations

import bisect
import copy
import functools
import heapq
import io
import itertools
import json
import logging
import math
import operator
import pickle
import re
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning

X = np.array([1.5, -2.0, 3.0])
INPUTS = [X, X, X * 1.1, -X[::-1], X, np.array([2.5, 1.0, 4.2]), np.array([0.0, -1.0, 2.0]),
          -X[::-1], np.array([2.5, 1.0, 4.2]), X]  # fmt: skip


def matched(x: Any) -> Any:
    match float(x[0]):
        case 1.5:
            return x
        case v if v > 2:
            return x * 2
    return -x


def asserted(x: Any) -> Any:
    try:
        np.testing.assert_array_less(x, 3.5)
    except AssertionError:
        return x * 0
    return x


def appended(x: Any) -> Any:
    items = [x[0]]
    for i, v in enumerate(x):
        items.append(v * items[i])
    return np.array(items)


def printed(x: Any) -> Any:
    stream = io.StringIO()
    print(f"{x[0]:.3f}", x, file=stream)
    logging.getLogger("jit").debug("value %s %r", x[0], x)
    if x[0] > 1e9:
        raise ValueError(f"too large: {x}")
    return x * 2


def named(x: Any) -> Any:
    label = f"{x[0]:.1f}"
    return x * float(label)


def accumulated(x: Any) -> Any:
    return list(itertools.accumulate(x, operator.mul))


# What is recorded.
RECORDED: dict[str, Callable[[Any], Any]] = {
    "float": lambda x: x * float(x[0]),
    "float of a sum": lambda x: float(x.sum()),
    "int": lambda x: x[: int(abs(x[2]))],
    "bool": lambda x: x if bool(x[0] > 0) else -x,
    "complex": lambda x: complex(x[0]),
    "item": lambda x: (x[0].item(), x.item(1), x.sum().item()),
    "len": lambda x: x * len(x),
    "len of what a mask picks": lambda x: len(x[x > 0]) * x,
    "tolist": lambda x: [v * 2 for v in x.tolist() if v > 0],
    "asarray": lambda x: np.asarray(x) * 2,
    "asarray with dtype": lambda x: np.asarray(x, dtype=np.float32),
    "array": lambda x: np.array(x) + 1,
    "array of arrays": lambda x: np.array([x, x * 2]),
    "array of scalars": lambda x: np.array([x[0], x[1] ** 2]),
    "ascontiguousarray": lambda x: np.ascontiguousarray(x[::-1]),
    "fromiter": lambda x: np.fromiter((v * 2 for v in x), float),
    "iteration": lambda x: sum(v * i for i, v in enumerate(x)),
    "appended": appended,
    "unpacking": lambda x: (lambda a, b, c: a * b + c)(*x),
    "in": lambda x: x * 2 if 1.5 in x else x,
    "in a list": lambda x: x[0] in [1.5, 2.0],
    "in a dict": lambda x: {1.5: 1, 2.5: 2}.get(x[0], 0),
    "hash": lambda x: hash(x[0]),
    "set": lambda x: len({x[0], x[1], x[0]}),
    "key": lambda x: {float(x[0]): x[1]},
    "isscalar": lambda x: (np.isscalar(x), np.isscalar(x[0]), np.isscalar(x.sum())),
    "isinstance": lambda x: (isinstance(x, np.ndarray), isinstance(x[0], np.floating)),
    "dtype and shape": lambda x: np.zeros(x.shape, x.dtype) + x.ndim + x.size + x.nbytes,
    "copy": lambda x: copy.copy(x) * 2,
    "deepcopy": lambda x: copy.deepcopy({"a": x})["a"] + 1,
    "array_equal": lambda x: x if np.array_equal(x, np.abs(x)) else -x,
    "allclose": lambda x: np.allclose(x, X),
    "isclose": lambda x: math.isclose(x[0], 1.5),
    "round": lambda x: (round(x[0]), round(x[0], 1), round(float(x[0]), 1)),
    "math": lambda x: math.sin(x[0]) + math.floor(x[1]) + math.ceil(x[2]) + math.trunc(x[1]),
    "sum and max": lambda x: (sum(x), max(x), min(x, key=abs)),
    "sorted": lambda x: (sorted(x), sorted(range(3), key=lambda i: x[i])),
    "any and all": lambda x: (any(x > 2), all(v > -3 for v in x)),
    "zip and map": lambda x: [a * b for a, b in zip(x, map(abs, x), strict=True)],
    "reduce": lambda x: functools.reduce(operator.mul, x),
    "accumulate": accumulated,
    "divmod": lambda x: divmod(x[0], 0.7),
    "range": lambda x: sum(range(int(x[2]))),
    "argmax of a list": lambda x: [10, 20, 30][np.argmax(x)],
    "operator.index": lambda x: operator.index(np.argmax(x)),
    "slice": lambda x: x[slice(int(abs(x[2])) - 1, None)],
    "chained": lambda x: x if 0 < x[0] < 2 else -x,
    "and, or, not": lambda x: (x[0] and x[1], x[0] or x[1], not x[0] > 2),
    "match": matched,
    "bisect": lambda x: bisect.bisect([0.0, 1.0, 2.0], x[0]),
    "heapq": lambda x: heapq.nsmallest(2, x.tolist()),
    "conversions": lambda x: (np.float64(x[0]), np.float32(x[1]), np.int64(x[2])),
    "conversion to bool": lambda x: np.bool_(x[0] > 0),
    "flat": lambda x: [v * 2 for v in x.flat],
    "ndenumerate": lambda x: sum(i[0] * v for i, v in np.ndenumerate(x)),
    "vectorize": lambda x: np.vectorize(lambda v: v if v > 0 else 0.0)(x),
    "piecewise": lambda x: np.piecewise(x, [x > 0, x <= 0], [np.sqrt, lambda v: -v]),
    "apply_along_axis": lambda x: np.apply_along_axis(np.cumsum, 0, x),
    "arange": lambda x: np.arange(0.0, abs(x[2]), 0.5),
    "linspace": lambda x: np.linspace(0.0, x[0], int(abs(x[2]))),
    "number of elements": lambda x: np.zeros(np.count_nonzero(x > 0)),
    "methodcaller": lambda x: operator.methodcaller("sum")(x),
    "list times": lambda x: [0] * int(x[2]),
    "printed": printed,
    "caught assertion": asserted,
    "assertion": lambda x: (np.testing.assert_allclose(x[0], x[0]), x * 2)[1],
}

# What stays eager, and what the warning says.
EAGER: dict[str, tuple[Callable[[Any], Any], str]] = {
    "named": (named, "text is made of a computed value and used"),
    "text": (lambda x: str(x), "text"),
    "length of text": (lambda x: x * len(str(x[0])), "text is made of a computed value"),
    "array2string": (lambda x: len(np.array2string(x)), "array2string returned a str"),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), "cannot be recorded"),
    "json": (lambda x: json.loads(json.dumps(x.tolist())), "JSON: a traced value would leave"),
    "statistics": (lambda x: statistics.mean(x.tolist()), "cannot be recorded"),
    "tobytes": (lambda x: np.frombuffer(x.tobytes()), r"plain ndarray.*file .*test_host_reads"),
    "memoryview": (lambda x: memoryview(x).nbytes, "memoryview"),
    "ctypes": (lambda x: x.ctypes.data != 0, "ctypes of a computed array"),
    "setflags": (lambda x: ((y := x * 2).setflags(write=False), y)[1], "setflags"),
    "masked array": (lambda x: float(np.ma.masked_less(x, 0).sum()), "by masked_less of numpy"),
    "matrix": (lambda x: np.asarray(np.asmatrix(x)), "by asmatrix of numpy"),
}


def same(got: Any, expected: Any) -> None:
    """Compare results of any structure, with their types."""
    if isinstance(expected, (list, tuple)):
        assert type(got) is type(expected)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            same(a, b)
    elif isinstance(expected, dict):
        same(list(got), list(expected))
        same(list(got.values()), list(expected.values()))
    elif isinstance(expected, (np.ndarray, np.generic, float)):
        assert type(got) is type(expected)
        assert np.result_type(got) == np.result_type(expected)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    else:
        assert got == expected


def run(f: Callable[[Any], Any]) -> list[warnings.WarningMessage]:
    """Compare a function with itself compiled, on all inputs; return the warnings of `jit`."""
    jitted = adarray.jit(f)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for x in INPUTS:
            same(jitted(x.copy()), f(x.copy()))
    return [w for w in said if issubclass(w.category, JitWarning)]


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str, backend: str) -> None:
    with adarray.use(backend):
        assert [str(w.message) for w in run(RECORDED[name])] == []


@pytest.mark.parametrize("name", EAGER)
def test_eager(name: str) -> None:
    f, why = EAGER[name]
    said = run(f)
    assert len(said) == 1
    assert re.search(why, str(said[0].message))


def test_assertions_that_fail_raise_in_compiled_calls() -> None:
    @adarray.jit
    def f(x: Any) -> Any:
        np.testing.assert_array_less(x, 3.5)
        return x * 2

    for _ in range(3):
        np.testing.assert_array_equal(f(X), X * 2)
        with pytest.raises(AssertionError, match=r"ordered|less"):
            f(X + 1.0)
    assert f.cache_info().eager == 0
