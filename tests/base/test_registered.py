"""What tests register is taken back; what adarray registers as it is loaded is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from registered import rules_taken_back

import adarray
from adarray.base.op import FUNCTIONS, OPS, POINTWISE, load_late

REGISTRIES: tuple[dict[Any, Any], ...] = (OPS, FUNCTIONS, POINTWISE)


def doubled(x: Any) -> Any:
    return np.asarray(x) * 2.0


def test_rules_of_a_test_are_taken_back() -> None:
    before = [dict(r) for r in REGISTRIES]
    with rules_taken_back():
        adarray.register_rule(doubled, lambda g, out, x: g * 2.0)
        for registry, key in zip(REGISTRIES, ("cbrt", np.cbrt, np.cbrt), strict=True):
            del registry[key]
        assert OPS["doubled"] is FUNCTIONS[doubled]
    for registry, then in zip(REGISTRIES, before, strict=True):
        assert registry == then


def test_rules_that_are_loaded_meanwhile_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    special = pytest.importorskip("scipy.special")
    load_late()
    gamma = FUNCTIONS[special.gamma]
    places: tuple[tuple[dict[Any, Any], Any], ...]
    places = ((OPS, gamma.name), (FUNCTIONS, special.gamma))
    for registry, key in places:
        monkeypatch.delitem(registry, key)
    with rules_taken_back():
        for registry, key in places:  # as a module does that is loaded
            registry[key] = gamma
    assert FUNCTIONS[special.gamma] is OPS[gamma.name] is gamma
