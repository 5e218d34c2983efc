"""Products that sum over many terms are stacks of products on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded import close, recorded

from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Matmul
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite import deep_products as rules
from adarray.compiler.rewrite.deep_products import deep_products

RNG = np.random.default_rng(3)


def products(f: Any, *args: Any, target: Any = GPU) -> list[int]:
    """Rewrite, compare; return how many axes the products have."""
    r = recorded(f, *args)
    after = deep_products(r.program, target)
    verify_program(after)
    arrays = [np.asarray(a) for a in args]
    for got, want in zip(interpret(after, arrays), interpret(r.program, arrays), strict=True):
        close(got, want, 1e-9)
    return [v.ndim for v in after.values if isinstance(v.primitive, Matmul)]


@pytest.mark.parametrize("depth", [64, 80, 93])
@pytest.mark.parametrize("transposed", [False, True])
def test_parts_of_a_sum(depth: int, transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "DEEP", 60)
    monkeypatch.setattr(rules, "PART", 16)
    x, y = RNG.normal(size=(depth, 5)), RNG.normal(size=(depth, 7))
    rest = [2] if depth % 16 else []
    if transposed:
        assert products(lambda x, y: x.T @ y, x, y) == [3, *rest]
    else:
        assert products(lambda x, y: x @ y, x.T.copy(), y) == [3, *rest]


def test_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "DEEP", 60)
    monkeypatch.setattr(rules, "PART", 16)
    monkeypatch.setattr(rules, "FEW", 30)
    x, y = RNG.normal(size=(5, 64)), RNG.normal(size=(64, 6))
    assert products(lambda x, y: x @ y, x, y) == [3]
    assert products(lambda x, y: x @ y, x, y, target=CPU) == [2]
    assert products(lambda x, y: x[:, :59] @ y[:59], x, y) == [2]
    assert products(lambda x, y: x @ y, np.concatenate([x, x]), y) == [2]
    assert products(lambda x, y: x @ y, x[0], y) == [1]
