"""The experiments of likelihood-ratio training, with arrays on a device."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "asv_bench").is_dir():
    pytest.skip("the benchmarks are not part of this checkout", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

with warnings.catch_warnings():  # the suite makes warnings errors, for itself
    from asv_bench.likelihood_ratio import data, problems, training


def gradient(name: str, method: str, backend: str) -> np.ndarray:
    """Return the first gradient of a training, and take a step."""
    problem = problems.PROBLEMS[name](epochs=1, quick=True)
    if isinstance(problem, problems.AgNews):
        problem.length = 3
    place = training.Place(backend)
    with place():
        run = training.Training(problem, method, 0, place)
        batch = run.epoch()[0]
        slopes = run.gradient(run.gradient.noise(run.params, *batch), run.params, *batch)
        before = {k: training.host(p).copy() for k, p in run.params.items()}
        run.step(batch, 10)
        moved = [np.abs(training.host(run.params[k]) - p).max() for k, p in before.items()]
        assert 0.0 < max(moved) < 2.0 * problem.rate
        return np.concatenate([training.host(slopes[k]).ravel() for k in run.params])


@pytest.mark.parametrize("name", list(problems.PROBLEMS))
def test_gradients_on_a_device_are_those_of_numpy(
    name: str, device_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(data.DATA_VARIABLE, raising=False)
    exact = gradient(name, "bp", "numpy")
    np.testing.assert_allclose(gradient(name, "bp", device_backend), exact, rtol=1e-3, atol=1e-5)
    for method, least in (("lr-m", 0.999), ("lr-l", 0.2)):
        slope = gradient(name, method, device_backend)
        assert slope @ exact > least * np.linalg.norm(slope) * np.linalg.norm(exact)
