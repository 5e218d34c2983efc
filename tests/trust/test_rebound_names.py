"""Modules of which some functions are transformed, against copies that nobody touched.

Functions that look at ``float``, ``np.float64``, ``type`` and aliases of theirs give the same
before, during (in callbacks and other threads) and after; transformed ones take the branches of
the plain run.
"""

from __future__ import annotations

import functools
import importlib.util
import operator
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from named_classes import Module
from trust import seeds

import adarray
from adarray.errors import ADArrayError

VALUES = (1.5, np.float64(2.5), 3, np.float32(0.5), np.array(4.0)[()])
TRANSFORMS = {
    "plain": lambda f: adarray.grad(f, intercept=False),
    "intercept": lambda f: adarray.grad(f),
    "wrap": lambda f: adarray.grad(adarray.wrap(f)),
    "jit": lambda f: adarray.grad(adarray.jit(f)),
    "jit(grad)": lambda f: adarray.jit(adarray.grad(f)),
    "jvp": lambda f: (
        lambda x: np.array([float(adarray.jvp(adarray.wrap(f), (x,), (e,))[1]) for e in np.eye(3)])
    ),
    "context": lambda f: lambda x: _inside(adarray.grad(f), x),
}


def _inside(f: Any, x: Any) -> Any:
    with adarray.intercept():
        return f(x)


def load(path: Path, name: str) -> ModuleType:
    """Import a file under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def looks(module: ModuleType, program: Module) -> str:
    """Return what the functions that are not transformed give."""
    results = [getattr(module, f"look{i}")(v) for i in range(program.lookers) for v in VALUES]
    return repr(results).replace(module.__name__, "module")


def differences(f: Any, x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """Return the gradient by differences of plain runs."""
    return np.array([(float(f(x + h * e)) - float(f(x - h * e))) / (2 * h) for e in np.eye(3)])


def compare(program: Module, path: Path, seed: int, backend: str) -> Counter[str]:
    """Transform a module's function in all ways, and look at the others meanwhile."""
    path.write_text(program.source)
    done: Counter[str] = Counter()
    plain, module = load(path, f"untouched_{seed}"), load(path, f"touched_{seed}")
    x = np.random.default_rng(seed).uniform(0.5, 1.5, 3)
    expected, value, slope = looks(plain, program), plain.work(x), differences(plain.work, x)
    plain.heard.clear()
    plain.work(x)
    heard = repr(plain.heard).replace(plain.__name__, "module")
    seen: list[str] = []

    def hook() -> None:
        seen.append(looks(module, program))
        thread = threading.Thread(target=lambda: seen.append(looks(module, program)))
        thread.start()
        thread.join()

    module.hook[0] = hook
    names = list(vars(module))
    try:
        for mode, transform in TRANSFORMS.items():
            if mode == "plain" and program.converts:
                continue
            module.heard.clear()
            try:
                with adarray.use(backend), warnings.catch_warnings():
                    warnings.simplefilter("ignore", adarray.JitWarning)
                    g = transform(module.work)(x)
                    module_heard = repr(module.heard).replace(module.__name__, "module")
            except ADArrayError as error:
                done[f"{mode} refused: {str(error)[:50]}"] += 1
                continue
            assert np.allclose(g, slope, rtol=1e-4, atol=1e-6), (mode, g, slope, program.source)
            if mode != "jvp":
                assert module_heard == heard or "jit" in mode, (mode, module_heard, heard)
            done["right"] += 1
            assert looks(module, program) == expected, (mode, program.source)
        module.hook[0] = lambda: None
        assert module.work(x) == value
        assert type(module.work(x)) is type(value)
        assert set(seen) <= {expected}, (seen, expected, program.source)
        for name, x in vars(plain).items():  # classes of others have stayed
            if isinstance(x, type) and x.__module__ != plain.__name__:
                assert vars(module)[name] is x
        assert list(vars(module)) == names
    finally:
        del sys.modules[plain.__name__], sys.modules[module.__name__]
    return done


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_modules(tmp_path: Path, part: int) -> None:
    done: Counter[str] = Counter()
    for seed in seeds(12)[part::4]:
        backend = ("numpy", "numpy", "numpy", "serial")[part] if seed % 10 == part else "numpy"
        done += compare(Module(seed), tmp_path / f"named_{seed}.py", seed, backend)
    print(done)
    assert done["right"] > 0.9 * done.total()


def test_vectorised_functions_that_are_changed() -> None:
    """What stood for one inside kept what it had been when it was first met."""
    double = np.vectorize(lambda a: a * 2.0)

    def f(x: Any) -> Any:
        return np.sum(double(x) * x + double(np.arange(3.0)))

    jitted, slope = adarray.jit(f), adarray.grad(f, intercept=True)
    x = np.array([1.0, 2.0, 3.0])
    for factor in (2.0, 5.0, 7.0):
        double.pyfunc = functools.partial(operator.mul, factor)
        for _ in range(3):
            np.testing.assert_allclose(jitted(x), f(x))
            np.testing.assert_allclose(slope(x), 2 * factor * x)
    double.otypes = "l"
    np.testing.assert_allclose(jitted(x * 1.1), f(x * 1.1))
