"""Choosing backends: discovery, nesting, threads, tasks, errors."""

from __future__ import annotations

import asyncio
import re
import threading
from importlib.metadata import EntryPoint

import numpy as np
import pytest

import adarray
from adarray import BackendError, backend, current_backend, use


class Doubling:
    """A backend that is easily told: its pointwise results are twice NumPy's."""

    name = "doubling"

    def engine(self, **options):
        if unknown := set(options) - {"factor"}:
            raise BackendError(f"backend 'doubling': unknown option {sorted(unknown)[0]!r}")
        return DoublingEngine(options.get("factor", 2.0))

    def info(self):
        return {"status": "available"}


class DoublingEngine:
    name = "doubling"
    threads = 1

    def __init__(self, factor):
        self.factor = factor

    def pointwise(self, op, values):
        return op.evaluate(*values) * self.factor if op.name == "sin" else NotImplemented

    def derivative(self, op, operand, g, saved):
        return NotImplemented

    def call(self, op, values, params):
        return NotImplemented


class NoEngine:
    name = "incomplete"


class Broken:
    def __init__(self):
        raise ImportError("libfoo.so.1: cannot open shared object file")


@pytest.fixture
def plugins(monkeypatch):
    """Entry points to the classes above, beside what is installed."""

    def point(name, value):
        return EntryPoint(name, value, backend.GROUP)

    entry_points = {
        "doubling": [point("doubling", f"{__name__}:Doubling")],
        "incomplete": [point("incomplete", f"{__name__}:NoEngine")],
        "broken": [point("broken", f"{__name__}:Broken")],
        "missing": [point("missing", "no_such_module:Backend")],
        "twice": [point("twice", "a:B"), point("twice", "c:D")],
        "numpy": [point("numpy", "adarray_backends.numpy:NumPyBackend")],
    }
    backend.refresh()
    monkeypatch.setattr(backend, "_entry_points", lambda: entry_points)
    classes = {"Doubling": Doubling, "NoEngine": NoEngine, "Broken": Broken}
    original = EntryPoint.load

    def load(self):
        cls = classes.get(self.value.partition(":")[2]) if __name__ in self.value else None
        return cls if cls is not None else original(self)

    monkeypatch.setattr(EntryPoint, "load", load)
    yield
    backend.refresh()


def sine():
    """Return the factor by which the current backend is off."""
    return round(float(np.sin(adarray.array([1.0]))[0]) / np.sin(1.0), 12)


@pytest.mark.usefixtures("plugins")
def test_use_nests_and_restores():
    assert current_backend() == "numpy"
    with use("doubling"):
        assert sine() == 2
        with use("numpy"):
            assert current_backend() == "numpy"
            assert sine() == 1
            with use("doubling", factor=3.0):
                assert sine() == 3
        assert sine() == 2
        with pytest.raises(RuntimeError, match="user"), use("doubling", factor=4.0):
            raise RuntimeError("user")
        assert sine() == 2
    assert sine() == 1


@pytest.mark.usefixtures("plugins")
def test_one_object_entered_twice_and_by_two_threads():
    twice = use("doubling")
    with twice, twice:
        assert sine() == 2
    assert sine() == 1
    seen = []
    barrier = threading.Barrier(2, timeout=10)

    def work():
        assert current_backend() == "numpy"  # threads start with the default
        with twice:
            barrier.wait()
            seen.append(sine())
            barrier.wait()
        seen.append(sine())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == [1, 1, 2, 2]


@pytest.mark.usefixtures("plugins")
def test_async_tasks_do_not_meet():
    async def task(factor):
        with use("doubling", factor=factor):
            for _ in range(3):
                await asyncio.sleep(0)
                assert sine() == factor
        return current_backend()

    async def main():
        return await asyncio.gather(*(task(float(k)) for k in range(2, 6)))

    assert asyncio.run(main()) == ["numpy"] * 4


@pytest.mark.usefixtures("plugins")
def test_use_inside_a_traced_function():
    def f(x):
        with use("doubling"):
            y = np.sin(x)
        return np.sum(y)

    # The rule does not know of the doubled value; the value itself shows the backend.
    value, _ = adarray.value_and_grad(f)(np.array([1.0]))
    np.testing.assert_allclose(value, 2 * np.sin(1.0))
    with use("doubling"), adarray.no_grad():
        assert current_backend() == "doubling"
        assert sine() == 2


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "nothing",
            {},
            "backend 'nothing': there is none of that name; installed are broken, doubling, "
            "incomplete, missing, numpy, twice",
        ),
        (
            "missing",
            {},
            "backend 'missing': no_such_module:Backend from an unknown distribution failed to load "
            "(ModuleNotFoundError: No module named 'no_such_module'); mend or uninstall that "
            "distribution, or use one of broken, doubling, incomplete, numpy, twice",
        ),
        ("broken", {}, "failed to load (ImportError: libfoo.so.1: cannot open shared object file)"),
        ("incomplete", {}, "has no method engine(); it does not satisfy adarray.runtime.Backend"),
        ("twice", {}, "offered by an unknown distribution and an unknown distribution; uninstall"),
        ("doubling", {"thread": 2}, "backend 'doubling': unknown option 'thread'"),
        ("numpy", {"threads": 2}, "backend 'numpy': unknown option 'threads'; it takes none"),
    ],
)
def test_error_texts(name, options, message):
    with pytest.raises(BackendError, match=re.escape(message)):
        use(name, **options)
    assert current_backend() == "numpy"


def test_use_wants_a_name():
    with pytest.raises(TypeError, match="use: expected the name of a backend, got int"):
        use(3)


@pytest.mark.usefixtures("plugins")
def test_backends_lists_without_loading():
    assert adarray.backends() == ["broken", "doubling", "incomplete", "missing", "numpy", "twice"]
