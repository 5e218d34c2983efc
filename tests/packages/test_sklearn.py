"""Gradients flow through scikit-learn's array-API estimators and metrics, given ADArrays."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn", minversion="1.7")

# Parts of case names that are not names of functions.
OTHERWISE = {
    "partial_fit", "decision_function", "transform", "predict", "predict_proba", "score_samples",
    "get_covariance", "inverse_transform", "pipeline",
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    path = Path(__file__).with_name("case_runner.py")
    spec = importlib.util.spec_from_file_location("case_runner", path)
    assert spec is not None
    assert spec.loader is not None
    runner: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    outcomes: dict[str, str] = runner.outcomes("sklearn_cases.py")
    return outcomes


@pytest.mark.parametrize(
    ("part", "least"),
    [("preprocessing", 16), ("decomposition", 7), ("mixture", 1), ("kernel_approximation", 1),
     ("linear_model", 6), ("discriminant_analysis", 3), ("naive_bayes", 1), ("pipeline", 1),
     ("model_selection", 2), ("metrics", 24)],
)  # fmt: skip
def test_gradients_flow_through(part: str, least: int, found: dict[str, str]) -> None:
    mine = {name: text for name, text in found.items() if name.split(".")[0] == part}
    assert len(mine) >= least
    assert {name: text for name, text in mine.items() if text} == {}


def test_what_leaves_the_array_api_is_refused(found: dict[str, str]) -> None:
    mine = {name: text for name, text in found.items() if name.startswith("refused ")}
    assert len(mine) >= 15
    assert {name: text for name, text in mine.items() if text} == {}


def test_the_documentation_names_every_case(found: dict[str, str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "array-api.rst").read_text()
    words = {name.removeprefix("refused ").split()[0].split(".")[-1] for name in found}
    assert (
        sorted(w for w in words - OTHERWISE if f"``{w}" not in page and f".{w}``" not in page) == []
    )
