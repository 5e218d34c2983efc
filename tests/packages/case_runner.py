"""Running cases in a process of their own, where SciPy starts in its array-API mode.

A case is a function of ADArrays and the plain arguments at which its gradient is
compared with differences. A refused case is one in which the package leaves the array
API: it must fail with the expected error, never return a wrong gradient.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import adarray.numpy as xp
from adarray.testing import check_grads


class Case(NamedTuple):
    """A function and its arguments; `error` is the beginning of the expected failure."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    error: str = ""


def _as_adarrays(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return function(*(xp.asarray(x) for x in arguments))

    return call


def _outcome(case: Case) -> str:
    """Return what went wrong, empty if nothing did.

    A newer version of the package may compute what an older one refuses; the gradient
    must be right then.
    """
    try:
        check_grads(_as_adarrays(case.function), case.arguments, order=1)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        loud = case.error and text.startswith(
            (case.error, "TraceError: ", "UnsupportedFunctionError: ")
        )
        return "" if loud else text
    return ""


def report(cases: dict[str, Case]) -> None:
    """Print the outcomes of all cases as JSON: ``{name: what went wrong}``."""
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        print(json.dumps({name: _outcome(case) for name, case in cases.items()}))


def outcomes(script: str) -> dict[str, str]:
    """Run the script beside this file with ``SCIPY_ARRAY_API=1`` and return its report."""
    path = Path(__file__).with_name(script)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return report
