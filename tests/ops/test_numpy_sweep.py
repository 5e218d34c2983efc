"""Every function that NumPy dispatches gets a traced array, and an untraced ADArray.

Of a traced one: a right gradient to the second order, or an error, or a constant; never an
array of objects, a silently detached result, or a crash that says nothing about adarray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy_calls import (
    MODULES,
    NOT_FLOATING,
    UNDETERMINED,
    Call,
    call_of,
    leaves_of,
    lookup,
    names,
)

from adarray import ADArray, ADArrayError, TraceError, vjp
from adarray.testing import check_grads


def dispatching_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the names and functions that take part in NumPy's dispatch protocols, once each."""
    seen: list[Any] = []
    for name in names():
        if name.rpartition(".")[0] not in MODULES:
            continue  # methods
        short, function = name.rpartition(".")[2], lookup(name)
        if short in NOT_FLOATING or short in UNDETERMINED:
            continue
        if not (hasattr(function, "_implementation") or isinstance(function, np.ufunc)):
            continue
        if not any(function is f for f in seen):
            seen.append(function)
            yield name, function


FUNCTIONS = dict(dispatching_functions())
WRITERS = {"numpy.save", "numpy.savetxt", "numpy.savez", "numpy.savez_compressed"}


def a_call(name: str) -> Call:
    """Return a call of the function that plain NumPy accepts, and its differentiated argument."""
    call = call_of(name)
    assert call is not None, f"no way to call {name} is known; add one to numpy_calls.CALLS"
    return call


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_traced_argument(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, x = a_call(name)
    function = FUNCTIONS[name]
    results: list[Any] = []

    def run(value: Any) -> Any:
        result = leaves_of(call(function, value))
        results[:] = result
        return [r for r in result if isinstance(r, (ADArray, np.ndarray, np.generic, float))]

    refusal = None
    try:
        vjp(lambda value: (run(value), value), x)  # results may be integers
    except ADArrayError as error:
        refusal = error
    if refusal is not None:
        # A public error that says which function it is about.
        assert name.rpartition(".")[2] in str(refusal) or isinstance(refusal, TraceError)
        assert not list(tmp_path.iterdir())
        return
    assert name not in WRITERS
    assert results, "the call gave nothing"
    kinds = {r.dtype.kind for r in results if isinstance(r, (ADArray, np.ndarray, np.generic))}
    assert "O" not in kinds
    if "f" not in kinds:
        return  # truth values, positions, shapes and texts are constants by nature
    check_grads(run, (x,))


KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float": lambda x: x.copy(),
    "float32": lambda x: x.astype(np.float32),
    "int": lambda x: np.rint(3 * x).astype(int),
    "bool": lambda x: x > 0.5,
    "complex": lambda x: x + 1j * x[::-1],
}


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - WRITERS))
def test_untraced_array_gives_what_numpy_gives(name: str, kind: str) -> None:
    call, x = a_call(name)
    function = FUNCTIONS[name]
    result = KINDS[kind](x)
    try:
        expected = leaves_of(call(function, result.copy()))
    except Exception as error:
        # What NumPy refuses is refused here too.
        with pytest.raises((type(error), ADArrayError, TypeError, ValueError)):
            call(function, ADArray(result))
        return
    got = leaves_of(call(function, ADArray(result)))
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if not isinstance(b, (np.ndarray, np.generic)):
            assert np.all(np.asarray(a) == np.asarray(b))
            continue
        value = a.numpy() if isinstance(a, ADArray) else a
        assert value.dtype == b.dtype
        assert value.shape == b.shape
        tolerance = 1e-13 if b.dtype.itemsize >= 8 else 1e-5
        np.testing.assert_allclose(value, b, rtol=tolerance, atol=tolerance)
