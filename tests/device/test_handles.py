"""Handles of cuBLAS: few, whatever the number of streams, and never lost by what needs them."""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.errors import BackendError

# -- without a GPU: the module over a stand-in for CuPy and cuBLAS -------------------------------


class Memory:
    """Memory of the stand-in, which has an address of its own."""

    last = 0

    def __init__(self, size: int) -> None:
        Memory.last += 1 << 30
        self.ptr = Memory.last
        self.mem = types.SimpleNamespace(size=size)


class Blas:
    """cuBLAS, which notes the stream and the workspace of each handle."""

    def __init__(self) -> None:
        self.created = 0
        self.streams: dict[int, int] = {}
        self.rooms: dict[int, int] = {}
        self.cast: Callable[[Any], int] = int

    def cublasCreate_v2(self, result: Any) -> int:  # noqa: N802  (cuBLAS's name)
        self.created += 1
        result[0] = types.SimpleNamespace(number=self.created)
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: int) -> int:  # noqa: N802
        self.streams[handle.number] = stream
        self.rooms.pop(handle.number, None)  # as cuBLAS does
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, place: int, _: int) -> int:  # noqa: N802
        self.rooms[handle.number] = place
        return 0


class Standin:
    """The module and what it computes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream, self.device, self.capturing, self.blas = 0, 0, False, Blas()
        runtime = types.SimpleNamespace(
            getDevice=lambda: self.device, streamIsCapturing=lambda _: self.capturing
        )
        cuda = types.SimpleNamespace(
            alloc=Memory,
            runtime=runtime,
            get_current_stream=lambda: types.SimpleNamespace(ptr=self.stream),
        )
        monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
        folder = Path(importlib.import_module("adarray_backends").__path__[0])
        spec = importlib.util.spec_from_file_location("cublas_alone", folder / "cuda/cublas.py")
        assert spec is not None
        assert spec.loader is not None
        self.module: Any = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "cublas_alone", self.module)
        spec.loader.exec_module(self.module)
        self.module._library = self.blas
        monkeypatch.setattr(self.module, "_pointer", lambda address: address)
        ffi = types.SimpleNamespace(new=lambda _: [None])
        monkeypatch.setattr(self.module, "_ffi", ffi)

    def on(self, stream: int) -> Any:
        """Return the handle of a stream, after a check that it is right."""
        self.stream = stream
        handle = self.module.handle()
        assert self.blas.streams[handle.handle.number] == stream
        assert self.blas.rooms[handle.handle.number] == handle.memory.ptr
        return handle


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> Standin:
    return Standin(monkeypatch)


def test_many_streams_have_few_handles(standin: Standin) -> None:
    most = standin.module.STREAMS
    for i in range(10 * most):
        standin.on(1000 + i)
        standin.on(0)  # in use all the time
    assert len(standin.module._handles) == most
    assert standin.blas.created <= most + 2  # those of streams that are gone are taken again
    first = standin.on(0)
    for i in range(10 * most):
        standin.on(5000 + i)
        assert standin.on(0) is first


@pytest.mark.usefixtures("_young_heap")
def test_handles_that_somebody_has_stay_his(standin: Standin) -> None:
    own = standin.on(7)
    seen = [standin.on(1000 + i).handle.number for i in range(5 * standin.module.STREAMS)]
    assert own.handle.number not in seen
    assert standin.blas.streams[own.handle.number] == 7
    again = standin.on(7)  # a new stream may have the same address
    assert again is not own
    assert again.memory.ptr != own.memory.ptr
    number = own.handle.number
    del own
    gc.collect()
    seen = [standin.on(2000 + i).handle.number for i in range(5 * standin.module.STREAMS)]
    assert number in seen


def test_a_thread_owns_the_handle_that_it_uses(standin: Standin) -> None:
    """Another thread takes no handle away between the look-up and the call of cuBLAS."""
    number = standin.on(7).handle.number
    numbers = []

    def others() -> None:
        numbers.extend(standin.on(1000 + i).handle.number for i in range(100))

    thread = threading.Thread(target=others)
    thread.start()
    thread.join()
    assert number not in numbers


def test_captured_graphs_keep_memory(standin: Standin) -> None:
    standin.capturing = True
    handle = standin.on(7)
    places = {handle.memory.ptr, handle.room(100), handle.room(1000)}
    standin.capturing = False
    del handle
    for i in range(100):
        standin.on(1000 + i)
    (saved,) = standin.module._captured
    assert {saved.memory.ptr, *(x.ptr for x in saved._captured_rooms)} == places


def test_the_default_stream_is_not_asked_whether_it_is_captured(standin: Standin) -> None:
    standin.capturing = True  # another stream is, and to ask the default one would be an error
    standin.on(0)
    assert not standin.module._captured


# -- on a GPU --------------------------------------------------------------------------------------


@pytest.fixture
def gpu() -> Any:
    try:
        adarray.use("cuda")
    except BackendError as error:
        pytest.skip(str(error))
    from adarray_backends.cuda import cublas

    return cublas


def drawn(*shape: int) -> Any:
    import cupy

    return cupy.asarray(np.random.default_rng(3).normal(size=shape).astype(np.float32))


def others(count: int) -> list[Any]:
    """Multiply on so many other streams; return these."""
    import cupy

    a = drawn(300, 300)
    cupy.cuda.Device().synchronize()
    expected, streams = a.get() @ a.get(), []
    for _ in range(count):
        streams.append(cupy.cuda.Stream(non_blocking=True))
        with streams[-1], adarray.use("cuda"):
            got = adarray.array(a) @ adarray.array(a)
        streams[-1].synchronize()
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-3)
    return streams


@pytest.mark.gpu
def test_streams_of_a_gpu_share_handles(gpu: Any) -> None:
    others(3)
    import cupy

    pool = cupy.get_default_memory_pool()
    streams = others(gpu.STREAMS)
    before = pool.used_bytes()
    streams += others(2 * gpu.STREAMS)
    assert len(gpu._handles) <= gpu.STREAMS
    assert pool.used_bytes() - before < 4 * gpu.WORKSPACE


@pytest.mark.gpu
def test_plans_run_on_after_other_streams(gpu: Any) -> None:
    import cupy
    from adarray_backends.cuda.plans import executable

    a = np.random.default_rng(4).normal(size=(96, 4096)).astype(np.float32)
    r = recorded(lambda x: np.tanh(x @ x.T) @ x, a)
    run = executable(planning.plan(r.program, target=GPU))
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.asarray(a)
    cupy.cuda.Device().synchronize()
    expected = np.tanh(a @ a.T) @ a
    for _ in range(6):
        with stream:
            got = [run([x])[0] for _ in range(4)]
            stream.synchronize()
        for y in got:
            np.testing.assert_allclose(y.get(), expected, rtol=2e-3, atol=2e-3)
        others(gpu.STREAMS + 1)


@pytest.mark.gpu
def test_a_captured_product_replays_after_other_streams(gpu: Any) -> None:
    import cupy

    a, b = drawn(128, 8192), drawn(8192, 128)  # its sum is split, in the workspace
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream, adarray.use("cuda"):
        x, y = adarray.array(a), adarray.array(b)
        x @ y  # chooses the algorithm
        stream.synchronize()
        stream.begin_capture()
        result = x @ y
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        expected = result.numpy().copy()
    streams = others(2 * gpu.STREAMS)
    with stream:
        for _ in range(3):
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(result.numpy(), expected)
    assert len(streams) == 2 * gpu.STREAMS
