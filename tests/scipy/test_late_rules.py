"""The rules of scipy.special are there without an import of ours, and only when they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("scipy")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_ufuncs_are_differentiated_without_an_import_of_ours() -> None:
    code = """
import sys
import numpy as np
from scipy import special
import adarray
assert "adarray.scipy" not in sys.modules
g = adarray.grad(lambda x: np.sum(special.gammaln(x)))(np.array([1.5, 2.5]))
np.testing.assert_allclose(g, special.digamma([1.5, 2.5]))
print(adarray.jvp(special.expit, (0.0,), (1.0,))[1])
"""
    assert run(code) == "0.25"


def test_scipy_is_not_imported_for_its_own_sake() -> None:
    code = "import sys, adarray; print(any(m.partition('.')[0] == 'scipy' for m in sys.modules))"
    assert run(code) == "False"
