"""Attributes that plain values have and ADArrays lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray


def test_lacking_is_an_attribute_error_everywhere() -> None:
    x: Any = adarray.array(1.0)
    for name in ("hex", "fromhex", "bit_count", "numerator", "nothing"):
        assert not hasattr(x, name)
        assert not hasattr(adarray.ADArray, name)
        with pytest.raises(AttributeError, match=f"object has no attribute '{name}'"):
            getattr(x, name)


def test_caught_lacking_attribute_is_told() -> None:
    def f(x: Any) -> Any:
        try:
            s = float.fromhex(x.hex())
        except AttributeError:
            s = 1.0
        return x * s

    assert f(np.float64(2.0)) == 4.0
    with pytest.raises(adarray.TraceError, match="no attribute 'hex'"):
        adarray.grad(f)(2.0)


def test_attribute_that_nothing_has_may_be_asked_for() -> None:
    def f(x: Any) -> Any:
        return x * (2.0 if hasattr(x, "nothing") else 3.0)

    assert adarray.grad(f)(2.0) == 3.0


def test_slots_are_found_without_getattr() -> None:
    # With it, every attribute of every ADArray would be looked for by a general, slow way.
    assert not any("__getattr__" in c.__dict__ for c in adarray.ADArray.__mro__)
    assert not any("__getattribute__" in c.__dict__ for c in adarray.ADArray.__mro__[:-1])
