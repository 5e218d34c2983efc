"""Short axes of pairs are taken apart, where nothing needs the pairs whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded import Recorded, agrees, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Concatenate, Map
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.target import CPU, GPU, Target
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite import short_axes as module
from adarray.compiler.rewrite.short_axes import short_axes

RNG = np.random.default_rng(21)


def n_body(p: Any, m: Any) -> Any:
    d = p[:, None, :] - p[None, :, :]
    s = np.sum(d * d, axis=-1) + 0.1
    a = np.sum(d * (m[None, :] / (s * np.sqrt(s)))[:, :, None], axis=1)
    return np.sum(a * a)


def scaled(x: Any, y: Any, length: Any) -> Any:
    d = (x[:, None, :] - y[None, :, :]) / length
    return np.sum(np.exp(-0.5 * np.sum(d * d, axis=-1)), axis=0)


def first_axis(x: Any, y: Any) -> Any:
    d = x[:, :, None] - y[:, None, :]
    return np.sum(np.max(np.abs(d), axis=0), axis=1)


def all_axes(x: Any, y: Any) -> Any:
    return np.sum(np.tanh(x[:, None, :] * y[None, :, :]))


def kept(x: Any, y: Any) -> Any:
    d = x[:, None, :] - y[None, :, :]
    return d, np.sum(d * d, axis=-1)


def distances(x: Any, y: Any) -> Any:
    d = x[:, None, :] - y[None, :, :]
    return np.sqrt(np.sum(d * d, axis=-1) + 0.01)


def points(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


CASES = {
    "n-body": (n_body, (points(40, 3), points(40))),
    "scaled": (scaled, (points(50, 4), points(30, 4), np.abs(points(4)) + 0.5)),
    "first axis": (first_axis, (points(2, 40), points(2, 35))),
    "all axes": (all_axes, (points(45, 3), points(37, 3))),
}


@pytest.fixture(autouse=True)
def small_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAIRS", 256)


def checked(r: Recorded, target: Target = GPU) -> Program:
    """Return the program with its short axes taken apart, after comparing what both compute."""
    parts = short_axes(r.program, target)
    verify_program(parts)
    agrees(Recorded(parts, r.arrays, r.leaves, r.calls, r.translate))
    return parts


def pairs(program: Program) -> list[tuple[int, ...]]:
    """Return the shapes of maps with three axes."""
    maps = (v for v in program.values if isinstance(v.primitive, Map))
    return [v.shape for v in maps if v.ndim == 3 and v.size >= 256 and 1 not in v.shape]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("target", [CPU, GPU], ids=["cpu", "gpu"])
def test_pairs_have_no_short_axis(name: str, gradient: bool, target: Target) -> None:
    f, arrays = CASES[name]
    if gradient:
        f = adarray.value_and_grad(
            lambda *xs: np.sum(CASES[name][0](*xs) ** 2), argnums=tuple(range(len(arrays)))
        )
    r = recorded(f, *arrays)
    assert pairs(r.program)
    assert not pairs(checked(r, target))


def test_results_are_put_together() -> None:
    parts = checked(recorded(adarray.grad(n_body), *CASES["n-body"][1]))
    concatenated = [v for v in parts.values if isinstance(v.primitive, Concatenate)]
    assert [v.shape for v in concatenated] == [(40, 3)]


def test_pairs_that_are_needed_whole_stay() -> None:
    r = recorded(kept, points(40, 3), points(40, 3))
    assert short_axes(r.program, GPU) is r.program


def test_long_axes_and_arrays_without_pairs_stay() -> None:
    r = recorded(scaled, points(50, 40), points(30, 40), np.ones(40))
    assert short_axes(r.program, GPU) is r.program
    r = recorded(lambda x: np.sum(np.sin(x) * x, axis=-1), points(20, 30, 3))
    assert short_axes(r.program, GPU) is r.program


def test_tiles_are_for_gpus() -> None:
    """Sums over many coordinates stay whole for the tiles of a GPU; processors have none."""
    r = recorded(distances, points(50, 12), points(30, 12))
    assert short_axes(r.program, GPU) is r.program
    assert not pairs(checked(r, CPU))


def test_no_pair_is_computed_twice() -> None:
    """Square roots are computed once for all coordinates."""
    r = recorded(adarray.grad(n_body), *CASES["n-body"][1])
    parts = checked(r)
    roots = [v for v in parts.values if isinstance(v.primitive, Map) and v.primitive.name == "sqrt"]
    assert len(roots) == 1
    assert interpret(parts, r.arrays)[0].shape == (40, 3)
