"""Client modules for the tests of `adarray.intercept`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[[str, str], ModuleType]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Load]:
    """``client(name, source)`` imports a module with that source, as a client's package."""
    names: list[str] = []
    sys.path.insert(0, str(tmp_path))

    def load(name: str, source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        names.append(name)
        return importlib.import_module(name)

    yield load
    sys.path.remove(str(tmp_path))
    for name in names:
        sys.modules.pop(name, None)
