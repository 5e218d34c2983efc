"""Gradients of kernels that one thread runs: overwritten memory is restored step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_backends import BACKENDS
from one_thread_kernels import PATTERNS
from random_one_thread import ARRAYS, SIZE, source

import adarray
from adarray.core.dispatch import apply
from adarray.core.protocol import finish
from adarray.errors import KernelError
from adarray.kernels import RawKernel
from adarray.kernels.execution import Execution
from adarray.kernels.geometry import Launch
from adarray.kernels.operation import Operation
from adarray.kernels.ownership import Ownership


class _Call:
    """A kernel with arguments."""

    def __init__(self, name: str, dtype: str = "float64", limit: int = 1 << 30) -> None:
        pattern = PATTERNS[name]
        args = pattern.args(pattern.size, np.random.default_rng(0))
        args = [x.astype(dtype) if getattr(x, "dtype", None) == "float64" else x for x in args]
        real = "double" if dtype == "float64" else "float"
        self.kernel = RawKernel(pattern.source.replace("REAL", real), "k", memory_limit=limit)
        self.execution: Execution = self.kernel._execution
        operands, self.launch = self.kernel._bound(1, 1, args, 0)
        names = self.kernel._operation.operands
        self.values = dict(zip(names, operands, strict=True)) | dict(self.launch.integers)
        dtypes = self.execution.dtypes
        self.inputs = frozenset(n for n in names if dtypes[n].startswith("float"))
        rng = np.random.default_rng(1)
        self.cotangents = {
            n: rng.normal(size=self.values[n].shape).astype(dtype)
            for n in self.execution.outputs
            if n in self.inputs
        }
        self.directions = {
            n: np.asarray(rng.normal(size=np.shape(self.values[n])), dtype)[()]
            for n in sorted(self.inputs)
        }
        self.args = args

    def value(self, at: dict[str, Any]) -> float:
        """Return the number whose gradient is wanted."""
        results = self.execution.results(self.launch, self.values | at)
        return float(sum(np.sum(g * results[n]) for n, g in self.cotangents.items()))

    def gradients(self) -> dict[str, Any]:
        """Return derivatives by all floating-point parameters."""
        return self.execution.gradients(self.launch, self.values, self.cotangents, self.inputs)

    def moved(self, by: float) -> dict[str, Any]:
        """Return the parameters some way along the directions."""
        return {n: self.values[n] + by * t for n, t in self.directions.items()}


def _as_many_threads(
    self: Execution, launch: Launch, inputs: Any, checkpoints: bool = False
) -> Any:
    return self.of_facts(launch, inputs, Ownership(frozenset(self.buffers)), checkpoints)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "openmp"])
@pytest.mark.parametrize("name", PATTERNS)
def test_gradients_are_those_of_a_tape_of_reads(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with adarray.use(backend):
        call = _Call(name)
        gradients = call.gradients()
        with monkeypatch.context() as m:
            m.setattr(Execution, "of_one_thread", _as_many_threads)
            wanted = _Call(name).gradients()
        for n in call.inputs:
            np.testing.assert_allclose(gradients[n], wanted[n], rtol=1e-11, atol=1e-12)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PATTERNS)
def test_gradients_against_tangents_and_differences(name: str) -> None:
    with adarray.use("serial"):
        call = _Call(name)
        gradients = call.gradients()
        along = sum(np.sum(gradients[n] * t) for n, t in call.directions.items())
        tangents = call.execution.tangents(call.launch, call.values, call.directions)
        pushed = sum(np.sum(g * tangents[n]) for n, g in call.cotangents.items())
        np.testing.assert_allclose(along, pushed, rtol=1e-11)
        step = 1e-6
        difference = (call.value(call.moved(step)) - call.value(call.moved(-step))) / (2 * step)
        np.testing.assert_allclose(along, difference, rtol=2e-6, atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PATTERNS)
def test_second_derivatives(name: str) -> None:
    with adarray.use("serial"):
        call = _Call(name)
        second = call.execution.gradient_tangents(
            call.launch, call.values, call.cotangents, call.inputs, call.directions, {}
        )
        step = 1e-6
        around = []
        for by in (step, -step):
            values = call.values | call.moved(by)
            around.append(
                call.execution.gradients(call.launch, values, call.cotangents, call.inputs)
            )
        for n in call.inputs:
            difference = (around[0][n] - around[1][n]) / (2 * step)
            np.testing.assert_allclose(second[n], difference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["lu", "durbin", "nbody", "swap", "used_after", "floyd_warshall"])
def test_single_precision(name: str) -> None:
    with adarray.use("serial"):
        single, double = _Call(name, "float32"), _Call(name)
        gradients, wanted = single.gradients(), double.gradients()
        for n in single.inputs:
            assert gradients[n].dtype == np.float32
            np.testing.assert_allclose(gradients[n], wanted[n], rtol=2e-3, atol=2e-3)


def test_arguments_stay_as_they_are() -> None:
    with adarray.use("serial"):
        call = _Call("lu")
        before = call.values["A"].copy()
        call.gradients()
        np.testing.assert_array_equal(call.values["A"], before)


def _taped(name: str, *, size: int) -> int:
    """Return how many values the gradient of a pattern puts on its tape."""
    pattern = PATTERNS[name]
    args = pattern.args(size, np.random.default_rng(0))
    kernel = RawKernel(pattern.source.replace("REAL", "double"), "k")
    with adarray.use("serial"):
        bytes_: int = kernel.explain(1, 1, args)["tape_bytes"]
    return bytes_ // 8


@pytest.mark.parametrize("name", ["seidel", "heat", "matmul", "matmul_in_place"])
def test_linear_loops_have_no_tape_and_no_forward_half(name: str) -> None:
    assert _taped(name, size=6) == 0
    with adarray.use("serial"):
        call = _Call(name)
        adjoint = call.execution.adjoint(call.launch, call.inputs)
        assert adjoint.copies == frozenset()
        assert not adjoint.counting.body


@pytest.mark.parametrize(
    "name",
    ["lu", "lu_in_place", "elimination", "cholesky", "trisolv", "recurrence", "last_of_a_loop"],
)
def test_what_is_not_overwritten_before_it_is_needed_is_not_taped(name: str) -> None:
    assert _taped(name, size=12) == 0


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("floyd_warshall", 12**3),  # one for each write, not for each of three reads
        ("floyd_warshall_if", 12**3),  # truth values
        ("burgers", 3 * 10),  # of u, when it is overwritten; v and all reads are free
        ("nbody", 3 * 24),
        ("in_place_map", 3 * 12),
        ("logistic", 12),
    ],
)
def test_values_on_the_tape(name: str, values: int) -> None:
    assert _taped(name, size=12) == values


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(k, marks=pytest.mark.slow) for k in range(6, 60))]
)
def test_random_loops(seed: int) -> None:
    kernel = RawKernel(source(seed), "k")
    rng = np.random.default_rng(seed)
    args = [*(rng.normal(size=SIZE) for _ in ARRAYS), rng.integers(0, 8, 8), 0.3, 4]
    with adarray.use("serial"):
        execution = kernel._execution
        operands, launch = kernel._bound(1, 1, args, 0)
        values = dict(zip(kernel._operation.operands, operands, strict=True))
        values |= dict(launch.integers)
        inputs = frozenset((*ARRAYS, "c"))
        cotangents = {n: rng.normal(size=SIZE) for n in execution.outputs if n in inputs}
        directions = {n: rng.normal(size=np.shape(values[n])) for n in sorted(inputs)}
        gradients = execution.gradients(launch, values, cotangents, inputs)
        tangents = execution.tangents(launch, values, directions)
        pulled = sum(np.sum(gradients[n] * t) for n, t in directions.items())
        pushed = sum(np.sum(g * tangents[n]) for n, g in cotangents.items())
        np.testing.assert_allclose(pulled, pushed, rtol=1e-9, atol=1e-9)


def test_a_short_tape_gives_the_same_gradient() -> None:
    source = """
    __global__ void k(double *x, double r, long long n) {
        double s = x[0];
        for (long long i = 0; i < n; i++) s = r * s * (1 - s);
        x[0] = s;
    }"""
    gradients = []
    with adarray.use("serial"):
        for limit in (1 << 30, 8000):
            kernel = RawKernel(source, "k", memory_limit=limit)
            f = lambda x, r, k=kernel: np.sum(k.apply(1, 1, (x, r, 5000)))  # noqa: E731
            gradients.append(adarray.grad(f, (0, 1))(np.array([0.3]), 2.9))
    np.testing.assert_allclose(gradients[0][1], gradients[1][1], rtol=1e-12)
    np.testing.assert_allclose(gradients[0][0], gradients[1][0], rtol=1e-12, atol=1e-300)


def test_a_tape_of_old_values_above_the_limit_is_an_error() -> None:
    with adarray.use("serial"):
        call = _Call("floyd_warshall", limit=256)
        with pytest.raises(KernelError, match="memory_limit=256"):
            call.gradients()


@pytest.mark.parametrize("name", ["lu", "cholesky", "trisolv", "recurrence", "durbin"])
def test_results_need_not_be_computed_again(name: str) -> None:
    call = _Call(name)
    derivatives = []
    for keeps in (False, True):
        operation = Operation("k", Execution(call.kernel.kernel, 1 << 30), keeps)
        xs = [call.values[n] for n in operation.operands]
        launch = call.launch._replace(active=(True,) * len(xs))

        def f(*xs: Any, operation: Operation = operation, launch: Launch = launch) -> Any:
            results = finish(apply(operation.op, xs, {"launch": launch}), None, "k")
            results = results if isinstance(results, tuple) else (results,)
            total = sum(np.sum(np.sin(r)) for r in results)
            for r in results:
                r[...] = 0  # gradients are those of what was there
            return total

        g = adarray.grad(f, tuple(range(len(xs))))
        along = np.cos(np.arange(xs[0].size)).reshape(xs[0].shape)

        def slope(x: Any, f: Any = f, xs: Any = xs) -> Any:
            return adarray.grad(lambda y: f(y, *xs[1:]))(x)

        with adarray.use("serial"):
            compiled = adarray.jit(g)
            first, second = g(*xs), [compiled(*xs) for _ in range(3)][-1]
            bent = adarray.hvp(lambda x, f=f, xs=xs: f(x, *xs[1:]))(xs[0], along)
            many = adarray.vmap(slope)(np.stack([xs[0], 1.01 * xs[0]]))
            adjoint = operation.execution.of_one_thread(launch, call.inputs, known=keeps)
        derivatives.append((*first, *second, bent, many))
        assert bool(adjoint.results) == (keeps and name != "durbin")
        assert bool(adjoint.copies) == (not adjoint.results)
    for a, b in zip(*derivatives, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_parts_of_a_branch_assign_the_same(backend: str) -> None:
    """The variable was what it had been before the branch."""
    kernel = RawKernel(
        """
        __global__ void k(const double *x, double *y, int n) {
            int i = threadIdx.x;
            double s = x[i];
            double t = 0.5;
            for (int j = 0; j < n; j++) {
                if (s > 2.0) { t = s; } else { t = s; }
                s = t * s;
            }
            y[i] = s + t;
        }""",
        "k",
    )
    x = np.array([1.5, 0.5, 1.0])
    with adarray.use(backend):
        for threads in (1, 3):

            def f(x: Any, threads: int = threads) -> Any:
                return np.sum(kernel.apply(1, threads, (x, np.zeros(3), 2)))

            got = adarray.grad(f)(x)[:threads]
            np.testing.assert_allclose(got, (4 * x**3 + 2 * x)[:threads], rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_loops_without_an_adjoint_leave_nothing_on_the_tape(backend: str, threads: int) -> None:
    """What the index of an addition was made of stayed there, and was taken for other values."""
    kernel = RawKernel(
        """
        __global__ void k(const double *y, double *b, double *z, double *out) {
            int i = threadIdx.x;
            double t = 0.25;
            for (int c = 0; c < 5; c++) {
                int n = 0;
                while (n < 2) {
                    b[4 * i + n + 1] += 1.0;
                    n = n + 1;
                    if (y[i] > n) break;
                }
                t = 0.5 * t + 0.25 * (y[i] * z[i]);
                z[i] = y[i] * t;
            }
            out[i] = t;
        }""",
        "k",
    )

    def plain(y: Any) -> Any:
        t, z = 0.25, 1.5
        for _ in range(5):
            t = 0.5 * t + 0.25 * (y * z)
            z = y * t
        return t

    y = np.array([0.3, 1.2, 0.7])
    with adarray.use(backend):

        def f(y: Any) -> Any:
            arrays = (y, np.concatenate([y] * 4), np.full(3, 1.5), np.zeros(3))
            return np.sum(kernel.apply(1, threads, arrays)[2])

        got = adarray.grad(f)(y)[:threads]
        expected = [adarray.grad(plain)(float(v)) for v in y[:threads]]
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_sums_of_loops_that_have_tapes() -> None:
    """What inner loops put on the tape comes back last first, though the outer one only adds up."""
    source = """
    extern "C" __global__ void sums(const double *x, const double *y, double *out, int n) {
        double s = 0.0;
        for (int i = 0; i < n; i++) {
            double t = 0.0;
            for (int j = 0; j < i; j++) {
                double u = 0.0;
                for (int k = 0; k < n; k++) u += x[k] * y[j];
                t += u * y[j];
            }
            s += t;
        }
        out[0] = s;
    }
    """
    kernel = RawKernel(source, "sums")
    x, y = np.random.default_rng(5).normal(size=(2, 7))

    def f(x: Any, y: Any) -> Any:
        return kernel.apply(1, 1, (x, y, np.zeros(1), 7))[0]

    with adarray.use("serial"):
        by_x, by_y = adarray.grad(f, argnums=(0, 1))(x, y)
    rounds = 6.0 - np.arange(7)  # in which an element is read
    np.testing.assert_allclose(by_x, np.full(7, np.sum(rounds * y * y)), 1e-12)
    np.testing.assert_allclose(by_y, 2.0 * np.sum(x) * rounds * y, 1e-12)
