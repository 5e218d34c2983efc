"""Functions of C and of libraries that call a Python function with what they were given.

Derivatives pass through, or are refused; text that shows traced values is not read again.
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import functools
import heapq
import io
import itertools
import json
import math
import operator
import re
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from trust import BACKENDS, check

import adarray
from adarray.errors import ADArrayError

X = np.array([1.25, 0.5, 2.75])


class Constant(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        return 3.0


class Kept:
    """A file that keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def of_json(x: Any, **options: Any) -> Any:
    return np.sum(x) * json.loads(json.dumps({"a": [x[0], 1.5]}, **options))["a"][0]


def in_pieces(x: Any) -> Any:
    return np.sum(x) * float("".join(json.JSONEncoder(default=lambda _: 3.0).iterencode(x[0])))


def printed(x: Any) -> Any:
    file = io.StringIO()
    print(x[0], file=file)
    return float(file.getvalue()) * np.sum(x)


def printed_elsewhere(x: Any) -> Any:
    file = io.StringIO()

    def log(v: Any) -> None:
        print(v, file=file)

    log(x[0])
    return float(file.getvalue()) * np.sum(x)


def written(x: Any) -> Any:
    file = io.StringIO()
    file.write(f"{x[0]}")
    file.seek(0)
    return float(file.read()) * np.sum(x)


def redirected(x: Any) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as file:
        print(x[0])
    return float(file.getvalue()) * np.sum(x)


def kept(x: Any) -> Any:
    file = Kept()
    print(x[0], file=file)  # type: ignore[call-overload]
    return float(file.text) * np.sum(x)


def kept_and_compared(x: Any) -> Any:
    file = io.StringIO()
    print(x[0], file=file)
    return np.sum(x) * (2.0 if file.getvalue().startswith("1.25") else 3.0)


def in_threads(x: Any) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda v: v**2, list(x)))


def until(x: Any) -> Any:
    items = iter(list(x))
    return sum(v**2 for v in iter(lambda: next(items), x[2]))


def in_a_heap(x: Any) -> Any:
    heap: list[Any] = []
    for v in x:
        heapq.heappush(heap, -v)
    return heapq.heappop(heap) ** 2


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "json": of_json,
    "json default constant": lambda x: of_json(x, default=lambda _: 2.0),
    "json default float": lambda x: of_json(x, default=float),
    "json default item": lambda x: of_json(x, default=lambda o: o.item()),
    "json default indent": lambda x: of_json(x, default=lambda _: 2.0, indent=1),
    "json class": lambda x: of_json(x, cls=Constant),
    "json pieces": in_pieces,
    "json rounded": lambda x: of_json(x, default=lambda o: round(float(o), 1)),
    "sorted": lambda x: sorted(x, key=lambda v: -v)[0] ** 2,
    "sorted by a constant": lambda x: sorted(x, key=lambda _: 1)[0] ** 2,
    "sort": lambda x: functools.reduce(lambda a, b: a - b, sorted(x, key=float)),
    "cmp_to_key": lambda x: sorted(x, key=functools.cmp_to_key(lambda a, b: b - a))[0] ** 2,
    "min": lambda x: min(list(x), key=lambda v: (v - 1.9) ** 2) ** 2,
    "max": lambda x: max(x, key=lambda v: float(v)) ** 2,
    "re.sub str": lambda x: float(re.sub("a", lambda _: str(x[0]), "a")) * np.sum(x),
    "re.sub repr": lambda x: float(re.sub("a", lambda _: repr(float(x[0])), "a")) * np.sum(x),
    "reduce": lambda x: functools.reduce(lambda a, b: a * b, x),
    "reduce mul": lambda x: functools.reduce(operator.mul, list(x), 1.0),
    "map": lambda x: sum(map(lambda v: v**2, x)),  # noqa: C417
    "map float": lambda x: sum(map(float, x**2)),
    "filter": lambda x: sum(v**2 for v in filter(lambda v: v > 1.0, x)),
    "filter None": lambda x: sum(v**2 for v in filter(None, x)),
    "accumulate": lambda x: list(itertools.accumulate(x, lambda a, b: a * b))[-1],
    "starmap": lambda x: sum(itertools.starmap(lambda a, b: a * b, zip(x, x, strict=True))),
    "groupby": lambda x: sum(k * sum(g) for k, g in itertools.groupby(x, key=lambda v: v)),
    "takewhile": lambda x: sum(v**2 for v in itertools.takewhile(lambda v: v > 1.0, x)),
    "dropwhile": lambda x: sum(v**2 for v in itertools.dropwhile(lambda v: v > 1.0, x)),
    "bisect": lambda x: x[bisect.bisect([0.0, 1.0, 2.0], x[0], key=lambda v: v**2)] ** 2,
    "heap": in_a_heap,
    "nlargest": lambda x: heapq.nlargest(2, list(x), key=lambda v: v)[1] ** 2,
    "iter": until,
    "fsum": lambda x: math.fsum(v**2 for v in x),
    "prod": lambda x: math.prod(x),
    "mean": lambda x: statistics.mean(list(x)) ** 2,
    "fmean": lambda x: statistics.fmean(list(x)) ** 2,
    "vectorize": lambda x: np.sum(np.vectorize(lambda v: v**2)(x)),
    "vectorize a constant": lambda x: np.sum(np.vectorize(lambda _: 2.0)(x) * x),
    "apply_along_axis": lambda x: np.sum(np.apply_along_axis(lambda v: v**2, 0, x)),
    "piecewise": lambda x: np.sum(np.piecewise(x, [x > 1.0], [lambda v: v**2, 0.5])),
    "fromiter": lambda x: np.sum(np.fromiter((v**2 for v in x), float)),
    "deepcopy": lambda x: np.sum(copy.deepcopy({"a": x**2})["a"]),
    "threads": in_threads,
    "print": printed,
    "print in a function": printed_elsewhere,
    "write": written,
    "redirect": redirected,
    "a file of the user": kept,
    "text compared": kept_and_compared,
}
# What cannot be followed: these are refused, in every mode that differentiates.
REFUSED = frozenset({
    "json", "json default constant", "json default float", "json default item", "json class",
    "json default indent", "json pieces", "json rounded", "print", "print in a function", "write",
    "redirect", "a file of the user", "text compared", "re.sub str", "re.sub repr",
})  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_are_right_or_refused(name: str, backend: str) -> None:
    loud = (ADArrayError, TypeError, ValueError)  # those of Python, too, name the ADArray
    counts = check(PROGRAMS[name], (X,), backends=(backend,), refusals=loud)
    if name in REFUSED:
        assert counts["refused"] >= 5, counts


@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_calls_follow_their_arguments(name: str, backend: str) -> None:
    f = PROGRAMS[name]
    jitted = adarray.jit(f)
    with adarray.use(backend):
        for k in range(5):
            x = X + 0.125 * k
            np.testing.assert_allclose(jitted(x), f(x), rtol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
def test_numbers_that_are_not_traced_are_numbers(intercept: bool) -> None:
    def f(x: Any) -> Any:
        y = adarray.stop_gradient(x)
        for options in ({}, {"indent": 1}, {"default": lambda _: 2.0}):
            assert json.loads(json.dumps([y[0], y.tolist()], **options)) == [1.25, X.tolist()]
        assert json.dumps(x, default=lambda o: o.shape) == "[3]"
        assert json.dumps({1}, default=lambda o: [*o]) == "[1]"
        return np.sum(x**2)

    np.testing.assert_array_equal(adarray.grad(f, intercept=intercept)(X), 2 * X)


def test_the_refusal_says_what_to_do() -> None:
    with pytest.raises(ADArrayError, match="JSON: a traced value would leave the graph, and its"):
        adarray.grad(PROGRAMS["json default constant"])(X)
    with pytest.raises(ADArrayError, match="text: a traced value would leave the graph, and its"):
        adarray.grad(printed)(X)


def test_text_that_only_others_read_is_shown() -> None:
    file = io.StringIO()

    def f(x: Any) -> Any:
        print(x[0], file=file)
        return np.sum(x**2)

    np.testing.assert_array_equal(adarray.grad(f)(X), 2 * X)
    assert file.getvalue() == "1.25\n"
