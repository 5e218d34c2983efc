"""What the benchmarks share: the profile, the engines, data with real pages.

``ADARRAY_BENCH=large`` chooses larger sizes and more threads. A backend that is not there
is skipped, unless ``ADARRAY_BENCH_REQUIRE=serial,openmp`` names it: then it is a failure.
Warnings are failures.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

import adarray

warnings.simplefilter("error")
warnings.simplefilter("ignore", ResourceWarning)  # the benchmark runner leaves a socket open

PROFILES = ("fast", "large")
PROFILE = os.environ.get("ADARRAY_BENCH", "fast")
if PROFILE not in PROFILES:
    raise ValueError(f"ADARRAY_BENCH: expected one of {', '.join(PROFILES)}, got {PROFILE!r}")
LARGE = PROFILE == "large"
REQUIRED = os.environ.get("ADARRAY_BENCH_REQUIRE", "").split(",")

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
        BackendError
            If the backend is not there and ``ADARRAY_BENCH_REQUIRE`` names it.
        """
        self._used: Any = None
        name, _, threads = engine.partition("-")
        if threads and int(threads) > len(os.sched_getaffinity(0)):
            raise NotImplementedError(f"fewer than {threads} cores")
        options = {"threads": int(threads)} if threads else {}
        try:
            used = adarray.use(name, **options)
        except adarray.BackendError as error:
            if name in REQUIRED:
                raise
            raise NotImplementedError(str(error)) from None
        used.__enter__()
        self._used = used

    def teardown(self, *_: Any) -> None:
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
