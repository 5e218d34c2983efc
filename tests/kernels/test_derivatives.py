"""Kernels against NumPy, tangents against differences, adjoints against tangents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_kernels import CASES, MORE, Case
from kernel_backends import BACKENDS

import adarray
from adarray.kernels import RawKernel, ownership

# The core has the twelve kernels of the design, and those that people publish once each.
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in MORE]
NAMES = [n for n in CASES if n not in MORE] + SLOW


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(map(np.asarray, x)) if isinstance(x, tuple) else (np.asarray(x),)


def _setup(case: Case, dtype: str) -> tuple[RawKernel, list[Any]]:
    kernel = RawKernel(case.text(dtype), case.kernel_name(dtype), case.options)
    return kernel, case.args(np.random.default_rng(0), np.dtype(dtype).type)


def _function(case: Case, kernel: RawKernel, args: list[Any], dtype: str) -> Any:
    def f(*by: Any) -> Any:
        arguments = list(args)
        for i, x in zip(case.by, by, strict=True):
            arguments[i] = x
        return kernel.apply(case.grid, case.block, arguments, shared_mem=case.shared_bytes(dtype))

    return f


def _directions(case: Case, args: list[Any], seed: int = 1) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return tuple(
        rng.normal(size=np.shape(args[i])).astype(np.asarray(args[i]).dtype)[()] for i in case.by
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.expected is not None])
def test_the_kernel_computes_what_numpy_does(name: str, dtype: str, backend: str) -> None:
    case = CASES[name]
    kernel, args = _setup(case, dtype)
    before = [np.copy(x) for x in args]
    wanted = _tuple(case.expected(*[np.copy(x) for x in args]))
    with adarray.use(backend):
        results = _tuple(_function(case, kernel, args, dtype)(*(args[i] for i in case.by)))
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    for x, y in zip(results, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
        assert x.dtype == dtype
    for x, y in zip(args, before, strict=True):
        np.testing.assert_array_equal(x, y)  # arguments are as they were


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_tangents_are_differences(name: str, backend: str) -> None:
    case = CASES[name]
    kernel, args = _setup(case, "float64")
    f = _function(case, kernel, args, "float64")
    x = tuple(args[i] for i in case.by)
    t = _directions(case, args)
    h = 1e-6
    with adarray.use(backend):
        plus = _tuple(f(*(a + h * b for a, b in zip(x, t, strict=True))))
        minus = _tuple(f(*(a - h * b for a, b in zip(x, t, strict=True))))
        _, tangents = adarray.jvp(f, x, t)
    for p, m, d in zip(plus, minus, _tuple(tangents), strict=True):
        np.testing.assert_allclose(d, (p - m) / (2 * h), rtol=1e-6, atol=1e-7)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_adjoints_are_transposed_tangents(name: str, dtype: str, backend: str) -> None:
    case = CASES[name]
    kernel, args = _setup(case, dtype)
    f = _function(case, kernel, args, dtype)
    x = tuple(args[i] for i in case.by)
    t = _directions(case, args)
    rng = np.random.default_rng(2)
    with adarray.use(backend):
        out, tangent = adarray.jvp(f, x, t)
        g = tuple(rng.normal(size=np.shape(o)).astype(dtype) for o in _tuple(out))
        out_again, pullback = adarray.vjp(f, *x)
        cotangents = _tuple(pullback(g if len(g) > 1 else g[0]))
    left = sum(np.vdot(a, b).astype(float) for a, b in zip(g, _tuple(tangent), strict=True))
    parts = [np.vdot(a, b).astype(float) for a, b in zip(cotangents, t, strict=True)]
    scale = sum(abs(p) for p in parts) + abs(left) + 1e-30
    assert abs(left - sum(parts)) / scale < (1e-13 if dtype == "float64" else 2e-5)
    for a, b in zip(_tuple(out), _tuple(out_again), strict=True):
        # Atomic additions come in another order each time.
        np.testing.assert_allclose(a, b, rtol=1e-6 if dtype == "float32" else 1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "openmp"])
@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_are_differences_of_first(name: str, backend: str) -> None:
    case = CASES[name]
    kernel, args = _setup(case, "float64")
    f = _function(case, kernel, args, "float64")
    x = tuple(args[i] for i in case.by)
    t = _directions(case, args)
    rng = np.random.default_rng(3)
    argnums = tuple(range(len(x)))

    def loss(*by: Any) -> Any:
        out = f(*by)
        out = out if isinstance(out, tuple) else (out,)
        return sum(np.sum(w * np.sin(o)) for w, o in zip(weights, out, strict=True))

    h = 1e-6
    with adarray.use(backend):
        weights = [rng.normal(size=np.shape(o)) for o in _tuple(f(*x))]
        gradient = adarray.grad(loss, argnums)
        plus = _tuple(gradient(*(a + h * b for a, b in zip(x, t, strict=True))))
        minus = _tuple(gradient(*(a - h * b for a, b in zip(x, t, strict=True))))
        tangents = _tuple(adarray.jvp(gradient, x, t)[1])
    for p, m, d in zip(plus, minus, tangents, strict=True):
        np.testing.assert_allclose(d, (p - m) / (2 * h), rtol=2e-5, atol=2e-6)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MORE)
def test_adjoints_of_published_kernels(name: str) -> None:
    test_adjoints_are_transposed_tangents(name, "float64", "serial")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["lattice_boltzmann", "tree_dot", "warp_softmax", "affine_rows"])
def test_members_of_a_batch_are_each_on_its_own(name: str, backend: str) -> None:
    case = CASES[name]
    kernel, args = _setup(case, "float64")
    f = _function(case, kernel, args, "float64")
    x = tuple(args[i] for i in case.by)
    members = [tuple(scale * a for a in x) for scale in (1.0, 0.7, 1.2)]
    stacked = tuple(np.stack(parts) for parts in zip(*members, strict=True))

    def loss(*by: Any) -> Any:
        return np.sum(np.sin(f(*by)))

    gradient = adarray.grad(loss, tuple(range(len(x))))
    with adarray.use(backend):
        for one, many in ((f, adarray.vmap(f)), (gradient, adarray.vmap(gradient))):
            each = [_tuple(one(*m)) for m in members]
            for p, q in zip(_tuple(many(*stacked)), zip(*each, strict=True), strict=True):
                np.testing.assert_allclose(p, np.stack(q), rtol=1e-11, atol=1e-12)


SCALES = """
extern "C" __global__ void scales(const double *c, const int *at, double *y, int n, int trips) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int j = at[i];
    double sum = 0;
    for (int k = 0; k < trips; k++) sum += (k + 1) * c[j] * c[j];
    y[i] = sum;
}
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("trips", [0, 3])
def test_what_iterations_share_is_added_behind_the_loop(trips: int, backend: str) -> None:
    kernel = RawKernel(SCALES, "scales")
    at = np.array([1, 0, 1, 2, 1] if trips else [7] * 5, np.int32)  # 7 is out of range
    c = np.array([0.5, 2.0, -1.0])
    if trips:
        figures = kernel.explain(2, 4, (c, at, np.zeros(5), 5, trips))
        assert figures["atomics_run"] == 5  # one for each thread

    def f(c: Any) -> Any:
        return np.sum(kernel.apply(2, 4, (c, at, np.zeros(5), 5, trips)))

    with adarray.use(backend):
        gradient = np.asarray(adarray.grad(f)(c))
    expected = 12.0 * c * [1, 3, 1] if trips else 0 * c
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_blocks_add_to_one_small_array(backend: str) -> None:
    text = """
    __global__ void mix(const double *w, const double *x, double *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = 0;
        for (int k = 0; k < n; k++) y[i] += w[k] * w[k] * cos((k + 1) * x[i]);
    }
    """
    kernel = RawKernel(text, "mix")
    w, x = np.linspace(-1, 1, 40), np.linspace(0, 3, 200 * 32)

    def f(w: Any) -> Any:
        return np.sum(kernel.apply(200, 32, (w, x, np.zeros_like(x), w.size)))

    with adarray.use(backend):
        gradient = np.asarray(adarray.grad(f)(w))
    expected = 2 * w * np.cos(np.outer(np.arange(1, 41), x)).sum(1)
    np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_elements_that_are_touched_once(backend: str) -> None:
    text = """
    __global__ void spaced(const double *x, const double *z, double *y, double *u, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        y[2 * i] = x[i] * x[i] * z[i];
        u[i] = z[i] * x[i];
        u[i] += y[2 * i + 1];
    }
    """
    kernel = RawKernel(text, "spaced")
    rng = np.random.default_rng(0)
    x, z, y, u = (rng.normal(size=n) for n in (6, 6, 14, 6))
    v, w = rng.normal(size=14), rng.normal(size=6)

    def f(*by: Any) -> Any:
        results = kernel.apply(2, 4, (*by, 6))
        return np.sum(v * results[0]) + np.sum(w * results[1])

    with adarray.use(backend):
        by_x, by_z, by_y, by_u = map(np.asarray, adarray.grad(f, (0, 1, 2, 3))(x, z, y, u))
        (again,) = map(np.asarray, adarray.grad(f, (0,))(x, z, y, u))
    even = v[:12:2]
    np.testing.assert_allclose(by_x, 2 * even * x * z + w * z, rtol=1e-13)
    np.testing.assert_allclose(again, by_x, rtol=1e-15)
    np.testing.assert_allclose(by_z, even * x * x + w * x, rtol=1e-13)
    by_old = np.array(v)
    by_old[:12:2] = 0
    by_old[1:12:2] += w
    np.testing.assert_allclose(by_y, by_old, rtol=1e-13)
    np.testing.assert_array_equal(by_u, 0 * u)


def test_derivatives_of_what_is_read_once_are_stored() -> None:
    case = CASES["lattice_boltzmann"]
    kernel = RawKernel(case.text("float32"), case.name)
    args = case.args(np.random.default_rng(0), np.float32)
    text = kernel.adjoint_source(case.grid, case.block, args, by=("src", "omega"))
    (stored,) = [line for line in text.split("\n") if "src__b[" in line]
    assert stored.strip().endswith("] = src_v__b;")
    assert "const float *__restrict__ dst__b" in text
    by_dst = kernel.adjoint_source(case.grid, case.block, args, by=("src", "dst"))
    assert "dst__b[(int64_t)(k_4__r * nx * ny + y * nx + x)] = 0.0f;" in by_dst


@pytest.mark.parametrize(
    ("index", "grid", "block", "distinct"),
    [
        ("blockIdx.x * blockDim.x + threadIdx.x", 3, 4, True),
        ("blockIdx.x * blockDim.x + threadIdx.x", (3, 2), 4, False),
        ("(blockIdx.y * gridDim.x + blockIdx.x) * 4 + threadIdx.x", (3, 2), 4, True),
        ("blockIdx.x * 3 + threadIdx.x", 3, 4, False),
        ("5 + 2 * (blockIdx.x + gridDim.x * threadIdx.x)", 3, 4, True),
        ("threadIdx.x * n + blockIdx.x", 3, 4, True),
        ("threadIdx.x * (n - 4) + blockIdx.x", 3, 4, False),
        ("threadIdx.x / 2 + blockIdx.x * 2", 3, 4, False),
        ("threadIdx.x", 1, 4, True),
        ("threadIdx.x + blockIdx.x * 4 - 1 + 1", 3, 4, False),
        ("(unsigned char)(threadIdx.x * 128) + blockIdx.x * 4", 3, 4, False),
    ],
)
def test_indices_that_differ_from_thread_to_thread(
    index: str, grid: Any, block: int, distinct: bool
) -> None:
    text = f"""
    __global__ void k(const double *x, double *y, int n) {{
        int i = {index};
        atomicAdd(y + n - n, x[i] * x[i]);
    }}
    """
    kernel = RawKernel(text, "k")
    x = np.linspace(1, 2, 256)
    _, launch = kernel._bound(grid, block, (x, np.zeros(1), 5), 0)
    assert ("x" in ownership.distinct(kernel._execution.program, launch)) == distinct
    with adarray.use("serial"):
        gradient = adarray.grad(lambda x: kernel.apply(grid, block, (x, np.zeros(1), 5))[0])(x)
        count = RawKernel(text.replace("y + n - n, x[i] * x[i]", "y + i, 1.0"), "k")
        touched = count.apply(grid, block, (x, np.zeros(256), 5))
    np.testing.assert_allclose(gradient, 2 * touched * x, rtol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_of_a_warp_with_the_same_value(backend: str) -> None:
    text = """
    __global__ void same(const double *x, const int *bin, double *y, int *all, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, whole = 7;
        unsigned mates = __match_any_sync(0xffffffff, bin[i]);
        unsigned signs = __match_any_sync(__activemask(), x[i] > 0 ? 1.5 : -1.5);
        unsigned every = __match_all_sync(~0u, bin[i] < n, &whole);
        if (bin[i] < 2) every ^= __match_any_sync(__activemask(), (long long)bin[i]);
        double sum = 0;
        for (int k = 0; k < 32; k++) {
            double other = __shfl_sync(0xffffffff, x[i], k);
            if (mates >> k & 1) sum += other * other;
            if ((signs >> k & 1) == 0) sum += other;
        }
        y[i] = sum * x[i];
        all[2 * i] = whole;
        all[2 * i + 1] = every;
    }
    """
    kernel = RawKernel(text, "same")
    rng = np.random.default_rng(0)
    x, bins = rng.normal(size=64), rng.integers(0, 5, 64).astype(np.int32)
    bins[:32] %= 3
    warps = np.repeat([0, 1], 32)
    mates = (bins[:, None] == bins) & (warps[:, None] == warps)
    others = ((x[:, None] > 0) != (x > 0)) & (warps[:, None] == warps)
    w = rng.normal(size=64)

    def f(x: Any) -> Any:
        return np.sum(w * kernel.apply(2, 32, (x, bins, np.zeros(64), _all(), 3))[0])

    def _all() -> Any:
        return np.zeros(128, np.int32)

    with adarray.use(backend):
        y, bits = map(np.asarray, kernel.apply(2, 32, (x, bins, np.zeros(64), _all(), 3)))
        gradient = np.asarray(adarray.grad(f)(x))
    sums = mates @ x**2 + others @ x
    np.testing.assert_allclose(y, sums * x, rtol=1e-13)
    by_other = w * x @ (2 * mates * x + others)
    np.testing.assert_allclose(gradient, w * sums + by_other, rtol=1e-12)
    lanes = 1 << np.arange(32, dtype=np.uint32)
    few = np.where(bins < 2, (mates * (bins < 2)).reshape(64, 2, 32).sum(1) @ lanes, 0)
    every = np.where(warps == 0, 0xFFFFFFFF, 0) ^ few
    np.testing.assert_array_equal(bits[::2], warps == 0)
    np.testing.assert_array_equal(bits[1::2].view(np.uint32), every)
