"""Results are numbers or arrays without axes where NumPy's are, in each function and mode.

Functions of NumPy, methods and operators are called with numbers and arrays without axes, and with
arguments of many forms; what NumPy refuses is passed over. ``ADARRAY_LONG=2000`` takes 40,000.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from trust import seeds

import adarray

VALUES: dict[str, Any] = {
    "float": 0.7, "float64": np.float64(0.7), "0-d": np.array(0.7), "1": np.array([0.7]),
    "2": np.array([0.3, 0.7]), "3": np.array([0.2, 0.5, 0.9]),
    "2x2": np.array([[2.0, 0.3], [0.3, 1.0]]), "complex": 0.7 + 0.2j,
    "complex128": np.complex128(0.7 + 0.2j), "0-d complex": np.array(0.7 + 0.2j),
    "float32": np.float32(0.7),
}  # fmt: skip
ARGUMENTS = (
    "x", "x", "x", "x, x", "x, x, x", "[x, x]", "x, 2", "2, x", "x, 0.5", "0.5, x", "x, v", "v, x",
    "x, axis=0", "x, axis=None", "x, keepdims=True", "x, axis=-1, keepdims=True", "x, initial=0.0",
    "True, x, 0.0", "[True], [x]", "x, x, 2", "x, [0.5]", "x, (1,)", "x, ()", "x, v, v",
    "x, dtype=float", "x, 1 + 2j",
)  # fmt: skip
OF_METHODS = (
    "", "()", "()", "(0)", "(x)", "(axis=0)", "(keepdims=True)", "(float)", "(())", "((1,))",
)  # fmt: skip
OPERANDS = (
    "0.5", "2", "True", "np.float64(0.5)", "np.array(0.5)", "1j", "np.complex128(1j)", "v", "x",
    "np.float32(0.5)", "np.int64(2)", "np.array([0.5])",
)  # fmt: skip
OTHERS = (
    "-x", "+x", "abs(x)", "round(x)", "round(x, 1)", "divmod(x, 0.5)", "pow(x, 2)", "x[0]", "x[()]",
    "x[...]", "x[0:1]", "x[None]", "x[-1, -1]", "x[0, ...]", "x[[0]]", "x[x > 0]", "sum(x)",
    "max(x)", "list(x)", "sorted(x)", "max(x, 0.5)", "x.real", "x.imag", "x.T", "sum([x, x])",
    "(x > 0) + 1", "(x > 0) & True", "x if x > 0 else 0", "np.exp(x) * x", "np.sum(x) * 2",
    "np.add.reduce(x)", "np.add.accumulate(x)", "np.add.outer(x, x)", "np.maximum.reduce(x)",
    "np.multiply.reduce(x, axis=None)", "np.add.reduce(x, keepdims=True)", "np.einsum('i->', x)",
    "np.einsum('...->...', x)", "np.einsum('ii', x)", "np.einsum('i,i', x, x)",
)  # fmt: skip
# They read files, settings or memory, or write into what they are given.
APART = frozenset({
    "array2string", "array_repr", "array_str", "asarray_chkfinite", "asmatrix", "bmat", "copyto",
    "fill_diagonal", "frombuffer", "fromfile", "fromfunction", "fromiter", "frompyfunc",
    "fromregex", "fromstring", "genfromtxt", "getbufsize", "geterr", "geterrcall", "info", "load",
    "loadtxt", "mask_indices", "nested_iters", "place", "put", "put_along_axis", "putmask", "save",
    "savetxt", "savez", "savez_compressed", "set_printoptions", "setbufsize", "seterr",
    "seterrcall", "show_config", "show_runtime", "test", "array", "asarray", "asanyarray",
    "ascontiguousarray", "asfortranarray", "require", "piecewise", "apply_along_axis",
    "apply_over_axes", "einsum_path", "empty", "empty_like", "from_dlpack",
})  # fmt: skip
METHODS = sorted(
    n for n in dir(np.ndarray)
    if not n.startswith("_") and n not in {
        "base", "byteswap", "ctypes", "data", "device", "dump", "dumps", "fill", "flags", "flat",
        "getfield", "item", "itemset", "newbyteorder", "partition", "put", "resize", "setfield",
        "setflags", "sort", "to_device", "tobytes", "tofile", "tolist", "tostring", "view",
    }
)  # fmt: skip
# Known: ``1j == x`` asks a complex number of Python, and ``x == 1j`` NumPy, which look the same to
# us; `out` that is read as well; lists that stay lists, where interception makes arrays of them.
KNOWN = frozenset({
    "1j == x", "np.dot(x, x, x)", "np.trim_zeros([x, x])", "np.trapezoid([True], [x])",
})  # fmt: skip


def _functions() -> list[str]:
    results = []
    for module, name in ((np, "np"), (np.linalg, "np.linalg"), (np.fft, "np.fft")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parts = {n: getattr(module, n) for n in dir(module) if not n.startswith("_")}
        results += [
            f"{name}.{n}" for n, f in sorted(parts.items())
            if n not in APART and callable(f) and not inspect.isclass(f)
        ]  # fmt: skip
    return results


FUNCTIONS = _functions()


def expression(rng: np.random.Generator) -> str:
    kind = rng.integers(8)
    if kind < 4:
        return f"{rng.choice(FUNCTIONS)}({rng.choice(ARGUMENTS)})"
    if kind < 6:
        return f"x.{rng.choice(METHODS)}{rng.choice(OF_METHODS)}"
    if kind == 6:
        return str(rng.choice(OTHERS))
    pair = [str(rng.choice(OPERANDS)), "x"]
    rng.shuffle(pair)
    return f" {rng.choice(['+', '-', '*', '/', '**', '//', '%', '<', '==', '@'])} ".join(pair)


def kind(r: Any) -> Any:
    """Return what code can ask a result."""
    if isinstance(r, (tuple, list)):
        return tuple(map(kind, r))
    if r is None or callable(r) or isinstance(r, (str, dict)):
        return None
    kinds = (np.ndarray, np.generic, np.float64, float, complex)
    return type(r), [isinstance(r, k) for k in kinds], hasattr(r, "dtype"), np.ndim(r)


def made(text: str) -> Any:
    space = {"np": np, "v": np.array([0.4, 0.6]), "__name__": "scalars"}
    exec(f"def f(x):\n    return {text}\n", space)
    return space["f"]


def fresh(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def compare(text: str, name: str, jit: bool) -> Counter[str]:
    f, counts = made(text), Counter[str]()
    try:
        expected = kind(f(fresh(VALUES[name])))
    except Exception:
        return Counter({"wrong for NumPy, too": 1})
    seen: list[Any] = []

    def asked(x: Any) -> Any:
        seen.append(kind(f(x)))
        return np.real(np.sum(x * 1.0))

    def plain() -> Any:
        adarray.vjp(asked, fresh(VALUES[name]))
        return seen[-1]

    def inside() -> Any:
        adarray.vjp(asked, fresh(VALUES[name]), intercept=True)
        return seen[-1]

    def forward() -> Any:
        x = fresh(VALUES[name])
        adarray.jvp(asked, (x,), (x,))
        return seen[-1]

    def jitted() -> Any:
        g = adarray.jit(f)
        return [kind(g(fresh(VALUES[name]))) for _ in range(2)][-1]

    for run in (plain, inside, forward, *([jitted] if jit else [])):
        try:
            got = run()
        except Exception:
            counts["refused"] += 1
            continue
        assert got == expected, f"{text} of {name}, {run.__name__}: {got}, expected {expected}"
        counts["right"] += 1
    return counts


@pytest.mark.filterwarnings("ignore")
def test_random_calls() -> None:
    counts: Counter[str] = Counter()
    for seed in seeds(100):
        rng = np.random.default_rng(seed)
        for k in range(20):
            text, name = expression(rng), str(rng.choice(list(VALUES)))
            if "x" not in text or text in KNOWN:
                continue
            try:
                with np.errstate(all="ignore"):
                    counts += compare(text, name, k == 0)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    print(counts)
    assert counts["right"] > counts["refused"]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("text", [
    "np.heaviside(x, 0.5)", "np.heaviside(0.5, x)", "np.cross(x, x)", "np.cross(v, x)",
    "np.real_if_close(x)", "np.resize(x, ())", "np.real(x)", "np.imag(x)", "x.real", "x.imag",
    "x.conjugate()", "np.conjugate(x)", "x.astype(float)", "np.astype(x, float)",
    "x + np.float64(0.5)", "x ** np.float64(0.5)", "x == np.float64(0.5)", "x != np.float64(0.5)",
    "np.float64(0.5) * x", "1j * x", "1j - x", "x * 1j", "1j / x", "x - np.float32(0.5)",
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_numbers_and_arrays_without_axes(text: str, name: str) -> None:
    """Some were arrays where NumPy gives numbers, and others the other way round."""
    compare(text, name, jit=name in ("float", "float64", "0-d", "complex"))
