"""Environment variables that switch something name themselves where they make no sense."""

import re
from pathlib import Path

import numpy as np
import pytest

import adarray as ad
from adarray.compiler.ir.verify_loops import checking
from adarray.errors import BackendError

ROOT = Path(__file__).parents[2]
# Names of the same form that are macros of C, and variables of the tests and of the build.
OTHERS = {
    "ADARRAY_API", "ADARRAY_COMPILER", "ADARRAY_INF", "ADARRAY_LEVEL", "ADARRAY_LIBMVEC",
    "ADARRAY_NAN", "ADARRAY_NEAR", "ADARRAY_PRECISE", "ADARRAY_SIGNBIT_",
    "ADARRAY_TOGETHER", "ADARRAY_X",
}  # fmt: skip


@pytest.mark.parametrize(("text", "on"), [("", False), ("0", False), ("1", True)])
def test_check_is_off_or_on(monkeypatch, text, on):
    monkeypatch.setenv("ADARRAY_CHECK", text)
    assert checking() is on


@pytest.mark.parametrize("name", ["ADARRAY_CHECK", "ADARRAY_VERBOSE"])
@pytest.mark.parametrize("text", ["maybe", "yes", "2"])
def test_switches_of_compiled_functions_name_themselves(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    jitted = ad.jit(lambda x: np.sum(np.sin(x) * x))
    for _ in range(3):
        with pytest.raises(ValueError, match=f"{name} is '{text}'; allowed are 0 .* 1"):
            jitted(np.arange(3.0))
    monkeypatch.setenv(name, "0")
    np.testing.assert_allclose(jitted(np.arange(3.0)), 2.6600658384592597)


@pytest.mark.parametrize("text", ["maybe", "no", "-1"])
def test_tune_names_itself(monkeypatch, text):
    if "cuda" not in ad.backends():
        pytest.skip("the backend is not installed")
    monkeypatch.setenv("ADARRAY_TUNE", text)
    with pytest.raises(BackendError, match=f"'cuda': .* ADARRAY_TUNE is '{text}'; allowed are 0"):
        ad.backend.load("cuda").engine()


def test_all_of_them_are_documented():
    switches = set()
    for folder in ("adarray", "backends", "native"):
        for path in (ROOT / folder).rglob("*.py"):
            switches.update(re.findall(r"ADARRAY_[A-Z_]+", path.read_text()))
    told = set(re.findall(r"^ +\* - ``(\w+)``", (ROOT / "docs/environment.rst").read_text(), re.M))
    assert switches - OTHERS == told
