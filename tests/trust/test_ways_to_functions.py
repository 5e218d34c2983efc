"""What a function is matters, not the expression that leads to it: clocks, chance and waiting."""

from __future__ import annotations

import builtins
import collections
import datetime
import functools
import importlib
import importlib.util
import inspect
import math
import operator
import os
import pathlib
import pkgutil
import queue
import random
import resource
import select
import statistics
import threading
import time
import timeit
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from repeated import X, repeat

import adarray
from adarray.errors import ADArrayError
from adarray.jitting import JitWarning

EMIT, PEELS = "emit", "peels"  # names of functions of the clock, to be turned round


class Holder:
    clock: Any = time
    function = staticmethod(time.time)
    waiting = staticmethod(time.sleep)
    table = {"a": [time.sleep]}  # noqa: RUF012


def imported_inside() -> Any:
    import time as inner

    return vars(inner)[EMIT[::-1]]()


def made(clock: Any) -> Any:
    return lambda: getattr(clock, EMIT[::-1])()


CLOCKS: dict[str, Callable[[], Any]] = {
    "a name": lambda: time.time(),
    "vars": lambda: vars(time)["time"](),
    "vars by a text": lambda: vars(time)[EMIT[::-1]](),
    "getattr": lambda: getattr(time, EMIT[::-1])(),
    "__dict__": lambda: time.__dict__[EMIT[::-1]](),
    "attrgetter": lambda: operator.attrgetter(EMIT[::-1])(time)(),
    "methodcaller": lambda: operator.methodcaller(EMIT[::-1])(time),
    "import_module": lambda: importlib.import_module(EMIT[::-1]).time(),
    "resolve_name": lambda: pkgutil.resolve_name(f"{EMIT[::-1]}:time")(),
    "members": lambda: dict(inspect.getmembers(time))[EMIT[::-1]](),
    "a class": lambda: Holder.function(),
    "a module in a class": lambda: getattr(Holder.clock, EMIT[::-1])(),
    "an import inside": imported_inside,
    "a closure": made(time),
    "a class of dates": lambda: getattr(datetime.datetime, "won"[::-1])().timestamp(),
    "a text": lambda: np.datetime64("now").astype(int),
    "a type and a text": lambda: np.array("now", "M8[s]").astype(int),
    "builtins": lambda: len(getattr(builtins, "nepo"[::-1])(os.devnull).read()),
    "a path": lambda: len(pathlib.Path(os.devnull).read_text()),
    "a mapped file": lambda: np.memmap(__file__, mode="r")[0],
    "timing": lambda: timeit.timeit("1", number=1),
    "resources": lambda: resource.getrusage(resource.RUSAGE_SELF)[0],
    "threads": lambda: threading.active_count(),
    "chance": lambda: random.Random().random(),
    "chance of the system": lambda: random.SystemRandom().random(),
    "chance of statistics": lambda: statistics.NormalDist().samples(1)[0],
    "a seed": lambda: np.random.SeedSequence().entropy,
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("read", CLOCKS.values(), ids=CLOCKS)
def test_what_is_outside_keeps_a_function_eager(read: Any, backend: str) -> None:
    runs: list[int] = []

    def f(x: Any) -> Any:
        runs.append(1)
        return x * 2.0 if read() is None else x * 3.0

    jitted = adarray.jit(f)
    with adarray.use(backend):
        with pytest.warns(JitWarning, match=r"stays eager: it "):
            jitted(X)
        for _ in range(3):
            np.testing.assert_array_equal(jitted(X), X * 3.0)
    assert len(runs) == 4


def test_modules_whose_functions_are_named_compile(backend: str) -> None:
    def f(x: Any) -> Any:
        return x * getattr(math, "pi") * len(os.path.join("a", "b")) * getattr(x, "ndim")  # noqa: B009

    jitted = adarray.jit(f)
    with adarray.use(backend), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            np.testing.assert_allclose(jitted(X), X * math.pi * 3)
    assert jitted.cache_info().compiled == 1


# -- functions that take a float, and ask what is none for an integer ---------------------------


def waiting() -> Any:
    return time.sleep


partial_sleep = functools.partial(time.sleep)

TAKE_FLOATS: dict[str, Callable[[Any], Any]] = {
    "a name": lambda v: time.sleep(v),
    "vars": lambda v: vars(time)["sleep"](v),
    "getattr": lambda v: getattr(time, PEELS[::-1])(v),
    "__dict__": lambda v: time.__dict__[PEELS[::-1]](v),
    "attrgetter": lambda v: operator.attrgetter(PEELS[::-1])(time)(v),
    "methodcaller": lambda v: operator.methodcaller(PEELS[::-1], v)(time),
    "import_module": lambda v: getattr(importlib.import_module("time"), PEELS[::-1])(v),
    "a function": lambda v: waiting()(v),
    "a class": lambda v: Holder.waiting(v),
    "a table of a class": lambda v: Holder.table["a"][0](v),
    "a partial": lambda v: partial_sleep(v),
    "a local name": lambda v: (lambda g: g(v))(getattr(time, PEELS[::-1])),
    "map": lambda v: list(map(getattr(time, PEELS[::-1]), [v])),
    "a loop": lambda v: [i for i in map(getattr(time, PEELS[::-1]), [v])],  # noqa: C416
    "a star": lambda v: getattr(time, PEELS[::-1])(*[v]),
    "reduce": lambda v: functools.reduce(lambda _, g: g(v), [time.sleep], 0),
    "a key": lambda v: sorted([v, v], key=time.sleep),
    "an event": lambda v: getattr(threading.Event(), "tiaw"[::-1])(v),
    "a lock": lambda v: getattr(threading.Lock(), "eriuqca"[::-1])(True, v),
    "a queue": lambda v: queue.SimpleQueue().put(1, timeout=v),
    "select": lambda v: getattr(select, "tceles"[::-1])([], [], [], v),
    "gmtime": lambda v: getattr(time, "emitmg"[::-1])(v),
    "dates": lambda v: getattr(datetime.datetime, "pmatsemitmorfctu"[::-1])(v),
}


def trying(call: Callable[[Any], Any]) -> Any:
    def make() -> Any:
        def f(x: Any) -> Any:
            try:
                call(x[0] * 1e-4)
            except Exception:
                return np.sum(x) * 2.0
            return np.sum(x)

        return f, lambda: None

    return make


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("call", TAKE_FLOATS.values(), ids=TAKE_FLOATS)
def test_a_function_that_takes_floats_refuses_none_unnoticed(call: Any) -> None:
    repeat(trying(call), calls=2)


rows = [1.0, 2.0]
items: Any = collections.deque(rows)
DO_NOT: dict[str, Callable[[Any], Any]] = {
    "range": lambda v: range(v),
    "an index": lambda v: rows[v],
    "operator.index": lambda v: operator.index(v),
    "chr": lambda v: chr(v),
    "text": lambda v: "a" * v,
    "a slice": lambda v: rows[v:],
    "insert": lambda v: [1].insert(v, 1),
    "rotate": lambda v: items.rotate(v),
    "factorial": lambda v: math.comb(v, 2),
    "a loop": lambda v: [i for i in range(v)],  # noqa: C416
}


@pytest.mark.parametrize("call", DO_NOT.values(), ids=DO_NOT)
def test_what_refuses_floats_may_be_caught(call: Any) -> None:
    assert not repeat(trying(call), calls=3)


def test_objects_of_both_kinds_are_told_apart() -> None:
    spaces = {"sleep": time.sleep, "r": range}

    def f(x: Any, name: str) -> Any:
        g = spaces[name]
        try:
            g(x[0] * 1e-4)
        except (TypeError, AttributeError):
            return np.sum(x) * 2.0
        return np.sum(x)

    np.testing.assert_array_equal(adarray.grad(f)(X, "r"), np.full(3, 2.0))
    with pytest.raises(ADArrayError, match="caught"):
        adarray.grad(f)(X, "sleep")
