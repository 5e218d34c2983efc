"""``ADARRAY_CHECK=1``: compiled results are compared with those of the plain function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adarray.compiler.ir.interpret import Interpreted
from adarray.compiler.ir.interpret_values import Run, Values
from adarray.compiler.ir.primitives import Map, Matmul, PrefixScan, Primitive, Reduce, ScatterND
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.core.trace import Handle
from adarray.jitting.shared.copies import copies
from adarray.transforms.tree import flatten

# Units in the last place of the largest element by which results may differ at once.
_ULPS = 64
# What differs by more is compared with runs in which every operation is off by some units in
# the last place: as far as those are from the exact run, times a factor, results may be.
_NOISE = 4.0
_SAFETY = 8.0
_RUNS = (6, 40)

_SUMS: frozenset[type[Primitive]] = frozenset({Reduce, PrefixScan, Matmul, ScatterND})


def _rounds_nothing(name: str) -> bool:
    """Whether a scalar function copies or chooses, or is exact."""
    f = FUNCTIONS[name]
    return f.flops == 0 or f.is_exact


class CheckError(AssertionError):
    """A compiled result is not that of the plain function: an error in adarray."""


def _largest(values: list[Any]) -> float:
    """Return the largest magnitude of a finite number, 0 if there is none."""
    largest = 0.0
    for x in values:
        if isinstance(x, (np.ndarray, np.generic, float, complex)):
            x = np.abs(np.asarray(x)) if np.result_type(x).kind in "fc" else np.zeros(())
            largest = max(largest, float(np.max(np.where(np.isfinite(x), x, 0), initial=0.0)))
    return largest


def _precision(x: Any) -> float:
    """Return the relative precision of numbers, 0 of whole ones."""
    dtype = np.result_type(x)
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0


def close(got: Any, expected: Any, bound: float = 0.0) -> bool:
    """Whether two results agree up to rounding.

    Elements may differ by some units in the last place of the largest finite one, or by `bound`;
    whole numbers and truth values not at all. NaN equals NaN.
    """
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    with np.errstate(all="ignore"):
        finite = np.isfinite(a) & np.isfinite(b)
        odd = ~finite & (a != b) & ~(np.isnan(a) & np.isnan(b))
        info = np.finfo(a.dtype)
        bound = max(bound, _ULPS * float(info.eps) * max(_largest([b]), float(info.tiny)))
        return not odd.any() and bool(np.all(np.abs(np.where(finite, a - b, 0)) <= bound))


def within(got: Any, expected: Any, noisy: Iterator[Any], eps: float = 0.0) -> bool:
    """Whether a result is as near to the expected one as noise in every operation may carry it.

    Parameters
    ----------
    got, expected : array_like
    noisy : iterator of array_like
        The same result with other noise each time.
    eps : float
        Relative precision in which something may have been computed, if it is more than that of
        the result.
    """
    a, b = np.asarray(got), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    numbers = a.dtype.kind in "fc"
    bound = np.zeros(b.shape)
    free = np.zeros(b.shape, bool)  # elements that noise carries anywhere
    with np.errstate(all="ignore"):
        if numbers:
            eps = max(eps, float(np.finfo(a.dtype).eps))
            bound += np.where(np.isfinite(b), np.abs(b), 0) * (_ULPS * eps)
        for k in range(_RUNS[1]):
            c = np.asarray(next(noisy))
            if numbers:
                known = np.isfinite(b) & np.isfinite(c)
                free |= ~known & (b != c) & ~(np.isnan(b) & np.isnan(c))
                bound = np.maximum(bound, np.where(known, _SAFETY * np.abs(c - b), 0))
            else:
                free |= b != c
            if k + 1 in _RUNS:
                same = (a == b) | free
                if numbers:
                    same |= (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound)
                if same.all():
                    return True
    return False


def _moved(x: Any, size: Any, rng: np.random.Generator) -> Any:
    """Return a result off by some units in the last place of `size`."""
    if not isinstance(x, (np.ndarray, np.generic)) or x.dtype.kind not in "fc":
        return x
    with np.errstate(all="ignore"):
        off = rng.uniform(-_NOISE, _NOISE, x.shape) * (np.finfo(x.dtype).eps * np.abs(size))
        return np.where(np.isfinite(off), x + off, x).astype(x.dtype)


class _Magnitudes:
    """The values of a run, floating ones without their signs."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __getitem__(self, k: int) -> Any:
        x = self._values[k]
        return np.abs(x) if x.dtype.kind in "fc" else x


def noisy(program: Program, arrays: list[Any]) -> Iterator[list[Any]]:
    """Yield the results of a program with noise in every operation, endlessly."""
    rng = np.random.default_rng(0)

    def around(v: Value, _operands: tuple[int, ...], run: Run) -> Run:
        p = v.primitive
        sums = type(p) in _SUMS
        if not sums and (not isinstance(p, Map) or _rounds_nothing(p.name)):
            return run

        def moved(values: Values) -> Any:
            x = run(values)
            magnitudes: Any = _Magnitudes(values)
            return _moved(x, run(magnitudes) if sums else x, rng)

        return moved

    interpreted = Interpreted(program, around=around)
    while True:
        with np.errstate(all="ignore"):
            results = interpreted(copies(arrays))
        yield results


def _plain(x: Any) -> Any:
    return x._plain if isinstance(x, Handle) else x


# -- the comparisons ----------------------------------------------------------------------------


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
    rng = np.random.default_rng(0)

    def run(moved: bool = False) -> list[Any]:
        arguments = copies(leaves)
        if moved:
            arguments = [_moved(x, x, rng) if isinstance(x, np.ndarray) else x for x in arguments]
        args, kwargs = rebuild(arguments)
        return [_plain(x) for x in flatten(f(*args, **kwargs))[0]]

    floats = [x.dtype for x in leaves if isinstance(x, np.ndarray) and x.dtype.kind in "fc"]
    eps = max((float(np.finfo(d).eps) for d in floats), default=0.0)
    expected, got = run(), [_plain(x) for x in flatten(result)[0]]
    if len(got) != len(expected):
        raise CheckError(f"{name}: {len(got)} results, and {len(expected)} of the plain function")
    size = _largest([*leaves, *expected])
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        numbers = isinstance(b, (np.ndarray, np.generic, int, float, complex))
        # Segments have been compared to the last places already; what is lost between them shows.
        if not numbers or close(a, b, size * max(eps, _precision(b)) ** 0.5):
            continue
        if not within(a, b, (run(moved=True)[i] for _ in range(_RUNS[1])), eps):
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
        return library.to_host(x) if on_device else x

    def both(arrays: list[Any]) -> list[Any]:
        inputs = copies([plain(x) for x in arrays])
        with np.errstate(all="ignore"):
            expected = interpreted(copies(inputs))
        results = run(arrays)
        for i, (a, b) in enumerate(zip(map(plain, results), expected, strict=True)):
            if close(a, b) or within(a, b, (results[i] for results in noisy(node.before, inputs))):
                continue
            last = f" before {node.guard!r}" if node.guard is not None else ""
            raise CheckError(
                f"jit: the segment of {len(node.calls)} operations{last}: output {i} is {a!r}, "
                f"and {b!r} if interpreted before the passes ({node.calls})"
            )
        return results

    return both
