"""What the tests of compiled plans share: engines with a cache of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plans
import pytest

from adarray.backend import load
from adarray.errors import BackendError


@pytest.fixture(scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep kernels in a folder of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ADARRAY_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(params=["serial", "openmp"])
def engine(request: Any, _cache: Path) -> Any:
    try:
        options = {"threads": 2} if request.param == "openmp" else {}
        engine = load(request.param).engine(**options)
        engine.executable(plans.scaled_plan(3))
    except BackendError as error:
        pytest.skip(str(error))
    return engine
