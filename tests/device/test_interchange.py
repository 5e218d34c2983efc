"""Arrays of other libraries on a GPU, in and out: the same memory, and no gradient lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jitted import plain

import adarray
from adarray.device import kinds
from adarray.errors import BackendError, DTypeError, TraceError


def on_gpu(values: Any) -> Any:
    """Return an ADArray on the GPU; skip where there is none."""
    try:
        block = adarray.use("cuda")
    except BackendError as error:
        pytest.skip(str(error))
    with block:
        return adarray.array(values)


def test_arrays_of_the_host_have_no_place_on_a_gpu() -> None:
    a = adarray.array(np.ones(3))
    assert not hasattr(a, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="the array is on the host"):
        a.__cuda_array_interface__  # noqa: B018


class OnGpu:
    """An array of a library on a GPU, as far as DLPack asks for that."""

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("nobody can take it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_arrays_of_a_gpu_that_no_backend_has_used(monkeypatch: Any) -> None:
    monkeypatch.setattr(kinds, "_IMPORTERS", {})
    with pytest.raises(BackendError) as caught:
        adarray.array(OnGpu())
    assert str(caught.value) == (
        f"array: obj is a {__name__}.OnGpu on a GPU, which no backend has used yet; call "
        "adarray.use('cuda') before"
    )
    with pytest.raises(DTypeError) as error:
        adarray.grad(lambda x: x)(OnGpu())
    assert str(error.value) == (
        f"grad: argument 0: is a {__name__}.OnGpu, not an array or a number; pass "
        "adarray.array(x); CuPy's are taken once adarray.use('cuda') was called"
    )


@pytest.mark.gpu
def test_cuda_array_interface() -> None:
    a = on_gpu(np.arange(4.0))
    import cupy

    assert a.__cuda_array_interface__["data"][0] == a._plain.raw.data.ptr
    shared = cupy.asarray(a)
    assert shared.data.ptr == a._plain.raw.data.ptr
    with pytest.raises(TraceError, match="__cuda_array_interface__"):
        adarray.grad(lambda x: np.sum(x) + len(x.__cuda_array_interface__))(a)


@pytest.mark.gpu
def test_torch_in_and_out_without_copies() -> None:
    torch = pytest.importorskip("torch")
    a = on_gpu(np.arange(4.0, dtype=np.float32))
    shared = torch.from_dlpack(a)
    assert shared.data_ptr() == a._plain.raw.data.ptr
    args = torch.arange(6.0, device="cuda").reshape(2, 3)
    back = adarray.array(args)
    assert back.device == "cuda:0"
    np.testing.assert_array_equal(back.numpy(), args.cpu().numpy())
    g = adarray.grad(lambda x: np.sum(x**2))(back)
    np.testing.assert_array_equal(g.numpy(), 2 * args.cpu().numpy())


@pytest.mark.gpu
def test_jax_in_and_out_without_copies(monkeypatch: Any) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other tests use the GPU too
    jax = pytest.importorskip("jax")
    a = on_gpu(np.arange(4.0, dtype=np.float32))
    if not any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("JAX sees no GPU")
    shared = jax.dlpack.from_dlpack(a)
    assert shared.unsafe_buffer_pointer() == a._plain.raw.data.ptr
    args = jax.numpy.arange(6.0).reshape(2, 3)
    back = adarray.array(args)
    assert back.device == "cuda:0"
    np.testing.assert_array_equal(back.numpy(), np.asarray(args))


@pytest.mark.gpu
def test_work_goes_to_the_current_stream_and_memory_comes_from_the_pool() -> None:
    a = on_gpu(np.zeros(1 << 20))
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    compiled = adarray.jit(lambda x: np.exp(x) + 1.0)
    with stream, adarray.use("cuda"):
        for f in (lambda x: np.exp(x) + 1.0, compiled, compiled, compiled, compiled):
            y = f(a)
            assert type(y._plain.raw.data.mem).__name__ == "PooledMemory"
            event = stream.record()
            event.synchronize()  # what was asked for is done when the stream is
            with cupy.cuda.Stream(non_blocking=True):
                assert float(cupy.max(cupy.asarray(y))) == 2.0
            del y


@pytest.mark.gpu
@pytest.mark.parametrize("skew", [1, 2, 3])
def test_memory_of_other_libraries_begins_anywhere(skew: int) -> None:
    on_gpu(0.0)
    import cupy

    memory = cupy.arange(1028, dtype=np.float32) * 1e-3
    # As DLPack gives them: no view of another array, and at no multiple of 16 bytes.
    raw = cupy.ndarray((1024,), np.float32, memory.data + 4 * skew)
    assert raw.base is None
    host = raw.get()
    for f in (
        lambda x: np.sum(np.exp(x) * x),
        np.sum,
        lambda x: np.sum(np.max(x.reshape(128, 8), 0) ** 2),
        lambda x: np.sum(np.max(x.reshape(4, 256), 1) ** 2),
        lambda x: np.sum(np.max(x.reshape(64, 16) * x[:16], 1)),
        lambda x: np.sum(np.mean(x.reshape(128, 8), 1) ** 2),
        lambda x: np.sum(np.mean(x.reshape(8, 128), 0) ** 3),
    ):
        value, gradient = adarray.value_and_grad(f)(raw)
        expected = adarray.value_and_grad(f)(host)
        np.testing.assert_allclose(plain(value), expected[0], rtol=1e-5)
        assert type(gradient) is cupy.ndarray
        np.testing.assert_allclose(plain(gradient), expected[1], rtol=1e-5)
