"""CUDA text of kernels: run on the processor by a stand-in, and compiled by nvcc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import device
import host_gpu
import numpy as np
import pytest
from cuda_kernels import CASES, Case

import adarray
from adarray.errors import KernelError
from adarray.kernels import RawKernel, batched, lengths, print_cuda
from adarray.kernels.adjoint import AdjointKernel
from adarray.kernels.copies import BlockCopies, added
from adarray.kernels.launch import CudaKernel
from adarray.kernels.ownership import Ownership

CORE = ("saxpy", "product", "tree_dot", "tiled_matmul")
NAMES = [*CORE, *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n not in CORE)]
NEEDS_GXX = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
NEEDS_NVCC = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `adarray.use("standin")` run CUDA text."""
    device.installed(monkeypatch)
    engine = host_gpu.HostGpu("standin", device.library())
    monkeypatch.setattr(device.StandIn, "engine", lambda _self: engine)


def _setup(case: Case, dtype: str) -> tuple[Any, list[Any]]:
    kernel = RawKernel(case.text(dtype), case.kernel_name(dtype), case.options)
    args = case.args(np.random.default_rng(0), np.dtype(dtype).type)

    def f(*by: Any) -> Any:
        arguments = list(args)
        for i, x in zip(case.by, by, strict=True):
            arguments[i] = x
        results = kernel.apply(
            case.grid, case.block, arguments, shared_mem=case.shared_bytes(dtype)
        )
        return results if isinstance(results, tuple) else (results,)

    return f, [args[i] for i in case.by]


@pytest.mark.sampled(4)
@NEEDS_GXX
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_text_computes_what_c_does(name: str) -> None:
    case = CASES[name]
    f, x = _setup(case, "float64")
    rng = np.random.default_rng(1)
    weights: list[Any] = []
    t = tuple(rng.normal(size=np.shape(a)) for a in x)

    def loss(*by: Any) -> Any:
        return sum(np.sum(w * o) for w, o in zip(weights, f(*by), strict=True))

    values = []
    for backend in ("serial", "standin"):
        with adarray.use(backend):
            out = [np.asarray(o) for o in f(*x)]
            if not weights:
                weights += [rng.normal(size=o.shape) for o in out]
            gradient = adarray.grad(loss, tuple(range(len(x))))
            first, second = adarray.jvp(gradient, tuple(x), t)
            values.append([*out, *map(np.asarray, first), *map(np.asarray, second)])
    for a, b in zip(*values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@NEEDS_GXX
@pytest.mark.usefixtures("gpu")
def test_cuda_text_with_checkpoints() -> None:
    case = CASES["long_chain"]
    args = case.args(np.random.default_rng(0), np.float64)
    gradients = []
    for limit in (1 << 30, 2000):  # the whole tape of a block takes some 5000 bytes
        kernel = RawKernel(case.text("float64"), case.name, memory_limit=limit)

        def f(x: Any, kernel: Any = kernel) -> Any:
            return np.sum(np.arange(1.0, 5.0) * kernel.apply(2, 2, (x, *args[1:])))

        with adarray.use("standin"):
            gradients.append(np.asarray(adarray.grad(f)(args[0])))
        adjoints = [a for a in kernel._execution._texts.values() if isinstance(a, AdjointKernel)]
        assert any(a.checkpoints for a in adjoints) == (limit == 2000)
    np.testing.assert_allclose(*gradients, rtol=1e-13)


@NEEDS_GXX
@pytest.mark.usefixtures("gpu")
def test_kernels_where_results_are_checked() -> None:
    kernel = RawKernel(CASES["overwrite"].text("float64"), "overwrite")
    x = np.array([1.0, 2.0, 3.0])
    with adarray.use("standin"), adarray.debug_nans():
        gradient = adarray.grad(lambda a: np.sum(kernel.apply(1, 3, (a, np.zeros(3), 3))[1]))(x)
    np.testing.assert_array_equal(np.asarray(gradient), 2 * x)


@pytest.mark.usefixtures("gpu")
def test_arrays_on_a_device_that_share_memory_are_refused() -> None:
    kernel = RawKernel(CASES["overwrite"].text("float64"), "overwrite")
    library = device.library()
    raw = library.run(library.xp.zeros, 6, np.float64)
    x = library.wrap(raw, False)
    with adarray.use("standin"):
        for a, b in ((x[:4], x[2:]), (raw[:4], raw[2:]), (x, x)):
            with pytest.raises(KernelError, match="the arguments 'a' and 'b' share memory"):
                kernel(1, 4, (a, b, 3))
            with pytest.raises(KernelError, match="the arguments 'a' and 'b' share memory"):
                kernel.apply(1, 4, (a, b, 3))


@NEEDS_NVCC
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nvcc_compiles_every_text(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    kernel = RawKernel(case.text("float32"), case.kernel_name("float32"), case.options)
    args = case.args(np.random.default_rng(0), np.float32)
    shared = case.shared_bytes("float32")
    adjoint, launch, _ = kernel._adjoint(case.grid, case.block, args, None, shared)
    inputs = frozenset(kernel._execution.buffers) & set(adjoint.shadows)
    second = kernel._execution.adjoint_tangent(adjoint, inputs & set(adjoint.kernel.order))
    texts = [(k, False) for k in (kernel.kernel, adjoint.kernel, second.kernel)]
    texts.append((kernel._execution.tangent(inputs).kernel, False))
    texts += [(adjoint.counting, True)] if adjoint.taped else []
    again = kernel._execution.of_facts(launch, kernel._inputs_of(None), Ownership(), True)
    texts += [(again.kernel, False), (again.counting, True)] if again.checkpoints else []
    texts.append((batched.batched(kernel.kernel), False))
    text = ""
    for i, (k, counting) in enumerate(texts):
        text += print_cuda.ThreadCudaPrinter(k, f"{name}_{i}", counting).source()
    assert "malloc" not in text
    source = tmp_path / "all.cu"
    source.write_text(print_cuda.HEAD + text)
    compiled = subprocess.run(
        ["nvcc", "-arch=sm_90", "-cubin", "-w", "-o", str(tmp_path / "all.cubin"), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr


@NEEDS_GXX
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("limit", [1 << 30, 1 << 14])
def test_many_blocks_add_to_copies_of_small_arrays(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[Any] = []
    fold = BlockCopies.fold
    monkeypatch.setattr(
        BlockCopies, "fold", lambda self, groups: folded.extend(groups) or fold(self, groups)
    )
    case = CASES["cross_sections"]
    args = case.args(np.random.default_rng(0), np.float64)
    blocks = 70
    args[0] = np.random.default_rng(1).uniform(0, 1, 8 * blocks)
    args[4] = np.zeros((8 * blocks, 5))
    args[5] = 8 * blocks
    kernel = RawKernel(case.text("float64"), case.name, memory_limit=limit)

    def f(*by: Any) -> Any:
        return np.sum(np.sin(kernel.apply(blocks, 8, (args[0], *by, *args[4:]))))

    gradients = []
    for backend in ("serial", "standin"):
        with adarray.use(backend):
            gradients.append([np.asarray(g) for g in adarray.grad(f, (0, 1, 2))(*args[1:4])])
    assert [len(g.arrays) for g in folded] == [3]
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)


@NEEDS_GXX
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("name", "fixed"),
    [("product", True), ("cross_sections", True), ("ray_march", False), ("newton", False)],
)
def test_tapes_are_counted_once_where_launches_say_how_long_they_are(
    name: str, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Any] = []
    most = CudaKernel.most
    monkeypatch.setattr(CudaKernel, "most", lambda *args: counted.append(args) or most(*args))
    f, x = _setup(CASES[name], "float64")
    gradient = adarray.grad(lambda *by: sum(np.sum(o) for o in f(*by)), tuple(range(len(x))))
    for scale in (1.0, 0.75):
        moved = [scale * a for a in x]
        with adarray.use("serial"):
            expected = gradient(*moved)
        with adarray.use("standin"):
            for a, b in zip(gradient(*moved), expected, strict=True):
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-11, atol=1e-12)
    assert len(counted) == (1 if fixed else 2)
    (kernel,) = {id(args[0]): args[0].kernel for args in counted}.values()
    assert lengths.fixed(kernel) == fixed


def _together(case: Case) -> tuple[Any, Any, list[Any]]:
    """Return a launch whose warps are whole, and come to each addition as a whole."""
    args = case.args(np.random.default_rng(0), np.float64)
    if case.name != "cross_sections":
        return case.grid, case.block, args
    rng = np.random.default_rng(1)
    args[0], args[4], args[5] = rng.uniform(0, 1, 64), np.zeros((64, 5)), 64
    return 2, 32, args


@NEEDS_GXX
@pytest.mark.parametrize("name", ["cross_sections", "dg_volume", "tiled_matmul"])
def test_warps_add_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device.installed(monkeypatch)
    engine = host_gpu.HostGpu("standin", device.library())
    engine.together = True
    monkeypatch.setattr(device.StandIn, "engine", lambda _self: engine)
    case = CASES[name]
    grid, block, args = _together(case)
    kernel = RawKernel(case.text("float64"), case.kernel_name("float64"), case.options)

    def f(*by: Any) -> Any:
        arguments = list(args)
        for i, x in zip(case.by, by, strict=True):
            arguments[i] = x
        return np.sum(np.sin(kernel.apply(grid, block, arguments)))

    gradient = adarray.grad(f, tuple(range(len(case.by))))
    gradients = []
    for backend in ("serial", "standin"):
        with adarray.use(backend):
            gradients.append([np.asarray(g) for g in gradient(*(args[i] for i in case.by))])
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    text = kernel.adjoint_source(grid, block, args)
    assert ("adarray_row_add(" in text) == (name == "cross_sections")
    assert ("adarray_line_add(" in text) == (name != "cross_sections")


def test_arrays_have_copies_where_much_is_added() -> None:
    names: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for name in ("cross_sections", "dg_volume", "lattice_boltzmann"):
        case = CASES[name]
        kernel = RawKernel(case.text("float32"), name)
        args = case.args(np.random.default_rng(0), np.float32)
        adds = added(kernel._adjoint(case.grid, case.block, args, None, 0)[0].kernel)
        names[name] = set(adds.threads), set(adds.blocks), set(adds.threads) & adds.repeated
    lookups = {"grids__b", "data__b", "densities__b"}
    assert names["cross_sections"] == (lookups, set(), lookups)
    assert names["dg_volume"] == ({"Dhat__b"}, {"gamma1__sum"}, set())
    assert names["lattice_boltzmann"] == (set(), {"omega__sum"}, set())
