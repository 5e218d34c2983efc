"""Every test that takes `device_backend` runs on the stand-in, and on GPUs where there are."""

from __future__ import annotations

from typing import Any

import device as standin
import pytest

import adarray
from adarray.device import Library
from adarray.errors import BackendError


def _reason() -> str | None:
    try:
        adarray.use("cuda")
    except BackendError as error:
        return str(error)
    return None


@pytest.fixture(params=["standin", pytest.param("cuda", marks=pytest.mark.gpu)])
def device_backend(request: Any, monkeypatch: Any) -> str:
    """Name of a backend whose arrays are on a device."""
    if request.param == "cuda":
        reason = _reason()
        if reason is not None:
            pytest.skip(reason)
    else:
        standin.installed(monkeypatch)
    return str(request.param)


@pytest.fixture
def on_gpu() -> None:
    """Skip without a GPU."""
    reason = _reason()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def library(device_backend: str) -> Library:
    """Return the library of the first device."""
    result: Any = adarray.use(device_backend)._engine
    return result.library  # type: ignore[no-any-return]
