"""What runs the programs of a newcomer: plain, and differentiated, against differences.

For ``tests/newcomer``.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import adarray

MODULES = (
    "regression", "odes", "fields", "networks", "chances", "geometry", "algebra", "tables",
)  # fmt: skip
# Needed by modules of programs, beside NumPy and SciPy.
NEEDS = {"tables": ("pandas", "xarray", "sklearn")}
_STEP = 1e-5
# What SciPy's solvers leave of an error is in the differences, too.
_LOOSE = {"fit inside": 3e-4}
_ALL = 40  # components up to which each is compared


class Program(NamedTuple):
    """One style of one program."""

    module: str
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


def programs(module: str) -> list[Program]:
    """Return the programs of a module."""
    member = importlib.import_module(f"newcomer.{module}")
    return [
        Program(module, name, f, args) for name, fs in member.PROGRAMS.items() for f, args in fs
    ]


def grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Differentiate as a newcomer would."""
    return adarray.grad(f, intercept=True)


def leaves(tree: Any) -> list[np.ndarray]:
    """Return copies of the numbers of an argument as float arrays, in a fixed order."""
    if isinstance(tree, (np.ndarray, float, np.floating)):
        return [np.array(tree, dtype=float)]
    if isinstance(tree, dict):
        return [x for k in tree for x in leaves(tree[k])]
    if isinstance(tree, (list, tuple)):
        return [x for part in tree for x in leaves(part)]
    if dataclasses.is_dataclass(tree):
        return [x for f in dataclasses.fields(tree) for x in leaves(getattr(tree, f.name))]
    return []


def moved(tree: Any, steps: Any) -> Any:
    """Return an argument with a step, from an iterator of arrays, added to each of its numbers."""
    if isinstance(tree, np.ndarray):
        return tree + next(steps)
    if isinstance(tree, (float, np.floating)):
        return tree + float(next(steps))
    if isinstance(tree, dict):
        return {k: moved(v, steps) for k, v in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(moved(v, steps) for v in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(moved(v, steps) for v in tree)
    if dataclasses.is_dataclass(tree):
        changed = {f.name: moved(getattr(tree, f.name), steps) for f in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **changed)
    return copy.deepcopy(tree)


def compare(program: Program, gradient: Any) -> None:
    """Compare a gradient with central differences of the plain function."""
    first, *rest = program.args
    like = leaves(first)
    got = leaves(gradient)
    assert [g.shape for g in got] == [x.shape for x in like]
    sizes = [x.size for x in like]
    n = sum(sizes)
    rng = np.random.default_rng(0)
    directions = np.eye(n) if n <= _ALL else rng.normal(size=(8, n))
    flat = np.concatenate([g.ravel() for g in got])
    ends = np.cumsum(sizes)[:-1]
    tolerance = _LOOSE.get(program.name, 2e-6)
    for d in directions:
        parts = [p.reshape(x.shape) for p, x in zip(np.split(d, ends), like, strict=True)]
        values = [
            _plain(program.function, moved(first, iter([h * p for p in parts])), rest)
            for h in (-2 * _STEP, -_STEP, _STEP, 2 * _STEP)
        ]
        expected = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * _STEP)
        np.testing.assert_allclose(
            flat @ d, expected, rtol=tolerance, atol=tolerance, err_msg=program.name
        )


def _plain(f: Callable[..., Any], first: Any, rest: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(f(first, *rest))
