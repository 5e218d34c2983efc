"""What users see of arrays on a device: where they are, what comes back, what is counted."""

from __future__ import annotations

import pickle

import device as standin
import numpy as np
import pytest

import adarray
from adarray.device import DeviceArray, is_device
from adarray.errors import BackendError, DeviceMemoryError, TraceError
from adarray.testing._ops import use_all_sizes


def loss(x):
    return np.sum(np.tanh(x) * x)


def on_device(x) -> bool:
    return isinstance(x, adarray.ADArray) and is_device(x._plain)


# -- results mirror what was given ---------------------------------------------------------


def test_ndarrays_give_ndarrays(device_backend: str) -> None:
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    expected = adarray.value_and_grad(loss)(x)
    with adarray.use(device_backend):
        value, gradient = adarray.value_and_grad(loss)(x)
    assert type(value) is np.float32
    assert type(gradient) is np.ndarray
    assert gradient.flags.writeable
    assert gradient.flags.owndata
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-6)


def test_python_numbers_give_python_numbers(device_backend: str) -> None:
    with adarray.use(device_backend):
        assert adarray.grad(np.tanh)(0.0) == 1.0
        assert type(adarray.grad(np.tanh)(0.0)) is float


def test_adarrays_stay_on_their_device(device_backend: str) -> None:
    x = np.linspace(-1, 1, 6)
    with adarray.use(device_backend):
        array = adarray.array(x)
        gradient = adarray.grad(loss)(array)
    assert on_device(array)
    assert on_device(gradient)
    later = np.exp(array) * x  # after the block ends
    assert on_device(later)
    np.testing.assert_allclose(later.numpy(), np.exp(x) * x)
    np.testing.assert_allclose(adarray.grad(loss)(array).numpy(), adarray.grad(loss)(x))
    y, t = adarray.jvp(np.sin, (array,), (array,))
    assert on_device(y)
    assert on_device(t)
    assert on_device(adarray.hessian(loss)(array))


def test_arrays_of_the_library_give_such_arrays(device_backend: str, library) -> None:
    x = np.linspace(-1, 1, 6)
    raw = library.to_device(x)
    value, gradient = adarray.value_and_grad(loss)(raw)
    assert type(value) is library.kind
    assert type(gradient) is library.kind
    np.testing.assert_allclose(library.to_host(gradient), adarray.grad(loss)(x))
    y, t = adarray.jvp(np.sin, (raw,), (raw,))
    assert type(y) is library.kind
    assert type(t) is library.kind
    mixed = adarray.array(x) * raw
    assert on_device(mixed)
    np.testing.assert_allclose(mixed.numpy(), x * x)
    np.testing.assert_allclose((raw * adarray.array(x)).numpy(), x * x)


def test_backward_leaves_the_gradient_where_the_leaf_is(device_backend: str) -> None:
    x = np.linspace(-1, 1, 6)
    at_home = adarray.array(x, requires_grad=True)
    with adarray.use(device_backend):
        there = adarray.array(x, requires_grad=True)
        loss(there).backward()
        loss(there).backward()
        loss(at_home).backward()
    assert on_device(there.grad)
    assert type(at_home.grad) is np.ndarray
    np.testing.assert_allclose(there.grad.numpy(), 2 * adarray.grad(loss)(x))
    np.testing.assert_allclose(at_home.grad, adarray.grad(loss)(x))
    with adarray.no_grad():
        there -= 0.5 * there.grad
    np.testing.assert_allclose(there.numpy(), x - adarray.grad(loss)(x))


def test_gradients_that_share_memory_are_written_apart(device_backend: str) -> None:
    with adarray.use(device_backend):
        x = adarray.array(np.ones(4), requires_grad=True)
        y = adarray.array(np.ones(4), requires_grad=True)
        g = adarray.array(np.arange(4.0))
        (x + y).backward(g)
        x.grad *= 2
        g[0] = 7.0
        np.sum(x).backward()
    np.testing.assert_array_equal(y.grad.numpy(), np.arange(4.0))
    np.testing.assert_array_equal(x.grad.numpy(), 2 * np.arange(4.0) + 1)


# -- values -------------------------------------------------------------------------------------


def test_conversions(device_backend: str) -> None:
    x = np.linspace(0.5, 1, 6).reshape(2, 3)
    with adarray.use(device_backend):
        a = adarray.array(x)
    assert type(a.numpy()) is np.ndarray
    np.testing.assert_array_equal(a.numpy(), x)
    np.testing.assert_array_equal(np.asarray(a), x)
    np.testing.assert_array_equal(adarray.value_of(a), x)
    assert a.tolist() == x.tolist()
    assert a.tobytes() == x.tobytes()
    assert float(a[0, 0]) == 0.5
    assert a[1, 2].item() == 1.0
    assert int(np.argmax(a)) == 5
    assert [1, 2, 3][np.argmin(a)] == 1
    assert bool(np.all(a > 0))
    assert a.shape == (2, 3)
    assert a.dtype == np.float64
    assert a.strides == x.strides
    assert a.flags.c_contiguous
    assert len(a) == 2
    assert "device=" in repr(a)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a)).numpy(), x)
    assert on_device(a.detach())
    with pytest.raises(TraceError):
        adarray.grad(lambda v: float(np.sum(v)), intercept=False)(a)


def test_scalars_do_not_follow_writes(device_backend: str) -> None:
    with adarray.use(device_backend):
        a = adarray.array(np.arange(4.0))
        first, view = a[0], a[1:]
        a[0] = 9.0
        a[1] = 8.0
    assert float(first) == 0.0
    assert float(view[0]) == 8.0


def test_views_and_writes(device_backend: str) -> None:
    def f(x):
        y = x * 2
        v = y[1:, ::2]
        v *= x[1:, ::2]
        y[0] = np.sum(v, axis=0)[0]
        y[:, 1][x[:, 1] > 0] = 0.5
        return np.sum(y**2)

    x = np.random.default_rng(0).normal(size=(4, 5))
    expected = adarray.grad(f)(x)
    with adarray.use(device_backend):
        np.testing.assert_allclose(adarray.grad(f)(x), expected)


def test_the_last_of_several_writes_to_an_element_wins(device_backend: str, library) -> None:
    index = np.random.default_rng(0).integers(-50, 50, size=2000)
    value = np.arange(2000.0)

    def f(v, index=index):
        y = np.zeros_like(v, shape=50)
        y[index] = v
        return np.sum(y * y)

    expected = adarray.value_and_grad(f)(value)
    with adarray.use(device_backend):
        for argument in (index, adarray.array(index)):
            got = adarray.value_and_grad(lambda v, index=argument: f(v, index))(value)
            np.testing.assert_array_equal(got[0], expected[0])
            np.testing.assert_array_equal(got[1], expected[1])


def test_indices_out_of_range_raise(device_backend: str) -> None:
    with adarray.use(device_backend):
        a = adarray.array(np.arange(4.0))
        with pytest.raises(IndexError, match="out of bounds"):
            a[np.array([1, 4])]
        with pytest.raises(IndexError, match="out of bounds"):
            a[[-5]] = 1.0
        with pytest.raises(IndexError):
            a[7]


def test_broadcast_arrays_cannot_be_written(device_backend: str) -> None:
    with adarray.use(device_backend):
        a = np.broadcast_to(adarray.array(np.arange(3.0)), (2, 3))
        with pytest.raises(ValueError, match="read-only"):
            a[0, 0] = 1.0
        with pytest.raises(ValueError, match="read-only"):
            a[1][0] = 1.0


def test_numpy_raises_its_own_errors(device_backend: str) -> None:
    with adarray.use(device_backend):
        a = adarray.array(np.ones((2, 3)))
        with pytest.raises(adarray.ShapeError, match="which do not broadcast"):
            a + np.ones(4)
        with pytest.raises(ValueError, match="axis"):
            np.sum(a, axis=5)
        with pytest.raises(np.linalg.LinAlgError):
            np.linalg.inv(adarray.array(np.zeros((2, 2))))
        with pytest.raises(ValueError, match="could not broadcast"):
            a[0] = np.ones(7)


def test_what_a_device_has_no_arrays_of_stays_at_home(device_backend: str) -> None:
    with adarray.use(device_backend):
        wide = adarray.array(np.ones(3, np.longdouble)) * 2
        assert not on_device(wide)
        assert wide.dtype == np.longdouble
        half = adarray.array(np.ones(3, np.float16)) * 2
        assert on_device(half)
        assert half.dtype == np.float16


def test_dtypes_promote_as_numpys(device_backend: str) -> None:
    single, double = np.ones(3, np.float32), np.ones(3)
    with adarray.use(device_backend):
        a = adarray.array(single)
        for other in (2, 2.0, np.float32(2), np.float64(2), np.int64(2), double, True):
            assert (a * other).dtype == (single * other).dtype, other
            assert (a**other).dtype == (single**other).dtype, other
        assert np.sum(a).dtype == np.float32
        assert np.mean(adarray.array(np.arange(3))).dtype == np.float64
        assert np.sum(adarray.array(np.ones(3, np.int32))).dtype == np.int64


# -- transfers -----------------------------------------------------------------------------------


def test_training_on_a_device_transfers_nothing(device_backend: str, library) -> None:
    rng = np.random.default_rng(0)
    with adarray.use(device_backend):
        w = [adarray.array(rng.normal(size=s), requires_grad=True) for s in ((8, 5), (5,), (5, 3))]
        x, target = adarray.array(rng.normal(size=(20, 8))), adarray.array(rng.integers(0, 3, 20))
        rows = adarray.array(np.arange(20))
        t = library.transfers
        before = (t.to_device, t.to_host)
        for _ in range(3):
            h = np.maximum(x @ w[0] + w[1], 0)
            logits = h @ w[2]
            top = np.max(logits, axis=1, keepdims=True)
            logp = logits - top - np.log(np.sum(np.exp(logits - top), axis=1, keepdims=True))
            (-np.mean(logp[rows, target])).backward()
            with adarray.no_grad():
                for p in w:
                    p -= 0.1 * p.grad
                    p.grad = None
    assert (t.to_device, t.to_host) == before
    assert not t.converted or device_backend


def test_profile_shows_transfers(device_backend: str, library) -> None:
    x = np.ones(1000)
    with adarray.profile() as p, adarray.use(device_backend):
        a = adarray.array(x)
        np.sum(np.exp(a)).numpy()
    kinds = {(s.kind, s.name): s for s in p.spans}
    sent = kinds["transfer", f"to {library.name}"]
    assert sent.moved == x.nbytes
    assert ("transfer", f"from {library.name}") in kinds
    assert any(s.kind == "op" and s.name == "exp" for s in p.spans)


def test_what_the_library_lacks_runs_on_the_host_and_is_counted(device_backend, library) -> None:
    with adarray.use(device_backend):
        a = adarray.array(np.linspace(1, 2, 5))
        library.transfers.on_host.clear()
        r = np.spacing(a) if device_backend == "cuda" else np.divmod(a, 0.3)[0]
    assert library.transfers.on_host
    np.testing.assert_array_equal(
        r.numpy(),
        np.spacing(np.linspace(1, 2, 5)) if device_backend == "cuda"
        else np.linspace(1, 2, 5) // 0.3,
    )  # fmt: skip


# -- other libraries -----------------------------------------------------------------------------


def test_dlpack_out_and_in(device_backend: str, library) -> None:
    with adarray.use(device_backend):
        a = adarray.array(np.arange(4.0))
        again = adarray.array(a._plain.raw)
    assert on_device(again)
    assert again._plain.raw is not a._plain.raw
    assert a.__dlpack_device__() == a._plain.raw.__dlpack_device__()
    assert a.device == library.name
    with pytest.raises(TraceError):
        adarray.grad(lambda x: np.sum(x) + len(str(x.__dlpack__())))(a)


def test_moving_between_devices(device_backend: str, library) -> None:
    x = np.arange(4.0)
    with adarray.use(device_backend):
        a = adarray.array(x)
    back = a.to_device("cpu")
    assert not on_device(back)
    np.testing.assert_array_equal(back.numpy(), x)
    assert a.to_device(library.name) is a
    assert on_device(back.to_device(library.name))

    def f(v):
        return np.sum(np.sin(v.to_device("cpu")) * x)

    np.testing.assert_allclose(adarray.grad(f)(a).numpy(), np.cos(x) * x)
    assert on_device(adarray.grad(f)(a))
    with pytest.raises(ValueError, match="is not known"):
        a.to_device("abacus:0")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (7,), (300, 41), (64, 64)])
def test_branches_that_are_not_taken_have_no_effect(
    device_backend: str, dtype: type, shape: tuple[int, ...]
) -> None:
    """Where a cotangent is zero, so is what comes before it, though the derivative is infinite."""
    x = np.asarray(np.arange(np.prod(shape, dtype=int)) % 5, dtype).reshape(shape)

    def f(v):
        return np.sum(np.where(v > 0, np.sqrt(v), v * 3) + np.maximum(v, 2))

    expected = adarray.grad(f)(x)
    assert np.isfinite(expected).all()
    with adarray.use(device_backend):
        a = adarray.array(x)
        gradient = adarray.grad(f)(a).numpy()
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
    with adarray.use(device_backend):  # what is no zero times infinity stays
        plain = adarray.grad(lambda v: np.sum(np.sqrt(v) * np.maximum(v, 0)))(a).numpy()
    assert (
        np.isnan(plain[x == 0]).all()
        == np.isnan(adarray.grad(lambda v: np.sum(np.sqrt(v) * np.maximum(v, 0)))(x)[x == 0]).all()
    )


# -- failures ------------------------------------------------------------------------------------


def test_operands_on_two_devices(monkeypatch) -> None:
    standin.installed(monkeypatch)
    with adarray.use("standin"):
        a = adarray.array(np.ones(3))
    with adarray.use("standin", device=1):
        b = adarray.array(np.ones(3))
        assert b.device == "standin:1"
        with pytest.raises(BackendError, match=r"on two devices.*to_device"):
            a + b
    assert on_device(a + b.to_device("standin:0"))


def test_moves_between_devices_are_differentiated(monkeypatch) -> None:
    """Cotangents go back to the device that the operand was on."""
    standin.installed(monkeypatch)
    x = np.linspace(0.5, 2, 6)
    with adarray.use("standin", device=1):
        adarray.array(x)  # the name is known now
    with adarray.use("standin"):
        a = adarray.array(x)

    def f(v):
        there = np.sin(v).to_device("standin:1")
        return np.sum((there * there).to_device("standin:0") * v)

    expected = np.sin(2 * x) * x + np.sin(x) ** 2
    moved = a.to_device("standin:1")
    assert moved.device == "standin:1"
    np.testing.assert_array_equal(moved.numpy(), x)
    for _ in range(2):
        g = adarray.grad(f)(a)
        assert g.device == "standin:0"
        np.testing.assert_allclose(g.numpy(), expected)
    _, t = adarray.jvp(f, (a,), (a,))
    assert t.device == "standin:0"
    np.testing.assert_allclose(float(t), np.sum(expected * x))
    h = adarray.hessian(f)(a)
    assert h.device == "standin:0"
    by_hand = 2 * np.cos(2 * x) * x + 2 * np.sin(2 * x)
    np.testing.assert_allclose(h.numpy(), np.diag(by_hand), atol=1e-12)


def test_memory_that_is_short_is_freed_once(monkeypatch) -> None:
    standin.installed(monkeypatch)
    with adarray.use("standin"):
        a = adarray.array(np.ones(1000))
        saved = np.exp(a)
        released = standin.Allocator.released
        monkeypatch.setattr(standin.Allocator, "limit", 10_000)
        monkeypatch.setattr(standin.Allocator, "reserved", 5_000)
        b = a + a  # fits once what is kept is freed
        assert standin.Allocator.released == released + 1
        monkeypatch.setattr(standin.Allocator, "limit", 5_000)
        with pytest.raises(DeviceMemoryError, match=r"standin:0 is out of memory.*8000 bytes"):
            a * b
        monkeypatch.setattr(standin.Allocator, "limit", None)
    assert isinstance(DeviceMemoryError("x"), MemoryError)
    np.testing.assert_array_equal(saved.numpy(), np.exp(np.ones(1000)))
    np.testing.assert_array_equal(b.numpy(), 2 * np.ones(1000))


def test_options(device_backend: str) -> None:
    with pytest.raises(BackendError, match="no_such"):
        adarray.use(device_backend, no_such=1)
    if device_backend == "cuda":
        with pytest.raises(BackendError, match="the option device is 99"):
            adarray.use("cuda", device=99)


def test_conformance(device_backend: str) -> None:
    from adarray.testing import check_backend

    check_backend(device_backend, dtypes=())


def test_device_arrays_pass_for_numpys(device_backend: str, library) -> None:
    with adarray.use(device_backend):
        v, s = adarray.array(np.ones(3))._plain, np.sum(adarray.array(np.ones(3)))._plain
    assert type(v) is type(s) is DeviceArray
    assert isinstance(v, np.ndarray)
    assert not isinstance(v, np.generic)
    assert isinstance(s, np.float64)
    assert not isinstance(s, np.ndarray)


# -- buffers of the host in functions whose arguments are on a device ----------------------------


def _rows(x):
    m = np.zeros((3, 3))
    v = m[:2]
    v[0] = 1.0
    return m + 0 * x


def _flat_part(x):
    m = np.zeros((3, 3))
    m[:2].flat[0::4] = 1.0
    return m * x


def _one_axis(x):
    m = np.zeros((3, 3))
    m.reshape(-1)[1:] = 2.0
    m.T.ravel()[0] = 7.0
    return m * x


def _values_of_the_device(x):
    m = np.zeros((3, 3))
    v = m[:2]
    v[0] = x[1]
    m[1] = 5.0
    v += 1.0
    v.T[1] = 2.0
    return m * x + v[0]


def _identity(x):
    return np.linalg.matrix_power(x, 0) + x


@pytest.mark.parametrize("f", [_rows, _flat_part, _one_axis, _values_of_the_device, _identity])
def test_views_of_buffers_are_views(f, device_backend: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 3))
    slope = adarray.grad(lambda x: np.sum(np.sin(f(x))))
    expected = slope(x)
    with use_all_sizes(device_backend):
        y, _ = adarray.vjp(f, x)
        np.testing.assert_allclose(y, f(x), rtol=1e-14)
        np.testing.assert_allclose(slope(x), expected, rtol=1e-12, atol=1e-14)


def test_checkpoints_notice_other_values(device_backend: str) -> None:
    rng = np.random.default_rng(0)
    noisy = adarray.checkpoint(lambda x: np.sum(x * rng.normal(size=3)))
    with (
        use_all_sizes(device_backend),
        pytest.raises(TraceError, match="computed something else when it ran again"),
    ):
        adarray.grad(noisy)(np.ones(3))


@pytest.mark.parametrize("part", [
    lambda b: b.imag, np.imag, lambda b: np.outer(b, b).diagonal(),
    lambda b: np.diag(np.outer(b, b)), lambda b: np.linalg.diagonal(np.outer(b, b)),
    lambda b: (b + 0j).imag.imag,
], ids=["imag", "np.imag", "diagonal", "diag", "linalg.diagonal", "imag.imag"])  # fmt: skip
@pytest.mark.parametrize("traced", [True, False])
def test_what_numpy_makes_read_only_is_read_only(device_backend: str, part, traced: bool) -> None:
    def f(x):
        v = part(x * 2.0)
        assert not v.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            v[0] = 1.0
        return np.sum(x)

    with adarray.use(device_backend):
        x = np.ones(3)
        if traced:
            np.testing.assert_array_equal(adarray.grad(f)(x), np.ones(3))
        else:
            f(adarray.use(device_backend)._engine.library.place(x))
