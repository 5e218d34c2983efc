"""Run the printed kernels on small arrays and compare with NumPy: for compute-sanitizer.

    compute-sanitizer --tool memcheck python -m asv_bench.gpu.kernels
    python -m asv_bench.gpu.kernels --parts compiled convolutions

Arrays come straight from cudaMalloc, one allocation each, so that a kernel that reads past an
array, or an element that nothing has written, is seen. Results of some compiled cases are
written past the caches, as those of large arrays are.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import adarray
from adarray.base.op import OPS
from adarray.compiler.planning import step_writer
from adarray.core.dispatch import apply
from adarray.ops.nn import conv2d
from asv_bench.benchmarks import jit_workloads
from asv_bench.benchmarks.workloads import Workload, make_network
from asv_bench.gpu.needed import needed

# A matrix whose rows are no multiple of the packs that threads read, and what goes with it.
SHAPE = (5, 131)
LARGE, WIDE = (66, 1028), (100, 4096)  # of reductions
OTHERS = (SHAPE, SHAPE[1:], (SHAPE[0], 1), ())
LIMITS = {"float32": 2e-4, "float64": 1e-10}
# Functions whose results are also written past the caches.
PAST = frozenset({"slices", "off alignment", "transposed", "concatenate", "shares"})
# What operands of convolutions are rounded to, and the errors that this makes.
ROUNDED = {"float32": 2e-4, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2}


class KernelCase(NamedTuple):
    """A function that returns a value and gradients, and its arguments.

    Parameters
    ----------
    name : str
    call : callable
    arrays : tuple of ndarray
    options : dict
        Of the `use` block.
    limit : float or None
        Of relative errors; None: by dtype.
    past : bool
        Whether compiled results are written past the caches.
    """

    name: str
    call: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    options: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    limit: float | None = None
    past: bool = False


def workloads() -> list[Workload]:
    """Return small workloads whose plans have every form of kernel."""
    return [
        *(jit_workloads.make_chain(n, t).workload for n in (37, 5003) for t in LIMITS),
        jit_workloads.make_black_scholes(1000).workload,
        jit_workloads.make_regression(90, 70).workload,
        make_network(32, 24, np.float32),
        make_network(33, 17, np.float64),
        Workload("rosenbrock", jit_workloads.rosenbrock, lambda rng: (rng.normal(size=3001),)),
        jit_workloads.make_heat_equation(41, 3).workload,
        jit_workloads.make_heat_equation(64, 2, "float32").workload,
        # So large that warps march down strips, and that rows are fetched into shared memory.
        *(jit_workloads.make_heat_equation(520, 9, t).workload for t in LIMITS),
        *(jit_workloads.make_cross_entropy(*s).workload for s in ((270, 16384), (135, 32770))),
        jit_workloads.make_layer_norm(140, 16384).workload,
        jit_workloads.make_n_body(70).workload,
        *(jit_workloads.make_cross_entropy(*s).workload for s in ((64, 300), (3, 9001), (700, 5))),
        jit_workloads.make_mixture(100, 5, 3).workload,
        jit_workloads.make_recurrent_network(5, 8, 16).workload,
        *(jit_workloads.make_layer_norm(*s).workload for s in ((70, 260), (5, 6001))),
        jit_workloads.make_tiny("float32").workload,
    ]


def functions() -> Iterator[tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]]:
    """Return functions with folds along either axis, indices, scans, concatenate and transposes."""
    rng = np.random.default_rng(0)
    for dtype in LIMITS:
        a, b = rng.normal(size=(2, 70, 133)).astype(dtype)
        tall = rng.normal(size=(3001, 7)).astype(dtype)
        line = rng.normal(size=70_001).astype(dtype) * 0.01
        rare = line.copy()
        rare[[5, 4097, -1]] = 1e5, 1.5e19, -3e4  # packs with these are computed again
        k = rng.integers(0, 70, 90)
        yield "columns", lambda a: np.sum(np.tanh(np.sum(a * a, axis=0))), (a,)
        yield "tall columns", lambda a: np.sum(np.exp(np.mean(a, axis=0))), (tall,)
        yield "variance", lambda a: np.sum(np.var(a, axis=0) * np.mean(a, axis=0)), (tall,)
        yield "shares", lambda a: np.sum(np.tanh(a / np.sum(np.exp(a), axis=1)[:, None])), (a,)
        yield "extremes", lambda a, b: np.sum(np.max(a, axis=1) * np.min(b, axis=1)), (a, b)
        yield "gather", lambda a, k=k: np.sum(np.sin(a[k]) * a[k[::-1]]), (a,)
        yield "written", lambda a, b, k=k: np.sum(written(a, b[k], k) ** 2), (a, b)
        yield "added", lambda a, b, k=k: np.sum(added(a, b[k], k) ** 2), (a, b)
        yield "scan", lambda a: np.sum(np.cumsum(np.sin(a), axis=1) ** 2), (a,)
        yield "short scan", lambda a: np.sum(np.cumsum(np.sin(a)) ** 2), (line[:3001],)
        yield "long scan", lambda a: np.sum(np.cumsum(np.sin(a)) ** 2), (line,)
        yield "slices", lambda a: np.sum(np.exp(a[1:, ::2] - a[:-1, ::2])), (a,)
        yield "off alignment", lambda a: np.sum(np.exp(a[1:] - a[:-1])), (line,)
        yield "columns off alignment", lambda a: np.sum(np.exp(a[:, 1:] * 2.0) * a[:, :-1]), (a,)
        yield "rare", lambda a: np.sum(np.sin(a) + np.log1p(a * a)), (rare,)
        yield "concatenate", lambda a, b: np.sum(np.tanh(np.concatenate([a, b], axis=1))), (a, b)
        yield "transposed", lambda a, b: np.sum(np.sin(a.T) * np.cos(b).T), (a, b)
        yield "padded", lambda a: np.sum(np.pad(a * a, 2) * 3.0), (a,)
        many = rng.normal(size=(2, 541, 20)).astype(dtype)
        yield "distances", distances, tuple(many)
        yield "pairs", pairs, (line[:3001], line[-2011:])


def distances(a: Any, b: Any) -> Any:
    """Return a sum of squared distances of all rows to all others: blocks compute tiles."""
    return np.sum(np.sum((a[:, None] - b[None]) ** 2, axis=-1) / 100)


def pairs(a: Any, b: Any) -> Any:
    """Return a sum of pulls of numbers on others: threads have columns, and add up all rows."""
    gaps = a[:, None] - b[None]
    return np.sum(np.sum(gaps / np.sqrt(gaps * gaps + 0.01), axis=0) ** 2) / a.size


def written(a: Any, b: Any, k: np.ndarray) -> Any:
    """Return a copy of rows, some written over: the last value for a row stays."""
    rows = a * 2
    rows[k] = b
    return rows


def added(a: Any, b: Any, k: np.ndarray) -> Any:
    """Return a copy of rows, to some of which others are added."""
    rows = a * 2
    np.add.at(rows, k, b)
    return rows


def compiled() -> Iterator[KernelCase]:
    """Return the function to compile; the last arguments of workloads are constants."""
    for w in workloads():
        variables, constants = w.data()
        count = len(variables)

        def f(*xs: Any, w: Workload = w) -> Any:
            return w.body(np, *xs)

        g = adarray.value_and_grad(f, argnums=tuple(range(count)))
        yield KernelCase(w.name, g, (*variables, *constants))
    for name, f, arrays in functions():
        g = adarray.value_and_grad(f, argnums=tuple(range(len(arrays))))
        if name in ("written", "distances"):  # derivatives are eager, or have no tiles
            g = _values(f)
        yield KernelCase(f"{name} {arrays[0].dtype}", g, arrays)
        if name in PAST:
            yield KernelCase(f"{name} {arrays[0].dtype}, past the caches", g, arrays, past=True)


def _values(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes a value, and no gradients."""
    return lambda *xs: (f(*xs), ())


def convolutions() -> Iterator[KernelCase]:
    """Return convolutions with both gradients: exact, with fewer products, on Tensor Cores."""
    rng = np.random.default_rng(0)

    def case(dtype: str, precision: str, shape: Any, weights: Any, **params: Any) -> KernelCase:
        def f(x: Any, w: Any) -> Any:
            return np.mean(conv2d(x, w, **params) ** 2)

        arrays = tuple(rng.normal(size=s).astype(dtype) for s in (shape, weights))
        g = adarray.value_and_grad(f, argnums=(0, 1))
        name = f"convolution {shape} {dtype} {precision}"
        return KernelCase(name, g, arrays, {"matmul_precision": precision}, ROUNDED[precision])

    yield case("float32", "float32", (32, 128, 14, 14), (128, 128, 3, 3), padding=1)
    small = (3, 10, 13, 11), (70, 5, 3, 3)
    cut = {"stride": (2, 1), "padding": ((1, 0), (2, 3)), "groups": 2}
    yield case("float64", "float32", *small, **cut)
    for precision in ROUNDED:
        yield case("float32", precision, *small, **cut)
    yield case("float32", "float32", (9, 12, 8, 8), (20, 12, 1, 1))
    # Few channels, on either side; and tiles of 128 and of 256 channels.
    yield case("float32", "float32", (4, 3, 19, 17), (40, 3, 5, 5), stride=2, padding=2)
    yield case("float64", "float32", (3, 8, 9, 11), (8, 1, 3, 3), groups=8, padding=1)
    for precision in ("tf32", "bf16"):
        yield case("float32", precision, (2, 200, 7, 9), (100, 200, 3, 3), padding=1)


def eager() -> Iterator[KernelCase]:
    """Return value and gradient of every pointwise record, and of reductions."""
    rng = np.random.default_rng(0)
    for (name, op), dtype in itertools.product(OPS.items(), LIMITS):
        if name.partition(".")[0] in ("special", "stats", "scipy"):
            continue  # of SciPy: they have no kernels of their own
        if op.samples is None:
            continue  # of users
        if op.pointwise:
            for shape in OTHERS[: 1 if op.arity == 1 else None]:
                xs = [
                    _drawn(rng, limits, shape if i else SHAPE, dtype)
                    for i, limits in enumerate(op.samples)
                ]
                yield KernelCase(f"{name} {dtype} {shape}", _value_and_slopes(op, xs), tuple(xs))
        elif type(op.lower).__name__ == "Reduction":
            for shape, axis in ((LARGE, None), (LARGE, 0), (LARGE, 1), (WIDE, 0)):
                x = rng.normal(size=shape).astype(dtype)
                g = _value_and_slopes(op, [x], {"axis": axis})
                yield KernelCase(f"{name} {dtype} {shape} axis={axis}", g, (x,))


def _drawn(rng: np.random.Generator, limits: Any, shape: Any, dtype: str) -> np.ndarray:
    """Return an operand in the range of a sample, away from its ends."""
    if "bool" in limits:
        return np.asarray(rng.uniform(size=shape) < 0.5)
    low, high = limits
    sample = rng.uniform(0.99 * low + 0.01 * high, 0.01 * low + 0.99 * high, shape)
    return np.asarray(sample, dtype)


def _value_and_slopes(
    op: Any, xs: list[np.ndarray], params: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Return a function that computes a record, and its rules with random cotangents."""
    ruled = (i < len(op.rules) and op.rules[i] is not None for i in range(len(xs)))
    picked = [i for i, has in enumerate(ruled) if has and xs[i].dtype.kind == "f"]

    def call(*args: Any) -> Any:
        def f(*traced: Any) -> Any:
            operands = list(args)
            for i, x in zip(picked, traced, strict=True):
                operands[i] = x
            return apply(op, tuple(operands), params or {})

        if not picked:
            return f(), ()
        y, pullback = adarray.vjp(f, *(args[i] for i in picked))
        g = np.cos(np.arange(np.size(y))).reshape(np.shape(y)).astype(y.dtype)
        return y, pullback(g)

    return call


def flat(outcome: Any) -> list[np.ndarray]:
    """Return values and gradients as ndarrays."""
    value, slopes = outcome
    slopes = slopes if isinstance(slopes, tuple | list) else (slopes,)
    return [np.asarray(adarray.value_of(x)) for x in (value, *slopes)]


def agree(results: list[np.ndarray], expected: list[np.ndarray], limit: float | None = None) -> str:
    """Say how results differ; an empty text if they do not."""
    fixed_limit = limit
    for i, (a, b) in enumerate(zip(results, expected, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {i}: {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        limit = LIMITS.get(str(b.dtype), 0.0) if fixed_limit is None else fixed_limit
        finite = np.isfinite(b) if b.dtype.kind == "f" else np.ones(b.shape, bool)
        size = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
        if not np.allclose(a, b, rtol=limit, atol=limit * size, equal_nan=True):
            return f"result {i}: largest difference {np.nanmax(np.abs(a - b)):.3g}"
    return ""


@contextmanager
def _streaming(past: bool) -> Iterator[None]:
    """Let plans write all results past the caches, whatever their size."""
    usual = step_writer.STREAM
    step_writer.STREAM = 0 if past else usual
    try:
        yield
    finally:
        step_writer.STREAM = usual


def run(
    part: str, text_in_name: str = "", backend: str = "cuda", shard: tuple[int, int] = (0, 1)
) -> tuple[int, list[str]]:
    """Run a part, or a share of it; return how many cases there were, and what failed."""
    count, failed = 0, []
    mine, shares = shard
    for i, case in enumerate(PARTS[part]()):
        if text_in_name not in case.name or i % shares != mine:
            continue
        with np.errstate(all="ignore"):
            try:
                expected = flat(case.call(*case.arrays))
            except adarray.NotDifferentiableError:
                continue
            count += 1
            text = _differences(case, expected, part != "eager", backend)
        if text:
            failed.append(f"{part}: {case.name}: {text}")
    return count, failed


def _differences(case: KernelCase, expected: list[np.ndarray], compiles: bool, backend: str) -> str:
    """Run a case, a compiled one until its plan has run twice; say how results differ."""
    options = case.options if backend == "cuda" else {}
    with adarray.use(backend, **options), _streaming(case.past):
        operands = tuple(adarray.array(x) for x in case.arrays)
        g = adarray.jit(case.call) if compiles else case.call
        for _ in range(4 if compiles else 1):
            text = agree(flat(g(*operands)), expected, case.limit)
        if compiles:
            nodes = list(g.path(*operands))
            if not nodes or any(n.executable is None for n in nodes):
                text = text or "not compiled"
    return text


PARTS: dict[str, Callable[[], Iterator[KernelCase]]] = {
    "eager": eager, "compiled": compiled, "convolutions": convolutions,
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.gpu.kernels", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS))
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in the name")
    parser.add_argument(
        "--shard", nargs=2, type=int, default=(0, 1), metavar=("I", "N"),
        help="every N-th case, from the I-th on",
    )  # fmt: skip
    options = parser.parse_args(argv)
    (cupy,) = needed("asv_bench.gpu.kernels", "cupy")
    cupy.cuda.set_allocator(None)  # an allocation for each array
    warnings.simplefilter("ignore")
    wrong: list[str] = []
    for part in options.parts:
        count, failed = run(part, options.only, shard=tuple(options.shard))
        wrong += failed
        print(f"{part}: {count} cases, {len(failed)} wrong", flush=True)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
