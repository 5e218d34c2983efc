"""What may be written over what it is computed from."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.program import c_strides
from adarray.compiler.kernels.dependence import apart, meets


def _places(offset: int, strides: Any, shape: tuple[int, ...]) -> np.ndarray:
    places = np.full(shape, offset)
    for a, (s, n) in enumerate(zip(strides, shape, strict=True)):
        places += (s * np.arange(n)).reshape((n,) + (1,) * (len(shape) - a - 1))
    return places


def _really(read: np.ndarray, write: np.ndarray) -> bool:
    """Whether an element reads the place of another one, element by element."""
    owner = {int(p): k for k, p in enumerate(write.ravel())}
    return any(owner.get(int(p), k) != k for k, p in enumerate(read.ravel()))


def _region(rng: np.random.Generator, base: tuple[int, ...], counts: Any) -> tuple[int, Any]:
    offset, strides = 0, []
    for n, c, s in zip(base, counts, c_strides(base), strict=True):
        most = (n - 1) // (c - 1) if c > 1 else 1
        step = int(rng.integers(1, most + 1))
        low = int(rng.integers(0, n - step * (c - 1)))
        if rng.random() < 0.5:
            low, step = low + step * (c - 1), -step
        offset += low * s
        strides.append(step * s if c > 1 else 0)
    return offset, tuple(strides)


def test_what_is_said_to_be_safe_is_safe() -> None:
    rng = np.random.default_rng(0)
    safe = found_safe = 0
    for _ in range(4000):
        base = tuple(int(n) for n in rng.integers(1, 7, rng.integers(1, 4)))
        counts = tuple(int(rng.integers(1, n + 1)) for n in base)
        offset, strides = _region(rng, base, counts)
        start, steps = _region(rng, base, counts)
        if rng.random() < 0.2:
            start, steps = offset, strides
        elif rng.random() < 0.3:  # one for all
            steps = tuple(0 if rng.random() < 0.5 else s for s in steps)
        elif rng.random() < 0.3 and len(set(counts)) == 1:
            steps = tuple(rng.permutation(steps).tolist())
        read = AffineIndex(start, tuple((a, s) for a, s in enumerate(steps) if s))
        if not 0 <= _places(start, steps, counts).min() <= np.prod(base) - 1:
            continue
        crosses = _really(_places(start, steps, counts), _places(offset, strides, counts))
        said = meets(read, offset, strides, counts, base)
        assert said or not crosses, (base, counts, offset, strides, read)
        safe += not crosses
        found_safe += not said
    assert found_safe > 0.8 * safe


@pytest.mark.parametrize(
    ("read", "offset", "strides", "shape", "base"),
    [
        (AffineIndex(0, ((0, 2),)), 0, (2,), (500,), (1000,)),  # in place
        (AffineIndex(1, ((0, 2),)), 0, (2,), (500,), (1000,)),  # the elements between
        (AffineIndex(999, ((0, -1),)), 0, (1,), (500,), (1000,)),  # the other half, backwards
        (AffineIndex(1, ((0, 10), (1, 2))), 0, (10, 2), (100, 5), (100, 10)),  # the other columns
        (AffineIndex(500, ((0, 10), (1, 1))), 0, (10, 1), (50, 10), (100, 10)),  # the other rows
        (AffineIndex(7, ((0, 10),)), 0, (10, 1), (100, 7), (100, 10)),  # a column beside
    ],
)
def test_what_is_safe_is_written_in_place(
    read: AffineIndex, offset: int, strides: Any, shape: Any, base: Any
) -> None:
    assert not meets(read, offset, strides, shape, base)


def test_distances_that_no_steps_bridge() -> None:
    for (a, b), n in itertools.product(itertools.product(range(-4, 5), repeat=2), (1, 2, 5)):
        for c in range(-9, 10):
            never = apart(AffineIndex(c, ((0, a),)), AffineIndex(0, ((0, b),)), (n,))
            met = {c + a * i for i in range(n)} & {b * i for i in range(n)}
            assert not (never and met)
    assert apart(AffineIndex(0, ()), AffineIndex(0, ()), (0,))


CASES = {
    "every other from every other backwards": "y[::2] -= y[::-2]",
    "columns from columns upside down": "y[0] = y[1]; y[:, ::2] = y[::-1, ::2]",
    "one element for all": "y[::2] -= 0.5 * y[2]",
    "a turned square": "y[::2, ::2] += np.sin(y[::2, ::2].T)",
    "a row for all rows": "y[::3] *= y[3]",
    "a part of a large array": "y[10:400] += y[9:399]",
    "out=": "np.multiply(y[::2], y[::-2], out=y[::-2])",
    "arrays of indices": "y[[2, 0, 1]] = 0.5 * y[:3]",
}
SHAPES = {"a turned square": (9, 9), "columns from columns upside down": (4, 5), "out=": (9,),
          "a part of a large array": (5000,)}  # fmt: skip


@pytest.mark.parametrize("backend", ["serial", "openmp"])
@pytest.mark.parametrize("name", CASES)
def test_elements_are_read_before_they_are_written(name: str, backend: str) -> None:
    """Kernels have read some elements after they had written them."""
    space: dict[str, Any] = {"np": np}
    exec(f"def f(x):\n    y = np.sin(x)\n    {CASES[name]}\n    return y * x", space)
    f = space["f"]
    x = np.random.default_rng(1).normal(size=SHAPES.get(name, (7,)))
    try:
        context = adarray.use(backend)
    except adarray.BackendError:
        pytest.skip(f"the {backend} backend is not available")
    with context:
        jitted = adarray.jit(f)
        for k in range(3):
            # Sums that nearly cancel have the rounding of sines in other last bits.
            np.testing.assert_allclose(jitted(x + k), f(x + k), rtol=1e-14, atol=1e-15)


def test_a_small_write_copies_no_large_array() -> None:
    """What a piece is computed from is kept aside, however large the array is."""

    def f(x: Any) -> Any:
        y = np.sin(x)
        for i in range(8):
            y[i + 1 : i + 50] = y[i : i + 49] * 2.0
            y[i + 100] = y[i + 99]
        return y

    x = np.random.default_rng(0).normal(size=10_000)
    try:
        context = adarray.use("serial")
    except adarray.BackendError:
        pytest.skip("the serial backend is not available")
    with context:
        jitted = adarray.jit(f)
        for _ in range(3):
            np.testing.assert_allclose(jitted(x), f(x))
        (plan,) = (n.plan for n in jitted.path(x))
    large = [b for b in plan.buffers if b.kind != "input" and b.size == x.size]
    assert len(large) <= 2, plan
