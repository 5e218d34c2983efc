"""What the array API asks of arrays and namespaces besides functions of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
import adarray.numpy as xp
from adarray import ADArray

DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32",
    "float64", "complex64", "complex128",
}  # fmt: skip


def test_dtype_functions() -> None:
    x = xp.ones(2, dtype=xp.float32)
    assert xp.result_type(x, 1.0) == xp.float32
    assert xp.result_type(x, xp.float64, 2) == xp.float64
    assert xp.can_cast(x, xp.float64)
    assert not xp.can_cast(xp.float64, xp.int32)
    assert xp.isdtype(x.dtype, "real floating")
    assert xp.isdtype(xp.int8, ("integral", "bool"))
    assert xp.finfo(x).eps == xp.finfo(xp.float32).eps == np.finfo(np.float32).eps
    assert xp.finfo(x).dtype == xp.float32
    assert xp.iinfo(xp.ones(1, dtype=xp.int16)).max == xp.iinfo("int16").max == 32767
    assert isinstance(xp.finfo(x), xp.finfo)


def test_traced_python_number_promotes_weakly() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(xp.result_type(xp.ones(2, dtype=xp.float32), x))
        return x * 1.0

    adarray.grad(f)(2.0)
    assert seen == [np.float32]


def test_namespace_info() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64,
    }  # fmt: skip
    assert info.default_device() == "cpu"
    assert info.devices() == ["cpu"]
    assert info.default_dtypes(device="cpu")["real floating"] == np.float64
    assert info.default_dtypes()["indexing"] == xp.argmax(xp.ones(2)).dtype
    assert set(info.dtypes()) == DTYPES
    assert info.dtypes(kind="real floating") == {
        "float32": np.dtype("float32"), "float64": np.dtype("float64"),
    }  # fmt: skip
    assert [*info.dtypes(kind=("bool", "unsigned integer"))][:2] == ["bool", "uint8"]
    with pytest.raises(ValueError, match=r"dtypes: kind='floating' is not known; it is one of"):
        info.dtypes(kind="floating")
    with pytest.raises(ValueError, match=r"device='gpu' is not known; the only device is \"cpu\""):
        info.default_dtypes(device="gpu")


def test_array_namespace() -> None:
    x = xp.ones(2)
    assert x.__array_namespace__() is xp
    for version in ("2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(ValueError, match=r"api_version='1999.1' is not supported; pass one of"):
        x.__array_namespace__(api_version="1999.1")
    assert xp.__array_api_version__ == "2024.12"


def test_array_api_compat_knows_it() -> None:
    compat = pytest.importorskip("array_api_compat")
    x = adarray.array([[1.0, 2.0]])
    assert compat.is_array_api_obj(x)
    assert not compat.is_numpy_array(x)
    assert compat.array_namespace(x, x, 1.0) is xp
    assert not compat.is_numpy_namespace(xp)
    assert compat.device(x) == "cpu"
    assert compat.to_device(x, "cpu") is x
    assert compat.size(x) == 2
    assert compat.is_writeable_array(x)
    assert not compat.is_lazy_array(x)
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(x, np.ones(2))


def test_devices() -> None:
    x = xp.ones(2)
    assert x.device == "cpu"
    assert x.to_device("cpu") is x
    with pytest.raises(ValueError, match=r"to_device: device='cuda' is not known"):
        x.to_device("cuda")
    with pytest.raises(ValueError, match=r"to_device: stream=1, and the device 'cpu'"):
        x.to_device("cpu", stream=1)
    for make in (
        lambda d: xp.zeros(2, device=d), lambda d: xp.asarray([1.0], device=d),
        lambda d: xp.full(2, 1.0, device=d), lambda d: xp.arange(3, device=d),
        lambda d: xp.eye(2, device=d), lambda d: xp.linspace(0, 1, 3, device=d),
        lambda d: xp.ones_like(x, device=d), lambda d: xp.astype(x, xp.float32, device=d),
        lambda d: xp.fft.fftfreq(3, device=d), lambda d: xp.from_dlpack(x, device=d),
    ):  # fmt: skip
        assert isinstance(make("cpu"), ADArray)
        with pytest.raises(ValueError, match=r"device='gpu' is not known; the only device"):
            make("gpu")


def test_dlpack() -> None:
    x = adarray.array([1.0, 2.0])
    assert x.__dlpack_device__() == (1, 0)
    plain = np.from_dlpack(x)
    np.testing.assert_array_equal(plain, [1.0, 2.0])
    if plain.flags.writeable:  # NumPy 2.0 gives arrays for reading only
        plain[0] = 3.0  # as of any array on the host, a consumer shares the memory
        assert float(x[0]) == 3.0
    back = xp.from_dlpack(plain)
    assert isinstance(back, ADArray)
    with pytest.raises(BufferError, match="__dlpack__: copy=False"):
        xp.broadcast_to(x, (2, 2)).__dlpack__(copy=False)
    with pytest.raises(BufferError, match="from_dlpack: copy=False"):
        xp.from_dlpack(plain, copy=False)
    with pytest.raises(adarray.TraceError, match="__dlpack__: a traced value would leave"):
        adarray.grad(lambda y: np.sum(np.from_dlpack(y)))(np.ones(2))


def test_copy_argument() -> None:
    x = xp.ones((2, 3))
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=False) is x
    y = xp.asarray(x, copy=True)
    y[0, 0] = 5.0
    assert float(x[0, 0]) == 1.0
    with pytest.raises(ValueError, match="asarray: copy=False, and a copy is needed"):
        xp.asarray(x, dtype=xp.float32, copy=False)
    with pytest.raises(ValueError, match="asarray: copy=False, and an ADArray has memory of its"):
        xp.asarray(np.ones(2), copy=False)
    with pytest.raises(ValueError, match="reshape: copy=False, and this shape needs a copy"):
        xp.reshape(x.T, (6,), copy=False)
    z = xp.reshape(x, (6,), copy=True)
    z[0] = 7.0
    assert float(x[0, 0]) == 1.0


def test_array_of_plain_memory_is_apart() -> None:
    plain = np.ones(3)
    for result in (xp.asarray(plain), xp.reshape(plain, (3, 1)), xp.atleast_1d(plain),
                 xp.broadcast_to(plain, (2, 3)), xp.array(plain, copy=None)):  # fmt: skip
        assert isinstance(result, ADArray)
        assert not np.shares_memory(result._plain, plain)
