"""Copies of arrays that lie in memory as the originals do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.base.memory import duplicate
from adarray.errors import TraceError
from adarray.jitting import JitWarning

MEMORY = np.arange(240.0).reshape(4, 6, 10)
LAYOUTS = [
    MEMORY[::a, ::b, ::c].transpose(order)
    for a, b, c in itertools.product((1, -1, 2), (1, -2), (1, -1, 3))
    for order in ((0, 1, 2), (2, 0, 1), (2, 1, 0))
] + [MEMORY[:1, ::-1], MEMORY[:, :1].T, MEMORY[:0], MEMORY[0, 0, ::-1], MEMORY[1, 2, 3:4]]


@pytest.mark.parametrize("exactly", [False, True])
def test_numpy_looks_and_copies_where_it_does_with_the_original(exactly: bool) -> None:
    for x in LAYOUTS:
        result = duplicate(x, exactly)
        np.testing.assert_array_equal(result, x)
        assert not np.shares_memory(result, x)
        assert result.flags.c_contiguous == x.flags.c_contiguous
        assert result.flags.f_contiguous == x.flags.f_contiguous
        if exactly and x.size:
            assert result.strides == x.strides
        for order in "CFAK":
            for view in (
                lambda a, order=order: a.ravel(order),
                lambda a, order=order: a.reshape(-1, order=order if order != "K" else "C"),
                lambda a: a.reshape(a.shape[0], -1) if a.size else a[:],
                lambda a: a.T.reshape(-1),
                lambda a: a.swapaxes(0, -1).reshape(-1),
            ):
                assert np.shares_memory(view(result), result) == np.shares_memory(view(x), x)


def test_copies_are_small() -> None:
    x = np.zeros((1000, 1000))[::100, ::50]
    result = duplicate(x)
    assert result.base.nbytes <= 4 * x.nbytes


@pytest.mark.parametrize("rows", [slice(None, None, -1), slice(None, None, 2)])
def test_a_copy_that_reshape_makes_is_not_taken_for_a_view(rows: slice) -> None:
    """The caller's array was written into through it."""

    def f(x: Any) -> Any:
        x[0, 0] += 1
        v = x.reshape(-1)
        v[0] = 99
        return x * 1.0

    def g(x: Any) -> Any:
        x += 1.0  # held elements that follow one another, though those of x do not
        np.multiply(x, 2.0, out=x)
        x.ravel()[0] = 99
        return np.sum(x * x)

    memory = np.arange(24.0).reshape(6, 4)
    compiled = adarray.jit(f)
    for _ in range(3):
        own, plain = memory.copy()[rows], memory.copy()[rows]
        np.testing.assert_array_equal(compiled(own), f(plain))
        np.testing.assert_array_equal(own, plain)
    for gradient in (adarray.grad(g), adarray.jit(adarray.grad(g))):
        for _ in range(3):
            x = memory.copy()[rows]
            np.testing.assert_array_equal(gradient(x), 8 * (memory[rows] + 1))


def test_arrays_that_others_rely_on_keep_their_strides_under_jit() -> None:
    def f(x: Any) -> Any:
        x[1] *= 2.0
        return x * 1.0

    compiled = adarray.jit(f)
    for _ in range(4):
        captured = adarray.ADArray(np.asfortranarray(np.arange(12.0).reshape(3, 4)))
        captured._frozen = True
        np.testing.assert_array_equal(compiled(captured), f(np.arange(12.0).reshape(3, 4)))


_WHOLE = np.arange(1.0, 13.0).reshape(3, 4) + 0.0
_BIG = np.linspace(0.0, 1.0, 90_000)
_FIXED = np.ones(3)
_FIXED.flags.writeable = False
ARGUMENTS = {
    "owner": _WHOLE, "reversed": _WHOLE[::-1], "transposed": _WHOLE.T, "columns": _WHOLE[:, 1:3],
    "row": _WHOLE[1], "big": _BIG, "view of a big one": _BIG[:], "read-only": _FIXED,
    "view of a read-only one": _FIXED[1:],
}  # fmt: skip


def _layout(x: Any) -> list[Any]:
    flags = x.flags
    questions = (
        "owndata",
        "c_contiguous",
        "f_contiguous",
        "writeable",
        "behaved",
        "carray",
        "farray",
    )
    answers: list[Any] = [getattr(flags, name) for name in questions]
    answers += [flags[name] for name in ("C", "F", "O", "W", "OWNDATA", "WRITEABLE", "B", "CA")]
    return [*answers, str(flags), x.base is None]


@pytest.mark.parametrize("mode", ["grad", "intercept", "jvp"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_lie_in_memory_as_plain_ones(name: str, mode: str) -> None:
    x = ARGUMENTS[name]
    expected = [_layout(x), _layout(x[1:]), _layout(x.T), _layout(x * 2.0)]
    met = []

    def f(x: Any) -> Any:
        met.append([_layout(x), _layout(x[1:]), _layout(x.T), _layout(x * 2.0)])
        return np.sum(x)

    if mode == "jvp":
        adarray.jvp(f, (x,), (np.ones(x.shape),))
    else:
        adarray.grad(f, intercept=mode == "intercept")(x)
    assert met == [expected]


def test_what_an_argument_is_a_view_of_is_not_read() -> None:
    x = _WHOLE[1:]
    for read in (
        lambda b: b[0, 0],
        lambda b: np.sum(b),
        lambda b: b.sum(),
        lambda b: np.asarray(b).sum(),
    ):
        with pytest.raises(TraceError, match="pass that array as an argument"):
            adarray.grad(lambda x, read=read: np.sum(x) * read(x.base))(x)


def test_compiled_code_is_not_asked_for_bases() -> None:
    f = adarray.jit(lambda x: np.sum(x) * (2.0 if x.base is None else 3.0))
    with pytest.warns(JitWarning, match="base asks about memory"):
        assert f(np.ones(3)) == 6.0
    assert f(np.ones(4)[1:]) == 9.0
