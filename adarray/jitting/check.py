"""``ADARRAY_CHECK=1``: compiled results are compared with those of the plain function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.passes.interpret import Interpreted
from adarray.transforms.tree import flatten

# Units in the last place of the largest element by which sums may differ.
_ULPS = 4096


class CheckError(AssertionError):
    """A compiled result is not that of the plain function: an error in adarray."""


def close(got: Any, expected: Any) -> bool:
    """Whether two results agree up to rounding.

    Elements may differ by some units in the last place of the largest finite one, which
    bounds reordered sums; whole numbers and truth values not at all. NaN equals NaN.
    """
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        odd = ~finite & (a != b) & ~(np.isnan(a) & np.isnan(b))
        largest = np.max(np.abs(np.where(finite, b, 0)), initial=0.0)
        bound = _ULPS * np.finfo(a.dtype).eps * max(float(largest), float(np.finfo(a.dtype).tiny))
        return not odd.any() and bool(np.all(np.abs(np.where(finite, a - b, 0)) <= bound))


def copies(leaves: list[Any]) -> list[Any]:
    """Return arguments with copies of what a call may change."""
    changing = (np.ndarray, np.random.Generator, np.random.RandomState)
    return [copy.deepcopy(x) if isinstance(x, changing) else x for x in leaves]


def compare(
    f: Callable[..., Any], leaves: list[Any], rebuild: Callable[[list[Any]], Any], result: Any,
    name: str,
) -> None:  # fmt: skip
    """Run `f` on `leaves`, which are copies of the arguments, and compare with `result`.

    Raises
    ------
    CheckError
        If they differ.
    """
    args, kwargs = rebuild(leaves)
    expected, _ = flatten(f(*args, **kwargs))
    got, _ = flatten(result)
    if len(got) != len(expected):
        raise CheckError(f"{name}: {len(got)} results, and {len(expected)} of the plain function")
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        numbers = isinstance(b, (np.ndarray, np.generic, int, float, complex))
        if numbers and not close(a, b):
            raise CheckError(f"{name}: result {i} is {a!r}, that of the plain function {b!r}")


def checked(
    node: Any, run: Callable[[list[Any]], list[Any]], library: Any = None
) -> Callable[[list[Any]], list[Any]]:
    """Return `run` compared with the interpreted program of a segment, before its passes.

    `library` is that of the device whose arrays `run` takes.
    """
    if node.before is None:
        return run
    interpreted = Interpreted(node.before)

    def plain(x: Any) -> Any:
        on_device = library is not None and type(x) is library.kind
        return library.to_host(x) if on_device else copy.deepcopy(x)

    def both(arrays: list[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            expected = interpreted([plain(x) for x in arrays])
        results = run(arrays)
        for i, (a, b) in enumerate(zip(map(plain, results), expected, strict=True)):
            if not close(a, b):
                last = f" before {node.guard!r}" if node.guard is not None else ""
                raise CheckError(
                    f"jit: the segment of {len(node.calls)} operations{last}: output {i} is {a!r}, "
                    f"and {b!r} if interpreted before the passes ({node.calls})"
                )
        return results

    return both
