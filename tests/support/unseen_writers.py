"""Ways to write into an array that NumPy's protocols do not show, and programs that use them.

Functions that are kept in a table are not rebound by interception: they stand for those of
packages that it does not reach.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.ndimage
import scipy.special

ELSEWHERE: dict[str, Any] = {
    "asarray": np.asarray,
    "frombuffer": np.frombuffer,
    "as_strided": np.lib.stride_tricks.as_strided,
    "from_dlpack": np.from_dlpack,
    "uniform_filter": scipy.ndimage.uniform_filter,
    "lu_factor": scipy.linalg.lu_factor,
    "require": np.require,
}


def by_asarray(b: Any) -> None:
    a = ELSEWHERE["asarray"](b)
    a[...] = a[::-1] * 0.5 + 0.25


def by_view(b: Any) -> None:
    ELSEWHERE["asarray"](b)[::2] += 1.0


def by_require(b: Any) -> None:
    ELSEWHERE["require"](b, float, "W").flat[0] = 0.75


def by_nditer(b: Any) -> None:
    for o in np.nditer(b, op_flags=["readwrite"]):
        o[...] = o * 0.5 + 1.0


def by_blas(b: Any) -> None:
    scipy.linalg.blas.daxpy(np.ones(b.size), b.reshape(-1), a=0.5)


def by_scaling(b: Any) -> None:
    scipy.linalg.blas.dscal(0.5, b.reshape(-1))


def by_lapack(b: Any) -> None:
    square = b[:2, :2] if b.ndim == 2 else b[:4].reshape(2, 2)
    scipy.linalg.lapack.dpotrf(square.T, overwrite_a=1)


def by_decomposition(b: Any) -> None:
    square = b[:2, :2] if b.ndim == 2 else b[:4].reshape(2, 2)
    scipy.linalg.lu_factor(square.T + 3 * np.eye(2), overwrite_a=True)


def by_filter(b: Any) -> None:
    scipy.ndimage.uniform_filter(np.arange(b.size).reshape(b.shape) * 0.1, 3, output=b)


def by_filter_elsewhere(b: Any) -> None:
    ELSEWHERE["uniform_filter"](np.arange(b.size).reshape(b.shape) * 0.1, 3, output=b)


def by_special(b: Any) -> None:
    scipy.special.expit(b, out=b)


def by_buffer(b: Any) -> None:
    np.frombuffer(b.reshape(-1))[1] = 0.5


def by_strides(b: Any) -> None:
    np.lib.stride_tricks.as_strided(b, (2,), b.strides[-1:])[1] = -0.5


def by_strides_elsewhere(b: Any) -> None:
    ELSEWHERE["as_strided"](b, (2,), b.strides[-1:])[1] = -0.25


def by_address(b: Any) -> None:
    first = ctypes.cast(b.ctypes.data, ctypes.POINTER(ctypes.c_double))
    first[0] = 0.125


def by_memory(b: Any) -> None:
    m = b.data
    m[(0,) * m.ndim] = 0.375


def by_dlpack(b: Any) -> None:
    a = np.from_dlpack(b)
    a[...] = np.asarray(a) * 0.5


def by_dlpack_elsewhere(b: Any) -> None:
    ELSEWHERE["from_dlpack"](b)[...] = 0.625


def by_shuffle(b: Any) -> None:
    np.random.default_rng(3).shuffle(b)


def by_shuffle_of_python(b: Any) -> None:
    random.Random(3).shuffle(b.reshape(-1))


def by_generator(b: Any) -> None:
    np.random.Generator(np.random.PCG64(5)).random(out=b)


WRITERS: tuple[Callable[[Any], None], ...] = (
    by_asarray, by_view, by_require, by_nditer, by_blas, by_scaling, by_lapack, by_decomposition,
    by_filter, by_filter_elsewhere, by_special, by_buffer, by_strides, by_strides_elsewhere,
    by_address, by_memory, by_dlpack, by_dlpack_elsewhere, by_shuffle, by_shuffle_of_python,
    by_generator,
)  # fmt: skip
_NAMES = {w.__name__: w for w in WRITERS}


def program(seed: int) -> tuple[Callable[..., Any], str]:
    """Return a random function of ``x``, shape (6,), and its text."""
    rng = np.random.default_rng(seed)

    def pick(*texts: str) -> str:
        return str(rng.choice(texts))

    lines = [
        "def f(x):",
        "    b = " + pick("np.zeros(6)", "np.arange(6.0) / 4", "np.linspace(0.1, 1, 6)",
                          "np.full((2, 3), 0.5)", "np.ones((2, 3))"),
        "    v = " + pick("b", "b[::-1]", "b[1:]", "b.T", "b.reshape(-1)", "b[...]"),
        "    y = np.sin(x)",
        "    held = []",
    ]  # fmt: skip
    for _ in range(int(rng.integers(3, 8))):
        into = pick("b", "v", "b", "v", "held[-1]" if "append" in "".join(lines) else "b")
        lines.append("    " + pick(
            f"{pick(*_NAMES)}({into})",
            f"{pick(*_NAMES)}({into})",
            f"y = np.sin(y * {into}.reshape(-1)[:1]) + x",
            f"y = y * {into}.reshape(-1)[-1] + x * {into}.sum()",
            "y = np.tanh(y) * b.reshape(-1)",
            f"{into}[...] = {into} * 0.5 - 0.25",
            f"{into}[0] = 0.875",
            f"{into} *= 0.75" if into in "bv" else "y = y * 1.5",
            "held.append(ELSEWHERE['asarray'](b))",
            "held.append(np.frombuffer(b.reshape(-1)))",
            "b[-1] = x[0]" if rng.random() < 0.3 else "y = y * np.mean(v)",
        ))  # fmt: skip
    read = "sum((h * 1.0).sum() for h in held)" if rng.random() < 0.5 else "1.0"
    lines.append(f"    return y * {pick('1.0', 'b.sum()', 'v.sum()')}, b.sum() + {read}")
    text = "\n".join(lines) + "\n"
    space: dict[str, Any] = {
        "np": np,
        "__name__": "unseen_writer",
        "ELSEWHERE": ELSEWHERE,
        **_NAMES,
    }
    exec(compile(text, f"<program {seed}>", "exec"), space)
    return space["f"], text
