"""Two GPUs in one process: each does its own work, and neither touches the other's.

Every test ends with the current GPU that it began with.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from second_gpu import count_of_gpus

import adarray
from adarray.base.runtime import current_mode
from adarray.errors import BackendError, DeviceMemoryError
from adarray.jitting import JitWarning
from adarray.ops.nn import conv2d

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(3)
BOTH = (0, 1)


@pytest.fixture(autouse=True, params=BOTH, ids=["current0", "current1"])
def current(request: Any) -> Iterator[int]:
    """Let either GPU be the current one, and look that it still is afterwards."""
    if count_of_gpus() < 2:
        pytest.skip("needs two GPUs")
    import cupy

    with cupy.cuda.Device(request.param):
        yield request.param
        assert cupy.cuda.runtime.getDevice() == request.param


def on(device: int, *xs: Any, **options: Any) -> Any:
    """Return ADArrays on a GPU."""
    with adarray.use("cuda", device=device, **options):
        result = tuple(adarray.array(x) for x in xs)
    assert all(x.device == f"cuda:{device}" for x in result)
    return result[0] if len(xs) == 1 else result


def placed(x: Any, device: int) -> bool:
    """Whether an ADArray and its memory are on a GPU."""
    return bool(x.device == f"cuda:{device}" and x._plain.raw.device.id == device)


def drawn(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def network(w: Any, v: Any, x: Any) -> Any:
    """Products, functions, rows and columns."""
    h = np.tanh(x @ w)
    z = h @ v
    p = np.exp(z - np.max(z, axis=1, keepdims=True))
    p = p / np.sum(p, axis=1, keepdims=True)
    return np.mean((p - 0.1) ** 2) + np.sum(np.mean(h, axis=0) ** 2)


# Functions of two matrices of 40 x 40, eager kernels of each kind among them.
FUNCTIONS = {
    "pointwise": lambda a, b: np.sum(np.exp(-a * a) * np.sin(b) + np.where(a > 0, a, b)),
    "broadcast": lambda a, b: np.sum(np.tanh(a + b[0]) * b[:, :1]),
    "reductions": lambda a, b: np.sum(np.max(a, axis=1) * np.mean(b, axis=0) + np.var(a)),
    "product": lambda a, b: np.sum(np.tanh(a @ b.T)),
    "einsum": lambda a, b: np.sum(np.sin(np.einsum("ij,kj->ik", a, b))),
    "indices": lambda a, b: np.sum(a[[3, 1, 3, 7]] * np.sin(b[np.array([2, 2, 0, 5])])),
    "scan": lambda a, b: np.sum(np.cumsum(np.sin(a), axis=1) * b),
    "sort": lambda a, b: np.sum(np.sort(a, axis=1) * b),
    "solve": lambda a, b: np.sum(np.linalg.solve(a @ a.T + 40 * np.eye(40, dtype=a.dtype), b)),
    "turned": lambda a, b: np.sum(np.sin(a.T)[1:, ::2] * np.copy(b)[1:, ::2]),
    "joined": lambda a, b: np.sum(np.cos(np.concatenate([a, b], axis=1))),
    "convolution": lambda a, b: np.sum(
        np.tanh(conv2d(a.reshape(2, 4, 10, 20), b.reshape(-1)[:108].reshape(3, 4, 3, 3)))
    ),
}


@pytest.mark.parametrize("device", BOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_functions_and_gradients(name: str, dtype: type, device: int, compiled: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40, 40)).astype(dtype)
    g = adarray.value_and_grad(FUNCTIONS[name], argnums=(0, 1))
    value, slopes = g(a, b)
    limit = 1e-4 if dtype == np.float32 else 1e-10
    f = adarray.jit(g) if compiled else g
    x, y = on(device, a, b)
    for _ in range(4 if compiled else 1):
        got, actual = f(x, y)  # outside of `use` blocks: where the arrays are
        np.testing.assert_allclose(got.numpy(), value, rtol=limit)
        for s, e in zip(actual, slopes, strict=True):
            assert placed(s, device)
            np.testing.assert_allclose(s.numpy(), e, rtol=limit, atol=limit * np.abs(e).max())
    with adarray.use("cuda", device=device):  # host arrays go where the block says
        got, actual = f(a, b)
    assert type(actual[0]) is np.ndarray
    np.testing.assert_allclose(got, value, rtol=limit)


def test_half_precision_convolution() -> None:
    x, w = drawn(2, 3, 9, 9).astype(np.float16), drawn(4, 3, 3, 3).astype(np.float16)
    expected = conv2d(x.astype(np.float64), w.astype(np.float64))
    got = conv2d(*on(1, x, w))
    assert placed(got, 1)
    np.testing.assert_allclose(got.numpy(), expected, atol=0.05)


def test_transforms() -> None:
    x = drawn(6, dtype=np.float64)

    def f(v: Any) -> Any:
        return np.sum(np.sin(v) * np.roll(v, 1))

    a = on(1, x)
    assert placed(adarray.hessian(f)(a), 1)
    np.testing.assert_allclose(adarray.hessian(f)(a).numpy(), adarray.hessian(f)(x), atol=1e-12)
    y, t = adarray.jvp(f, (a,), (on(1, np.ones(6)),))
    expected = adarray.jvp(f, (x,), (np.ones(6),))
    assert placed(t, 1)
    np.testing.assert_allclose([float(y), float(t)], expected)


def test_backward_and_steps_in_place() -> None:
    with adarray.use("cuda", device=1):
        w = adarray.array(drawn(30), requires_grad=True)
    for _ in range(3):
        before = w.numpy()
        np.sum(w**2).backward()
        assert placed(w.grad, 1)
        with adarray.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
        np.testing.assert_allclose(w.numpy(), 0.8 * before, rtol=1e-5)


def test_writes_with_repeated_indices() -> None:
    k = RNG.integers(0, 9, 50)
    values, expected = drawn(50), np.zeros(9, np.float32)
    expected[k] = values
    a, at, new = on(1, np.zeros(9, np.float32), k, values)
    a[at] = new
    np.testing.assert_array_equal(a.numpy(), expected)
    np.add.at(a, at, 1.0)
    np.testing.assert_allclose(a.numpy(), expected + np.bincount(k, minlength=9))


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "fp16"])
def test_products_in_every_precision(precision: str) -> None:
    a, b = drawn(2500, 2100), drawn(2100, 2300)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for device in (1, 0, 1):
        x, y = on(device, a, b)
        with adarray.use("cuda", device=device, matmul_precision=precision):
            got = x @ y
        assert placed(got, device)
        error = np.linalg.norm(got.numpy() - expected) / np.linalg.norm(expected)
        assert error < {"float32": 1e-5, "bf16": 1e-2}.get(precision, 1e-3)


def test_handles_of_cublas() -> None:
    from adarray_backends.cuda import cublas

    cublas._handles.clear()
    a = drawn(50, 50)
    for device in BOTH:
        x = on(device, a)
        np.testing.assert_allclose((x @ x).numpy(), a @ a, rtol=1e-3, atol=1e-3)
    handles = {device: h for (device, *_), h in cublas._handles.items()}
    assert handles.keys() == {0, 1}
    assert [handles[d].memory.device_id for d in BOTH] == [0, 1]


# -- two at once ---------------------------------------------------------------------------


MIXED = {
    "sum": lambda a, b: a + b,
    "function of NumPy": np.arctan2,
    "product": lambda a, b: a @ b,
    "einsum": lambda a, b: np.einsum("ij,jk->ik", a, b),
    "choice": lambda a, b: np.where(a > 0, a, b),
    "join": lambda a, b: np.concatenate([a, b]),
    "index": lambda a, b: a[np.abs(b[0]).astype(np.int64) % 8],
    "solve": np.linalg.solve,
    "convolution": lambda a, b: conv2d(a.reshape(1, 1, 8, 8), b.reshape(1, 1, 8, 8)),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
def test_operands_of_two_gpus_are_refused(name: str, traced: bool) -> None:
    a, b = on(0, drawn(8, 8)), on(1, drawn(8, 8))
    f = MIXED[name]
    for x, y in ((a, b), (b, a)):
        with pytest.raises(BackendError, match=r"on two devices.*to_device"):
            adarray.grad(lambda v, f=f, y=y: np.sum(f(v, y)))(x) if traced else f(x, y)


def test_writes_of_another_gpu_are_refused() -> None:
    a, b = on(0, drawn(8)), on(1, drawn(8))
    before = a.numpy()
    with pytest.raises(BackendError, match=r"on two devices"):
        a[...] = b
    with pytest.raises(BackendError, match=r"on two devices"):
        a += b
    with pytest.raises(BackendError, match=r"on two devices"):
        adarray.vjp(np.sin, a)[1](b)
    np.testing.assert_array_equal(a.numpy(), before)


def test_compiled_calls_with_arrays_of_two_gpus_are_refused() -> None:
    a, b = on(0, drawn(8)), on(1, drawn(8))
    jf = adarray.jit(lambda x, y: np.sin(x) + y)
    with (
        pytest.warns(JitWarning, match="on two devices, cuda:0 and cuda:1"),
        pytest.raises(BackendError, match=r"on two devices.*to_device"),
    ):
        jf(a, b)


def test_compiled_functions_alternate() -> None:
    """One function, plans and graphs for each GPU."""
    w, v, x = drawn(30, 20), drawn(20, 10), drawn(50, 30)
    jf = adarray.jit(adarray.value_and_grad(network, argnums=(0, 1)))
    value, slopes = adarray.value_and_grad(network, argnums=(0, 1))(w, v, x)
    arrays = [on(d, w, v, x) for d in BOTH]
    for call in range(12):
        device = call % 2 if call < 8 else (call // 2) % 2
        got, actual = jf(*arrays[device])
        assert placed(got, device)
        np.testing.assert_allclose(got.numpy(), value, rtol=1e-4)
        for s, e in zip(actual, slopes, strict=True):
            assert placed(s, device)
            np.testing.assert_allclose(s.numpy(), e, rtol=1e-3, atol=1e-6)
    assert not jf.cache_info().eager
    for args in arrays:
        nodes = list(jf.path(*args))
        assert all(n.executable is not None for n in nodes)
        assert sum(n.executable.counts().replays for n in nodes) > 0


def test_captured_arrays_are_sent_to_each_gpu() -> None:
    table = drawn(20)
    jf = adarray.jit(lambda x: np.sum(np.tanh(x * table)))
    x = drawn(20)
    for call in range(8):
        got = jf(on(call % 2, x))
        assert placed(got, call % 2)
        np.testing.assert_allclose(got.numpy(), np.sum(np.tanh(x * table)), rtol=1e-5)


def test_threads_on_both() -> None:
    jf = adarray.jit(adarray.value_and_grad(network, argnums=(0, 1)))

    def work(seed: int) -> int:
        rng, good = np.random.default_rng(seed), 0
        with adarray.use("cuda", device=seed % 2):
            for _ in range(20):
                w, v, x = (rng.normal(size=s) for s in ((30, 20), (20, 10), (50, 30)))
                value, slopes = adarray.value_and_grad(network, argnums=(0, 1))(w, v, x)
                args = [adarray.array(a) for a in (w, v, x)]
                for f in (jf, adarray.value_and_grad(network, argnums=(0, 1))):
                    got, actual = f(*args)
                    assert placed(got, seed % 2)
                    np.testing.assert_allclose(got.numpy(), value, rtol=1e-9)
                    for s, e in zip(actual, slopes, strict=True):
                        np.testing.assert_allclose(s.numpy(), e, rtol=1e-8, atol=1e-12)
                    good += 1
        return good

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [40] * 4


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_streams(compiled: bool) -> None:
    """Work goes to the current stream of the arrays' GPU."""
    import cupy

    w, v, x = drawn(30, 20), drawn(20, 10), drawn(50, 30)
    expected = adarray.grad(network)(w, v, x)
    f = adarray.jit(adarray.grad(network)) if compiled else adarray.grad(network)
    arrays = on(1, w, v, x)
    with cupy.cuda.Device(1):
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for call in range(6):
        with cupy.cuda.Device(1), streams[call % 2]:
            got = f(*arrays)
            streams[call % 2].synchronize()
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-6)


def test_waiting_is_for_the_gpu_of_the_engine() -> None:
    import cupy

    with adarray.use("cuda", device=1):
        engine = current_mode().engine
    a = on(1, drawn(3000, 3000))
    for _ in range(3):
        b = a
        for _ in range(20):
            b = b @ a * 1e-2
        with cupy.cuda.Device(1):
            event = cupy.cuda.get_current_stream().record()
        engine.synchronize()
        assert event.done


def test_profile_names_the_gpu() -> None:
    with adarray.use("cuda", device=1), adarray.profile() as p:
        np.exp(adarray.array(drawn(100)))
    assert "to cuda:1" in str(p)


# -- memory --------------------------------------------------------------------------------


def used(device: int) -> int:
    """Return the bytes that arrays have of a GPU's pool."""
    import cupy

    with cupy.cuda.Device(device):
        return int(cupy.get_default_memory_pool().used_bytes())


def test_memory_is_of_the_own_pool() -> None:
    size = 8 << 20
    gc.collect()
    before = [used(d) for d in BOTH]
    a = on(1, np.zeros(size, np.uint8).view(np.float32))
    b = np.exp(a)
    assert used(1) - before[1] == 2 * size
    assert used(0) == before[0]
    del a, b
    assert used(1) == before[1]


def test_memory_that_is_short() -> None:
    import cupy

    a = on(1, np.ones(1 << 18))
    with cupy.cuda.Device(1):
        pool = cupy.get_default_memory_pool()
        pool.free_all_blocks()
        limit = pool.total_bytes() + (5 << 20)
        pool.set_limit(size=limit)
    try:
        b = np.exp(a)
        for _ in range(20):  # what was freed is used again
            b = np.exp(a)
        most = (limit - used(1)) // a.nbytes + 1  # more than there is room for
        with pytest.raises(DeviceMemoryError, match="cuda:1 is out of memory"):
            [np.exp(a) for _ in range(most)]
        c = on(0, np.ones(1 << 20))  # the other GPU has room
        np.testing.assert_allclose(np.exp(c).numpy()[:3], np.e)
        np.testing.assert_allclose(b.numpy()[:3], np.e)
    finally:
        with cupy.cuda.Device(1):
            pool.set_limit(size=0)


# -- other libraries, and moves ------------------------------------------------------------


def test_arrays_of_cupy() -> None:
    import cupy

    x = drawn(10)
    with cupy.cuda.Device(1):
        raw = cupy.asarray(x)
    value, gradient = adarray.value_and_grad(lambda v: np.sum(np.sin(v)))(raw)
    assert gradient.device.id == 1
    assert value.device.id == 1
    np.testing.assert_allclose(cupy.asnumpy(gradient), np.cos(x), rtol=1e-6)
    array = adarray.array(raw)
    assert array.device == "cuda:1"
    with cupy.cuda.Device(1):
        assert cupy.asarray(array).data.ptr == array._plain.raw.data.ptr


def test_dlpack_both_ways() -> None:
    import cupy

    result = on(1, drawn(10))
    back = cupy.from_dlpack(result)
    assert back.device.id == 1
    assert back.data.ptr == result._plain.raw.data.ptr
    assert result.__dlpack_device__() == (2, 1)
    again = adarray.from_dlpack(back) if hasattr(adarray, "from_dlpack") else adarray.array(back)
    assert placed(again, 1)


def test_dlpack_with_torch() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    theirs = torch.arange(5.0, device="cuda:1")
    ours = adarray.array(theirs)
    assert placed(ours, 1)
    np.testing.assert_array_equal((ours + 1).numpy(), np.arange(5.0) + 1)
    result = on(1, drawn(10))
    tensor = torch.from_dlpack(np.exp(result))
    assert tensor.device.index == 1
    np.testing.assert_allclose(tensor.cpu().numpy(), np.exp(result.numpy()), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (7,), (300, 40)])
def test_moves_between_gpus(shape: tuple[int, ...]) -> None:
    x = np.asarray(RNG.normal(size=shape))
    a = on(0, x)
    on(1, x)  # so that its name is known
    b = a.to_device("cuda:1")
    assert placed(b, 1)
    np.testing.assert_array_equal(b.numpy(), x)
    np.testing.assert_array_equal(b.to_device("cuda:0").numpy(), x)

    def f(v: Any) -> Any:
        there = np.sin(v).to_device("cuda:1")
        return np.sum((there * there).to_device("cuda:0") * v)

    g = adarray.grad(f)(a)
    assert placed(g, 0)
    np.testing.assert_allclose(g.numpy(), np.sin(2 * x) * x + np.sin(x) ** 2, atol=1e-12)
    if shape:
        transposed = on(0, np.ones((4, *shape)))[::2].T
        np.testing.assert_array_equal(transposed.to_device("cuda:1").numpy(), 1.0)


def test_moves_keep_their_order() -> None:
    """A move waits for what computes its source, and memory is not used again before it ends."""
    import cupy

    on(1, np.zeros(1))
    with cupy.cuda.Device(0):
        stream = cupy.cuda.Stream(non_blocking=True)
    n = 1 << 22
    ones = on(0, np.ones(n, np.float32))
    for k in range(10):
        with cupy.cuda.Device(0), stream:
            a = ones * k
            for _ in range(10):
                a = a + 1.0
            b = a.to_device("cuda:1")
            del a
            junk = ones * -1.0  # takes the memory that was freed
        got = b.numpy()
        assert got[0] == got[-1] == k + 10
        del junk


def test_the_number_must_be_there() -> None:
    count = count_of_gpus()
    with pytest.raises(BackendError, match=f"device is {count}; this machine has {count}"):
        adarray.use("cuda", device=count)
