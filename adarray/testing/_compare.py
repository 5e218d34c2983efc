"""Comparing arrays: by distance in units of the last place, and against a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np


def ulp_errors(got: np.ndarray, expected: np.ndarray, scale: np.ndarray | None = None) -> Any:
    """Return the distance in units of the last place, element by element.

    nan against nan and inf against the same inf are distance 0; any other pair with
    a nan or an inf, and zeros of different sign, are distance inf. `scale` gives
    the magnitudes whose last place counts; those of the values if not given.
    """
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    finite = np.isfinite(got) & np.isfinite(expected)
    size = np.maximum(np.abs(got), np.abs(expected))
    if scale is not None:
        size = np.maximum(size, scale)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.where(finite & np.isfinite(size), size, 1).astype(expected.dtype))
        wide = np.longdouble
        # Twice the largest float does not fit: the difference is taken in a wider type.
        apart = np.abs(got.astype(wide) - expected.astype(wide)) / unit.astype(wide)
    error = np.where(same, 0, np.where(finite, apart, np.inf))
    zeros = (got == 0) & (expected == 0) & (np.signbit(got) != np.signbit(expected))
    if scale is None:
        # A zero is exact: where one is expected, nothing else will do.
        zeros |= (expected == 0) & (got != 0)
    return np.where(zeros, np.inf, error).astype(np.float64)


def mismatch(got: Any, expected: Any, limit: float, scale: np.ndarray | None = None) -> str | None:
    """Describe how `got` differs from `expected` by more than `limit` ulp, None if it does not.

    Type (array or NumPy scalar), dtype and shape must be equal.
    """
    if type(got) is not type(expected):
        return f"got a {type(got).__name__}, expected a {type(expected).__name__}"
    got, expected = np.asarray(got), np.asarray(expected)
    if got.dtype != expected.dtype:
        return f"got dtype {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"got shape {got.shape}, expected {expected.shape}"
    if expected.dtype.kind == "c":
        return _complex_mismatch(got, expected, limit, scale)
    if expected.dtype.kind != "f":
        wrong = got != expected
        if not wrong.any():
            return None
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        return f"got {got[at]!r}, expected {expected[at]!r} at index {_index(at)}"
    error = ulp_errors(got, expected, scale)
    if error.size == 0 or error.max() <= limit:
        return None
    at = np.unravel_index(int(np.argmax(error)), error.shape)
    return (
        f"got {got[at]!r}, expected {expected[at]!r} at index {_index(at)}: "
        f"{error[at]:.3g} ulp apart, at most {limit:g} are allowed"
    )


def _complex_mismatch(
    got: np.ndarray, expected: np.ndarray, limit: float, scale: np.ndarray | None
) -> str | None:
    """Compare complex numbers: the distance is counted in units of the larger part."""
    size = np.abs(expected) if scale is None else np.abs(scale)
    for name in ("real", "imag"):
        a, b = np.asarray(getattr(got, name)), np.asarray(getattr(expected, name))
        difference = mismatch(a, b, limit, size.astype(b.dtype))
        if difference is not None:
            return f"{name} part: {difference}"
    return None


def worst(got: Any, expected: Any, tolerance: Any) -> tuple[Any, Any, float, str] | None:
    """Return ``(got, expected, relative error, where)`` of the worst element, None if all agree.

    Elements agree when they are equal, both nan, or differ by at most `tolerance`.
    """
    dtype = np.complex128 if np.iscomplexobj(got) or np.iscomplexobj(expected) else np.float64
    got, expected = np.asarray(got, dtype), np.asarray(expected, dtype)
    if got.size == 0:
        return None
    with np.errstate(all="ignore"):
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        excess = np.where(same, 0.0, np.abs(got - expected) / tolerance)
    excess = np.where(np.isnan(excess), np.inf, excess)
    if excess.max() <= 1:
        return None
    at = np.unravel_index(int(np.argmax(excess)), excess.shape)
    a, b = got[at].item(), expected[at].item()
    with np.errstate(all="ignore"):
        relative = abs(a - b) / max(abs(a), abs(b)) if np.isfinite([a, b]).all() else np.inf
    return a, b, relative, f" at index {_index(at)}" if excess.ndim else ""


def _index(at: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in at)
