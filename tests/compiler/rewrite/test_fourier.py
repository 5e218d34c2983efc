"""NumPy's Fourier transforms as calls of one function in programs for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Map, PythonCall
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.fourier import fourier, fourier_calls

RNG = np.random.default_rng(3)
ONE_AXIS = "fft", "ifft", "rfft", "irfft", "ihfft", "hfft"
SEVERAL = "fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"


def operand(name: str, *shape: int, char: str = "d") -> np.ndarray:
    x = RNG.normal(size=shape).astype(char)
    if name in ("rfft", "ihfft", "rfftn", "rfft2"):
        return x
    return (x + 1j * RNG.normal(size=shape)).astype(char.upper())


def changed(f: Any, *args: Any) -> Any:
    """Rewrite what `f` does, compare the values, and return the program."""
    program = recorded(f, *args).program
    after = dead(fourier_calls(program, GPU))
    verify_program(after)
    arrays = [np.asarray(a) for a in args]
    for want, got in zip(interpret(program, arrays), interpret(after, arrays), strict=True):
        assert np.asarray(got).dtype == np.asarray(want).dtype
        rtol = 1e-5 if np.asarray(want).dtype.char in "fF" else 1e-12
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * np.max(np.abs(want)))
    return after


def calls(program: Any) -> list[Any]:
    """Return the arguments of the transforms; nothing else calls a function."""
    every = [v.primitive for v in program.values if isinstance(v.primitive, PythonCall)]
    assert all(p.function is fourier for p in every)
    return [p.args[1:] for p in every]


@pytest.mark.parametrize("char", ["f", "d"])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ONE_AXIS)
def test_lengths_and_norms(name: str, norm: Any, char: str) -> None:
    function = getattr(np.fft, name)

    def f(x: Any) -> Any:
        lengths = [function(x, n, k, norm) for n in (None, 1, 4, 5, 11) for k in (0, 1)]
        return (*lengths, function(x, axis=-2, norm=norm))

    after = changed(f, operand(name, 6, 5, char=char))
    assert len(calls(after)) == 11


@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes(name: str) -> None:
    function = getattr(np.fft, name)

    def f(x: Any) -> Any:
        return (
            function(x), function(x, None, (0, 1)), function(x, (4, 7), (0, 2), "ortho"),
            function(x, axes=(2, 1), norm="forward"), function(x, (5, -1), (1, 2)),
        )  # fmt: skip

    after = changed(f, operand(name, 6, 5, 4))
    axes = [c[1] for c in calls(after)]
    whole = (1, 2) if name[-1] == "2" else (0, 1, 2)
    assert axes[:2] == [whole, (0, 1)]
    assert axes[2:4] in ([(2,), (0,)], [(0,), (2,)])  # which are not side by side
    of_complex = name in ("fftn", "ifftn", "fft2", "ifft2")
    assert ((1, 2) in axes[4:5]) == of_complex  # the half axis of the others is not the last one


def test_four_axes_are_two_transforms() -> None:
    after = changed(np.fft.fftn, operand("fft", 2, 3, 4, 5))
    assert sorted(len(c[1]) for c in calls(after)) == [1, 3]


def test_what_others_read_is_not_merged() -> None:
    def f(x: Any) -> Any:
        once = np.fft.fft(x)
        return np.fft.fft(once, axis=0), once, np.fft.ifft(np.fft.fft(x), axis=0)

    assert [c[1] for c in calls(changed(f, operand("fft", 3, 4)))].count((0, 1)) == 0


def test_operands_of_other_dtypes() -> None:
    def f(x: Any, k: Any, h: Any) -> Any:
        return np.fft.fft(x), np.fft.rfft(k), np.fft.rfft(h), np.fft.irfft(x), np.fft.fft(k > 2)

    k = RNG.integers(0, 5, (3, 4))
    assert len(calls(changed(f, RNG.normal(size=5), k, k.astype(np.float16)))) == 5


def test_derivatives_of_real_transforms_are_real_ones() -> None:
    def f(x: Any, w: Any) -> Any:
        return np.sum(np.tanh(np.fft.irfft(np.fft.rfft(x) * w)))

    program = recorded(adarray.grad(f), RNG.normal(size=(3, 8)), RNG.normal(size=5)).program
    after = dead(fourier_calls(program, GPU))
    kinds = [
        v.primitive.args[1]
        for v in after.values
        if isinstance(v.primitive, PythonCall) and v.primitive.function is fourier
    ]
    assert kinds == ["half", "whole", "half", "whole"]


def order(f: Any, *args: Any) -> list[str]:
    """Return the operations of a program, for short, in order."""
    names = []
    for v in changed(f, *args).values:
        if isinstance(v.primitive, Map):
            names.append(v.primitive.name)
        elif isinstance(v.primitive, PythonCall):
            names.append(v.primitive.args[1])
    return names


def test_kernels_multiply_on_the_side_where_there_are_any() -> None:
    x, z = operand("rfft", 8), operand("fft", 8)
    inside = order(lambda x: np.tanh(np.fft.irfft(np.fft.rfft(np.exp(x), norm="ortho"))), x)
    assert inside == ["exp", "multiply", "half", "whole", "multiply", "tanh"]
    between = order(lambda x: np.fft.rfft(np.fft.irfft(np.fft.rfft(x) * 1j)), x)
    assert between[0] == "half"
    assert between[-2:] == ["whole", "half"]
    assert "paired" in between  # multiplied by the factor, too
    assert order(np.fft.ifft, z)[0] == "inverse"


def test_conjugates_are_left_to_kernels() -> None:
    x = operand("rfft", 8)
    names = order(lambda x: np.fft.hfft(np.exp(x) * 1j), x)
    assert names.index("negative") < names.index("whole")
    names = order(lambda x: np.real(np.fft.ihfft(x)) + 1, x)
    assert names[0] == "half"  # of what nobody reads, nothing is computed
    assert "negative" not in names


def test_other_programs_stay() -> None:
    x = RNG.normal(size=(3, 4))
    for f in (np.sort, lambda x: np.fft.fft(x[:0], axis=1), np.fft.fftshift):
        program = recorded(f, x).program
        assert fourier_calls(program, GPU) is program
    program = recorded(np.fft.rfft, x).program
    assert fourier_calls(program, CPU) is program
