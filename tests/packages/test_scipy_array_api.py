"""Gradients flow through SciPy's array-API functions, given ADArrays."""

from __future__ import annotations

import pytest
from package_cases import REFUSED, assert_right, not_documented, outcomes_of

pytest.importorskip("scipy", minversion="1.15")

# Parts of case names that are not names of functions.
OTHERWISE = {"mixed", "cumulative"}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return outcomes_of("scipy_array_api_cases.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "least"),
    [("special", 40), ("stats", 50), ("signal", 10), ("fft", 11), ("integrate", 9),
     ("differentiate", 1), ("cluster", 1), ("optimize", 3), ("spatial", 4)],
)  # fmt: skip
def test_gradients_flow_through(part: str, least: int, outcomes: dict[str, str]) -> None:
    assert_right(outcomes, least, lambda n: n.startswith(f"{part}."))


def test_what_leaves_the_array_api_is_refused(outcomes: dict[str, str]) -> None:
    assert_right(outcomes, 20, lambda n: n.startswith(REFUSED))


def test_the_documentation_names_every_case(outcomes: dict[str, str]) -> None:
    assert not_documented(outcomes, OTHERWISE) == []
