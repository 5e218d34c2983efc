"""Launches that a CUDA graph can hold: the host waits for nothing, and replays compute anew."""

from __future__ import annotations

import shutil
from typing import Any

import device
import host_gpu
import numpy as np
import pytest
from cuda_kernels import CASES

import adarray
from adarray.kernels import RawKernel

NAMES = ("lattice_boltzmann", "cross_sections", "tiled_matmul", "layernorm")
NEEDS_GXX = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def _problem(name: str) -> tuple[Any, list[Any], tuple[int, ...]]:
    """Return a loss of all arrays of a kernel, these, and which it is differentiated by.

    All arrays are arguments, which are where the backend in use has them: a graph holds no
    transfers.
    """
    case = CASES[name]
    kernel = RawKernel(case.text("float32"), case.kernel_name("float32"), case.options)
    args = case.args(np.random.default_rng(0), np.float32)
    arrays = [i for i, x in enumerate(args) if np.ndim(x)]
    by = tuple(place for place, i in enumerate(arrays) if i in case.by)
    numbers = [None if np.ndim(x) else x for x in args]

    def loss(*xs: Any) -> Any:
        arguments: list[Any] = list(numbers)
        for i, x in zip(arrays, xs, strict=True):
            arguments[i] = x
        results = kernel.apply(
            case.grid, case.block, arguments, shared_mem=case.shared_bytes("float32")
        )
        results = results if isinstance(results, tuple) else (results,)
        return sum(np.sum(np.sin(r)) for r in results)

    return loss, [args[i] for i in arrays], by


@NEEDS_GXX
@pytest.mark.parametrize("name", NAMES)
def test_a_launch_that_is_known_reads_nothing_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.installed(monkeypatch)
    engine = host_gpu.HostGpu("standin", device.library())
    monkeypatch.setattr(device.StandIn, "engine", lambda _self: engine)
    with adarray.use("standin"):
        loss, xs, by = _problem(name)
        here = [adarray.array(x) for x in xs]
        gradient = adarray.grad(loss, by)
        first = gradient(*here)
        with monkeypatch.context() as now:
            now.setattr(device.StandIn, "to_host", lambda _self, _raw: pytest.fail("it waits"))
            now.setattr(device.StandIn, "to_device", lambda _self, _x: pytest.fail("it sends"))
            second = gradient(*here)
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.gpu
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_graph_replays_a_kernel_and_its_gradient(name: str, jitted: bool) -> None:
    cupy = pytest.importorskip("cupy")
    with adarray.use("serial"):
        loss, xs, by = _problem(name)
        others = [x * np.float32(0.75) if i in by else x for i, x in enumerate(xs)]
        expected = adarray.value_and_grad(loss, by)(*others)
    with adarray.use("cuda"):
        f = adarray.value_and_grad(_problem(name)[0], by)
        run = adarray.jit(f) if jitted else f
        arrays = [adarray.array(x) for x in xs]
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            for _ in range(3):  # compiled, counted, and memory in the stream's pool
                run(*arrays)
            stream.begin_capture()
            try:
                value, gradients = run(*arrays)
            finally:
                graph = stream.end_capture()
            for a, x in zip(arrays, others, strict=True):
                cupy.asarray(a).set(x)  # the same memory
            graph.launch(stream)
            stream.synchronize()
        np.testing.assert_allclose(np.asarray(value), expected[0], rtol=1e-4)
        for a, b in zip(gradients, expected[1], strict=True):
            scale = float(np.abs(b).max())
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-3, atol=1e-5 * scale)
