"""Calls of one function in every mode, whose state must change as it does in plain runs.

For ``tests/trust``.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from trust import BACKENDS

import adarray
from adarray.errors import ADArrayError
from adarray.jitting import JitWarning
from adarray.testing._ops import use_all_sizes

X = np.array([0.5, 1.25, 2.0])
# Makes a function of an array with a number as its result, and what returns the state it changes.
Make = Callable[[], tuple[Callable[[Any], Any], Callable[[], Any]]]


def _jvp(f: Any) -> Any:
    return lambda x: adarray.jvp(f, (x,), (np.ones(x.shape),))[1]


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jit": adarray.jit,
    "grad": adarray.grad,
    "protocols": lambda f: adarray.grad(f, intercept=False),
    "jit(grad)": lambda f: adarray.jit(adarray.grad(f)),
    "grad(jit)": lambda f: adarray.grad(adarray.jit(f)),
    "jvp": _jvp,
    "jvp(jit)": lambda f: _jvp(adarray.jit(f)),
}


def _expected(make: Make, mode: str, calls: int) -> tuple[Any, Any]:
    """Return what a call gives after others, and the state that it leaves, by plain runs."""

    def after(x: np.ndarray) -> tuple[float, Any]:
        f, state = make()
        for _ in range(calls):
            f(X.copy())
        return float(f(x)), state()

    value, state = after(X.copy())
    if mode == "jit":
        return value, state
    step = 1e-5
    slope = [(after(X + h)[0] - after(X - h)[0]) / (2 * step) for h in step * np.eye(X.size)]
    return (np.sum(slope) if "jvp" in mode else np.array(slope)), state


def repeat(
    make: Make, calls: int = 5, modes: Any = TRANSFORMS, backends: Any = BACKENDS
) -> Counter[str]:
    """Compare calls in each mode on each backend with plain runs; return what was refused.

    A mode that raises an error of adarray's is refused, and not followed further.
    """
    refused: Counter[str] = Counter()
    for mode in modes:
        expected = [_expected(make, mode, k) for k in range(calls)]
        for backend in backends:
            f, state = make()
            transformed = TRANSFORMS[mode](f)
            for k, (value, reference) in enumerate(expected):
                title = f"{mode} on {backend}, call {k}"
                with use_all_sizes(backend), warnings.catch_warnings():
                    warnings.simplefilter("ignore", JitWarning)
                    try:
                        got = transformed(X.copy())
                    except ADArrayError:
                        refused[mode] += 1
                        break
                np.testing.assert_allclose(got, value, 1e-6, 1e-7, err_msg=title)
                np.testing.assert_equal(state(), reference, err_msg=title)
    return refused
