"""One function in every mode on every backend, against its plain run by NumPy.

`check` runs a function plainly, and compares what adarray makes of it: results, what arguments hold
afterwards, and derivatives, which are taken from differences of plain runs. What adarray refuses
counts as refused; what it answers must be right.

For ``tests/trust``.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import adarray
from adarray.errors import ADArrayError
from adarray.jitting import JitWarning
from adarray.jitting.shared.copies import copies
from adarray.testing._ops import use_all_sizes
from adarray.transforms.tree import flatten

# ADARRAY_BACKENDS=cuda compares on a GPU, standin on the stand-in for one.
BACKENDS = tuple(os.environ.get("ADARRAY_BACKENDS", "numpy,serial,openmp").split(","))
COMPILED = tuple(b for b in BACKENDS if b != "numpy")
if "standin" in BACKENDS:
    import device
    import pytest

    device.installed(pytest.MonkeyPatch())
MODES = ("plain", "intercept", "jit", "jit(grad)", "jvp", "nested", "jit in grad")
# How many random programs a test takes; some hundred where nobody asked for more.
LONG = int(os.environ.get("ADARRAY_LONG", "0"))
FIRST = int(os.environ.get("ADARRAY_FIRST", "0"))


def seeds(short: int) -> range:
    """Return the seeds of the programs of a test: `short` many, or ADARRAY_LONG."""
    return range(FIRST, FIRST + (LONG or short))


def fresh(tree: Any, scale: float = 1.0, along: Sequence[Any] | None = None) -> Any:
    """Return a copy of arguments in which arrays lie in memory as they did.

    Views of one array become views of one copy; strides stay. Floating values are multiplied by
    `scale`; `along` holds what is added to each leaf.
    """
    leaves, rebuild = flatten(tree)
    result = copies(leaves)
    scaled: set[int] = set()
    for i, x in enumerate(result):
        if isinstance(x, np.ndarray) and x.dtype.kind in "fc":
            owner = x
            while isinstance(owner.base, np.ndarray) and owner.base.dtype == x.dtype:
                owner = owner.base
            if scale != 1.0 and id(owner) not in scaled:
                scaled.add(id(owner))
                owner *= scale
        elif isinstance(x, (float, complex)):
            result[i] = x = type(x)(x * scale)
        if along is not None and along[i] is not None:
            if isinstance(x, np.ndarray):
                x += along[i]
            else:
                result[i] = type(x)(x + along[i])
    return rebuild(result)


def total(results: Any) -> Any:
    """Return one number that every floating element of the results has its own weight in."""
    leaves, _ = flatten(results)
    s: Any = 0.0
    for i, r in enumerate(leaves):
        if np.result_type(r).kind == "f":
            weights = np.cos(1.0 + i + np.arange(np.size(r))).reshape(np.shape(r))
            s = s + np.sum(r * weights)
    return s


def agree(got: Any, expected: Any, what: str, rtol: float = 1e-9) -> None:
    """Compare two trees of arrays and numbers; dtypes and shapes, too."""
    a, _ = flatten(got)
    b, _ = flatten(expected)
    assert len(a) == len(b), f"{what}: {len(a)} results, expected {len(b)}"
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if not isinstance(y, (np.ndarray, np.generic, int, float, complex)):
            continue
        x = x.numpy() if isinstance(x, adarray.ADArray) else x
        assert np.shape(x) == np.shape(y), f"{what}: leaf {i}: shape {np.shape(x)}, {np.shape(y)}"
        if isinstance(y, (np.ndarray, np.generic)) and isinstance(x, (np.ndarray, np.generic)):
            assert x.dtype == y.dtype, f"{what}: leaf {i}: dtype {x.dtype}, expected {y.dtype}"
        rough = rtol if np.result_type(y).itemsize > 4 else 1e-4
        size = np.max(np.abs(y), initial=1.0) if np.result_type(y).kind in "fc" else 1.0
        np.testing.assert_allclose(x, y, rtol=rough, atol=rough * size, err_msg=f"{what}: {i}")


class Oracle:
    """Plain runs of a function: results, what its arguments hold then, derivatives by differences.

    Parameters
    ----------
    f : callable
    args : tuple
    """

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        seed: int = 0,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self.f = f
        self.args = args
        self.before = before
        arguments = fresh(args)
        before()
        self.results = f(*arguments)
        self.after = fresh(arguments)
        leaves, _ = flatten(args)
        rng = np.random.default_rng(seed)
        self.direction = [
            np.asarray(rng.uniform(-1, 1, np.shape(x)), np.result_type(x))
            if np.result_type(x).kind == "f" else None
            for x in leaves
        ]  # fmt: skip

    def loss(self, step: float = 0.0) -> float:
        """Return the weighted sum of the results at the arguments plus `step` directions."""
        along = [None if d is None else d * step for d in self.direction]
        self.before()
        return float(total(self.f(*fresh(self.args, along=along))))

    def slope(self, step: float = 1e-4) -> tuple[float, float]:
        """Return the derivative along the direction, and how far it may be off."""

        def central(h: float) -> float:
            return (self.loss(h) - self.loss(-h)) / (2 * h)

        a, b = central(step), central(step / 2)
        return (4 * b - a) / 3, 1e-6 * (1 + abs(b)) + abs(a - b)

    def curvature(self, step: float = 1e-3) -> tuple[float, float]:
        """Return the second derivative along the direction, and how far it may be off."""

        def central(h: float) -> float:
            return (self.loss(h) - 2 * self.loss(0.0) + self.loss(-h)) / h**2

        a, b = central(step), central(step / 2)
        return (4 * b - a) / 3, 1e-5 * (1 + abs(b)) + 2 * abs(a - b)

    def along(self, gradients: Any) -> float:
        """Return the derivative along the direction that gradients give."""
        pairs = zip(flatten(gradients)[0], self.wanted(), strict=True)
        return float(sum(np.sum(np.asarray(g) * d) for g, d in pairs))

    def wanted(self) -> list[Any]:
        """Return the directions of the leaves that are differentiated."""
        return [d for d in self.direction if d is not None]


def check(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    modes: Sequence[str] = MODES,
    backends: Sequence[str] = BACKENDS,
    calls: int = 4,
    derivatives: bool = True,
    refusals: tuple[type[Exception], ...] = (ADArrayError,),
    before: Callable[[], None] = lambda: None,
) -> Counter[str]:
    """Compare the runs of a function in all modes with its plain run; raise if one is wrong.

    Parameters
    ----------
    f : callable
        Plain NumPy code. Floating arguments, numbers too, are differentiated, others are not.
    args : tuple
        Of arrays and numbers; where arrays lie in memory, and which share it, is kept.
    calls : int
        Of jitted functions, each with other values.
    derivatives : bool
        Whether to compare derivatives with differences.
    refusals : tuple of types
        Exceptions that are refusals.
    before : callable
        Gives what `f` captured, and may write into, what it holds before each run.

    Returns
    -------
    Counter
        How many outcomes were ``right`` and ``refused``.
    """
    counts: Counter[str] = Counter()
    kinds = [np.result_type(x).kind == "f" for x in args]
    argnums = tuple(i for i, floating in enumerate(kinds) if floating)

    def loss(*xs: Any) -> Any:
        return total(f(*xs))

    def curve(oracle: Oracle) -> Callable[..., Any]:
        wanted = oracle.wanted()

        def directional(*xs: Any) -> Any:
            gradients = adarray.grad(loss, argnums=argnums)(*xs)
            return sum(np.sum(g * d) for g, d in zip(gradients, wanted, strict=True))

        return directional

    def differentiated(transformed: Callable[..., Any], what: str) -> None:
        for k in range(calls if "jit" in what else 1):
            oracle = Oracle(f, fresh(args, 1 + 0.03 * k), k, before)
            before()
            value, gradients = transformed(*fresh(oracle.args))
            agree(value, total(oracle.results), what)
            if derivatives:
                slope, error = oracle.slope()
                got = oracle.along(gradients)
                assert abs(got - slope) <= error, f"{what}: slope {got}, expected {slope}"

    def run(mode: str, what: str) -> None:
        if mode == "jit":
            jitted = adarray.jit(f)
            for k in range(calls):
                oracle = Oracle(f, fresh(args, 1 + 0.03 * k), k, before)
                arguments = fresh(oracle.args)
                before()
                agree(jitted(*arguments), oracle.results, what)
                agree(arguments, oracle.after, f"{what}, arguments after")
        elif not argnums:
            return
        elif mode in ("plain", "intercept"):
            inside = mode == "intercept"
            differentiated(adarray.value_and_grad(loss, argnums, intercept=inside), what)
        elif mode == "jit(grad)":
            differentiated(adarray.jit(adarray.value_and_grad(loss, argnums)), what)
        elif mode == "jit in grad":
            differentiated(adarray.value_and_grad(adarray.jit(loss), argnums), what)
        elif mode == "jvp":
            oracle = Oracle(f, args, before=before)
            floating = {i: d for i, d in enumerate(oracle.direction) if d is not None}

            def of_floating(*xs: Any) -> Any:
                args = list(fresh(oracle.args))
                for i, x in zip(floating, xs, strict=True):
                    args[i] = x
                return total(f(*args))

            arguments = fresh(oracle.args)
            primals = [arguments[i] for i in floating]
            tangents = [
                float(d) if isinstance(p, float) else d
                for p, d in zip(primals, floating.values(), strict=True)
            ]
            before()
            value, tangent = adarray.jvp(of_floating, primals, tangents)
            agree(value, total(oracle.results), what)
            if derivatives:
                slope, error = oracle.slope()
                assert abs(float(tangent) - slope) <= error, f"{what}: {tangent}, {slope}"
        elif mode == "nested" and derivatives:
            oracle = Oracle(f, args, before=before)
            before()
            gradients = adarray.grad(curve(oracle), argnums=argnums)(*fresh(args))
            curvature, error = oracle.curvature()
            got = oracle.along(gradients)
            assert abs(got - curvature) <= error, f"{what}: curvature {got}, {curvature}"

    for backend in backends:
        for mode in modes:
            with use_all_sizes(backend), warnings.catch_warnings():
                warnings.simplefilter("ignore", JitWarning)
                try:
                    run(mode, f"{mode} on {backend}")
                    counts["right"] += 1
                except refusals as error:
                    counts["refused"] += 1
                    counts[f"{type(error).__name__}: {error}"[:160]] += 1
    return counts
