"""The table in docs/jit.rst says what happens to each kind of captured state."""

from __future__ import annotations

import sys

import pytest
from captured_kinds import KINDS
from captured_table import available, committed, outcome, title


@pytest.mark.parametrize("name", KINDS)
def test_the_documentation_says_what_happens(name: str) -> None:
    if not available(name):
        pytest.skip("its package is not there")
    if name == "dispatch_by_methods" and sys.version_info >= (3, 13):
        pytest.skip("functools keeps what it found since Python 3.13: calls change it")
    assert committed().get(title(name)) == outcome(name), "run tests/support/captured_table.py"


def test_the_documentation_has_no_other_rows() -> None:
    assert set(committed()) <= set(map(title, KINDS))
