"""Functions of float32 that packs compute without branches: native/cuda/adarray_quick.h."""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import numpy as np
import pytest
from careful import FUNCTIONS, floats, folds, gradient, matrix, ulps, values
from device_plans import Compiled, DevicePlanRunner
from recorded import recorded

from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning

plan = partial(planning.plan, target=GPU)
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def run(f: Any, folder: Any, *arrays: np.ndarray) -> tuple[list[np.ndarray], str]:
    """Return the results of a function on the emulator, and the text of its kernels."""
    folder.mkdir(exist_ok=True)
    with np.errstate(all="ignore"):
        r = recorded(f, *arrays)
    new_plan = plan(r.program)
    compiled = Compiled([new_plan], folder)
    text = "".join(t.text for _, t in compiled.texts.values())
    return [np.asarray(x) for x in DevicePlanRunner(new_plan, compiled)(r.arrays)], text


def test_errors_over_all_exponents(tmp_path: Any) -> None:
    x = floats(2)
    results, text = run(values, tmp_path, x)
    assert "if (quick.rare)" in text
    for (function, limit), got in zip(FUNCTIONS.values(), results, strict=True):
        assert ulps(got, x, function).max() <= limit


def test_an_element_does_not_depend_on_its_neighbours(tmp_path: Any) -> None:
    x = floats(1)
    whole, _ = run(values, tmp_path / "a", x)
    shifted, _ = run(values, tmp_path / "b", x[3:].copy())
    for a, b in zip(whole, shifted, strict=True):
        np.testing.assert_array_equal(a[3:], b)


def test_totals_of_packs_that_are_computed_again(tmp_path: Any) -> None:
    x = np.tile(np.array([0.3, 1e5, -0.7, 2.0, 1.2e19, 0.1, 0.2], np.float32), 40)
    (total, rest), text = run(gradient, tmp_path, x)
    assert "adarray_sincosf(care" in text
    assert "_ = s" in text  # the total is set back
    wide, wide_rest = gradient(x.astype(np.float64))
    np.testing.assert_allclose(total, wide, rtol=1e-5)
    np.testing.assert_allclose(rest, wide_rest, rtol=1e-5, atol=1e-6)


def test_rows_and_columns(tmp_path: Any) -> None:
    x = matrix()
    results, _ = run(folds, tmp_path, x)
    for got, want in zip(results, folds(x.astype(np.float64)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_many_functions_are_out_of_line_with_the_same_bits(tmp_path: Any) -> None:
    def many(x: Any) -> list[Any]:
        return [np.log1p(x), *(np.sin(x * k) for k in range(1, 9)), *map(np.cos, (x, x + 1, x + 2)),
                np.exp(x)]  # fmt: skip

    x = floats(1)
    far, text = run(many, tmp_path / "a", x)
    assert "adarray_far_log1pf" in text
    near, text = run(lambda x: [np.log1p(x), np.sin(x), np.cos(x)], tmp_path / "b", x)
    assert "adarray_log1pf(care" in text
    np.testing.assert_array_equal(far[0], near[0])
    np.testing.assert_array_equal(far[1], near[1])
    np.testing.assert_array_equal(far[9], near[2])
