"""Plain data gives the same results before, outside of and inside of `adarray.intercept`."""

from __future__ import annotations

import functools
import importlib.util
import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.arrays.plainarrays import PlainArray
from adarray.intercepting.standins import FunctionStandIn, ModuleStandIn

pytest.importorskip("scipy")
PATH = Path(__file__).with_name("plain_calls.py")


@functools.cache
def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


def call(module: ModuleType, name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module.CALLS[name]()


def rebound() -> ModuleType:
    module = load("plain_calls_rebound")
    with adarray.intercept("plain_calls_rebound"):
        pass
    assert isinstance(module.np, ModuleStandIn)
    assert type(module.sin) is FunctionStandIn
    assert "float" not in vars(module)
    return module


def same(a: Any, b: Any, strict: bool) -> None:
    """Assert equality to the last bit; unless strict, an ADArray may stand for an ndarray."""
    if not strict and type(b) is PlainArray:
        b = np.asarray(b)
    if not strict and isinstance(b, adarray.ADArray):
        assert not b.requires_grad
        b = b.numpy() if isinstance(a, np.ndarray) else b.numpy()[()]
        b = b if isinstance(a, (np.ndarray, np.generic)) else b.item()
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype.kind == "O":
            assert a.tolist() == b.tolist()
        else:
            assert np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y, strict)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key], strict)
    else:
        assert a == b or (a != a and b != b)


NAMES = list(load("plain_calls_named").CALLS)


@pytest.fixture(scope="module")
def before() -> dict[str, Any]:
    """Return what the calls give in a process that never imported adarray."""
    code = (
        "import pickle, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        f"sys.path.insert(0, {str(PATH.parent)!r})\n"
        "import plain_calls\n"
        "results = {n: f() for n, f in plain_calls.CALLS.items()}\n"
        "assert 'adarray' not in sys.modules\n"
        "sys.stdout.buffer.write(pickle.dumps(results))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return pickle.loads(done.stdout)  # type: ignore[no-any-return]


def test_there_are_enough() -> None:
    assert len(NAMES) >= 150


@pytest.mark.parametrize("name", NAMES)
def test_outside(name: str, before: dict[str, Any]) -> None:
    same(before[name], call(rebound(), name), strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_inside(name: str, before: dict[str, Any]) -> None:
    module = rebound()
    with adarray.intercept("plain_calls_rebound"):
        r = call(module, name)
    same(before[name], r, strict=False)


def test_another_thread_sees_nothing(before: dict[str, Any]) -> None:
    module = rebound()
    results: dict[str, Any] = {}

    def work() -> None:
        for name in NAMES:
            results[name] = module.CALLS[name]()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with adarray.intercept("plain_calls_rebound"):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    for name in NAMES:
        same(before[name], results[name], strict=True)


def test_the_uninvolved_module_is_untouched() -> None:
    module = load("plain_calls_uninvolved")
    rebound()
    assert module.np is sys.modules["numpy"]
    assert module.sin is np.sin
    assert "float" not in vars(module)
