"""Kernels in functions that are differentiated, batched and compiled; other forms of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_kernels import CASES

import adarray
from adarray.errors import KernelError
from adarray.kernels import ElementwiseKernel, RawKernel, ReductionKernel, from_file
from adarray.kernels.execution import Execution

SQUARE = """
// y = a x^2
extern "C" __global__ void square(const double *x, double *y, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i];
}
"""
X = np.array([1.0, 2.0, 3.0])


@pytest.fixture(params=["serial", "openmp"], autouse=True)
def _backend(request: pytest.FixtureRequest) -> Any:
    with adarray.use(request.param):
        yield


@pytest.fixture(scope="module")
def square() -> RawKernel:
    return RawKernel(SQUARE, "square")


def _called(square: RawKernel, x: Any, a: Any = 2.0) -> Any:
    y = np.zeros(3)
    square(1, 32, (x, y, a, 3))
    return y


def test_a_call_writes_into_its_arguments(square: RawKernel) -> None:
    np.testing.assert_array_equal(_called(square, X), [2, 8, 18])


def test_a_call_is_differentiated(square: RawKernel) -> None:
    g, h = adarray.grad(lambda x, a: np.sum(_called(square, x, a)), (0, 1))(X, 2.0)
    np.testing.assert_allclose(g, [4, 8, 12])
    assert h == 14


def test_warps_wrong_cases_are_right() -> None:
    """The examples of NVIDIA Warp's documentation on what its gradients get wrong."""
    overwrite = RawKernel(CASES["overwrite"].text("float64"), "overwrite")
    product = RawKernel(CASES["product"].text("float64"), "product")
    ratio = RawKernel(CASES["sum_over_norm"].text("float64"), "sum_over_norm")
    g = adarray.grad(lambda a: np.sum(overwrite.apply(1, 8, (a, np.zeros(3), 3))[1]))(X)
    np.testing.assert_array_equal(g, [2, 4, 6])
    g = adarray.grad(lambda x: np.sum(product.apply(1, 1, (x, np.zeros(1), 3))))(np.full(3, 2.0))
    np.testing.assert_array_equal(g, [4, 4, 4])
    # The product of others, not the product over the element: 0 is no special case.
    zero = np.array([0.0, 3.0, 5.0])
    g = adarray.grad(lambda x: np.sum(product.apply(1, 1, (x, np.zeros(1), 3))))(zero)
    np.testing.assert_array_equal(g, [15, 0, 0])
    x = np.array([1.0, 2.0, 2.0])
    g = adarray.grad(lambda x: np.sum(ratio.apply(1, 1, (x, np.zeros(1), 3))))(x)
    np.testing.assert_allclose(g, 1 / 3 - x * 5 / 27)


@pytest.mark.parametrize(
    "choice",
    ["x > 0 ? sqrt(x) : 0", "x <= 0 ? 0 : 2 * sqrt(x) * 0.5", "(x > 0) ? pow(x, 0.5) : (double)0"],
)
def test_what_is_not_chosen_does_not_spoil_a_derivative(choice: str) -> None:
    source = f"""
    __global__ void chosen(const double *a, double *y, int n) {{
        if (threadIdx.x < n) {{ double x = a[threadIdx.x]; y[threadIdx.x] = {choice}; }}
    }}
    """
    kernel = RawKernel(source, "chosen")

    def f(a: Any) -> Any:
        return np.sum(kernel.apply(1, 4, (a, np.zeros(3), 3)))

    a = np.array([0.0, 4.0, -1.0])
    np.testing.assert_allclose(adarray.grad(f)(a), [0, 0.25, 0])
    tangent = adarray.jvp(lambda a: kernel.apply(1, 4, (a, np.zeros(3), 3)), (a,), (np.ones(3),))
    np.testing.assert_allclose(tangent[1], [0, 0.25, 0])


def test_ties_and_kinks() -> None:
    source = """
    __global__ void kinks(const double *x, double *y) {
        y[0] = fmax(x[0], x[1]);
        y[1] = fabs(x[0]);
        y[2] = min(x[2], 3.0);
        y[3] = pow(x[0], 2.0) + pow(x[0], x[3]);
        y[4] = floor(x[2]) * x[2] + (int)x[2];
    }
    """
    kernel = RawKernel(source, "kinks")
    x = np.array([0.0, 0.0, 3.0, 2.0])
    jacobian = adarray.jacobian(lambda x: kernel.apply(1, 1, (x, np.zeros(5))))(x)
    exact = [[0.5, 0.5, 0, 0], [0, 0, 0, 0], [0, 0, 0.5, 0], [0, 0, 0, 0], [0, 0, 3, 0]]
    np.testing.assert_array_equal(jacobian, exact)


def test_what_is_overwritten_keeps_its_old_derivative() -> None:
    saxpy = RawKernel(CASES["saxpy"].text("float64"), "saxpy")

    def f(x: Any) -> Any:
        y = x * x
        saxpy(1, 8, (3, 2.0, x, y))  # y = 2 x + x^2
        saxpy(1, 8, (3, 3.0, y * y, y))  # y = 3 y^2 + y
        return np.sum(y)

    y = 2 * X + X**2
    np.testing.assert_allclose(adarray.grad(f)(X), (6 * y + 1) * (2 + 2 * X))


def test_hessian_and_products_with_it(square: RawKernel) -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(square.apply(1, 32, (x, np.zeros(3), 2.0, 3))))

    exact = np.diag(4 * np.cos(2 * X**2) - 16 * X**2 * np.sin(2 * X**2))
    np.testing.assert_allclose(adarray.hessian(f)(X), exact, atol=1e-12)
    v = np.array([1.0, -1.0, 0.5])
    np.testing.assert_allclose(adarray.hvp(f)(X, v), exact @ v)


@pytest.mark.filterwarnings("error::adarray.JitWarning")
def test_vmap_and_jit(square: RawKernel) -> None:
    many = np.stack([X, X + 1])
    results = adarray.vmap(lambda x: square.apply(1, 32, (x, np.zeros(3), 2.0, 3)))(many)
    np.testing.assert_array_equal(results, 2 * many**2)
    fast = adarray.jit(adarray.grad(lambda x, a: np.sum(_called(square, x, a) * x)))
    for k in range(5):
        x = X + k
        np.testing.assert_allclose(fast(x, 1.0 + k), 3 * (1 + k) * x**2)


@pytest.mark.filterwarnings("error::adarray.JitWarning")
def test_jit_of_second_derivatives_and_batches(square: RawKernel) -> None:
    def f(x: Any) -> Any:
        y = square.apply(1, 32, (x, np.zeros(3), 2.0, 3))
        return np.sum(np.sin(y) * y)

    product = adarray.jit(lambda x, v: adarray.hvp(f)(x, v))
    hessian = adarray.jit(adarray.hessian(f))
    batched = adarray.jit(adarray.vmap(adarray.grad(f)))
    for k in range(4):  # compiled from the second call on
        x, v = X / 2 + k / 4, np.array([1.0, -1.0, 0.5 + k])
        y = 2 * x * x
        second = 4 * (np.sin(y) + y * np.cos(y)) + 16 * x * x * (2 * np.cos(y) - y * np.sin(y))
        np.testing.assert_allclose(product(x, v), second * v, rtol=1e-10)
        np.testing.assert_allclose(hessian(x), np.diag(second), rtol=1e-10, atol=1e-12)
        many = np.stack([x, x + 1])
        slope = 4 * many * (np.sin(2 * many**2) + 2 * many**2 * np.cos(2 * many**2))
        np.testing.assert_allclose(batched(many), slope, rtol=1e-10)


def test_strided_arrays(square: RawKernel) -> None:
    x = np.arange(6.0)[::2]
    y = np.zeros(6)
    square(1, 32, (x, y[::2], 1.0, 3))
    np.testing.assert_array_equal(y, [0, 0, 4, 0, 16, 0])


def test_plain_arrays_need_no_backend(square: RawKernel) -> None:
    with adarray.use("numpy"):
        np.testing.assert_array_equal(_called(square, X), [2, 8, 18])


def test_a_struct_of_numbers_is_a_tuple() -> None:
    source = """
    struct Params { double scale; int n; double shift; };
    __global__ void affine(double *x, const Params p) {
        if (threadIdx.x < p.n) x[threadIdx.x] = p.scale * x[threadIdx.x] + p.shift;
    }
    """
    kernel = RawKernel(source, "affine")

    def f(x: Any, scale: Any) -> Any:
        return np.sum(kernel.apply(1, 8, (x, (scale, 2, 0.5))))

    g, h = adarray.grad(f, (0, 1))(X, 3.0)
    np.testing.assert_array_equal(g, [3, 3, 1])
    assert h == 3
    with pytest.raises(KernelError, match="the struct 'p' has 3 numbers, and 2 were given"):
        kernel(1, 8, (np.ones(3), (1.0, 2)))


def test_options_and_files(tmp_path: Path) -> None:
    source = """
    #ifndef POWER
    #define POWER 1
    #endif
    #define CUBE(x) ((x) * (x) * (x))
    __global__ void first(double *x) { x[threadIdx.x] += POWER; }
    __global__ void second(double *x) {
    #if POWER > 1 && defined(CUBE)
        x[threadIdx.x] = CUBE(x[threadIdx.x]);
    #else
        x[threadIdx.x] = 0;
    #endif
    }
    """
    path = tmp_path / "kernels.cu"
    path.write_text(source)
    first, second = (from_file(path, n, ("-DPOWER=3",)) for n in ("first", "second"))
    x = X.copy()
    first(1, 3, (x,))
    second(1, 3, (x,))
    np.testing.assert_array_equal(x, (X + 3) ** 3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_one_element(dtype: str) -> None:
    kernel = ElementwiseKernel(
        "T x, raw T table, int32 k", "T y, T z",
        "y = table[k] * half_of(x); z = x > 0 ? x : T(0)", "pair",
        "__device__ double half_of(double x) { return x / 2; }",
    )  # fmt: skip
    x = np.array([[1.0, -2.0], [3.0, 4.0]], dtype)
    table = np.array([5.0, 7.0], dtype)
    k = np.array([0, 1], np.int32)
    y, z = kernel(x, table, k)
    np.testing.assert_allclose(y, x / 2 * table)
    np.testing.assert_allclose(z, np.maximum(x, 0))

    def f(x: Any, table: Any) -> Any:
        y, z = kernel(x, table, k)
        return np.sum(y * y) + np.sum(z)

    g, h = adarray.grad(f, (0, 1))(x, table)
    np.testing.assert_allclose(g, x / 2 * table**2 + (x > 0), rtol=1e-6)
    np.testing.assert_allclose(h, np.sum(x**2, 0) / 2 * table, rtol=1e-6)


@pytest.mark.parametrize("axis", [None, 0, (1,), -1, (0, 2)])
def test_reductions(axis: Any) -> None:
    norm = ReductionKernel("T x, T w", "T y", "w * x * x", "a + b", "y = sqrt(a)", "0", "norm")
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 4, 5)), rng.uniform(1, 2, 5)
    exact = np.sqrt(np.sum(w * x * x, axis))
    np.testing.assert_allclose(norm(x, w, axis=axis), exact)
    full = norm(x, w, axis=axis, keepdims=True)
    assert np.shape(full) == np.shape(np.sum(x, axis, keepdims=True))
    g, h = adarray.grad(lambda x, w: np.sum(norm(x, w, axis=axis)), (0, 1))(x, w)
    reference = adarray.grad(lambda x, w: np.sum(np.sqrt(np.sum(w * x * x, axis))), (0, 1))
    for a, b in zip((g, h), reference(x, w), strict=True):
        np.testing.assert_allclose(a, b)


def test_a_reduction_that_multiplies() -> None:
    product = ReductionKernel("T x", "T y", "x", "a * b", "y = a", "1", "product")
    x = np.array([2.0, 3.0, 0.5])
    np.testing.assert_allclose(adarray.grad(product)(x), [1.5, 1.0, 6.0])


def test_figures_of_adjoints() -> None:
    figures = {}
    for name in ("lattice_boltzmann", "tiled_matmul", "saxpy", "product"):
        case = CASES[name]
        kernel = RawKernel(case.text("float32"), name)
        args = case.args(np.random.default_rng(0), np.float32)
        figures[name] = kernel.explain(case.grid, case.block, args)
    lattice = figures["lattice_boltzmann"]
    assert [lattice[k] for k in ("taped", "tape_bytes", "atomics", "copies")] == [0, 0, 0, []]
    assert figures["tiled_matmul"]["taped"] == 0
    assert {"As_v", "Bs_v"} <= set(figures["tiled_matmul"]["recomputed"])
    assert figures["saxpy"]["atomics"] == 0
    assert figures["saxpy"]["atomics_run"] == 3  # the derivative by a number, once for each block
    assert figures["product"] | {"copies": None} == {
        "taped": 1, "tape_bytes": 8 * 4, "atomics": 0, "warp_sums": 0, "block_sums": 0,
        "atomics_run": 0, "recomputed": ["x_v"], "copies": None,
    }  # fmt: skip


def test_what_a_block_shares_is_added_once() -> None:
    case = CASES["affine_rows"]
    kernel = RawKernel(case.text("float64"), case.name)
    # The last block has threads without an element.
    figures = kernel.explain(case.grid, case.block, case.args(np.random.default_rng(0), float))
    assert [figures[k] for k in ("atomics", "warp_sums", "block_sums")] == [0, 1, 2]
    assert figures["atomics_run"] == 4 * 2 + -(-150 * 3 // 32)


def test_the_adjoint_can_be_read(square: RawKernel) -> None:
    text = square.adjoint_source(1, 32, (X, np.zeros(3), 2.0, 3), by=("x",))
    assert "void square_adjoint(const double *__restrict__ x, const double a" in text
    assert "a__sum" not in text
    assert "x__b[(int64_t)i] = x_v__b;" in text
    with pytest.raises(KernelError, match=r"\['n'\] are no floating-point parameters"):
        square.adjoint_source(1, 32, (X, np.zeros(3), 2.0, 3), by=("n",))


@pytest.mark.parametrize("cells", [10, 20_000])
def test_threads_add_to_elements_of_others(cells: int) -> None:
    source = """
    __global__ void gather(const double *x, const int *at, double *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[at[i]] * (i + 1);
    }
    """
    kernel = RawKernel(source, "gather")
    at = np.arange(300, dtype=np.int32) * 7 % 5

    def f(x: Any) -> Any:
        return np.sum(kernel.apply(40, 8, (x, at, np.zeros(300), 300)))

    exact = np.bincount(at, np.arange(300) + 1, cells)
    np.testing.assert_allclose(adarray.grad(f)(np.ones(cells)), exact)


def test_votes_count_the_threads_that_come_to_them() -> None:
    source = """
    __global__ void votes(const int *n, int *y) {
        int t = threadIdx.x;
        y[t] = 0;
        if (t < 8) {
            y[t] = __reduce_add_sync(0xff, n[t]) + (int)__ballot_sync(0xff, n[t] > 3);
        } else if (t >= 16) {
            y[t] = __reduce_max_sync(__activemask(), n[t]);
        }
    }
    """
    n = np.arange(40, dtype=np.int32)
    y = RawKernel(source, "votes").apply(1, 40, (n, np.zeros(40, np.int32)))
    exact = [28 + 0b11110000] * 8 + [0] * 8 + [31] * 16 + [39] * 8
    np.testing.assert_array_equal(y, exact)


def test_what_is_only_added_to_keeps_its_derivative() -> None:
    source = """
    __global__ void add(const double *x, double *y, double *z, int n) {
        int i = threadIdx.x;
        if (i >= n) return;
        y[i] = y[i] + x[i] * x[i] - 1 / x[i];
        z[i] = z[i] * z[i] + 2 / x[i] + y[i] / 3;
    }
    """
    kernel = RawKernel(source, "add")
    x, y, z = X + 0.5, X - 1, X / 3
    text = kernel.adjoint_source(1, 4, (x, y, z, 3))
    assert "y__b[(int64_t)i] = 0.0" not in text  # the old value's derivative is the new one's
    assert "z__b[(int64_t)i] = 0.0" not in text  # what comes later is stored, not added

    def f(x: Any, y: Any, z: Any) -> Any:
        y, z = kernel.apply(1, 4, (x, y, z, 3))
        return np.sum(np.sin(y) * z)

    def reference(x: Any, y: Any, z: Any) -> Any:
        y = y + x * x - 1 / x
        return np.sum(np.sin(y) * (z * z + 2 / x + y / 3))

    exact = adarray.grad(reference, (0, 1, 2))(x, y, z)
    for a, b in zip(adarray.grad(f, (0, 1, 2))(x, y, z), exact, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


BATCHED = """
__global__ void step(const double *x, const double *w, double *y, double a, int n) {
    __shared__ double s[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = a * s[threadIdx.x] * w[0] + y[i] * w[i] * s[0];
}
"""


def _step(x: Any, w: Any, y: Any, a: Any) -> Any:
    first = x[np.array([0, 0, 0, 0, 4, 4])]
    return a * x * w[0] + y * w * first


@pytest.mark.parametrize(
    "members", ["xa", "xwya", *(pytest.param(m, marks=pytest.mark.slow) for m in ("x", "w", "ya"))]
)
def test_members_of_a_batch_are_layers_of_the_grid(
    members: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = RawKernel(BATCHED, "step")
    launches: list[Any] = []
    run = Execution._run

    def counted(self: Any, kernel: Any, launch: Any, *args: Any) -> int:
        launches.append((kernel.name, launch.grid))
        return run(self, kernel, launch, *args)

    monkeypatch.setattr(Execution, "_run", counted)
    rng = np.random.default_rng(0)
    axes = tuple(0 if n in members else None for n in "xwya")
    x, w, y = (rng.normal(size=(3, 6) if n in members else 6) for n in "xwy")
    a = rng.normal(size=3) if "a" in members else 0.7

    def f(x: Any, w: Any, y: Any, a: Any) -> Any:
        return kernel.apply(2, 4, (x, w, y, a, 6))

    def loss(f: Any) -> Any:
        return lambda x, w, y, a: np.sum(np.sin(f(x, w, y, a)))

    result = adarray.vmap(f, axes)(x, w, y, a)
    assert launches == [("step_members", (2, 1, 3))]
    np.testing.assert_allclose(result, adarray.vmap(_step, axes)(x, w, y, a))
    every = (0, 1, 2, 3)
    for outer in (
        lambda g: adarray.vmap(adarray.grad(loss(g), every), axes)(x, w, y, a),
        lambda g: adarray.grad(
            lambda *args: np.sum(adarray.vmap(loss(g), axes)(*args)), every
        )(x, w, y, a),
        lambda g: (adarray.vmap(
            lambda x, w, y, a: adarray.jvp(loss(g), (x, w, y, a), (x, w, y, a))[1], axes
        )(x, w, y, a),),
        lambda g: adarray.vmap(
            lambda x, w, y, a: adarray.jvp(
                adarray.grad(loss(g), every), (x, w, y, a), (x, w, y, a)
            )[1], axes
        )(x, w, y, a),
        lambda g: (adarray.vmap(adarray.vmap(g, axes), axes)(
            *(np.stack([v, v + 1]) if k is not None else v
              for v, k in zip((x, w, y, a), axes, strict=True))
        ),),
    ):  # fmt: skip
        for p, q in zip(outer(f), outer(_step), strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-13)


def test_kernels_that_use_z_are_run_member_by_member() -> None:
    source = """
    __global__ void layers(const double *x, double *y) {
        int i = blockIdx.z * blockDim.x + threadIdx.x;
        y[i] = x[i] * gridDim.z;
    }
    """
    kernel = RawKernel(source, "layers")
    x = np.arange(24.0).reshape(3, 8)
    y = adarray.vmap(lambda x: kernel.apply((1, 1, 2), 4, (x, np.zeros(8))))(x)
    np.testing.assert_array_equal(y, 2 * x)
