"""Environment variables that switch something name themselves where they make no sense."""

import numpy as np
import pytest

import adarray as ad
from adarray.codegen.verify import checking


@pytest.mark.parametrize(("text", "on"), [("", False), ("0", False), ("1", True)])
def test_check_is_off_or_on(monkeypatch, text, on):
    monkeypatch.setenv("ADARRAY_CHECK", text)
    assert checking() is on


@pytest.mark.parametrize("text", ["maybe", "yes", "2"])
def test_check_names_itself(monkeypatch, text):
    monkeypatch.setenv("ADARRAY_CHECK", text)
    jitted = ad.jit(lambda x: np.sum(np.sin(x) * x))
    for _ in range(3):
        with pytest.raises(ValueError, match=f"ADARRAY_CHECK is '{text}'; allowed are 0 .* 1"):
            jitted(np.arange(3.0))
    monkeypatch.setenv("ADARRAY_CHECK", "0")
    np.testing.assert_allclose(jitted(np.arange(3.0)), 2.6600658384592597)
