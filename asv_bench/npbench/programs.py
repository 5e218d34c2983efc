"""Programs of an NPBench checkout: what they are called with, and what is differentiated.

Nothing of NPBench is here: its descriptions (``bench_info``) and texts are read from the folder
that the user names. Loaded by workers, also in interpreters that have no adarray.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import sys
import time
import types
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SIZES = ("S", "M", "L", "paper")
Data = dict[str, Any]


class Program(NamedTuple):
    """One program.

    Parameters
    ----------
    name : str
        Name of its description.
    root : Path
        The checkout.
    info : dict
        The description.
    """

    name: str
    root: Path
    info: dict[str, Any]

    def text(self, postfix: str, apart: str = "") -> types.ModuleType:
        """Return the module of a text of the program: ``"numpy"``, ``"jax"``, or another.

        It is loaded once; `apart` names another copy of it.

        Raises
        ------
        LookupError
            If there is none.
        """
        ending = f"_{postfix}" if postfix else ""
        folder = self.root / "npbench" / "benchmarks" / self.info["relative_path"]
        path = folder / f"{self.info['module_name']}{ending}.py"
        if not path.is_file():
            raise LookupError(f"{self.name} has no text for {postfix or 'its data'}")
        name = f"npbench_{self.name}{ending}{apart}"
        known = sys.modules.get(name)
        if known is not None and known.__file__ == str(path):
            return known
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def function(self, postfix: str) -> Callable[..., Any]:
        """Return the function of a text."""
        function: Callable[..., Any] = getattr(self.text(postfix), self.info["func_name"])
        return function

    def data(self, size: str) -> Data:
        """Return what the function is called with, by name."""
        data: Data = dict(self.info["parameters"][size])
        init = self.info.get("init")
        if init:
            make = getattr(self.text(""), init["func_name"])
            initial = make(*[data[k] for k in init["input_args"]])
            names = init["output_args"]
            data.update(zip(names, initial if len(names) > 1 else (initial,), strict=True))
        return {k: data[k] for k in self.info["input_args"]}

    def inputs(self, data: Data) -> list[str]:
        """Return the inputs that derivatives are taken of: arrays, or else numbers."""
        arrays = [k for k in self.info["array_args"] if is_inexact(data[k])]
        return arrays or [k for k, x in data.items() if is_inexact(x)]


def is_inexact(x: Any) -> bool:
    """Whether something is a floating-point or complex number, or an array of them."""
    return np.asarray(x).dtype.kind in "fc"


def find(root: Path) -> dict[str, Program]:
    """Return the programs of a checkout by name.

    Raises
    ------
    LookupError
        If there are none.
    """
    paths = sorted((root / "bench_info").glob("*.json"))
    if not paths:
        raise LookupError(f"{root} is no checkout of NPBench: it has no bench_info/*.json")
    return {p.stem: Program(p.stem, root, json.loads(p.read_text())["benchmark"]) for p in paths}


def copied(data: Data, names: Any = None) -> Data:
    """Return the data with arrays of their own: all, or those of some names."""
    return {
        k: x.copy() if isinstance(x, np.ndarray) and (names is None or k in names) else x
        for k, x in data.items()
    }


class Objective(NamedTuple):
    """A weighted sum of all that a program computes: what it returns, and what it writes.

    Parameters
    ----------
    returned : int
        How many results the function returns.
    written : list of str
        The inputs that it writes into.
    counted : list of int
        Which of the results, and then of the written inputs, have derivatives.
    outputs : list of ndarray
        Their values.
    weights : list of ndarray
    """

    returned: int
    written: list[str]
    counted: list[int]
    outputs: list[np.ndarray]
    weights: list[np.ndarray]

    def outputs_of(self, result: Any, arguments: Data) -> list[Any]:
        """Return the outputs of a call, in the order of the weights."""
        every = [*leaves(result), *[arguments[k] for k in self.written]]
        return [every[i] for i in self.counted]

    def value(self, xp: Any, outputs: list[Any]) -> Any:
        """Return the weighted sum of outputs, by the functions of `xp`."""
        total: Any = 0.0
        for w, x in zip(self.weights, outputs, strict=True):
            if w.dtype.kind == "c":
                total = total + xp.sum(w.real * xp.real(x)) + xp.sum(w.imag * xp.imag(x))
            else:
                total = total + xp.sum(w * x)
        return total


def leaves(result: Any) -> list[Any]:
    """Return the arrays and numbers of a result."""
    if result is None:
        return []
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in leaves(part)]
    return [result]


def objective(program: Program, data: Data) -> Objective:
    """Return the objective of a program: NumPy runs it once, to see what it computes."""
    function = program.function("numpy")
    arguments, results, untouched = _first_run(function, data)
    same = [
        k
        for k, x in data.items()
        if isinstance(x, np.ndarray)
        and np.array_equal(x, arguments[k], equal_nan=x.dtype.kind in "fc")
    ]
    alike = [] if untouched else _written(function, data, same)
    written = [
        k for k, x in data.items() if isinstance(x, np.ndarray) and (k not in same or k in alike)
    ]
    every = [*results, *[arguments[k] for k in written]]
    counted = [
        i
        for i, x in enumerate(every)
        if is_inexact(x) and not any(x is y for y in every[:i])  # what it returns, too
    ]
    outputs = [np.array(every[i]) for i in counted]
    rng = np.random.default_rng(zlib.crc32(program.name.encode()))
    weights = [_weights(rng, x) for x in outputs]
    target = Objective(len(results), written, counted, outputs, weights)
    return target._replace(weights=_well_conditioned(program, data, target))


def _first_run(function: Callable[..., Any], data: Data) -> tuple[Data, list[Any], bool]:
    """Return the arguments after a run, its results, and whether it surely writes into nothing.

    Most programs do not, and some take long: then one run tells.
    """
    for writeable in (False, True):
        arguments = copied(data)
        for x in arguments.values():
            if isinstance(x, np.ndarray):
                x.flags.writeable = writeable
        try:
            return arguments, leaves(function(*arguments.values())), not writeable
        except ValueError as error:
            if writeable or "read-only" not in str(error):
                raise
    raise AssertionError


# Rounding errors of inputs that are multiplied by more than this leave nothing to compare.
AMPLIFIED = 1e4


def _well_conditioned(program: Program, data: Data, target: Objective) -> list[np.ndarray]:
    """Return weights that are 0 for elements that inputs decide by their last digits.

    Such are the late times of a chaotic system. Where hardly anything would be left, all stay.
    """
    rng = np.random.default_rng(zlib.crc32(program.name.encode()) + 2)
    moved = copied(data)
    steps = []
    for k in program.inputs(data):
        x = np.asarray(data[k])
        steps.append(4.0 * float(np.finfo(x.dtype).eps))
        signs = _random(x.shape, lambda n: rng.choice([-1.0, 1.0], n))
        moved[k] = (x * (1 + steps[-1] * signs)).astype(x.dtype)
        if not isinstance(data[k], np.ndarray):
            moved[k] = type(data[k])(moved[k])
    limit = AMPLIFIED * max(steps, default=0.0)
    again = target.outputs_of(program.function("numpy")(*moved.values()), moved)
    weights = []
    for w, x, y in zip(target.weights, target.outputs, again, strict=True):
        if np.shape(y) != x.shape:
            return target.weights
        size = np.max(np.abs(x), initial=0.0, where=np.isfinite(x))
        weights.append(w * (np.abs(np.asarray(y) - x) <= limit * size))
    remaining = sum(np.count_nonzero(w) for w in weights)
    enough = 0.05 * sum(np.count_nonzero(w) for w in target.weights)
    return weights if remaining >= enough else target.weights


def _written(function: Callable[..., Any], data: Data, names: list[str]) -> list[str]:
    """Return which of some arrays a function writes into."""
    arguments = copied(data)
    for k in names:
        arguments[k].flags.writeable = False
    try:
        function(*arguments.values())
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        if len(names) == 1:
            return names
        middle = len(names) // 2
        return [
            *_written(function, data, names[:middle]),
            *_written(function, data, names[middle:]),
        ]
    return []


# Random numbers of larger arrays repeat: a million million of them take longer than the programs
# do. A prime number of them never lie below each other in the rows of an array.
PERIOD = 1_000_003


def _random(shape: tuple[int, ...], draw: Callable[[int], np.ndarray]) -> np.ndarray:
    """Return an array of random numbers, of which `draw` returns as many as it is asked for."""
    size = math.prod(shape)
    return np.resize(draw(min(size, PERIOD)), shape)


def _weights(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Return weights for the elements of an output; none where that is infinite or nan."""
    w = _random(x.shape, lambda n: rng.uniform(0.5, 1.5, n) * rng.choice([-1.0, 1.0], n))
    if x.dtype.kind == "c":
        w = w + 1j * _random(x.shape, lambda n: rng.uniform(0.5, 1.5, n))
    w = np.where(np.isfinite(x), w, 0.0) if np.isfinite(x).all() else w * np.isfinite(x)
    return np.asarray(w, np.result_type(x.dtype))


# -- checks -------------------------------------------------------------------------------

DIRECTIONS = 2
# Steps of differences, relative to the largest element; the best one counts.
STEPS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
COMPLEX_STEP = 1e-30
CONVERGED = 1e-7  # the next step is not taken where two agree as well


def directions(program: Program, data: Data) -> list[Data]:
    """Return directions in which slopes are compared: one array for each input."""
    rng = np.random.default_rng(zlib.crc32(program.name.encode()) + 1)
    along = []
    for _ in range(DIRECTIONS):
        direction = {}
        for k in program.inputs(data):
            x = np.asarray(data[k])
            d = _random(x.shape, lambda n: rng.normal(size=n))
            if x.dtype.kind == "c":
                d = d + 1j * _random(x.shape, lambda n: rng.normal(size=n))
            direction[k] = d * (np.max(np.abs(x), initial=0.0) or 1.0)
        along.append(direction)
    return along


def slopes(gradients: Data, along: list[Data]) -> list[tuple[float, float]]:
    """Return the slope along each direction, and the norm of what it is the sum of.

    The gradient of a complex number ``a + ib`` is ``df/da - i df/db``.
    """
    products = []
    for direction in along:
        total = squares = 0.0
        for k, d in direction.items():
            part = np.asarray(np.real(np.asarray(gradients[k]) * d), np.float64).ravel()
            total += float(np.sum(part))
            squares += float(np.dot(part, part))
        products.append((total, math.sqrt(squares)))
    return products


def differences(program: Program, data: Data, budget: float = math.inf) -> list[list[float]]:
    """Return slopes along each direction: that of a complex step, then differences of some steps.

    Floating-point inputs are of double precision, whatever the program's are. A step that leads out
    of the program's domain has no slope. After `budget` seconds no further direction is begun. (A
    complex step has no error of its own where a program is analytic, and takes the branches that
    the values take; Squire and Trapp, *Using complex variables to estimate derivatives*, 1998.)
    """
    wide = {k: _widened(x) for k, x in data.items()}
    target = objective(program, data)
    function = program.function("numpy")

    def value(direction: Data, step: complex) -> complex:
        moved = copied(wide)
        for k, d in direction.items():
            moved[k] = wide[k] + step * d
        try:
            result = function(*moved.values())
            return complex(target.value(np, target.outputs_of(result, moved)))
        except (ArithmeticError, ValueError, TypeError):  # LinAlgError is a ValueError
            return math.nan

    start = time.perf_counter()
    measured: list[list[float]] = []
    for d in directions(program, data):
        if measured and time.perf_counter() - start > budget:
            break
        measured.append(_slopes(d, value))
    return measured


def _slopes(direction: Data, value: Callable[[Data, complex], complex]) -> list[float]:
    """Return slopes along a direction."""
    slopes: list[float] = []
    if all(np.asarray(x).dtype.kind == "f" for x in direction.values()):
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            with contextlib.suppress(np.exceptions.ComplexWarning):  # it keeps reals only
                slopes.append(value(direction, 1j * COMPLEX_STEP).imag / COMPLEX_STEP)
    for h in STEPS:
        slopes.append(((value(direction, h) - value(direction, -h)) / (2 * h)).real)
        if len(slopes) > 1 and abs(slopes[-1] - slopes[-2]) <= CONVERGED * abs(slopes[-1]):
            break
    return [x for x in slopes if math.isfinite(x)]


def _widened(x: Any) -> Any:
    if not is_inexact(x) or not isinstance(x, np.ndarray):
        return x
    return x.astype(np.result_type(x, np.float64))


def deviation(products: list[tuple[float, float]], by_differences: list[list[float]]) -> float:
    """Return by how much slopes differ from differences, in units of their size.

    Along those directions that have differences.
    """
    return max(
        min((abs(slope - h) / (max(abs(slope), abs(h), norm) or 1.0) for h in steps), default=1.0)
        for (slope, norm), steps in zip(products, by_differences, strict=False)
    )
