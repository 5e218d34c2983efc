"""Ways to write into an array that NumPy's protocols do not show, and programs that use them.

Functions that are kept in a table are not rebound by interception: they stand for those of
packages that it does not reach.

For tests of guards and captured state.
"""

from __future__ import annotations

import ctypes
import io
import operator
import random
import struct
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

CAPTURED = np.arange(6.0)
# Those that the buffer protocol serves, which classes cannot offer before Python 3.12, and others
# that an ADArray refuses aloud.
LOUD = frozenset(
    {
        "by_bytes", "by_slices_of_memory", "by_file", "by_interface", "by_ctypes", "by_struct",
        "by_constructor", "by_windows",
    }
)  # fmt: skip


def restore() -> None:
    """Give the array that programs capture what it holds before a run."""
    CAPTURED[:] = np.linspace(0.2, 0.9, 6)


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


def by_bytes(b: Any) -> None:
    memoryview(b.reshape(-1)).cast("B")[8:16] = struct.pack("d", 0.45)


def by_slices_of_memory(b: Any) -> None:
    b.reshape(-1).data[:2] = memoryview(np.full(2, 0.35))


def by_file(b: Any) -> None:
    io.BytesIO(np.full(b.size, 0.325).tobytes()).readinto(b)


def by_memmove(b: Any) -> None:
    source = np.full(2, 0.75)
    ctypes.memmove(b.ctypes.data, source.ctypes.data, 16)


def by_interface(b: Any) -> None:
    ctypes.memset(b.__array_interface__["data"][0], 0, 8)


def by_ctypes(b: Any) -> None:
    (ctypes.c_double * b.size).from_buffer(b)[1] = 0.65


def by_ctypeslib(b: Any) -> None:
    np.ctypeslib.as_array(b.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (2,))[:] = 0.55


def by_struct(b: Any) -> None:
    struct.pack_into("d", b, 8, 0.15)


def by_constructor(b: Any) -> None:
    np.ndarray(2, float, b)[:] = 0.85


def by_finite(b: Any) -> None:
    b[0] = np.inf
    np.nan_to_num(b, copy=False, posinf=0.4)


def by_permuted(b: Any) -> None:
    np.random.default_rng(1).permuted(b, out=b)


def by_old_shuffle(b: Any) -> None:
    np.random.RandomState(1).shuffle(b)


def by_normal(b: Any) -> None:
    np.random.default_rng(1).standard_normal(out=b)


def by_sort(b: Any) -> None:
    b.sort()


def by_sorting_a_view(b: Any) -> None:
    b[::-1].sort(0)


def by_partition(b: Any) -> None:
    b.partition(1)


def by_fill(b: Any) -> None:
    b.fill(0.95)


def by_byteswap(b: Any) -> None:
    b.byteswap(inplace=True)
    b.view(np.uint8)[..., 1:] = b.view(np.uint8)[..., 1:] % 4


def by_field(b: Any) -> None:
    b.setfield(0.6, float)


def by_bits(b: Any) -> None:
    b.view(np.int64)[0] = 4602678819172646912


def by_small_bits(b: Any) -> None:
    b.view("u1")[..., :8] = 0


def by_complex(b: Any) -> None:
    b.reshape(-1).view(complex)[0] = 0.3 + 0.4j


def by_record(b: Any) -> None:
    b.view([("f", float)])["f"][1] = 0.2


def by_axis(b: Any) -> None:
    np.put_along_axis(b, np.argsort(b, 0)[:1], 0.45, 0)


def by_windows(b: Any) -> None:
    np.lib.stride_tricks.sliding_window_view(b.reshape(-1), 2, writeable=True)[0] = 0.3


def by_rows(b: Any) -> None:
    def first(row: Any) -> float:
        row[0] = 0.25
        return 0.0

    np.apply_along_axis(first, 0, b.reshape(2, -1))


def by_flat(b: Any) -> None:
    b.flat[1:3] = 0.7


def by_put(b: Any) -> None:
    b.put([1], [0.8])


def by_operator(b: Any) -> None:
    operator.setitem(b, 0, operator.imul(b, 0.5).sum() * 0.1)


def by_out(b: Any) -> None:
    np.cumsum(b, axis=-1, out=b)


def by_dot(b: Any) -> None:
    np.dot(np.eye(b.shape[0]), np.full(b.shape, 0.4), out=b)


def by_einsum(b: Any) -> None:
    np.einsum("...,...->...", b, np.full(b.shape, 0.5), out=b)


def by_clip(b: Any) -> None:
    b.clip(0.2, 0.7, out=b)


def by_swap(b: Any) -> None:
    b[[0, 1]] = b[[1, 0]]


def by_shift(b: Any) -> None:
    np.copyto(b[1:], b[:-1])


def by_dswap(b: Any) -> None:
    scipy.linalg.blas.dswap(np.full(b.size, 0.3), b.reshape(-1))


def by_drot(b: Any) -> None:
    scipy.linalg.blas.drot(b.reshape(-1), np.ones(b.size), 0.6, 0.8, overwrite_x=1)


def by_masked(b: Any) -> None:
    np.ma.array(b, copy=False)[0] = 0.1


def by_each(b: Any) -> None:
    for i, v in np.ndenumerate(b):
        b[i] = 0.5 * v


WRITERS: tuple[Callable[[Any], None], ...] = (
    by_asarray, by_view, by_require, by_nditer, by_blas, by_scaling, by_lapack, by_decomposition,
    by_filter, by_filter_elsewhere, by_special, by_buffer, by_strides, by_strides_elsewhere,
    by_address, by_memory, by_dlpack, by_dlpack_elsewhere, by_shuffle, by_shuffle_of_python,
    by_generator, by_bytes, by_slices_of_memory, by_file, by_memmove, by_interface, by_ctypes,
    by_ctypeslib, by_struct, by_constructor, by_finite, by_permuted, by_old_shuffle, by_normal,
    by_sort, by_sorting_a_view, by_partition, by_fill, by_byteswap, by_field, by_bits,
    by_small_bits, by_complex, by_record, by_axis, by_windows, by_rows, by_flat, by_put,
    by_operator, by_out, by_dot, by_einsum, by_clip, by_swap, by_shift, by_dswap, by_drot,
    by_masked, by_each,
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
                          "np.full((2, 3), 0.5)", "np.ones((2, 3))", "np.array([0.5, 1.0] * 3)",
                          "np.zeros((2, 8))[1, 1:7]", "CAPTURED", "CAPTURED.reshape(2, 3)",
                          "CAPTURED[::-1]", "x * 0.5", "x"),
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
    lines.append(
        f"    return y * {pick('1.0', 'b.sum()', 'v.sum()')}, b.sum() + {read}, CAPTURED * 1.0"
    )
    text = "\n".join(lines) + "\n"
    space: dict[str, Any] = {
        "np": np,
        "__name__": "unseen_writer",
        "ELSEWHERE": ELSEWHERE,
        "CAPTURED": CAPTURED,
        **_NAMES,
    }
    exec(compile(text, f"<program {seed}>", "exec"), space)
    return space["f"], text
