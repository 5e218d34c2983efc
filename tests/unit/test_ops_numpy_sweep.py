"""Every public function of NumPy gets a traced array: a right gradient, or an error, or a constant.

What must never happen: an array of objects, a silently detached result, or a
crash that says nothing about adarray.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from adarray import ADArray, ADArrayError, TraceError, vjp
from adarray.testing import check_grads

MODULES = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft}


def dispatching_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the names and functions that take part in NumPy's dispatch protocols, once each."""
    seen: list[Any] = []
    for prefix, module in MODULES.items():
        for name in sorted(dir(module)):
            if name.startswith("_"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function = getattr(module, name)
            if not (hasattr(function, "_implementation") or isinstance(function, np.ufunc)):
                continue
            if not any(function is f for f in seen):
                seen.append(function)
                yield f"{prefix}.{name}", function


FUNCTIONS = dict(dispatching_functions())
RNG = np.random.default_rng(0)
X = RNG.uniform(0.2, 0.9, size=(3, 3))
Y = RNG.uniform(0.2, 0.9, size=(3, 3))
V = np.sort(RNG.uniform(0.1, 0.9, size=4))
SPD = X @ X.T + 2 * np.eye(3)

# Calls that the guesses below would not find: (call of f and x, x).
CALLS: dict[str, tuple[Callable[..., Any], Any]] = {
    "np.astype": (lambda f, x: f(x, np.float64), X),
    "np.apply_along_axis": (lambda f, x: f(np.sum, 0, x), X),
    "np.apply_over_axes": (lambda f, x: f(np.sum, x, [0]), X),
    "np.bincount": (lambda f, x: f(np.array([0, 1, 1, 2]), weights=x), V),
    "np.choose": (lambda f, x: f(np.array([0, 1, 0]), [x, x]), X[0]),
    "np.copyto": (lambda f, x: f(np.zeros(4), x), V),
    "np.cross": (lambda f, x: f(x, Y), X),
    "np.einsum": (lambda f, x: f("ij,jk", x, Y), X),
    "np.einsum_path": (lambda f, x: f("ij,jk", x, Y), X),
    "np.full_like": (lambda f, x: f(x, x[0, 0]), X),
    "np.geomspace": (lambda f, x: f(x[0], x[1], 5), V),
    "np.histogram_bin_edges": (lambda f, x: f(x), V),
    "np.interp": (lambda f, x: f(0.5, V, x), V),
    "np.ldexp": (lambda f, x: f(x, 2), X),
    "np.lexsort": (lambda f, x: f((x,)), V),
    "np.linspace": (lambda f, x: f(x[0], x[1], 5), V),
    "np.logspace": (lambda f, x: f(x[0], x[1], 5), V),
    "np.matvec": (lambda f, x: f(x, Y[0]), X),
    "np.nanquantile": (lambda f, x: f(x, 0.3), V),
    "np.piecewise": (lambda f, x: f(x, [np.array([True, False, True, False])], [1.0, 2.0]), V),
    "np.place": (lambda f, x: f(np.zeros(4), np.ones(4, bool), x), V),
    "np.poly": (lambda f, x: f(x), V),
    "np.polyder": (lambda f, x: f(x), V),
    # A remainder of a fixed length: an exact division gives one that is shorter.
    "np.polydiv": (lambda f, x: f(x, [1.0, 2.0]), V),
    "np.polyfit": (lambda f, x: f(np.arange(4.0), x, 1), V),
    "np.put": (lambda f, x: f(np.zeros(4), [0, 1], x[:2]), V),
    "np.put_along_axis": (lambda f, x: f(np.zeros((3, 3)), np.zeros((3, 1), int), x[:, :1], 1), X),
    "np.putmask": (lambda f, x: f(np.zeros(4), np.ones(4, bool), x), V),
    "np.quantile": (lambda f, x: f(x, 0.3), V),
    "np.roots": (lambda f, x: f(x), np.array([1.0, -3.0, 2.0])),
    "np.select": (lambda f, x: f([V > 0.5, V > 0.2], [x, 2 * x]), V),
    "np.take_along_axis": (lambda f, x: f(x, np.zeros((3, 1), int), 1), X),
    "np.trapezoid": (lambda f, x: f(x, V), V),
    "np.vecmat": (lambda f, x: f(x[0], Y), X),
    "np.vander": (lambda f, x: f(x), V),
    "np.where": (lambda f, x: f(X > 0.5, x, 2 * x), X),
    "np.correlate": (lambda f, x: f(x, V), V),
    "np.convolve": (lambda f, x: f(x, V), V),
    "np.compress": (lambda f, x: f([True, False, True, True], x), V),
    "np.extract": (lambda f, x: f(V > 0.3, x), V),
    "np.linalg.cholesky": (lambda f, x: f(x), SPD),
    "np.linalg.multi_dot": (lambda f, x: f([x, Y, x]), X),
    "np.linalg.tensorsolve": (lambda f, x: f(x, Y[0]), X),
    "np.linalg.tensorinv": (lambda f, x: f(x, 1), X),
    "np.resize": (lambda f, x: f(x, (2, 2)), X),
    "np.broadcast_to": (lambda f, x: f(x, (2, 3, 3)), X),
    "np.ravel_multi_index": (lambda f, x: f((x, x), (3, 3)), np.zeros(2)),
    "np.save": (lambda f, x: f("never_written.npy", x), V),
    "np.savetxt": (lambda f, x: f("never_written.txt", x), V),
    "np.savez": (lambda f, x: f("never_written.npz", x), V),
    "np.savez_compressed": (lambda f, x: f("never_written.npz", x), V),
    "np.arccosh": (lambda f, x: f(x), X + 1.5),
    "np.fill_diagonal": (lambda f, x: f(np.zeros((3, 3)), x[0]), X),
}
GUESSES: tuple[tuple[Callable[..., Any], Any], ...] = (
    (lambda f, x: f(x), X),
    (lambda f, x: f(x), V),
    (lambda f, x: f(x, Y), X),
    (lambda f, x: f(x, V), V),
    (lambda f, x: f([x, Y]), X),
    (lambda f, x: f(x, 1), X),
    (lambda f, x: f(x, 0, 1), X),
    (lambda f, x: f(x, (3, 3)), X),
    (lambda f, x: f(x, [0, 1], 0), X),
    (lambda f, x: f(x, 0.2, 0.6), X),
    (lambda f, x: f(x, 0, [1.0, 2.0, 3.0]), X),
    (lambda f, x: f(x, 1), X[None]),
    (lambda f, x: f(x, 3, 2), np.ones((1, 1, 3))),
)
# Dates, integers and bits: no floating point argument makes sense.
NOT_FLOATING = {
    "np.busday_count", "np.busday_offset", "np.datetime_as_string", "np.is_busday", "np.isnat",
    "np.packbits", "np.unpackbits", "np.unravel_index", "np.ravel_multi_index",
    "np.bitwise_and", "np.bitwise_or", "np.bitwise_xor", "np.bitwise_count", "np.invert",
    "np.left_shift", "np.right_shift", "np.gcd", "np.lcm", "np.bitwise_invert",
    "np.bitwise_left_shift", "np.bitwise_right_shift", "np.can_cast",
}  # fmt: skip
# What they return is not determined by their arguments.
UNDETERMINED = {"np.empty_like"}
WRITERS = {"np.save", "np.savetxt", "np.savez", "np.savez_compressed"}


def a_call(name: str) -> tuple[Callable[..., Any], Any]:
    """Return a call of the function that plain NumPy accepts, and its differentiated argument."""
    function = FUNCTIONS[name]
    if name in CALLS:
        return CALLS[name]
    for call, x in GUESSES:
        try:
            call(function, x.copy())
        except Exception:
            continue
        return call, x
    raise AssertionError(f"no way to call {name} was found; add one to CALLS")


def leaves_of(result: Any) -> list[Any]:
    """Return the arrays in a result: nested tuples, lists and namedtuples are opened."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in leaves_of(part)]
    return [result]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - NOT_FLOATING - UNDETERMINED))
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
        vjp(run, x)
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - NOT_FLOATING - UNDETERMINED - WRITERS))
def test_untraced_array_gives_what_numpy_gives(name: str, kind: str) -> None:
    call, x = a_call(name)
    function = FUNCTIONS[name]
    made = KINDS[kind](x)
    try:
        expected = leaves_of(call(function, made.copy()))
    except Exception as error:
        # What NumPy refuses is refused here too.
        with pytest.raises((type(error), ADArrayError, TypeError, ValueError)):
            call(function, ADArray(made))
        return
    got = leaves_of(call(function, ADArray(made)))
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
