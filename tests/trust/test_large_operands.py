"""Large plain operands written to through views that are older than the operation that read them.

Each program reads data in a few operations, and writes between them, or between the function
and its pullback, through a name that was made before. A derivative is right or refused.
"""

from __future__ import annotations

import ctypes
import io
import itertools
import mmap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trust import seeds

import adarray
from adarray.core import guard
from adarray.errors import ADArrayError
from adarray.jitting import JitWarning

BACKENDS = ("numpy", "serial", "openmp")
MODES = ("grad", "pullback", "intercept", "jvp", "nested", "jit", "jit(grad)", "jit in pullback")

Write = Callable[[int, float], None]
_numbers = itertools.count()


# -- memory, and names for it -----------------------------------------------------------------


def _owned(rng: Any, n: int, _: Path) -> np.ndarray:
    return rng.uniform(0.5, 1.5, n)


def _never_touched(rng: Any, n: int, _: Path) -> np.ndarray:
    return np.zeros(n)


def _part(rng: Any, n: int, _: Path) -> np.ndarray:
    start = int(rng.integers(0, 600))
    return rng.uniform(0.5, 1.5, n + 1000)[start : start + n]


def _bytes(rng: Any, n: int, _: Path) -> np.ndarray:
    return np.frombuffer(bytearray(rng.uniform(0.5, 1.5, n).tobytes()))


def _shared(rng: Any, n: int, _: Path) -> np.ndarray:
    array = np.frombuffer(mmap.mmap(-1, 8 * n))
    array[:] = rng.uniform(0.5, 1.5, n)
    return array


def _file(rng: Any, n: int, folder: Path) -> np.ndarray:
    array = np.memmap(folder / f"data{next(_numbers)}", np.float64, "w+", shape=(n,))
    array[:] = rng.uniform(0.5, 1.5, n)
    return array


def _columns(rng: Any, n: int, _: Path) -> np.ndarray:
    return rng.uniform(0.5, 1.5, (n // 50 + 1, 51))[:, 1:].reshape(-1)[:n]


MEMORY = (_owned, _never_touched, _part, _bytes, _shared, _file, _columns)

# What operations read: forms of n elements, as an array of any shape.
FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "itself": lambda x: x,
    "reversed": lambda x: x[::-1],
    "matrix": lambda x: x[: x.size // 4 * 4].reshape(-1, 4),
    "transposed": lambda x: x[: x.size // 4 * 4].reshape(4, -1).T,
    "without a column": lambda x: x[: x.size // 40 * 40].reshape(-1, 40)[:, 1:],
    "every other": lambda x: x[::2],
    "broadcast": lambda x: np.broadcast_to(x[: x.size // 2], (2, x.size // 2)),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 3),
    "an end": lambda x: x[x.size // 3 :],
}


def _by_array(view: np.ndarray) -> Write:
    def write(i: int, value: float) -> None:
        view[i % view.size] = value

    return write


def _by_nditer(x: np.ndarray) -> Write:
    it = np.nditer(x, [], [["readwrite"]], order="C")
    memory = it.operands[0]
    return _by_array(memory.reshape(-1))


def _by_bits(x: np.ndarray) -> Write:
    bits = x.view(np.uint64)

    def write(i: int, value: float) -> None:
        bits[i % bits.size] ^= np.uint64(1) << np.uint64(51)

    return write


def _by_memory(x: np.ndarray) -> Write:
    memory = memoryview(x)

    def write(i: int, value: float) -> None:
        memory[i % len(memory)] = value

    return write


def _by_address(x: np.ndarray) -> Write:
    address = x.ctypes.data

    def write(i: int, value: float) -> None:
        ctypes.c_double.from_address(address + 8 * (i % x.size)).value = value

    return write


def _by_kernel(x: np.ndarray) -> Write:
    """As files and sockets do it: the system writes."""
    memory = memoryview(x).cast("B")

    def write(i: int, value: float) -> None:
        at = 8 * (i % x.size)
        io.BytesIO(np.float64(value).tobytes()).readinto(memory[at : at + 8])

    return write


def _everything(x: np.ndarray) -> Write:
    view = x[:]

    def write(i: int, value: float) -> None:
        np.negative(view, out=view)

    return write


def _turned(x: np.ndarray) -> Write:
    view = x[:]

    def write(i: int, value: float) -> None:
        view[0] += value
        view[:] = np.roll(view, 1 + i % 7)

    return write


class _Interface:
    def __init__(self, x: np.ndarray) -> None:
        self.keep, self.__array_interface__ = x, x.__array_interface__


WRITERS: dict[str, Callable[[np.ndarray], Write]] = {
    "slice": lambda x: _by_array(x[:]),
    "reversed": lambda x: _by_array(x[::-1]),
    "view of a view": lambda x: _by_array(x[:][1:].reshape(-1)),
    "bits": _by_bits,
    "memoryview": _by_memory,
    "from its buffer": lambda x: _by_array(np.frombuffer(memoryview(x))),
    "interface": lambda x: _by_array(np.asarray(_Interface(x))),
    "ctypes": lambda x: _by_array(np.ctypeslib.as_array(
        x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), shape=x.shape)),
    "address": _by_address,
    "kernel": _by_kernel,
    "nditer": _by_nditer,
    "windows": lambda x: _by_array(
        np.lib.stride_tricks.as_strided(x, (x.size - 1,), (8,))),
    "everything": _everything,
    "turned": _turned,
    "nothing": lambda x: lambda i, value: None,
    "itself": _by_array,
}  # fmt: skip

OPERATIONS: tuple[Callable[[Any, np.ndarray], Any], ...] = (
    lambda c, d: np.sum(c * d),
    lambda c, d: np.sum(np.sin(c * d)),
    lambda c, d: np.sum(d / (1.0 + c * c)),
    lambda c, d: np.mean(np.maximum(d, c)) * d.size,
    lambda c, d: np.sum(np.exp(-c * c * d) * d),
    lambda c, d: np.sum(d.reshape(-1)[: d.size // 2 * 2].reshape(-1, 2) @ np.stack([c, c * c])),
    lambda c, d: np.sum(np.where(d > 0.9, c, d) * d),
    lambda c, d: np.sum(np.power(c, 1.0 + np.abs(d) % 2.0)),
)


# Writes that are no calls of NumPy: a jitted function makes them when it is recorded only, so
# they are made after it.
UNSEEN = ("address", "memoryview", "kernel")


class Program:
    """A random program over fresh memory; the same one for the same seed."""

    def __init__(self, seed: int, folder: Path, mode: str) -> None:
        rng = np.random.default_rng(seed)
        edge = guard.COPY_LIMIT // 8
        sizes = (edge - 1, edge, edge + 1, edge + 513, 2 * edge + 7, 3 * edge, 140_000)
        n = int(rng.choice(sizes))
        make = MEMORY[int(rng.integers(len(MEMORY)))]
        self.data = make(np.random.default_rng(seed), n, folder)
        if "jit" in mode:  # which takes instances of subclasses for constants
            self.data = np.asarray(self.data)
        self.form = str(rng.choice(list(FORMS)))
        self.writer = str(rng.choice(list(WRITERS)))
        self.about = f"{make.__name__} of {n}, {self.form}, written to by {self.writer}"
        self.seen = FORMS[self.form](self.data)
        self.write = WRITERS[self.writer](self.data)
        hidden = "jit" in mode and self.writer in UNSEEN
        self.steps: list[tuple[int, bool]] = [
            (int(rng.integers(len(OPERATIONS))), bool(rng.integers(2)) and not hidden)
            for _ in range(int(rng.integers(1, 4)))
        ]
        spots = (0, 1, n // 2, n - 1, n - 2, 511, 512, int(rng.integers(n)))
        self.spot, self.value = int(rng.choice(spots)), float(rng.uniform(300.0, 900.0))
        self.at_the_end = bool(rng.integers(2))

    def f(self, c: Any) -> Any:
        total: Any = 0.0
        for k, (which, writes) in enumerate(self.steps):
            total = total + OPERATIONS[which](c + 0.1 * k, self.seen)
            if writes:
                self.write(self.spot + k, self.value)
        return total

    def later(self) -> None:
        if self.at_the_end:
            self.write(self.spot, -self.value)


def _expected(seed: int, folder: Path, mode: str) -> float:
    h = 1e-6
    high, low = (float(Program(seed, folder, mode).f(0.3 + s)) for s in (h, -h))
    return (high - low) / (2 * h)


def _got(mode: str, p: Program) -> Any:
    f = p.f
    if mode == "grad":
        return adarray.grad(f)(0.3)
    if mode == "intercept":
        return adarray.grad(f, intercept=True)(0.3)
    if mode == "jvp":
        return adarray.jvp(f, (0.3,), (1.0,))[1]
    if mode == "nested":
        return adarray.grad(lambda s: adarray.value_and_grad(f)(s)[0])(0.3)
    if mode == "jit":
        return adarray.grad(adarray.jit(f))(0.3)
    if mode == "jit(grad)":
        return adarray.jit(adarray.grad(f))(0.3)
    _, pull = adarray.vjp(adarray.jit(f) if mode.startswith("jit") else f, 0.3)
    p.later()
    return pull(1.0)[0]


def _run(seed: int, folder: Path, counts: Counter[str]) -> str:
    """Return what is wrong with a program; "" if it is right or refused."""
    mode = MODES[seed % len(MODES)]
    backend = BACKENDS[seed // len(MODES) % len(BACKENDS)]
    p = Program(seed, folder, mode)
    expected = _expected(seed, folder, mode)
    try:
        with adarray.use(backend):
            actual = float(_got(mode, p))
    except (ADArrayError, ValueError) as error:
        known = isinstance(error, ADArrayError) or "read-only" in str(error)
        counts["refused" if known else "failed"] += 1
        return "" if known else f"{seed} {p.about}, {mode} on {backend}: {error}"
    scale = abs(expected) + 1e-3
    counts["right"] += 1
    if p.writer == "nothing":
        counts["untouched and right"] += 1
    if abs(actual - expected) <= 1e-5 * scale:
        return ""
    return f"{seed} {p.about}, {mode} on {backend}: {actual}, expected {expected}"


@pytest.mark.slow
@pytest.mark.filterwarnings(f"ignore::{JitWarning.__module__}.{JitWarning.__name__}")
@pytest.mark.parametrize("sealed", [True, False])
def test_derivatives_are_right_or_refused(
    sealed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not sealed:  # as on systems that keep no account of writes
        monkeypatch.setattr(guard.seals, "seal", lambda *_: None)
    counts: Counter[str] = Counter()
    wrong = [w for seed in seeds(150) if (w := _run(seed, tmp_path, counts))]
    print(dict(counts))
    assert not wrong, "\n".join(wrong)
    assert counts["untouched and right"] > 0
    assert counts["refused"] > 0
