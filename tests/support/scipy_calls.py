"""Every public name of SciPy's modules, and what adarray makes of it.

Ufuncs of `scipy.special` and methods of distributions are called with traced arguments
and their derivatives compared with differences. Of other functions it is said whether a
body of ours stands in their place; their own tests check it.

For the tables of ``docs/coverage``.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import types
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from adarray import ADArrayError, vjp
from adarray.base.op import CONSTANT_FUNCTIONS
from adarray.core.protocol import traced
from adarray.scipy._drop_in import CONSTANTS, REPLACEMENTS
from adarray.testing import check_grads

MODULES = ("special", "stats", "linalg", "signal", "ndimage", "integrate", "interpolate", "fft",
           "optimize", "sparse", "sparse.linalg", "spatial.distance")  # fmt: skip
METHODS = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf",
           "entropy", "mean", "var", "std")  # fmt: skip
# Arguments that most ufuncs take, tried in this order; the second list is for orders.
TRIES = {
    1: [(0.4,), (1.6,), (-0.4,), (3.0,)],
    2: [(0.7, 0.4), (2, 0.4), (1.3, 2.2), (0.4, 1.6), (3.0, 0.4), (2.0, 1.5)],
    3: [(0.7, 1.3, 0.4), (2, 1, 0.4), (1, 3, 0.4), (3.0, 2.2, 0.4), (0.4, 0.7, 1.3), (2, 3, 1.3)],
    4: [(0.7, 1.3, 2.2, 0.4), (2, 1.3, 0.7, 0.4), (1, 2, 0.4, 0.3), (2, 1, 0.4, 0.3)],
    5: [(0.7, 1.3, 2.2, 0.4, 0.3)],
}


# Counts and orders are integers; the others are solutions of equations that have one.
CALLS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["bdtr", "bdtrc", "bdtri", "nbdtr", "nbdtrc", "nbdtri"], (1, 3, 0.4)),
    **dict.fromkeys(["expn", "kn", "yn", "pdtri"], (2, 0.4)),
    "gdtrib": (0.7, 0.4, 1.3),
    "stdtridf": (0.7, 0.6),
    "btdtrib": (1.3, 0.4, 0.3),
}


class Row(NamedTuple):
    """What adarray makes of one name."""

    name: str
    status: str
    reverse: str
    forward: str
    note: str


def ours(module: str) -> Any:
    """Return the drop-in of a SciPy module."""
    return importlib.import_module(f"adarray.scipy.{module}")


def names() -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every public name, distributions by their methods."""
    for module in MODULES:
        scipy_module = importlib.import_module(f"scipy.{module}")
        for name in sorted(scipy_module.__all__):
            member = getattr(scipy_module, name)
            if isinstance(member, types.ModuleType):
                continue
            if not isinstance(member, type) and (
                hasattr(member, "logpdf") or hasattr(member, "logpmf")
            ):
                for method in METHODS:
                    if hasattr(member, method):
                        yield module, f"{name}.{method}"
            else:
                yield module, name


def classify(module: str, name: str) -> Row:
    """Return the row of one name."""
    full = f"scipy.{module}.{name}"
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if "." in name:
            return _method(full, name)
        theirs = getattr(importlib.import_module(f"scipy.{module}"), name)
        if isinstance(theirs, np.ufunc):
            return _ufunc(full, theirs)
        drop_in = getattr(ours(module), name)
        if isinstance(theirs, type):
            replaced = drop_in is not theirs
            return Row(full, "differentiable" if replaced else "type", *["yes" * replaced] * 2, "")
        if not callable(theirs):
            return Row(full, "constant", "", "", "no function")
        return _function(full, theirs, drop_in)


def _function(full: str, theirs: Any, drop_in: Any) -> Row:
    if theirs in REPLACEMENTS or drop_in is theirs:
        if theirs in CONSTANTS:
            return Row(full, "constant", "", "", "")
        return Row(full, "differentiable", "yes", "", "")
    cell = inspect.getclosurevars(drop_in).nonlocals if inspect.isfunction(drop_in) else {}
    if "why" in cell:
        return Row(full, "refused", "", "", cell["why"] or "no derivative rule")
    return Row(full, "differentiable", "yes", "", "")


def _ufunc(full: str, ufunc: np.ufunc) -> Row:
    if ufunc in CONSTANT_FUNCTIONS:
        return Row(full, "constant", "", "", "")
    short = full.rpartition(".")[2]
    for args in [CALLS[short]] if short in CALLS else TRIES.get(ufunc.nin, []):
        try:
            results = ufunc(*args)
        except TypeError:
            continue
        values = results if isinstance(results, tuple) else (results,)
        if all(np.isfinite(v) for v in values):
            break
    else:
        return Row(full, "refused", "", "", "no real arguments are known")
    good, why = [], ""
    for i, x in enumerate(args):
        status, message = _operand(ufunc, args, i) if isinstance(x, float) else ("order", "")
        good.append(status)
        why = why or message
    if "yes" not in good:
        constant = "constant" in good
        return Row(full, "constant" if constant else "refused", "", "", "" if constant else why)
    missing = ", ".join(str(i) for i, s in enumerate(good) if s != "yes")
    return Row(
        full, "differentiable", "yes", "yes", f"not in argument {missing}" if missing else ""
    )


def _operand(function: Any, args: tuple[Any, ...], i: int) -> tuple[str, str]:
    """Return "yes", "constant" or "no" for one argument, and the reason of a refusal."""

    def f(x: Any) -> Any:
        results = function(*args[:i], x, *args[i + 1 :])
        outputs = results if isinstance(results, tuple) else (results,)
        seen.append(any(traced(r) for r in outputs))
        return [r for r in outputs if np.result_type(r).kind in "fc"]

    seen: list[bool] = []
    try:
        vjp(f, args[i], intercept=False)
        if not seen[-1] or not np.isfinite(np.asarray(function(*args))).all():
            return "constant", ""
        check_grads(f, (args[i],), order=1, intercept=False)
    except ADArrayError as error:
        return "no", str(error).partition(": ")[2].partition("; ")[0]
    return "yes", ""


# Shape parameters at which every method of a distribution is smooth.
def _shapes(name: str) -> tuple[Any, ...]:
    from scipy.stats import _distr_params as known

    params = dict(itertools.chain(known.distdiscrete, known.distcont))
    shapes: tuple[Any, ...] = params.get(name, ())
    return shapes


def _method(full: str, name: str) -> Row:
    import scipy.stats

    distribution, method = name.split(".")
    theirs = getattr(scipy.stats, distribution)
    if not hasattr(theirs, "shapes"):  # of vectors and matrices: their own tests check it
        drop_in = getattr(ours("stats"), distribution)
        known = method in getattr(drop_in, "methods", ())
        reason = "" if known else "no derivative rule"
        return Row(full, "differentiable" if known else "refused", *["yes" * known] * 2, reason)
    shapes = _shapes(distribution)
    function = getattr(getattr(ours("stats"), distribution), method, None)
    if function is None:
        return Row(full, "refused", "", "", "no derivative rule")
    discrete = not hasattr(theirs, "pdf")
    if method in ("entropy", "mean", "var", "std"):
        args: tuple[Any, ...] = shapes
    elif method in ("ppf", "isf"):
        args = (0.4, *shapes)
    else:
        args = (theirs.ppf(0.4, *shapes), *shapes)
    args = tuple(float(a) if isinstance(a, (float, np.floating)) else a for a in args)
    if method in ("entropy", "mean", "var", "std") and not discrete:
        args = (*args, 0.3, 1.2)  # location and scale
    results = [
        _operand(function, args, i)
        for i, a in enumerate(args)
        if isinstance(a, float) and not (discrete and i == 0 and method not in ("ppf", "isf"))
    ]
    good = [status for status, _ in results]
    if "yes" in good:
        missing = good.count("no")
        return Row(
            full, "differentiable", "yes", "yes", f"not in {missing} parameters" if missing else ""
        )
    if "constant" in good or not good:
        return Row(full, "constant", "", "", "")
    return Row(full, "refused", "", "", results[0][1])
