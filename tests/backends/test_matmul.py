"""Matrix products of the serial and openmp backends against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from adarray.backend import load
from adarray.base.op import OPS
from adarray.errors import BackendError

MATMUL = OPS["matmul"]
DTYPES = [np.float64, np.float32]


def _engine(name: str, **options: Any) -> Any:
    """Return an engine whose products BLAS computes, or skip where there is none."""
    try:
        engine = load(name).engine(**options)
    except BackendError as error:
        pytest.skip(str(error))
    from adarray_backends.cpu import blas

    if blas.find() is None:
        pytest.skip(f"{blas.WHEEL} is not installed: NumPy computes all products")
    return engine


@pytest.fixture(params=["serial", "openmp-1", "openmp-2", "openmp-3", "openmp-7"])
def engine(request: pytest.FixtureRequest) -> Any:
    name, _, threads = request.param.partition("-")
    return _engine(name, cutoff=0, **({"threads": int(threads)} if threads else {}))


def product(engine: Any, x: Any, y: Any) -> Any:
    return engine.call(MATMUL, (x, y), {})


def check(engine: Any, x: np.ndarray, y: np.ndarray, what: Any = None) -> None:
    """Compare a product with NumPy's: kind of result, and values within rounding errors."""
    got, expected = product(engine, x, y), np.matmul(x, y)
    assert got is not NotImplemented, what
    assert type(got) is type(expected), what
    assert got.dtype == expected.dtype, what
    assert got.shape == expected.shape, what
    if isinstance(got, np.ndarray):
        assert got.flags.c_contiguous, what
        assert got.flags.owndata, what
        assert got.flags.writeable, what
        assert not np.shares_memory(got, x), what
    bound = np.matmul(np.abs(x), np.abs(y)) * (x.shape[-1] + 2) * np.finfo(x.dtype).eps
    assert np.all(np.abs(got - expected) <= bound), what


def layouts(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield arrays of the shape of `x` in all kinds of memory order."""
    yield "contiguous", x
    reverse = np.ascontiguousarray(x[..., ::-1])
    yield "negative stride", reverse[..., ::-1]
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    yield "every second", wide[..., ::2]
    wide = np.full((*x.shape[:-1], x.shape[-1] + 7), np.nan, x.dtype)
    wide[..., 3:-4] = x
    yield "part of rows", wide[..., 3:-4]
    odd = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    yield "misaligned", odd
    yield "repeated element", np.broadcast_to(x[..., :1], x.shape)
    frozen = x.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen
    if x.ndim > 1:
        yield "transposed", np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
        yield "repeated row", np.broadcast_to(x[..., :1, :], x.shape)
        yield "rows backwards", np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]
        columns = np.zeros((*x.shape[:-2], x.shape[-1] + 3, x.shape[-2]), x.dtype)
        columns[..., 2:-1, :] = x.swapaxes(-1, -2)
        yield "part of columns", columns.swapaxes(-1, -2)[..., 2:-1]
    if x.ndim > 2:
        yield "repeated matrix", np.broadcast_to(x[:1], x.shape)
        yield "matrices backwards", np.ascontiguousarray(x[::-1])[::-1]
        yield "axes exchanged", np.ascontiguousarray(x.swapaxes(0, -2)).swapaxes(0, -2)


SHAPES = [
    ((5, 7), (7, 3)), ((70, 33), (33, 130)), ((130, 20), (20, 9)), ((9, 20), (20, 130)),
    ((1, 50), (50, 60)), ((60, 50), (50, 1)), ((1, 50), (50, 1)), ((60, 1), (1, 50)),
    ((1, 1), (1, 1)), ((50,), (50,)), ((50,), (50, 60)), ((60, 50), (50,)), ((50,), (50, 1)),
    ((3, 8, 9), (9, 4)), ((3, 8, 9), (3, 9, 4)), ((2, 1, 8, 9), (3, 9, 4)), ((8, 9), (3, 9, 4)),
    ((3, 8, 9), (9,)), ((9,), (3, 9, 4)), ((3, 1, 9), (9, 4)), ((3, 1, 9), (9, 1)),
    ((5, 1, 1, 9), (2, 9, 1)), ((1, 3, 8, 9), (1, 1, 9, 4)), ((7, 3, 8, 9), (7, 1, 9, 4)),
    ((40, 8, 9), (40, 9, 4)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_layouts(engine: Any, a: Any, b: Any, dtype: type) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=a).astype(dtype), rng.normal(size=b).astype(dtype)
    for name_x, u in layouts(x):
        for name_y, v in layouts(y):
            check(engine, u, v, (name_x, name_y))


# Work that is worth sharing: tiles along rows, columns and both, whole products, slices.
LARGE = [
    ((300, 200), (200, 257)), ((67, 500), (500, 65)), ((2000, 40), (40, 10)),
    ((10, 90), (90, 3000)),
    ((700, 600), (600,)), ((600,), (600, 700)), ((3, 128, 128), (3, 128, 128)),
    ((13, 96, 96), (13, 96, 96)), ((40, 64, 64), (64, 64)), ((64, 64), (40, 64, 64)),
    ((300001,), (300001,)), ((9000001,), (9000001,)), ((30, 1, 5000), (5000, 3)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("a", "b"), LARGE, ids=str)
def test_shared_work(engine: Any, a: Any, b: Any, dtype: type) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=a).astype(dtype), rng.normal(size=b).astype(dtype)
    check(engine, x, y)
    if x.ndim > 1:
        check(engine, np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2), y, "transposed x")
    if y.ndim > 1:
        check(engine, x, np.ascontiguousarray(y.swapaxes(-1, -2)).swapaxes(-1, -2), "transposed y")


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_threads(dtype: type) -> None:
    rng = np.random.default_rng(5)
    engines = [_engine("openmp", threads=n, cutoff=0) for n in (1, 2, 3, 4)]
    for a, b in (((400000,), (400000,)), ((256, 300), (300, 128)), ((20, 64, 64), (20, 64, 64))):
        x, y = rng.normal(size=a).astype(dtype), rng.normal(size=b).astype(dtype)
        one, *others = (product(e, x, y) for e in engines)
        for other in others:
            if one.ndim:
                # BLAS may use other kernels at edges: rounding differs, but not by order of sums.
                scale = np.matmul(np.abs(x), np.abs(y))
                assert np.all(np.abs(one - other) <= 8 * np.finfo(dtype).eps * scale)
            else:
                assert one == other
        for e, first in zip(engines, (one, *others), strict=True):
            assert np.array_equal(product(e, x, y), first)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("a", "b"), [((70, 60), (60, 90)), ((70, 60), (60,)), ((60,), (60, 90)),
                                      ((60,), (60,)), ((4, 9, 60), (60, 5))], ids=str)  # fmt: skip
def test_special_values(engine: Any, a: Any, b: Any, dtype: type) -> None:
    rng = np.random.default_rng(6)
    for value in (np.nan, np.inf, -np.inf, np.finfo(dtype).max):
        x, y = rng.normal(size=a).astype(dtype), rng.normal(size=b).astype(dtype)
        x[..., 3] = value
        y[..., 3 if y.ndim == 1 else 2] = [0.0, value, 1.0][rng.integers(3)]
        with np.errstate(all="ignore"):
            got, expected = product(engine, x, y), np.matmul(x, y)
        assert got is not NotImplemented
        assert np.array_equal(np.isnan(got), np.isnan(expected))
        assert np.array_equal(np.isposinf(got), np.isposinf(expected))
        assert np.array_equal(np.isneginf(got), np.isneginf(expected))


def test_memory_of_the_result_is_not_read(engine: Any) -> None:
    """What lies in fresh memory must not count, not even a nan times beta, which is 0."""
    rng = np.random.default_rng(7)
    for a, b in (((64, 50), (50, 60)), ((200, 50), (50,)), ((50,), (50, 200)), ((4, 8, 8), (8, 8))):
        x, y = rng.normal(size=a), rng.normal(size=b)
        size = np.matmul(x, y).size
        for _ in range(5):
            dirty = [np.full(size, np.nan) for _ in range(8)]
            del dirty
            assert np.all(np.isfinite(product(engine, x, y)))


def test_errors_are_numpys_to_report(engine: Any) -> None:
    x, y = np.full((40, 50), 1e200), np.full((50, 60), 1e200)
    assert product(engine, x, y) is NotImplemented
    with np.errstate(over="ignore"):
        assert np.all(product(engine, x, y) == np.inf)
    x[0, 0] = np.inf
    y[:] = 0.0
    assert product(engine, x, y) is NotImplemented
    with np.errstate(invalid="ignore"):
        assert np.isnan(product(engine, x, y)).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert product(engine, np.full((40, 50), np.nan), y) is not NotImplemented


def test_refusals(engine: Any) -> None:
    x, y = np.ones((30, 40)), np.ones((40, 50))
    small = np.ones((40, 50), np.float32)
    refused = [
        (x, small), (x.astype(np.int64), y.astype(np.int64)), (x.astype(complex), y),
        (x.astype(np.float16), y.astype(np.float16)), (x.astype(">f8"), y.astype(">f8")),
        (x.view(np.matrix), y), (x, y.view(np.ma.MaskedArray)), (x, y[:-1]),
        (np.ones(3), np.ones(4)),
        (np.ones((2, 3, 4)), np.ones((3, 4, 5))), (np.ones(()), y), (x, np.ones(())), (x, 2.0),
        ([[1.0]], y), (np.ones((3, 0)), np.ones((0, 4))), (np.ones((0, 3)), np.ones((3, 4))),
    ]  # fmt: skip
    for a, b in refused:
        assert product(engine, a, b) is NotImplemented, (a, b)
    nothing = product(engine, np.ones((0, 3, 4)), np.ones((4, 5)))
    assert nothing is NotImplemented or nothing.shape == (0, 3, 5)


@pytest.mark.parametrize("name", ["serial", "openmp"])
def test_small_products_stay_with_numpy(name: str) -> None:
    engine = _engine(name)
    for a, b in (((20, 30), (30, 40)), ((90, 90), (90,)), ((90,), (90, 90)), ((900,), (900,))):
        assert product(engine, np.ones(a), np.ones(b)) is NotImplemented
    for a, b in (((64, 64), (64, 64)), ((300, 90), (90,)), ((20000,), (20000,))):
        check(engine, np.ones(a), np.ones(b))


def test_threads_at_once() -> None:
    engines = [_engine("serial", cutoff=0), _engine("openmp", threads=2, cutoff=0)]
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(150, 200)), rng.normal(size=(200, 180))
    expected = np.matmul(x, y)
    wrong: list[str] = []

    def work(engine: Any) -> None:
        results = [product(engine, x, y) for _ in range(20)]
        if not np.allclose(results, expected, rtol=0, atol=1e-11):
            wrong.append(engine.name)

    threads = [threading.Thread(target=work, args=(engine,)) for engine in engines * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads)
    assert not wrong


# -- the library ---------------------------------------------------------------------------------


def run_code(code: str, **environment: str) -> str:
    """Run Python code in a process of its own; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", _START + code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_START = """
import os
import numpy as np
from adarray.backend import load
from adarray.base.op import OPS
tasks = lambda: len(os.listdir("/proc/self/task"))
engine = load("openmp").engine(threads=2, cutoff=0)
x, y = np.ones((300, 200)), np.ones((200, 100))
def product():
    return engine.call(OPS["matmul"], (x, y), {})
"""

needs_proc = pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc"
)


@needs_proc
def test_blas_starts_no_threads() -> None:
    _engine("openmp")
    code = """
serial = load("serial").engine(cutoff=0)
before = tasks()
assert np.all(serial.call(OPS["matmul"], (x, y), {}) == 200)
print(tasks() - before, os.environ.get("OPENBLAS_NUM_THREADS"))
assert np.all(product() == 200)
print(tasks() - before)
"""
    lines = run_code(code, OPENBLAS_NUM_THREADS="3").splitlines()
    # The second thread of our own thread pool, and nothing else; the environment is as it was.
    assert lines == ["0 3", "1"]


@needs_proc
def test_a_library_in_use_by_others_is_left_alone() -> None:
    _engine("openmp")
    code = """
from cffi import FFI
from adarray_backends.cpu import blas
ffi = FFI()
ffi.cdef("int scipy_openblas_get_num_threads(void); void scipy_openblas_set_num_threads(int);")
theirs = ffi.dlopen(str(blas.find()), ffi.RTLD_NOW | ffi.RTLD_GLOBAL)
theirs.scipy_openblas_set_num_threads(2)
before = tasks()
assert np.all(load("serial").engine(cutoff=0).call(OPS["matmul"], (x, y), {}) == 200)
assert tasks() == before
assert np.all(product() == 200)
print(theirs.scipy_openblas_get_num_threads())
print(sum("adarray-blas" in line and "r-xp" in line for line in open("/proc/self/maps")))
"""
    assert run_code(code).splitlines() == ["2", "1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_products_after_a_fork() -> None:
    _engine("openmp")
    code = """
import sys
assert np.all(product() == 200)
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0 if np.all(product() == 200) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.all(product() == 200)
print("done")
"""
    assert run_code(code) == "done"


@pytest.fixture
def fresh_blas(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that finds BLAS, as if it had not looked for one yet."""
    _engine("serial")
    from adarray_backends.cpu import blas

    monkeypatch.setattr(blas, "_functions", {})
    monkeypatch.setattr(blas, "_path", None)
    return blas


def test_without_the_wheel_numpy_computes(fresh_blas: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(fresh_blas, "find", lambda: None)
    engine = load("serial").engine(cutoff=0)
    assert product(engine, np.ones((64, 64)), np.ones((64, 64))) is NotImplemented
    assert load("serial").info()["blas"] == (
        "NumPy, with its own threads: scipy-openblas32 is not installed; install "
        "scipy-openblas32 for products on the backend's threads"
    )


def test_a_broken_library_is_named(fresh_blas: Any, monkeypatch: Any, tmp_path: Any) -> None:
    path = tmp_path / "libscipy_openblas.so"
    path.write_bytes(b"no library")
    monkeypatch.setattr(fresh_blas, "find", lambda: path)
    engine = load("serial").engine(cutoff=0)
    assert product(engine, np.ones((64, 64)), np.ones((64, 64))) is NotImplemented
    assert str(path) in load("serial").info()["blas"]


def test_status_names_the_library() -> None:
    _engine("serial")
    assert load("serial").info()["blas"].startswith("OpenBLAS ")
