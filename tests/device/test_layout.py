"""Arrays keep strides of their kind on the way to a device: NumPy looks at these, or copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trust import seeds

import adarray
from adarray.base.memory import duplicate, layout_of
from adarray.device import Library

SHAPES = ((6,), (3, 4), (2, 6), (2, 3, 4), (3, 1, 4), (1, 5))


def array(rng: np.random.Generator) -> np.ndarray:
    """Return an array that lies in memory in any way."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    order = [int(a) for a in rng.permutation(len(shape))]
    steps = [int(rng.choice([1, 1, 1, 2, 3, -1, -1, -2])) for _ in shape]
    own = [shape[a] * abs(s) for a, s in zip(order, steps, strict=True)]
    x = rng.uniform(0.5, 1.5, own)[tuple(slice(None, None, s) for s in steps)]
    return x.transpose(np.argsort(order))


def are_views(x: np.ndarray) -> list[bool]:
    """Return where NumPy looks at an array, and does not copy it."""
    shapes = [(-1,), (1, -1), (2, -1), (-1, 2)] if x.size % 2 == 0 else [(-1,), (1, -1)]
    views = [x.ravel(order) for order in ("C", "F", "A", "K")]
    views += [x.reshape(s, order=order) for s in shapes for order in ("C", "F", "A")]
    return [np.shares_memory(x, y) for y in views]


def test_memory_in_one_piece_holds_an_array_of_the_same_kind() -> None:
    for seed in seeds(300):
        x = array(np.random.default_rng(seed))
        layout = layout_of(x.shape, x.strides, x.itemsize)
        assert layout is not None
        memory = np.zeros(layout.shape)
        result = memory[layout.parts].transpose(layout.axes)
        result[...] = x
        assert are_views(result) == are_views(x), (x.shape, x.strides, result.strides)
        assert [s < 0 for s in result.strides] == [s < 0 for s in x.strides]


def test_elements_that_share_memory_have_no_layout() -> None:
    assert layout_of((3, 4), (0, 8), 8) is None
    assert layout_of((3, 4), (8, 8), 8) is None


def test_what_is_sent_or_copied_lies_as_it_did(library: Library) -> None:
    for seed in seeds(100):
        x = array(np.random.default_rng(seed))
        for result in (library.place(x), duplicate(library.place(x))):
            np.testing.assert_array_equal(result.host(), x)
            strides = result.raw.strides
            first = -sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True) if s < 0)
            reach = sum((n - 1) * abs(s) for n, s in zip(x.shape, strides, strict=True))
            like = np.ndarray(x.shape, x.dtype, bytearray(reach + x.itemsize), first, strides)
            assert are_views(like) == are_views(x), (x.shape, x.strides, strides)


def test_results_lie_as_those_of_numpy_do(library: Library) -> None:
    for seed in seeds(200):
        rng = np.random.default_rng(seed)
        x, y = array(rng), array(rng)
        args = [x, y] if rng.random() < 0.5 and x.shape == y.shape else [x, x[:1] * 2.0]
        args = [x, 2.0] if rng.random() < 0.3 else args
        expected = np.multiply(*args)
        result = np.multiply(*[library.place(a) if isinstance(a, np.ndarray) else a for a in args])
        np.testing.assert_array_equal(result.host(), expected)
        long = [n > 1 for n in x.shape]
        strides = [
            [s for s, n in zip(r.strides, long, strict=True) if n] for r in (result.raw, expected)
        ]
        assert strides[0] == strides[1], (seed, [np.shape(a) for a in args])


@pytest.mark.parametrize("order", ["C", "K"])
def test_a_reversed_array_is_copied_where_numpy_copies(device_backend: str, order: Any) -> None:
    """A copy in C order was looked at, and what was written there reached the array."""

    def f(x: Any) -> Any:
        v = x.ravel(order)
        v[::2] += 1.0
        return x * 1.0, v * 1.0

    x = np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0)[:, ::-1, ::-1]
    expected = f(duplicate(x))
    with adarray.use(device_backend):
        got = f(adarray.ADArray(x))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


CALLS = {
    "where": lambda x, y: np.where(x > 1.0, x, y),
    "cumsum": lambda x, y: np.cumsum(x, axis=0),
    "sort": lambda x, y: np.sort(x, axis=-1),
    "argsort": lambda x, y: np.argsort(y, axis=0),
    "concatenate": lambda x, y: np.concatenate([x, y], axis=-1),
    "stack": lambda x, y: np.stack([x, y], axis=1),
    "tril": lambda x, y: np.tril(x),
    "roll": lambda x, y: np.roll(x, 1, 0),
    "diff": lambda x, y: np.diff(x, axis=-1),
    "repeat": lambda x, y: np.repeat(x, 2, 0),
    "pad": lambda x, y: np.pad(x, 1),
    "take": lambda x, y: np.take(x, [0, 0], -1),
    "clip": lambda x, y: np.clip(x, 0.7, y),
    "nan_to_num": lambda x, y: np.nan_to_num(x),
    "interp": lambda x, y: np.interp(x, np.array([0.0, 2.0]), np.array([0.0, 1.0])),
    "partition": lambda x, y: np.partition(x, x.shape[-1] - 1),
    "round": lambda x, y: np.round(x, 1),
    "sum": lambda x, y: np.sum(x, 0),
    "maximum.reduce": lambda x, y: np.maximum.reduce(x, axis=-1, keepdims=True),
    "add.accumulate": lambda x, y: np.add.accumulate(x, -1),
    "dtype": lambda x, y: np.add(x, y, dtype=np.float32),
    "rows": lambda x, y: x[np.array([0, 0])],
    "columns": lambda x, y: x[..., np.array([0, 0])],
    "list": lambda x, y: x[:, [0]],
    "mask": lambda x, y: x[:, np.ones(x.shape[1], bool)],
    "percentile": lambda x, y: np.nanpercentile(x, np.array([20.0, 50.0]), 0),
    "windows": lambda x, y: np.sort(np.lib.stride_tricks.sliding_window_view(x, 2, 0), 0),
    "repeated": lambda x, y: np.sort(np.broadcast_to(x[:1], x.shape), 0),
    "inverse": lambda x, y: np.linalg.qr(x[:2, :2])[1],
}  # fmt: skip
C_ORDER = ("repeat", "take", "pad", "argsort", "interp", "round")


@pytest.mark.parametrize("name", CALLS)
def test_results_of_functions_lie_as_those_of_numpy_do(library: Library, name: str) -> None:
    """They lay in C order, and what was written through ``reshape`` went elsewhere."""
    transposed = 0
    for seed in seeds(40):
        rng = np.random.default_rng(seed)
        x = array(rng)
        if x.ndim < 2 or 1 in x.shape[:2]:
            continue
        y = duplicate(x) * 0.9
        expected = CALLS[name](x, y)
        result = CALLS[name](library.place(x), library.place(y))
        np.testing.assert_allclose(result.host(), expected, rtol=1e-6)
        long = [n > 1 for n in expected.shape]
        orders = [
            np.argsort([-abs(s) for s, n in zip(r.strides, long, strict=True) if n], kind="stable")
            for r in (result.raw, expected)
        ]
        np.testing.assert_array_equal(*orders, f"{seed}: {x.shape}, {x.strides}")
        transposed += not expected.flags.c_contiguous
    assert transposed or name in C_ORDER, "all lie in C order"
