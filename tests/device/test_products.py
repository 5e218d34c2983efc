"""Products on a GPU: any strides and batches, and what operands are rounded to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from adarray_backends.cuda.engine import PRECISION, CudaEngine, checked_precision

import adarray
from adarray.device import Library
from adarray.errors import BackendError

RNG = np.random.default_rng(3)
# How far products are off, relative to the largest element.
ERRORS = {"float32": 1e-6, "tf32": 2e-3, "bf16": 2e-2, "fp16": 2e-3}


@pytest.fixture
def cupy() -> Any:
    """Return CuPy, where there is a GPU."""
    try:
        adarray.use("cuda")
    except BackendError as error:
        pytest.skip(str(error))
    import cupy

    return cupy


# -- the option ------------------------------------------------------------------------------------


def test_options_are_checked() -> None:
    for name in ERRORS:
        assert checked_precision(name, (9, 0)) == name
    for wrong in ("float64", "TF32", 32, None):
        with pytest.raises(BackendError) as error:
            checked_precision(wrong, (9, 0))
        assert str(error.value) == (
            f"backend 'cuda': the option matmul_precision is {wrong!r}; pass one of 'float32', "
            "'tf32', 'bf16', 'fp16' (exact products are 'float32')"
        )
    assert checked_precision("fp16", (7, 5)) == "fp16"
    with pytest.raises(BackendError) as error:
        checked_precision("tf32", (7, 5))
    assert str(error.value) == (
        "backend 'cuda': the option matmul_precision is 'tf32', which needs a GPU of compute "
        "capability 8.0; this one has 7.5: leave the option out"
    )


def test_blocks_nest() -> None:
    outer, inner = CudaEngine(Library(), "tf32"), CudaEngine(Library())
    assert PRECISION.get() == "float32"
    first = outer.enter()
    assert PRECISION.get() == "tf32"
    second = inner.enter()
    assert PRECISION.get() == "float32"
    inner.leave(second)
    assert PRECISION.get() == "tf32"
    outer.leave(first)
    assert PRECISION.get() == "float32"


# -- strides and batches ---------------------------------------------------------------------------


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape)


OPERANDS = {
    "rows": lambda: (drawn(3, 4), drawn(4, 2)),
    "columns": lambda: (drawn(4, 3).T, drawn(2, 4).T),
    "a row": lambda: (drawn(4), drawn(4, 2)),
    "a column": lambda: (drawn(3, 4), drawn(8)[::2]),
    "a stack by one": lambda: (drawn(2, 3, 4), drawn(4, 2)),
    "one by a stack": lambda: (drawn(3, 4), drawn(2, 4, 2)),
    "stacks that broadcast": lambda: (drawn(2, 1, 3, 4), drawn(5, 4, 2)),
    "vectors of stacks": lambda: (drawn(4), drawn(2, 4, 3)),
    "gaps": lambda: (drawn(6, 8)[::2, ::2], drawn(4, 2)),
    "backwards": lambda: (drawn(3, 4)[::-1], drawn(4, 2)[:, ::-1]),
    "heads": lambda: (drawn(2, 5, 3, 4).swapaxes(1, 2), drawn(2, 5, 3, 4).transpose(0, 2, 3, 1)),
    "repeated": lambda: (
        np.broadcast_to(drawn(1, 4), (3, 4)), np.broadcast_to(drawn(4, 1), (4, 7))),
    "gaps in stacks": lambda: (drawn(2, 3, 2, 6, 8)[::-1, ::2, :, ::2, ::2], drawn(2, 2, 1, 4, 3)),
    "single": lambda: (drawn(1, 4), drawn(4, 1)),
    "outer": lambda: (drawn(5, 1), drawn(1, 6)),
    "packs": lambda: (drawn(6, 16), drawn(16, 24)),
    "packs in columns": lambda: (drawn(16, 8).T, drawn(24, 16).T),
    "packs in stacks": lambda: (drawn(3, 6, 16), np.broadcast_to(drawn(16, 8), (3, 16, 8))),
    "packs of several blocks": lambda: (drawn(1030, 64), drawn(64, 136)),
}  # fmt: skip


def placed(cupy: Any, x: Any, dtype: Any) -> Any:
    """Return an array on the GPU with the strides of `x`, whatever lies between."""
    if 0 in x.strides:
        once = tuple(slice(None) if s else slice(1) for s in x.strides)
        return cupy.broadcast_to(cupy.asarray(x[once].astype(dtype)), x.shape)
    size = np.dtype(dtype).itemsize
    strides = tuple(s // x.itemsize * size for s in x.strides)
    reach = [(n - 1) * s for n, s in zip(x.shape, strides, strict=True)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + size
    array = cupy.ndarray(x.shape, dtype, cupy.zeros(high - low, cupy.uint8).data - low, strides)
    array[...] = cupy.asarray(np.ascontiguousarray(x), dtype)
    return array


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", OPERANDS)
def test_strides_and_batches(name: str, dtype: Any, cupy: Any) -> None:
    from adarray_backends.cuda import products

    a, b = (placed(cupy, x, dtype) for x in OPERANDS[name]())
    want = np.matmul(a.get().astype(np.float64), b.get().astype(np.float64))
    out = cupy.full(want.shape, np.nan, dtype)
    products.product(*map(products.stack_of, (a, b, out)), np.dtype(dtype).name)
    tight = {np.float16: 2e-2, np.float32: 1e-5, np.float64: 1e-12}[dtype]
    np.testing.assert_allclose(out.get(), want, rtol=tight, atol=tight * np.max(np.abs(want)))


@pytest.mark.gpu
@pytest.mark.parametrize("reuse", [0, 1 << 30])
@pytest.mark.parametrize("precision", list(ERRORS))
@pytest.mark.parametrize("name", OPERANDS)
def test_precisions(
    name: str, precision: str, reuse: int, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without conversion of the operands to 16 bits before the product."""
    from adarray_backends.cuda import products

    monkeypatch.setattr(products, "REUSE", reuse)
    products._single.cache_clear()
    a, b = (placed(cupy, x, np.float32) for x in OPERANDS[name]())
    want = np.matmul(a.get().astype(np.float64), b.get().astype(np.float64))
    out = cupy.full(want.shape, np.nan, np.float32)
    products.product(*map(products.stack_of, (a, b, out)), "float32", precision)
    products._single.cache_clear()
    size = np.max(np.abs(a.get())) * np.max(np.abs(b.get())) * a.shape[-1]
    np.testing.assert_allclose(out.get(), want, rtol=0, atol=ERRORS[precision] * size)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", list(ERRORS))
@pytest.mark.parametrize("compiled", [False, True])
def test_eager_and_compiled_products_obey(precision: str, compiled: bool, cupy: Any) -> None:
    a, b = (RNG.normal(size=(2304, 2304)).astype(np.float32) for _ in range(2))
    want = a[:50].astype(np.float64) @ b.astype(np.float64)

    def f(a: Any, b: Any) -> Any:
        return np.matmul(a, b) * 1.0

    with adarray.use("cuda", matmul_precision=precision):
        x, y = adarray.array(a), adarray.array(b)
        g = adarray.jit(f) if compiled else f
        for _ in range(3 if compiled else 1):
            result = g(x, y)
        contracted = np.einsum("ij,jk->ki", x, y)
    for got in (result.numpy()[:50], contracted.numpy().T[:50]):
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        least, most = {"float32": (0, 3e-6), "tf32": (1e-4, 5e-4), "bf16": (1e-3, 5e-3),
                       "fp16": (1e-4, 5e-4)}[precision]  # fmt: skip
        assert least <= error < most


@pytest.mark.gpu
def test_halves_overflow_to_infinity(cupy: Any) -> None:
    a = np.full((2304, 2304), 1e6, np.float32)
    with adarray.use("cuda", matmul_precision="fp16"):
        assert np.all(np.isinf((adarray.array(a) @ a).numpy()))
    with adarray.use("cuda", matmul_precision="bf16"):
        assert np.all(np.isfinite((adarray.array(a) @ a).numpy()))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("bqhd,bkhd->bhqk", ((2, 5, 3, 8), (2, 7, 3, 8))),
        ("ij,kj->ki", ((4, 5), (6, 5))),
        ("nchw,oc->nohw", ((2, 3, 4, 5), (6, 3))),
        ("abc,cbd->ad", ((3, 4, 5), (5, 4, 6))),
        ("ab,ab->", ((3, 4), (3, 4))),
        ("aij,ajk->aik", ((5, 2, 3), (1, 3, 4))),
        ("ij,jk", ((2, 3), (3, 4))),
    ],
)
def test_einsum(text: str, shapes: Any, cupy: Any) -> None:
    a, b = (drawn(*s) for s in shapes)
    with adarray.use("cuda"):
        array = np.einsum(text, adarray.array(a), adarray.array(b))
        got, pull = adarray.vjp(lambda a, b: np.einsum(text, a, b), a, b)
        back = pull(np.ones_like(got))
    _, plain = adarray.vjp(lambda a, b: np.einsum(text, a, b), a, b)
    np.testing.assert_allclose(array.numpy(), np.einsum(text, a, b), rtol=1e-12, atol=1e-12)
    for x, y in zip(back, plain(np.ones_like(got)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
def test_errors_of_products_name_shapes(cupy: Any) -> None:
    with adarray.use("cuda"), pytest.raises(ValueError, match=r"matmul: operands 0 and 1 have"):
        adarray.array(drawn(3, 4)) @ drawn(3, 4)


@pytest.mark.gpu
def test_threads_of_one_stream_have_rooms_of_their_own(cupy: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from adarray_backends.cuda import cublas

    def room(size: int) -> int:
        return cublas.handle().room(size)

    with ThreadPoolExecutor(1) as pool:
        mine, other = room(1000), pool.submit(room, 1000).result()
        assert mine != other
        assert room(10) == mine
        assert pool.submit(room, 10).result() == other
