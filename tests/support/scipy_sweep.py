"""Calls SciPy's functions and distributions with traced arguments, without and inside intercept.

Run as a script with names of modules, or ``distributions``; prints a JSON list of the calls whose
derivative is known without interception alone, or is another one.

For ``tests/scipy``.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import adarray

X = np.array([0.31, 0.52, 0.47, 0.83, 0.66, 0.29])
Y = np.array([0.5, 0.21, 0.77, 0.34, 0.9, 0.13])
SQUARE = np.array([[5.0, 0.31, 0.22, 0.13], [0.34, 4.0, 0.55, 0.26], [0.27, 0.58, 6.0, 0.49],
                   [0.11, 0.23, 0.42, 3.0]])  # fmt: skip
ARGUMENTS: list[tuple[Any, ...]] = [
    (X,), (X, Y), (X, 2), (SQUARE,), (SQUARE, X[:4]), (2, X), (X, 1.3, 2.1), (X, 2.3, 1.7, 0.4),
    (0.4,), (0.4, 1.3), (0.4, 1.3, 2.2),
]  # fmt: skip
# Slow, or random, or refused for a reason: ranks, and an array where an option belongs.
SKIPPED = {"test", "rvs", "_rvs", "fit", "expect", "kendalltau", "weightedtau", "spearmanr",
           "linregress", "sqrtm"}  # fmt: skip
Call = tuple[str, types.ModuleType, list[tuple[Any, ...]]]


def total(r: Any, depth: int = 0) -> Any:
    """Return a weighted sum of the floating point numbers in a result; None if there are none."""
    if isinstance(r, (list, tuple)):
        parts = [total(x, depth + 1) for x in r] if depth < 3 else []
        parts = [p for p in parts if p is not None]
        return sum(parts) if parts else None
    kind = getattr(getattr(r, "dtype", None), "kind", "f" if isinstance(r, float) else "O")
    if kind == "c":
        return np.sum(1.3 * np.real(r) + 0.7 * np.imag(r))
    return (
        np.sum(r * np.cos(1.0 + np.arange(np.size(r))).reshape(np.shape(r)))
        if kind == "f"
        else None
    )


def functions(where: str) -> Iterator[Call]:
    module = importlib.import_module(where)
    for name in sorted(set(module.__all__) - SKIPPED):
        value = getattr(module, name)
        if callable(value) and not isinstance(value, type) and not hasattr(value, "logcdf"):
            yield name, module, ARGUMENTS


def distributions() -> Iterator[Call]:
    stats = importlib.import_module("scipy.stats")
    known = importlib.import_module("scipy.stats._distr_params")
    done = set()
    for name, shapes in (*known.distcont, *known.distdiscrete):
        if not isinstance(name, str) or name in done:
            continue
        done.add(name)
        kind = type(getattr(stats, name))
        for method in sorted(set(dir(kind)) - SKIPPED):
            if method[:2] != "__" and callable(getattr(kind, method, None)):
                yield f"{name}.{method}", stats, [(X, *shapes), tuple(shapes) or (0.5,)]


class LateError(Exception):
    """A call took too long."""


def outcome(function: Callable[[], Any]) -> Any:
    """Return a result, None where there is none in time."""
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        return function()
    except Exception:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.copy() if isinstance(x, np.ndarray) else x for x in args)


def made(expression: str, module: types.ModuleType) -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": "__main__", "module": module, "total": total}
    exec(f"def f(*args):\n    return total(module.{expression}(*args))", space)
    return space["f"]


def differentiated(
    expression: str, module: types.ModuleType, args: tuple[Any, ...], k: int, inside: bool
) -> Any:
    f = made(expression, module)
    return outcome(lambda: adarray.grad(f, k, intercept=inside)(*copied(args)))


def worse(calls: Iterator[Call]) -> Iterator[str]:
    for expression, module, arguments in calls:
        for number, args in enumerate(arguments):
            k = next((i for i, x in enumerate(args) if isinstance(x, (np.ndarray, float))), None)
            plain = made(expression, module)
            value = None if k is None else outcome(lambda f=plain, a=args: f(*copied(a)))
            if value is None or not np.isfinite(value):
                continue
            without, within = (
                differentiated(expression, module, args, k, i) for i in (False, True)
            )
            if without is None or not np.all(np.isfinite(without)):
                continue
            if within is None or not np.allclose(without, within, rtol=1e-6, atol=1e-9):
                yield f"{module.__name__}.{expression}, call {number}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")

    def late(*_: Any) -> None:
        raise LateError

    signal.signal(signal.SIGALRM, late)
    worst: list[str] = []
    for where in sys.argv[1:]:
        worst += worse(distributions() if where == "distributions" else functions(where))
    sys.stdout.write(json.dumps(worst))
