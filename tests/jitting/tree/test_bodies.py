"""Compiled segments are found again without a look at what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting.shared.keys import HashedKey
from adarray.jitting.tree.tree import TreeNode


class Counted:
    """Something that counts how often it is hashed."""

    def __init__(self) -> None:
        self.hashed = 0

    def __hash__(self) -> int:
        self.hashed += 1
        return 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted)


def test_keys_are_hashed_once() -> None:
    part = Counted()
    key = HashedKey((part, 1))
    table = {key: "value"}
    for _ in range(5):
        assert table[key] == "value"
    assert part.hashed == 1
    assert table[HashedKey((Counted(), 1))] == "value"
    assert HashedKey((Counted(), 2)) not in table
    assert key != (part, 1)


@pytest.mark.parametrize("backend", ["numpy", "serial", "openmp"])
def test_what_one_recording_proves_is_not_compared(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: Any) -> Any:
        for _ in range(4):
            x = np.sin(x) * 2.0
            if x[0] < 1.0:  # a guard: the next segment
                x = x + 1.0
        return np.sum(x)

    x = np.linspace(0.1, 1.0, 7)
    with adarray.use(backend):
        jf = adarray.jit(adarray.grad(f))
        jf.compile(x)
        expected = jf(x)
        np.testing.assert_allclose(expected, adarray.grad(f)(x), rtol=1e-12)
        asked = 0

        def body(node: TreeNode) -> Any:
            nonlocal asked
            asked += 1
            return original(node)

        original = TreeNode.body.func  # type: ignore[attr-defined]
        monkeypatch.setattr(TreeNode, "body", property(body))
        for _ in range(3):
            np.testing.assert_array_equal(jf(x), expected)
        assert len(jf.path(x)) > 2
        assert all(node.runs >= 3 for node in jf.path(x))
    assert asked == 0
