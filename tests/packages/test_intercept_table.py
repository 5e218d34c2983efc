"""The table of packages, for those that are installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
try:
    import intercept_table
finally:
    sys.path.pop(0)


def test_the_table_is_large_enough() -> None:
    assert sum(map(len, intercept_table.CALLS.values())) >= 150
    assert len(intercept_table.CALLS) >= 6
    assert set(intercept_table.FAILURES) <= set(intercept_table.CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("package", intercept_table.CALLS)
def test_package(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    known = intercept_table.FAILURES.get(package, {})
    failed = {
        r.call.name: r.reason
        for r in intercept_table.results(package)
        if not r.passed and r.call.name not in known
    }
    assert failed == {}
