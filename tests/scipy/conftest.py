"""What the tests of the drop-in modules of SciPy share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import ADArray
from adarray.testing import check_grads


def _leaves(r: Any) -> list[Any]:
    """Return the numeric results of a call."""
    if isinstance(r, (tuple, list)):
        return [leaf for part in r for leaf in _leaves(part)]
    return [r]


def _plain(x: Any) -> Any:
    return adarray.value_of(x) if isinstance(x, ADArray) else x


def _same(got: Any, expected: Any, exact: bool) -> None:
    got, expected = _leaves(got), _leaves(expected)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        a, b = np.asarray(_plain(a)), np.asarray(b)
        assert a.shape == b.shape
        if exact:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        elif b.dtype.kind in "fc":
            assert a.dtype == b.dtype
            single = b.dtype.char in "fF"
            size = np.max(np.abs(b[np.isfinite(b)]), initial=1.0)
            limit = 5e-4 if single else 1e-8
            np.testing.assert_allclose(a, b, rtol=limit, atol=limit * size)
        else:
            np.testing.assert_array_equal(a, b)


def check_drop_in(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    argnums: Sequence[int] = (0,),
    order: int = 2,
    single: bool = True,
    **options: Any,
) -> None:
    """Compare a drop-in function with SciPy's, and its derivatives with differences."""
    kwargs = kwargs or {}
    args = tuple(args)
    expected = theirs(*args, **kwargs)
    _same(ours(*args, **kwargs), expected, exact=True)
    wrapped = [ADArray(x) if i in argnums else x for i, x in enumerate(args)]
    untraced = ours(*wrapped, **kwargs)
    _same(untraced, expected, exact=True)
    assert any(isinstance(x, ADArray) for x in _leaves(untraced))

    def call(*picked: Any) -> Any:
        new = list(args)
        for i, x in zip(argnums, picked, strict=True):
            new[i] = x
        return ours(*new, **kwargs)

    picked = [np.asarray(args[i]) for i in argnums]
    values: list[Any] = []

    def keep(*xs: Any) -> Any:
        r = call(*xs)
        values.append([_plain(leaf) for leaf in _leaves(r)])
        return tuple(x for x in _leaves(r) if getattr(x, "dtype", np.dtype(int)).kind in "fc")

    adarray.vjp(keep, *picked)
    _same(values[0], expected, exact=False)
    check_grads(keep, picked, order=order, argnums=range(len(picked)), **options)
    if single:
        narrow = [_narrow(x) for x in picked]
        singles = [_narrow(x) for x in args]
        values.clear()
        narrow_args = args
        args = tuple(singles)
        adarray.vjp(keep, *narrow)
        _same(values[0], theirs(*singles, **kwargs), exact=False)
        args = narrow_args


def _narrow(x: Any) -> Any:
    if isinstance(x, np.ndarray) and x.dtype == np.float64:
        return x.astype(np.float32)
    if isinstance(x, np.ndarray) and x.dtype == np.complex128:
        return x.astype(np.complex64)
    return x


@pytest.fixture
def drop_in() -> Callable[..., None]:
    """`check_drop_in`, for tests."""
    return check_drop_in
