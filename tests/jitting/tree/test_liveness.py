"""Values of a walk along a tree are forgotten where nothing below reads them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting.tree.leaf import TreeLeaf
from adarray.jitting.tree.run import TreeWalk


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[TreeWalk]:
    """Return the walks that come to an end."""
    out: list[TreeWalk] = []
    run = TreeWalk.run

    def noted(self: TreeWalk) -> TreeLeaf:
        leaf = run(self)
        out.append(self)
        return leaf

    monkeypatch.setattr(TreeWalk, "run", noted)
    return out


def arrays(walk: TreeWalk) -> int:
    """Return how many arrays a walk has still got, beside its inputs."""
    inputs = len(walk.tree.strides)
    return sum(np.size(v) > 1 for v in walk.values[inputs:] if v is not None)


def branches(x: Any) -> Any:
    for _ in range(12):
        x = np.sin(x) + x * 0.5
        if np.sum(x) > 1e9:
            return x
    return x * 2.0


def masks(x: Any) -> Any:
    s = 0.0
    for _ in range(6):
        x = x[x < 0.9] * 1.1
        s = s + np.sum(x * x)
    return s


@pytest.mark.parametrize("f", [branches, masks])
def test_values_are_forgotten(f: Any, walks: list[TreeWalk]) -> None:
    x = np.linspace(0.0, 0.9, 50)
    with adarray.use("serial"):
        jf = adarray.jit(f)
        for _ in range(4):
            np.testing.assert_allclose(jf(x), f(x), 1e-12)
    assert len(walks[-1].nodes) >= 6
    assert arrays(walks[-1]) <= 2


def test_gradients_keep_what_they_need(walks: list[TreeWalk]) -> None:
    x = np.linspace(0.0, 0.85, 50)
    gradient = adarray.value_and_grad(masks)
    with adarray.use("serial"):
        jf = adarray.jit(gradient)
        for _ in range(4):
            value, by = jf(x)
            np.testing.assert_allclose(value, gradient(x)[0], 1e-12)
            np.testing.assert_allclose(by, gradient(x)[1], 1e-12)
    assert arrays(walks[-1]) < len(walks[-1].values) / 3


def test_another_path_may_read_what_the_first_one_did_not() -> None:
    def f(x: Any) -> Any:
        y, z = np.exp(x), np.cos(x)
        if np.sum(x) > 0.0:
            return x + 1.0
        if np.sum(z) > 0.0:
            return y - z
        return y * z

    one, two, three = np.ones(5), np.full(5, -1.0), np.full(5, -2.0)
    with adarray.use("serial"):
        jf = adarray.jit(f)
        for x in (one, one, one, two, two, two, one, three, three, three, two, one, three):
            np.testing.assert_allclose(jf(x), f(x), 1e-14)


@pytest.mark.parametrize("last", [-1.0, -2.0])
def test_paths_that_another_thread_adds_meanwhile(
    monkeypatch: pytest.MonkeyPatch, last: float
) -> None:
    """What they read is not there in a call that went by before they were added."""

    def f(x: Any) -> Any:
        y, z = np.exp(x), np.cos(x)
        if np.sum(x) > 0.0:
            return x + 1.0
        if np.sum(x * 2.0) > -15.0:
            return y
        return y - z

    one, two, three = np.ones(5), np.full(5, -1.0), np.full(5, -2.0)
    host_read = TreeWalk._host_read

    def others_first(self: TreeWalk, node: Any) -> Any:
        outcome = host_read(self, node)
        monkeypatch.setattr(TreeWalk, "_host_read", host_read)

        def add() -> None:
            with adarray.use("serial"):
                for x in (two, two, three, three):
                    jf(x)

        thread = threading.Thread(target=add)
        thread.start()
        thread.join()
        return outcome

    with adarray.use("serial"):
        jf = adarray.jit(f)
        for _ in range(3):
            jf(one)
        monkeypatch.setattr(TreeWalk, "_host_read", others_first)
        x = np.full(5, last)
        np.testing.assert_allclose(jf(x), f(x), 1e-14)
        assert TreeWalk._host_read is host_read
