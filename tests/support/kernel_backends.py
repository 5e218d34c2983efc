"""The backends that compile kernels, for `pytest.mark.parametrize`."""

from __future__ import annotations

from typing import Any

import pytest

import adarray
from adarray.errors import BackendError


def _backends() -> list[Any]:
    """Return the backends that compile kernels; a GPU that is not there is skipped visibly."""
    try:
        adarray.use("cuda")
        missing = None
    except BackendError as error:
        missing = str(error)
    marks = [pytest.mark.gpu] + ([pytest.mark.skip(reason=missing)] if missing else [])
    return ["serial", "openmp", pytest.param("cuda", marks=marks)]


BACKENDS = _backends()
