"""What the tests of packages given ADArrays share: running their cases, and the page about them.

For ``tests/packages``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "array-api.rst"
REFUSED = "refused "


def outcomes_of(cases: str) -> dict[str, str]:
    """Return what became of each case in a file of tests/packages: nothing, or what is wrong."""
    spec = importlib.util.spec_from_file_location(
        "case_runner", TESTS / "packages" / "case_runner.py"
    )
    assert spec is not None
    assert spec.loader is not None
    runner: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    outcomes: dict[str, str] = runner.outcomes(cases)
    return outcomes


def assert_right(outcomes: dict[str, str], least: int, chosen: Callable[[str], bool]) -> None:
    """Assert that `chosen` takes `least` cases or more, and that nothing is wrong with them."""
    mine = {name: text for name, text in outcomes.items() if chosen(name)}
    assert len(mine) >= least
    assert {name: text for name, text in mine.items() if text} == {}


def not_documented(outcomes: dict[str, str], otherwise: set[str]) -> list[str]:
    """Return the functions among the cases that the page does not name, but `otherwise`."""
    page = PAGE.read_text()
    words = {name.removeprefix(REFUSED).split()[0].split(".")[-1] for name in outcomes}
    return sorted(w for w in words - otherwise if f"``{w}" not in page and f".{w}``" not in page)
