"""Every public name of NumPy, with one call that plain NumPy accepts, and what adarray makes of it.

`names` enumerates; `call_of` finds a call; `classify` runs it with a traced argument.

For the tables of ``docs/coverage``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from adarray import ADArray, ADArrayError, vjp
from adarray.core.protocol import traced
from adarray.testing import check_grads

VERSION = ".".join(np.__version__.split(".")[:2])
TABLE = Path(__file__).parents[2] / "docs" / "coverage" / f"numpy-{VERSION}.tsv"
Call = tuple[Callable[..., Any], Any]

MODULES: dict[str, Any] = {
    "numpy": np,
    "numpy.linalg": np.linalg,
    "numpy.fft": np.fft,
    "numpy.emath": np.emath,
    "numpy.lib.stride_tricks": np.lib.stride_tricks,
}
RNG = np.random.default_rng(0)
X = RNG.uniform(0.2, 0.9, size=(3, 3))
Y = RNG.uniform(0.2, 0.9, size=(3, 3))
V = np.sort(RNG.uniform(0.1, 0.9, size=4))
SPD = X @ X.T + 2 * np.eye(3)


def _into(x: Any, write: Callable[[Any], Any]) -> Any:
    """Return zeros like `x` after a function has written into them."""
    array = np.zeros_like(x)
    write(array)
    return array


# Calls that the guesses below would not find: (call of f and x, x).
CALLS: dict[str, Call] = {
    "append": (lambda f, x: f(x, V), V),
    "apply_along_axis": (lambda f, x: f(np.sum, 0, x), X),
    "apply_over_axes": (lambda f, x: f(np.sum, x, [0]), X),
    "array": (lambda f, x: f([x[0], 2.0, x[1]]), V),
    "arccosh": (lambda f, x: f(x), X + 1.5),
    "acosh": (lambda f, x: f(x), X + 1.5),
    "arange": (lambda f, x: f(0.0, 2.0, x), 0.3),
    "as_strided": (lambda f, x: f(x, (2, 2), (8, 8)), V),
    "astype": (lambda f, x: f(x, np.float64), X),
    "bincount": (lambda f, x: f(np.array([0, 1, 1, 2]), weights=x), V),
    "block": (lambda f, x: f([[x, Y], [Y, x]]), X),
    "choose": (lambda f, x: f(np.array([0, 1, 0]), [x, x]), X[0]),
    "compress": (lambda f, x: f([True, False, True, True], x), V),
    "convolve": (lambda f, x: f(x, V), V),
    "copyto": (lambda f, x: _into(x, lambda d: f(d, x)), V),
    "correlate": (lambda f, x: f(x, V), V),
    "cross": (lambda f, x: f(x, Y), X),
    "digitize": (lambda f, x: f(x, V), V),
    "einsum": (lambda f, x: f("ij,jk", x, Y), X),
    "einsum_path": (lambda f, x: f("ij,jk", x, Y), X),
    "extract": (lambda f, x: f(V > 0.3, x), V),
    "fill_diagonal": (lambda f, x: _into(x, lambda d: f(d, x[0])), X),
    "fromfunction": (lambda f, x: f(lambda i: i * x, (4,)), V),
    "fromiter": (lambda f, x: f(x, float), V),
    "frompyfunc": (lambda f, x: f(lambda y: y * 2, 1, 1)(x), V),
    "full": (lambda f, x: f(3, x), np.float64(0.3)),
    "full_like": (lambda f, x: f(x, x[0, 0]), X),
    "geomspace": (lambda f, x: f(x[0], x[1], 5), V),
    "histogram": (lambda f, x: f(np.array([0.1, 0.2, 0.4, 0.7]), 3, weights=x), V),
    "histogram2d": (lambda f, x: f(V, V, 2, weights=x)[0], V),
    "histogramdd": (lambda f, x: f((V, V), 2, weights=x)[0], V),
    "histogram_bin_edges": (lambda f, x: f(x), V),
    "imag": (lambda f, x: f(x * (1 + 2j)), V),
    "angle": (lambda f, x: f(x * 1j + 1), V),
    "insert": (lambda f, x: f(V, 1, x[0]), V),
    "interp": (lambda f, x: f(0.5, V, x), V),
    "ix_": (lambda f, x: f(x, x), np.array([0.0, 1.0])),
    "kaiser": (lambda f, x: f(5, x), 3.0),
    "ldexp": (lambda f, x: f(x, 2), X),
    "lexsort": (lambda f, x: f((x,)), V),
    "linspace": (lambda f, x: f(x[0], x[1], 5), V),
    "logn": (lambda f, x: f(2.0, x), X),
    "logspace": (lambda f, x: f(x[0], x[1], 5), V),
    "lstsq": (lambda f, x: f(x, Y[0])[0], SPD),
    "matvec": (lambda f, x: f(x, Y[0]), X),
    "multi_dot": (lambda f, x: f([x, Y, x]), X),
    "nanquantile": (lambda f, x: f(x, 0.3), V),
    "nested_iters": (lambda f, x: f(x, [[0], [1]]), X),
    "piecewise": (lambda f, x: f(x, [V > 0.3], [lambda y: y**2, lambda y: 3 * y]), V),
    "place": (lambda f, x: _into(x, lambda d: f(d, np.ones(4, bool), x)), V),
    "poly": (lambda f, x: f(x), V),
    "poly1d": (lambda f, x: f(x)(0.5), V),
    "polydiv": (lambda f, x: f(x, V[:2]), V),
    "polyfit": (lambda f, x: f(np.arange(4.0), x, 1), V),
    "power": (lambda f, x: f(x, Y), X),
    "put": (lambda f, x: _into(x, lambda d: f(d, [0, 1], x[:2])), V),
    "put_along_axis": (
        lambda f, x: _into(x, lambda d: f(d, np.zeros((3, 1), int), x[:, :1], 1)),
        X,
    ),
    "putmask": (lambda f, x: _into(x, lambda d: f(d, np.ones(4, bool), x)), V),
    "quantile": (lambda f, x: f(x, 0.3), V),
    "percentile": (lambda f, x: f(x, 30.0), V),
    "nanpercentile": (lambda f, x: f(x, 30.0), V),
    "ravel_multi_index": (lambda f, x: f((x, x), (3, 3)), np.zeros(2)),
    "real_if_close": (lambda f, x: f(x), X),
    "require": (lambda f, x: f(x, float, ["C"]), X),
    "resize": (lambda f, x: f(x, (2, 2)), X),
    "roots": (lambda f, x: f(x), np.array([1.0, -3.0, 2.0])),
    "save": (lambda f, x: f("never_written.npy", x), V),
    "savetxt": (lambda f, x: f("never_written.txt", x), V),
    "savez": (lambda f, x: f("never_written.npz", x), V),
    "savez_compressed": (lambda f, x: f("never_written.npz", x), V),
    "select": (lambda f, x: f([V > 0.5, V > 0.2], [x, 2 * x]), V),
    "sliding_window_view": (lambda f, x: f(x, 2), V),
    "take_along_axis": (lambda f, x: f(x, np.zeros((3, 1), int), 1), X),
    "tensorinv": (lambda f, x: f(x, 1), X),
    "tensorsolve": (lambda f, x: f(x, Y[0]), SPD),
    "trapezoid": (lambda f, x: f(x, V), V),
    "unwrap": (lambda f, x: f(x), np.array([0.0, 3.0, 6.5, 1.0])),
    "vander": (lambda f, x: f(x), V),
    "vecmat": (lambda f, x: f(x[0], Y), X),
    "vectorize": (lambda f, x: f(lambda y: y * 2)(x), V),
    "where": (lambda f, x: f(X > 0.5, x, 2 * x), X),
    "c_": (lambda f, x: f[x, x], V),
    "r_": (lambda f, x: f[x, 1.0], V),
    "ndenumerate": (lambda f, x: [v for _, v in f(x)], V),
    "nditer": (lambda f, x: [v * 1.0 for v in f(x)], V),
    "broadcast": (lambda f, x: [a * b for a, b in f(x, 2.0)], V),
    "flatiter": (lambda f, x: list(x.flat), V),
    "from_dlpack": (lambda f, x: f(x), V),
    "asmatrix": (lambda f, x: f(x), X),
    "bmat": (lambda f, x: f([[x, x]]), X),
    "matrix": (lambda f, x: f(x), X),
}  # fmt: skip
CALLS |= {name: (lambda f, x: f(x), SPD) for name in ("cholesky", "inv", "det", "slogdet")}
CALLS |= {
    # What does not depend on the choice of a sign or phase.
    "linalg.eigh": (lambda f, x: f(x + x.T)[0], SPD),
    "linalg.eig": (lambda f, x: f(x)[0], SPD + np.diag([0.0, 1.0, 3.0])),
    "linalg.eigvalsh": (lambda f, x: f(x + x.T), SPD),
    "linalg.cond": (lambda f, x: f(x), SPD),
    "linalg.svd": (lambda f, x: f(x)[1], SPD),
    "linalg.qr": (lambda f, x: f(x), SPD),
}
GUESSES: tuple[Call, ...] = (
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
METHOD_CALLS: dict[str, Call] = {
    "__array_wrap__": (lambda f, x: f(x, np.ones(4)), V),
    "astype": (lambda f, x: f(x, np.float64), X),
    "choose": (lambda f, x: f((x > 9).astype(int), [x]), V),
    "compress": (lambda f, x: f(x, [True, False, True, True]), V),
    "dot": (lambda f, x: f(x, Y), X),
    "fill": (lambda f, x: f(x, 2.0), V),
    "item": (lambda f, x: f(x, 1), V),
    "partition": (lambda f, x: f(x, 1), V),
    "argpartition": (lambda f, x: f(x, 1), V),
    "put": (lambda f, x: f(x, [0], [1.0]), V),
    "resize": (lambda f, x: f(x, (2, 2), refcheck=False), V),
    "searchsorted": (lambda f, x: f(x, 0.3), V),
    "setfield": (lambda f, x: f(x, 1.0, float), V),
    "getfield": (lambda f, x: f(x, float), V),
    "setflags": (lambda f, x: f(x, write=True), V),
    "take": (lambda f, x: f(x, [0, 2]), V),
    "tofile": (lambda f, x: f(x, "never_written.bin"), V),
    "dump": (lambda f, x: f(x, "never_written.pkl"), V),
    "to_device": (lambda f, x: f(x, "cpu"), V),
    "squeeze": (lambda f, x: f(x), X[None]),
    "swapaxes": (lambda f, x: f(x, 0, 1), X),
    "repeat": (lambda f, x: f(x, 2), V),
    "reshape": (lambda f, x: f(x, (2, 2)), V),
}
# Dates, integers, bits and texts: no floating point argument makes sense.
NOT_FLOATING = {
    "busday_count", "busday_offset", "datetime_as_string", "is_busday", "isnat", "packbits",
    "unpackbits", "unravel_index", "ravel_multi_index", "bitwise_and", "bitwise_or",
    "bitwise_xor", "bitwise_count", "invert", "left_shift", "right_shift", "gcd", "lcm",
    "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift", "bitwise_not", "can_cast",
    "ix_", "datetime_data", "mask_indices",
}  # fmt: skip
# Functions that take no arrays: settings, names of dtypes, sizes, files, texts.
NO_ARRAYS = {
    "arange", "bartlett", "base_repr", "binary_repr", "blackman", "broadcast_shapes",
    "diag_indices", "empty", "eye", "format_float_positional", "format_float_scientific",
    "frombuffer", "fromfile", "fromregex", "fromstring", "genfromtxt", "get_include",
    "get_printoptions", "getbufsize", "geterr", "geterrcall", "hamming", "hanning", "identity",
    "indices", "info", "isdtype", "isfortran", "isscalar", "issubdtype", "iterable", "load",
    "loadtxt", "mintypecode", "ones", "printoptions", "promote_types", "set_printoptions",
    "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime", "test", "tri",
    "tril_indices", "triu_indices", "typename", "zeros", "fftfreq", "rfftfreq", "s_",
    "index_exp", "mgrid", "ogrid", "errstate", "from_dlpack",
}  # fmt: skip
# What they return is not determined by their arguments.
UNDETERMINED = {"empty_like", "empty", "shares_memory", "may_share_memory", "byte_bounds"}
WRITERS = {"save", "savetxt", "savez", "savez_compressed", "tofile", "dump", "dumps"}
# NumPy itself refuses anything that is no ndarray.
NUMPY_REFUSES = {"nditer", "nested_iters"}
TYPES_TO_CALL = {"poly1d", "vectorize", "ndenumerate", "nditer", "broadcast", "matrix"}


class Row(NamedTuple):
    """What adarray makes of one name."""

    name: str
    status: str  # differentiable, constant, no arrays, type, refused
    reverse: str
    forward: str
    note: str


def names() -> Iterator[str]:
    """Yield the qualified public names of NumPy's functions and of ndarray's methods."""
    for prefix, module in MODULES.items():
        public = getattr(module, "__all__", None) or dir(module)
        for name in sorted(set(public)):
            if not name.startswith("_") and not isinstance(
                lookup(f"{prefix}.{name}"), types.ModuleType
            ):
                yield f"{prefix}.{name}"
    for name in sorted(dir(np.ndarray)):
        # What NumPy 2 has removed raises AttributeError, or says that it will.
        if not name.startswith("_") and name != "tostring" and hasattr(np.ones((2, 2)), name):
            yield f"numpy.ndarray.{name}"


def lookup(name: str, module: Any = np) -> Any:
    """Return what a qualified name stands for, in NumPy or in a namespace like it."""
    member = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in name.split(".")[1:]:
            member = getattr(member, part)
    return member


def _method(name: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        member = getattr(x, name)
        result = member(*args, **kwargs) if callable(member) else member
        return x if result is None else result  # in place

    return call


def function_of(name: str, module: Any = np) -> Callable[..., Any]:
    """Return what to call for a qualified name."""
    if name.startswith("numpy.ndarray."):
        return _method(name.rpartition(".")[2])
    return lookup(name, module)  # type: ignore[no-any-return]


def call_of(name: str) -> Call | None:
    """Return a call that plain NumPy accepts and its differentiated argument, None if none fits."""
    short = name.rpartition(".")[2]
    function = function_of(name)
    if name.startswith("numpy.ndarray."):
        if short in METHOD_CALLS:
            return METHOD_CALLS[short]
    else:
        for key in (name.partition(".")[2], short):
            if key in CALLS:
                return CALLS[key]
    for call, x in GUESSES:
        try:
            call(function, x.copy())
        except Exception:
            continue
        return call, x
    return None


def leaves_of(result: Any) -> list[Any]:
    """Return the arrays in a result: nested tuples, lists and namedtuples are opened."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in leaves_of(part)]
    return [result]


def _kind(x: Any) -> str:
    return str(np.dtype(x.dtype).kind) if hasattr(x, "dtype") else np.result_type(x).kind


def _numbers(result: Any) -> list[Any]:
    return [
        r for r in leaves_of(result)
        if isinstance(r, (ADArray, np.ndarray, np.generic, float, complex))
    ]  # fmt: skip


def _checks(run: Callable[..., Any], x: Any, mode: str) -> str:
    """Return "yes" if derivatives by `mode` are right, "no" if they are refused."""
    try:
        check_grads(run, (x,), order=1, modes=[mode], intercept=False)
    except ADArrayError:
        return "no"
    return "yes"


def classify(name: str, module: Any = np) -> Row:
    """Run one name with a traced argument and say what came of it.

    Raises
    ------
    AssertionError
        If a derivative is wrong, a value lost its trace unseen, or no call is known.
    """
    short = name.rpartition(".")[2]
    target = function_of(name)
    if isinstance(target, type) and short not in TYPES_TO_CALL:
        return Row(name, "type", "", "", "")
    if not callable(target) and short not in ("r_", "c_", *NO_ARRAYS):
        return Row(name, "constant", "", "", "a number, text or list")
    if short in NO_ARRAYS:
        return Row(name, "no arrays", "", "", "")
    if short in NOT_FLOATING:
        return Row(name, "constant", "", "", "of integers, dates or bits")
    if short in UNDETERMINED:
        return Row(name, "constant", "", "", "depends on memory alone")
    known = call_of(name)
    assert known is not None, f"no way to call {name} is known; add one to numpy_calls.CALLS"
    call, x = known
    function = function_of(name, module)
    with contextlib.redirect_stdout(io.StringIO()):
        return _run(name, call, function, x)


def _run(name: str, call: Callable[..., Any], function: Any, x: Any) -> Row:
    seen: list[Any] = []
    moves: list[bool] = []

    def run(value: Any) -> Any:
        # A copy: methods may write into it.
        value = value.copy() if hasattr(value, "copy") else value
        seen[:] = leaves_of(call(function, value))
        moves[:] = map(traced, seen)  # afterwards, they are plain
        return _numbers(seen)

    try:
        vjp(run, x, intercept=False)
    except ADArrayError as error:
        return Row(name, "refused", "", "", reason(str(error)))
    except (TypeError, ValueError) as error:
        if isinstance(error.__cause__, ADArrayError):
            return Row(name, "refused", "", "", reason(str(error.__cause__)))
        if name.rpartition(".")[2] in NUMPY_REFUSES:
            return Row(name, "refused", "", "", reason(str(error)))
        raise
    assert not any(_kind(r) == "O" for r in _numbers(seen)), f"{name} gave an array of objects"
    if not any(moves):
        inexact = [r for r in _numbers(seen) if _kind(r) in "fc"]
        note = "zero derivative" if inexact else ""
        if inexact:
            check_grads(run, (x,), order=1, intercept=False)
        return Row(name, "constant", "", "", note)
    return Row(name, "differentiable", _checks(run, x, "rev"), _checks(run, x, "fwd"), "")


def reason(message: str) -> str:
    """Return the first part of an error's message, without places in files."""
    return message.partition(" (in ")[0].partition("; ")[0]


def table() -> dict[str, dict[str, str]]:
    """Return the documentation's rows for this version of NumPy; empty if it has none."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        return {r["name"]: r for r in csv.DictReader(file, delimiter="\t")}
