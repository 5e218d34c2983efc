"""Differentiating a call of a package that never heard of adarray, and checking it.

The gradient of a weighted sum of everything that the call returns, with respect to
every floating point argument, is compared with central differences of the plain
call, of fourth order. With plain arguments, the call must give the same inside of
`adarray.intercept` as outside, to the last bit.
"""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import adarray
from adarray.intercepting import intercepted

TOLERANCE = 1e-5
# Relative to the arguments. The small ones, where rounding is felt, for functions of many pieces:
# interpolation in a table, say, where a large one reaches over a node.
STEPS = (2e-4, 1e-5, 1e-6)


class Call(NamedTuple):
    """One row of the table.

    Parameters
    ----------
    package : str
    name : str
        Path of the function within the package: ``module.function``, or
        ``module.Class().method`` for a method of an instance.
    arguments : str
        As they stand in a call; ``np`` is NumPy and ``pkg`` the package. Floating
        point arguments are differentiated but for those in ``fixed(...)``.
    packages : tuple of str
        To be named to `adarray.intercept`, for packages with compiled modules.
    """

    package: str
    name: str
    arguments: str
    packages: tuple[str, ...] = ()


class Result(NamedTuple):
    """What came of one row.

    Parameters
    ----------
    call : Call
    status : str
        ``differentiable``: the gradient agrees with differences. ``constant``: both
        are zero. ``refused``: an error was raised. ``wrong``: a gradient or a value
        came back that is another one. ``unusable``: the plain call does not work.
    error : float, optional
        The largest relative error of the gradient, where there are both.
    reason : str
        What was raised, or what is wrong.
    """

    call: Call
    status: str
    error: float | None = None
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether the gradient agrees with differences that are not all zero."""
        return self.status == "differentiable"


class Fixed(NamedTuple):
    """An argument that is not differentiated, such as a number that counts something."""

    value: Any


def _found(package: str, parts: list[str]) -> Any:
    # An attribute of a package may hide a module of the same name, and the other way round.
    for i in range(len(parts)):
        try:
            module = importlib.import_module(".".join([package, *parts[:i]]))
            for part in parts[i:]:
                module = getattr(module, part.removesuffix("()"))
                if part.endswith("()"):  # a method of an instance: ``module.Class().method``
                    module = module()
        except (AttributeError, ModuleNotFoundError):
            continue
        if callable(module):
            return module
    raise AttributeError(f"{package} has no function {'.'.join(parts)}")


def resolve(call: Call) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the function of a row, and its arguments."""
    package = importlib.import_module(call.package)
    function = _found(call.package, call.name.split("."))
    space = {"np": np, "pkg": package, "fixed": Fixed, "call": lambda *a, **k: (a, k)}
    args, kwargs = eval(f"call({call.arguments})", space)  # text of our own
    return function, args, kwargs


def _is_real(x: Any) -> bool:
    return isinstance(x, float) or (isinstance(x, np.ndarray) and x.dtype.kind == "f")


def split(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Callable[..., Any]]:
    """Return the floating point leaves of a call, and what puts new ones in their places."""
    leaves: list[Any] = []

    def collect(x: Any) -> Any:
        if _is_real(x):
            leaves.append(x)
            return (collect, len(leaves) - 1)
        if type(x) in (list, tuple):
            return type(x)(map(collect, x))
        if type(x) is dict:
            return {k: collect(v) for k, v in x.items()}
        return x

    form = collect((args, kwargs))

    def rebuild(new: Any, x: Any = form) -> Any:
        if type(x) is tuple and len(x) == 2 and x[0] is collect:
            leaf = new[x[1]]  # copied: some functions write into their arguments
            return leaf.copy() if np.ndim(leaf) else leaf
        if type(x) is Fixed:
            return x.value
        if type(x) in (list, tuple):
            return type(x)(rebuild(new, i) for i in x)
        if type(x) is dict:
            return {k: rebuild(new, v) for k, v in x.items()}
        return x

    return leaves, rebuild


def parts_of(x: Any) -> list[Any] | None:
    """Return what a container holds; None if `x` is none."""
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, (list, tuple)):
        return list(x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return [getattr(x, field.name) for field in dataclasses.fields(x)]
    return None


def weighted(result: Any) -> Any:
    """Return the sum of all real numbers in a result, each with a weight of its own."""
    total, count = 0.0, 0

    def add(x: Any) -> None:
        nonlocal total, count
        parts = parts_of(x)
        if parts is not None:
            for v in parts:
                add(v)
        elif isinstance(x, (float, complex, np.generic, np.ndarray, adarray.ADArray)):
            kind = np.dtype(getattr(x, "dtype", x.__class__)).kind
            if kind == "c":
                add(np.real(x))
                add(np.imag(x))
            elif kind == "f":
                size = int(np.size(x))
                weights = np.cos(1.0 + count + np.arange(size, dtype=float))
                flat = np.reshape(x, (-1,))
                total = total + np.sum(np.where(np.isfinite(flat), flat, 0.0) * weights)
                count += size

    add(result)
    if count == 0:
        raise TypeError(f"returned no real number, but {type(result).__name__}")
    return total


def differences(
    f: Callable[[list[Any]], float], leaves: list[Any], relative: float
) -> list[np.ndarray]:
    """Return central differences of fourth order for every element of every leaf."""
    results = []
    for k, leaf in enumerate(leaves):
        g = np.zeros(np.shape(leaf))
        for index in np.ndindex(*np.shape(leaf)):
            value = leaf[index] if isinstance(leaf, np.ndarray) else leaf
            unit = float(np.max(np.abs(leaf)))
            h = relative * max(abs(value), 0.05 * unit) or 0.05 * relative

            def at(step: float, k: int = k, index: Any = index, leaf: Any = leaf) -> float:
                moved = list(leaves)
                if isinstance(leaf, np.ndarray):
                    moved[k] = leaf.copy()
                    moved[k][index] += step
                else:
                    moved[k] = leaf + step
                return float(f(moved))

            g[index] = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        results.append(g)
    return results


def plain_values(result: Any) -> Any:
    """Return a result as lists, the ADArrays in it replaced by what NumPy would have given."""
    if isinstance(result, adarray.ADArray):
        values = result.numpy()
        return values if values.ndim else values[()]
    parts = parts_of(result)
    return result if parts is None else [plain_values(v) for v in parts]


def identical(a: Any, b: Any) -> bool:
    """Whether two results are the same to the last bit."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(identical, a, b))
    number = isinstance(a, (float, complex, np.ndarray, np.generic))
    return bool(np.array_equal(a, b, equal_nan=True)) if number else type(a) is type(b)


def measure(call: Call) -> Result:
    """Differentiate one call and compare."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            function, args, kwargs = resolve(call)
            leaves, rebuild = split(args, kwargs)
            if not leaves:
                return Result(call, "unusable", reason="no floating point argument")

            def plain(new: list[Any]) -> Any:
                a, k = rebuild(new)
                return weighted(function(*a, **k))

            run = intercepted(function, *call.packages)

            def traced(new: list[Any]) -> Any:
                a, k = rebuild(new)
                return weighted(run(*a, **k))

            expected = differences(plain, leaves, STEPS[0])
            args, kwargs = rebuild(leaves)
            before = plain_values(function(*args, **kwargs))
            wanted = plain(leaves)
        except Exception as error:
            return Result(call, "unusable", reason=f"plain call: {_shown(error)}")
        try:
            args, kwargs = rebuild(leaves)
            if not identical(before, plain_values(run(*args, **kwargs))):
                return Result(call, "wrong", reason="plain arguments give another result inside")
            value, got = adarray.value_and_grad(traced)(leaves)
        except Exception as error:
            return Result(call, "refused", reason=_shown(error))
        if not np.isclose(value, wanted, rtol=1e-10, atol=1e-12):
            return Result(call, "wrong", reason=f"value {value} instead of {wanted}")
        result = _compared(call, leaves, float(value), expected, got)
        for step in STEPS[1:]:
            if result.status == "wrong" and result.error is not None:
                closer = differences(plain, leaves, step)
                again = _compared(call, leaves, float(value), closer, got)
                result = again if again.passed else result
        return result


def _compared(
    call: Call, leaves: list[Any], value: float, expected: list[Any], got: list[Any]
) -> Result:
    """Return the result for a gradient and the differences."""
    if not all(np.all(np.isfinite(e)) for e in expected):
        return Result(call, "unusable", reason="the differences are not finite")
    if not all(np.all(np.isfinite(np.asarray(g))) for g in got):
        return Result(call, "wrong", reason="the gradient is not finite")
    if not any(map(np.any, expected)) and not any(map(np.any, got)):
        return Result(call, "constant", 0.0)
    worst = 0.0
    for leaf, e, g in zip(leaves, expected, got, strict=True):
        unit = np.max(np.abs(np.asarray(leaf))) or 1.0
        scale = max(float(np.max(np.abs(e), initial=0.0)), abs(value) / unit * 1e-4)
        worst = max(worst, float(np.max(np.abs(np.asarray(g) - e), initial=0.0) / (scale or 1)))
    if worst < TOLERANCE:
        return Result(call, "differentiable", worst)
    return Result(call, "wrong", worst, "the gradient differs")


def _shown(error: BaseException) -> str:
    """Return an error's text; of a long one the beginning and where it happened."""
    text = " ".join(str(error).split())
    short = text if len(text) < 200 else f"{text[:90]} ... {text[-100:]}"
    return f"{type(error).__name__}: {short}"
