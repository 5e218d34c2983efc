"""Programs without a schedule of their own: on a GPU no thread or block is left with most of it."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, emulated_agree
from recorded import recorded

import adarray
from adarray.compiler.fusion.groups import UPDATED
from adarray.compiler.ir.affine import ONE, slope, times
from adarray.compiler.ir.loopir import Apply, Const, Fold, For, Let, Store, Var, integer, statements
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU
from adarray.compiler.kernels import steps
from adarray.compiler.planning.planner import plan
from adarray.compiler.print_cuda.printer import source
from adarray.compiler.rewrite import short_axes
from adarray.compiler.schedule.extents import most_of
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.loops import crossing, scattered
from adarray.compiler.schedule.gpu.schedules import (
    ColumnFolds,
    ColumnStrips,
    FlatLoops,
    RowsByWarp,
    Schedule,
    SheetRows,
)

RNG = np.random.default_rng(22)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def burgers(u: Any) -> Any:
    for _ in range(3):
        c = u[1:-1]
        n = c - 0.1 * c * (c - u[:-2]) + 0.05 * (u[2:] - 2.0 * c + u[:-2])
        u = np.concatenate([u[:1], n, u[-1:]])
    return np.mean(u * u)


def attention(s: Any, v: Any) -> Any:
    e = np.exp(s * 0.125 - np.max(s * 0.125, axis=-1, keepdims=True))
    o = (e / np.sum(e, axis=-1, keepdims=True)) @ v
    return np.mean(o * o)


def weighted(x: Any, w: Any) -> Any:
    """Add up rows of products with a short axis."""
    d = x[:, None, :] * w[None, :, :]
    return np.sum(np.tanh(np.sum(d, axis=1)))


def scanned(x: Any) -> Any:
    return np.sum(np.cumsum(np.sin(x), axis=1) ** 2)


def activated(x: Any, w: Any) -> Any:
    h = np.tanh(x)
    return np.sum((h @ w) ** 2)


def marched(u: Any) -> Any:
    """March through neighbours within a row, which threads compute again for each other."""
    for _ in range(8):
        c = u[:, 1:-1] + 0.1 * (u[:, :-2] - 2.0 * u[:, 1:-1] + u[:, 2:])
        u = np.concatenate([u[:, :1], c, u[:, -1:]], axis=1)
    return np.sum(u * u)


def rolled(u: Any) -> Any:
    for _ in range(2):
        around = np.roll(u, 1, 1) + np.roll(u, -1, 1) + np.roll(u, 1, 2) + np.roll(u, -1, 2)
        u = u + 0.1 * np.tanh(around - 4.0 * u)
    return np.sum(u * u)


ROWS = RNG.integers(0, 30, 40)


def taken(x: Any) -> Any:
    return np.sum(np.sin(np.take(x, ROWS, axis=1)) ** 2)


FEW, ENDS = RNG.integers(0, 4, 2), RNG.integers(0, 5, 9)


def taken_from_few(x: Any) -> Any:
    """Take few pieces, each of many elements; and of the last axis, of which one is repeated."""
    return np.sum(np.take(x, FEW, axis=0) ** 3) + np.sum(np.tanh(np.take(x, ENDS, axis=-1)))


def picked(x: Any) -> Any:
    return np.take(np.sin(x), ROWS, axis=0) * 2.0


def picked_within(x: Any) -> Any:
    return np.take(np.sin(x), ROWS, axis=1) * 2.0


def normed(x: Any, w: Any) -> Any:
    """Compute the rows of a short outer axis by values of its middle axis."""
    c = x - np.mean(x, axis=-1, keepdims=True)
    n = c / np.sqrt(np.mean(c**2, axis=-1, keepdims=True) + 1e-3)
    a = np.tanh(np.maximum(np.max(n * n, axis=2), w))
    return np.sum(np.cumsum(np.swapaxes(a, 0, 1), axis=1) ** 2)


def near(x: Any, y: Any) -> Any:
    """Fold pairs of rows over an axis that is short, but not as short as of points."""
    d = x[:, None, :] - y[None, :, :]
    return np.mean(np.mean(1.0 / (1.0 + np.sum(d * d, axis=-1)), axis=1) ** 2)


def swapped(x: Any, w: Any) -> Any:
    m = np.mean(x, axis=-1, keepdims=True)
    n = (x - m) / np.sqrt(np.mean((x - m) ** 2, axis=-1, keepdims=True) + 1e-3)
    a = np.swapaxes(n, 0, 1) * w
    return np.mean(a * a)


def largest(x: Any) -> Any:
    """Fold a short outer axis, and all but one of those in it."""
    return np.sum(np.max(x * x, axis=(0, 2)) ** 2) + np.sum(np.sum(np.tanh(x), axis=(0, 1)) ** 2)


def lines(x: Any) -> Any:
    return np.sum(np.tanh(np.cumsum(x, axis=0)) ** 2)


def moved(x: Any, w: Any) -> Any:
    """Scale a transposed array by its middle axis, along which it lies in memory."""
    a = np.swapaxes(x, 1, 2) * w
    return np.sum(np.sin(np.mean(a * a, axis=(0, 2))) ** 2)


def middle(x: Any) -> Any:
    """Normalise rows along a middle axis: neighbours in memory are of neighbouring rows."""
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.mean((e / np.sum(e, axis=1, keepdims=True)) ** 2)


PROGRAMS = {
    "moved": (moved, ((13, 70, 1024), (1,)), ((3, 5, 36), (1,))),
    "middle": (middle, ((40, 70, 600),), ((3, 70, 9),)),
    "many points": (near, ((30, 5), (40000, 5)), ((9, 5), (31, 5))),
    "normed": (normed, ((13, 4096, 28), (13, 4096)), ((3, 70, 9), (3, 70))),
    "near": (near, ((1212, 24), (249, 24)), ((30, 20), (70, 20))),
    "far": (near, ((1212, 48), (249, 48)), ((30, 40), (70, 40))),
    "sixteen": (near, ((1212, 16), (249, 16)), ((30, 16), (70, 16))),
    "taken from few": (taken_from_few, ((8, 5000, 12),), ((4, 9, 5),)),
    "coordinates": (near, ((1212, 7), (249, 7)), ((30, 6), (70, 6))),
    "swapped": (swapped, ((60000, 29), (29, 1)), ((300, 9), (9, 1))),
    "largest": (largest, ((11, 304, 256),), ((3, 70, 36),)),
    "lines": (lines, ((1710, 87),), ((300, 5),)),
    "few lines": (lines, ((70000, 6),), ((97, 5),)),
    "marched": (marched, ((64, 4096),), ((9, 31),)),
    "rolled": (rolled, ((8, 90, 40),), ((3, 8, 9),)),
    "taken": (taken, ((20, 30, 2000),), ((3, 30, 7),)),
    "picked": (lambda x: np.sum(picked(x)), ((30, 400, 5, 16),), ((30, 3, 2, 7),)),
    "picked_within": (lambda x: np.sum(picked_within(x)), ((4096, 30, 16),), ((5, 30, 9),)),
    "rosenbrock": (rosenbrock, (1 << 16,), (3001,)),
    "burgers": (burgers, (1 << 16,), (501,)),
    "attention": (attention, ((16, 256, 256), (16, 256, 8)), ((3, 20, 36), (3, 36, 4))),
    "weighted": (weighted, ((600, 6), (500, 6)), ((30, 6), (41, 6))),
    "scanned": (scanned, ((32, 100, 64),), ((5, 9, 7),)),
    "activated": (activated, ((512, 64), (64, 8)), ((40, 6), (6, 3))),
}


def arrays(name: str, small: bool) -> list[np.ndarray]:
    shapes = PROGRAMS[name][1 + small]
    return [normal(*(s if isinstance(s, tuple) else (s,))) for s in shapes]


@functools.cache
def schedules(name: str, *shapes: tuple[int, ...]) -> list[Schedule]:
    """Return how the kernels of a value and its gradients run, for its shapes or others."""
    arguments = [normal(*s) for s in shapes] or arrays(name, small=False)
    f = adarray.value_and_grad(PROGRAMS[name][0], argnums=tuple(range(len(arguments))))
    kernels = [s for s in plan(recorded(f, *arguments).program, target=GPU).steps
               if isinstance(s, KernelStep)]  # fmt: skip
    return [schedule_of(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), GPU)
            for s in kernels]  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_large_kernels_have_many_threads(name: str) -> None:
    for s in schedules(name):
        launch = launch_of(s, GPU)
        threads = launch.blocks * launch.chunks * s.block
        counts = [n for n in (*s.facts.extents, *s.facts.inner) if n is not None]
        work = s.facts.rows * max(counts, default=1)
        assert threads * 128 >= work, (type(s).__name__, launch, s.facts.ints)


@emulated
def test_results_are_those_of_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_axes, "PAIRS", 64)
    monkeypatch.setattr(short_axes, "TRANSPOSED", 64)
    monkeypatch.setattr(steps, "ACROSS", 4)
    monkeypatch.setattr(steps, "CHUNK", 4)
    cases = []
    for name, (f, *_) in PROGRAMS.items():
        arguments = arrays(name, small=True)
        g = adarray.value_and_grad(f, argnums=tuple(range(len(arguments))))
        r = recorded(g, *arguments)
        cases.append((r, plan(r.program, target=SMALL)))
    emulated_agree(cases, tmp_path, 2e-4)


@pytest.mark.parametrize(("f", "shape"), [(picked, (30, 4, 16)), (picked_within, (4096, 30, 16))])
def test_what_is_gathered_is_written_as_it_lies(f: Any, shape: tuple[int, ...]) -> None:
    """Threads do not share the axis of the indices, which are side by side, too."""
    (step,) = plan(recorded(f, normal(*shape)).program, target=GPU).steps
    assert isinstance(step, KernelStep)
    stores = 0
    for inner in (s for s in statements(step.kernel.body) if isinstance(s, For)):
        lets = {s.name: s.value for s in inner.body if isinstance(s, Let)}
        if inner.kind == "vector":
            moves = [slope(s.index, inner.var, lets) for s in inner.body if isinstance(s, Store)]
            stores += len(moves)
            assert moves == [ONE] * len(moves)
    assert stores == 1


def test_slices_of_a_vector_are_one_pass() -> None:
    (s,) = schedules("rosenbrock")
    assert isinstance(s, FlatLoops)


def test_steps_within_a_row_are_not_computed_again_and_again() -> None:
    for s in schedules("marched"):
        if isinstance(s, ColumnStrips):
            continue  # each step is computed once, however many there are
        assert sum(isinstance(x, Let) for x in statements(s.facts.kernel.body)) < 256


def test_stencils_of_a_vector_have_no_blocks_of_rows() -> None:
    assert all(isinstance(s, FlatLoops | ColumnStrips) for s in schedules("burgers"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_indices_are_taken_apart_in_32_bits(name: str) -> None:
    """Division of 64-bit numbers, with a look at their signs, takes longer than most rows."""
    for s in schedules(name):
        if s.narrow:
            assert "floor_divide" not in source(s).text


def repeated_waits(s: Schedule) -> int:
    """Return how often threads of a block wait for each other in a serial loop over rows."""
    body = () if s.facts.parallel is None else s.facts.parallel.body
    nested = [x for x in statements(body) if isinstance(x, For) and x.kind == "serial"]
    shared = [x for x in nested if any(isinstance(y, For) for y in x.body)]
    return max((s.facts.count(x) for x in shared if s.group > 32), default=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_of_a_block_do_not_wait_in_long_loops(name: str) -> None:
    assert all(repeated_waits(s) < 64 for s in schedules(name))


def test_rows_of_all_heads_are_rows() -> None:
    """A value that is computed again where it is read does not keep two axes apart."""
    rows = {s.facts.rows for s in schedules("attention")}
    assert 16 not in rows
    assert 16 * 256 in rows


def test_scatters_of_few_pieces_are_shared() -> None:
    """Each thread collects four elements of the result, however few pieces there are."""
    collected = [s for s in schedules("taken from few") if not s.facts.inner and s.facts.parallel]
    assert [s.facts.rows for s in collected] == [8 * 5000 * 12 // 4] * 2


def test_coordinates_are_read_and_written_together() -> None:
    """Points of many coordinates are transposed by a kernel each, and gradients back by another."""
    *first, value, mean, to_points, to_others = schedules("sixteen")[:6]
    assert [type(s) for s in first] == [SheetRows] * 2
    assert isinstance(mean, FlatLoops)
    pairs = [value, to_points, to_others]
    assert all(isinstance(s, ColumnFolds) for s in pairs)
    assert [len(s.facts.sized) for s in pairs] == [1, 16, 16]
    last = schedules("sixteen")[6:]
    assert len(last) <= 3
    assert all(isinstance(s, FlatLoops) for s in last)


def test_transposes_are_read_in_the_order_of_memory() -> None:
    for s in schedules("moved"):
        loop = s.facts.parallel
        assert loop is None or not crossing(loop, s.facts.kernel)


def test_rows_across_memory_share_sectors() -> None:
    """So many rows side by side that what a warp reads at a time fills sectors."""
    for shape in (40, 70, 600), (12, 200, 900):
        s = schedules("middle", shape)[0]
        assert isinstance(s, RowsByWarp)
        assert (s.group, s.facts.rows) == (4, shape[0] * shape[2])


def test_threads_with_many_folds_have_registers_for_them() -> None:
    for m, n in (700, 1200), (20, 40000):
        folds = [s for s in schedules("sixteen", (m, 12), (n, 12)) if s.facts.most_folds > 8]
        assert sorted(s.facts.rows for s in folds) == [m, n]
        assert all(isinstance(s, ColumnFolds) and s.block <= 256 and s.width <= 2 for s in folds)


def test_large_sums_over_rows_are_not_updated_in_memory() -> None:
    for s in schedules("many points"):
        totals = sum(s.facts.bytes_of(t) or 0 for t in s.facts.sized)
        assert totals <= UPDATED + 4096 or isinstance(s, SheetRows | ColumnFolds)


def test_lines_of_a_running_fold_are_shared() -> None:
    rows = [s.facts.rows for s in schedules("scanned")]
    assert rows.count(32 * 64) >= 2  # forward and backward


def test_few_long_lines_of_running_folds_are_cut_in_chunks() -> None:
    """No thread goes through a whole line: most take chunks, and a block takes what these give."""
    rows = [s.facts.rows for s in schedules("few lines")]
    assert max(rows) >= 6 * 1000
    for s in schedules("few lines"):
        launch = launch_of(s, GPU)
        threads = launch.blocks * launch.chunks * s.block
        assert s.facts.rows < 64 or threads >= s.facts.rows


def test_what_is_stored_is_read_in_the_same_loop() -> None:
    """The slope of a layer's function is stored by the loop that stores its value."""
    flat = schedules("activated")[0]
    loops = [s for s in flat.facts.kernel.body if isinstance(s, For)]
    assert isinstance(flat, FlatLoops)
    assert len(loops) == 1


# -- loops -------------------------------------------------------------------------------------

J, N, FIRST = Var("int64", "j"), Var("int64", "n"), integer(0)
NUMBER = Const("float32", 1.0)


def loop(*body: Any, start: Any = FIRST, stop: Any = N) -> For:
    return For("j", start, stop, tuple(body), "vector")


def test_folds_at_equal_distances_do_not_meet() -> None:
    apart = Fold("t", "add", NUMBER, times(J, integer(3)))
    assert not scattered(loop(apart))
    assert not scattered(loop(apart, apart))
    assert scattered(loop(Fold("t", "add", NUMBER, times(J, N))))  # n may be 0
    assert not scattered(loop(Fold("t", "add", NUMBER, times(J, Var("int64", "stride1")))))
    shifted = Fold("t", "add", NUMBER, times(J, integer(6)))
    assert scattered(loop(apart, shifted)) == [apart, shifted]


def test_parts_of_a_block_are_no_longer_than_it() -> None:
    low = Var("int64", "low")
    high = Apply("int64", "minimum", (Apply("int64", "add", (low, integer(4096))), N))
    body = (
        Let("low", times(Var("int64", "block"), integer(4096))),
        Let("high", high),
        loop(start=low, stop=Var("int64", "high")),
        loop(
            start=Apply("int64", "maximum", (low, ONE)),
            stop=Apply("int64", "minimum", (Var("int64", "high"), N)),
        ),
        loop(start=low, stop=Var("int64", "elsewhere")),
    )
    assert most_of(body, {"n": 10_000}) == [4096, 4096, None]
