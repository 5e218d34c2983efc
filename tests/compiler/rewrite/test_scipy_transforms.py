"""SciPy computes the transforms that NumPy is called for, on processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import PythonCall
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.target import GPU, CpuTarget
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite import scipy_transforms as module
from adarray.compiler.rewrite.packed_transforms import PackedTransform, is_convolved
from adarray.compiler.rewrite.scipy_transforms import TRANSFORMS, Transform, scipy_transforms

pytest.importorskip("scipy")
RNG = np.random.default_rng(5)
TARGET = CpuTarget(threads=2)


def called(program: Program) -> list[Transform]:
    functions = [
        v.primitive.function for v in program.values if isinstance(v.primitive, PythonCall)
    ]
    return [f for f in functions if isinstance(f, Transform)]


def changed(f: Any, *arrays: np.ndarray) -> Program:
    """Return the program of `f` with SciPy's transforms, after comparing what both compute."""
    program = recorded(f, *arrays).program
    after = scipy_transforms(program, TARGET)
    verify_program(after)
    for got, want in zip(
        interpret(after, list(arrays)), interpret(program, list(arrays)), strict=True
    ):
        assert np.asarray(got).dtype == np.asarray(want).dtype
        single = np.asarray(want).dtype.char in "fF"
        size = float(np.max(np.abs(want), initial=1.0))
        np.testing.assert_allclose(got, want, rtol=0, atol=(1e-5 if single else 1e-13) * size)
    return after


@pytest.mark.parametrize("name", ["rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_real_transforms_of_lengths_with_large_factors(
    name: str, dtype: str, norm: str | None
) -> None:
    n = 2 * 607
    assert is_convolved(n)
    f = getattr(np.fft, name)
    x = RNG.normal(size=(3, n)).astype(dtype)
    if name in ("irfft", "hfft"):  # imaginary parts of the first and the last are ignored
        x = (x[:, : n // 2 + 1] + 1j * x[:, n // 2 - 1 :]).astype(
            np.result_type(dtype, np.complex64)
        )
        made = changed(lambda x: f(x, n, norm=norm), x)
    else:
        made = changed(lambda x: f(x, axis=-1, norm=norm), x)
    calls = [v.primitive.function for v in made.values if isinstance(v.primitive, PythonCall)]
    assert calls == [PackedTransform(name in ("rfft", "ihfft"), 1)]
    other = changed(lambda x: f(x, n + 1 if name[0] == "r" else n - 1, norm=norm), x)
    assert [t.name for t in called(other)] == [name]  # padded, or of odd length


def test_gradients_through_packed_transforms() -> None:
    n = 2 * 607
    x, w = RNG.normal(size=(4, n)), RNG.normal(size=n // 2 + 1)

    def f(x: Any, w: Any) -> Any:
        return np.sum(np.tanh(np.fft.irfft(np.fft.rfft(x) * w)))

    changed(adarray.value_and_grad(f, argnums=(0, 1)), x, w)


def test_which_lengths_scipy_convolves() -> None:
    assert not any(is_convolved(n) for n in (1, 2, 30, 64, 1000, 65536, 65534, 2 * 3 * 5 * 7 * 11))
    assert all(is_convolved(n) for n in (2 * 607, 8414, 20014, 65542))


@pytest.mark.parametrize("name", sorted(TRANSFORMS.values()))
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_every_transform(name: str, dtype: str) -> None:
    if name in ("rfft", "ihfft", "rfft2", "rfftn") and dtype.startswith("complex"):
        pytest.skip("it takes real numbers")
    if name in ("ifft", "ifft2", "ifftn") and dtype.startswith("float"):
        pytest.skip("of real numbers it stays with NumPy")
    x = (RNG.normal(size=(4, 6, 8)) + 0.5j * RNG.normal(size=(4, 6, 8))).real.astype(dtype)
    f = getattr(np.fft, name)
    assert [t.name for t in called(changed(lambda x: f(x), x))] == [name]
    other = {"axes": (0, 1)} if name.endswith(("2", "n")) else {"axis": 1, "n": 5}
    for norm in ("backward", "ortho", "forward"):
        after = changed(lambda x, norm=norm: f(x, norm=norm, **other), x)
        assert [t.name for t in called(after)] == [name]


def test_gradients() -> None:
    def f(x: Any, h: Any) -> Any:
        return np.sum(np.fft.irfft(np.fft.rfft(x) * h) ** 2)

    x, h = RNG.normal(size=(12, 30)), RNG.normal(size=16)
    names = [t.name for t in called(changed(adarray.grad(f, argnums=(0, 1)), x, h))]
    assert sorted(names) == ["hfft", "ihfft", "irfft", "rfft"]


def test_threads_share_large_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    x = RNG.normal(size=(8, 32))
    assert [t.workers for t in called(changed(lambda x: np.fft.fft(x), x))] == [1]
    monkeypatch.setattr(module, "SHARED", 256)
    assert [t.workers for t in called(changed(lambda x: np.fft.fft(x), x))] == [2]


def test_what_numpy_alone_does_stays() -> None:
    x = RNG.normal(size=(6, 8))
    for f in (lambda x: np.fft.fftn(x, s=(4, 4), axes=(0, 1)), lambda x: np.fft.fftshift(x)):
        assert not called(changed(f, x))
    program = recorded(lambda x: np.fft.rfft(x), x).program
    assert scipy_transforms(program, GPU) is program
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "find_spec", lambda _: None)
        assert scipy_transforms(program, TARGET) is program
    for axes in ((0, 0), (1, -1)):  # NumPy goes over the axis twice
        for g in (
            lambda x, a=axes: np.fft.fft2(x, axes=a),
            lambda x, a=axes: np.fft.fftn(x, None, a),
        ):
            assert not called(changed(g, x))
    assert not called(changed(lambda x: np.fft.ifft(x), x))  # signs of zeros
    integers = np.arange(12)
    assert not called(changed(lambda x: np.fft.fft(x), integers))
