"""What the benchmarks share: the profile, the engines, data with real pages.

``ADARRAY_BENCH=large`` chooses larger sizes and more threads. Warnings are errors, so
that a benchmark that computes something else than meant fails.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import adarray
import numpy as np

warnings.simplefilter("error")

PROFILES = ("fast", "large")
PROFILE = os.environ.get("ADARRAY_BENCH", "fast")
if PROFILE not in PROFILES:
    raise ValueError(f"ADARRAY_BENCH: expected one of {', '.join(PROFILES)}, got {PROFILE!r}")
LARGE = PROFILE == "large"

THREADS = (1, 2, 4, 8, 16) if LARGE else (1, 2)
# A backend with its thread count; one axis, since numpy and serial have no choice.
ENGINES = ("numpy", "serial", *(f"openmp-{n}" for n in THREADS))
DTYPES = ("float64", "float32")


class OnEngine:
    """A benchmark that computes on the backend named by its first parameter."""

    def enter(self, engine: str) -> None:
        """Choose the backend until `teardown`.

        Raises
        ------
        NotImplementedError
            If the backend is not there, or has more threads than there are cores: the
            suite's way to say that a parameter does not apply.
        """
        self._used: Any = None
        name, _, threads = engine.partition("-")
        if name not in adarray.backends():
            raise NotImplementedError(f"no backend {name}")
        if threads and int(threads) > len(os.sched_getaffinity(0)):
            raise NotImplementedError(f"fewer than {threads} cores")
        options = {"threads": int(threads)} if threads else {}
        try:
            used = adarray.use(name, **options)
        except adarray.BackendError as error:
            raise NotImplementedError(str(error)) from None
        used.__enter__()
        self._used = used

    def teardown(self, *params: Any) -> None:
        """Return to the default backend."""
        used = getattr(self, "_used", None)
        if used is not None:
            self._used = None
            used.__exit__(None, None, None)


def uniform(shape: Any, low: float, high: float, dtype: str, seed: int = 0) -> np.ndarray:
    """Return random numbers, written: no page is touched for the first time when timed."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def warm(call: Any, *args: Any) -> Any:
    """Run `call` twice, so that nothing is done for the first time when timed."""
    call(*args)
    return call(*args)
