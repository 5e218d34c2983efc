"""Gradients flow through scikit-learn's array-API estimators and metrics, given ADArrays."""

from __future__ import annotations

import pytest
from package_cases import REFUSED, assert_right, not_documented, outcomes_of

pytest.importorskip("sklearn", minversion="1.7")

# Parts of case names that are not names of functions.
OTHERWISE = {
    "partial_fit", "decision_function", "transform", "predict", "predict_proba", "score_samples",
    "get_covariance", "inverse_transform", "pipeline",
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return outcomes_of("sklearn_cases.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "least"),
    [("preprocessing", 16), ("decomposition", 7), ("mixture", 1), ("kernel_approximation", 1),
     ("linear_model", 6), ("discriminant_analysis", 3), ("naive_bayes", 1), ("pipeline", 1),
     ("model_selection", 2), ("metrics", 24)],
)  # fmt: skip
def test_gradients_flow_through(part: str, least: int, outcomes: dict[str, str]) -> None:
    assert_right(outcomes, least, lambda n: n.split(".")[0] == part)


def test_what_leaves_the_array_api_is_refused(outcomes: dict[str, str]) -> None:
    assert_right(outcomes, 15, lambda n: n.startswith(REFUSED))


def test_the_documentation_names_every_case(outcomes: dict[str, str]) -> None:
    assert not_documented(outcomes, OTHERWISE) == []
