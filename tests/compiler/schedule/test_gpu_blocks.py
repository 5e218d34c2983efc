"""Other blocks for kernels of GPUs: which of them change no bit; the others are refused."""

from __future__ import annotations

import shutil
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import Compiled, DevicePlanRunner
from recorded import Recorded, recorded

import adarray
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU, GpuTarget
from adarray.compiler.planning import planner as planning
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu import blocks
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.facts import KernelFacts
from adarray.compiler.schedule.gpu.schedules import FlatLoops, RowsByWarp, Schedule

RNG = np.random.default_rng(3)
DEVICE = GpuTarget(sms=2, threads_per_sm=2048, shared_memory=8192)
plan = partial(planning.plan, target=GPU)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def heat(u: Any) -> Any:
    for _ in range(4):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u = u + 0.1 * (around - 4.0 * u)
    return u


FUNCTIONS = {
    "stencil": (lambda x, _: heat(x), (130, 140), ()),
    "gather": (lambda x, _: np.exp(x[::-1, ::2]) + x[:, 1::2].T[:40].T.copy()[:, :1], (60, 90), ()),
    "flat": (lambda a, b: np.sin(a) * np.exp(b) - a, (37, 67), (37, 67)),
    "rows": (lambda x, _: softmax(x), (50, 45), ()),
    "sheet": (lambda x, _: x[1:, 1:] - x[:-1, :-1] * x[1:, :-1], (40, 300), ()),
    "blocks": (lambda x, _: softmax(x), (3, 3000), ()),
    "total": (lambda a, b: np.sum(np.sin(a) * b), (37, 67), (37, 67)),
    "columns": (lambda a, b: np.sum(np.sin(a) * b, axis=0), (70, 67), (70, 67)),
}


def recorded_case(name: str) -> Recorded:
    """Return a recorded function."""
    f, *shapes = FUNCTIONS[name]
    return recorded(f, *(RNG.normal(size=s).astype(np.float32) for s in shapes))


def results(r: Recorded, folder: Path, choose: Any) -> list[Any]:
    """Run the plan of a recording with schedules of choice."""
    folder.mkdir()
    p = plan(r.program)
    compiled = Compiled([p], folder, DEVICE, choose)
    return DevicePlanRunner(p, compiled)([np.asarray(a) for a in r.arrays])


def schedules(r: Recorded) -> list[Schedule]:
    """Return the usual schedules of a plan's kernels."""
    steps = [s for s in plan(r.program).steps if isinstance(s, KernelStep)]
    named = ((s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True))) for s in steps)
    return [schedule_of(k, ints, DEVICE) for k, ints in named]


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("name", ["flat", "rows", "sheet", "stencil", "gather"])
def test_where_blocks_are_free_no_bit_depends_on_them(name: str, tmp_path: Path) -> None:
    r = recorded_case(name)
    assert all(blocks.is_free(s) for s in schedules(r))
    assert any(len(blocks.candidates(s)) >= 2 for s in schedules(r))
    usual = results(r, tmp_path / "usual", lambda s: s)
    for n in (32, 96, 128, 512):
        actual = results(r, tmp_path / str(n), lambda s, n=n: blocks.resized(s, n))
        for got, want in zip(actual, usual, strict=True):
            assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize("name", ["blocks", "total", "columns"])
def test_where_sums_follow_the_blocks_there_is_no_choice(name: str) -> None:
    schedule = [s for s in schedules(recorded_case(name)) if not blocks.is_free(s)]
    assert schedule
    assert all(blocks.candidates(s) == [s] for s in schedule)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("name", ["blocks", "total", "columns"])
def test_any_block_gives_right_sums(name: str, tmp_path: Path) -> None:
    r = recorded_case(name)
    (want,) = (np.asarray(x) for x in r.leaves)
    for n in (32, 64, 96, 512):
        (got,) = results(r, tmp_path / str(n), lambda s, n=n: blocks.resized(s, n))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_arrays_in_shared_memory_keep_their_blocks() -> None:
    facts = KernelFacts(Kernel((), (), (), ()), {})
    small = RowsByWarp(facts, 256, narrow=True, threads=32, shared=frozenset({"row"}))
    assert blocks.resized(small, 512) == small
    assert blocks.resized(small, 128).block == 128
    assert blocks.resized(FlatLoops(facts, 256, narrow=True), 64) == FlatLoops(
        facts, 64, narrow=True
    )


def test_the_backend_keeps_what_it_has_measured(tmp_path: Path, monkeypatch: Any) -> None:
    from adarray_backends.cuda import tuning

    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path))
    flat = schedules(recorded_case("flat"))[0]

    def name_of(s: Schedule, machine: str = "a GPU") -> str:
        return tuning._name(s, cuda.source(s), machine)

    name = name_of(flat)
    assert tuning._known(name) is None
    tuning._keep(name, 512)
    assert tuning._known(name) == 512
    assert name_of(flat, "another GPU") != name
    ints = {n: v + 1 for n, v in flat.facts.ints.items()}
    assert name_of(schedule_of(flat.facts.kernel, ints, DEVICE)) != name
    tuning._path(name).write_text("half a")
    assert tuning._known(name) is None


def test_only_what_is_clearly_faster_is_taken() -> None:
    from adarray_backends.cuda import tuning

    never = [float("inf")] * 3
    assert tuning.fastest([[9, 5, 5], [8, 4, 4]], 0) == 1
    assert tuning.fastest([[9, 5, 5], [8, 4.9, 4.9]], 0) == 0  # as fast, but for noise
    assert tuning.fastest([[9, 5, 5], [8, 7, 4]], 0) == 0  # once: others used the GPU
    assert tuning.fastest([[9, 5, 5], [8, 4, 4]], 1) == 1
    assert tuning.fastest([never, [8, 4, 4]], 0) == 1


class NoGpu:
    """What `tuning.Tuning` asks of a GPU where nothing is measured."""

    target = DEVICE


def test_small_kernels_are_not_measured_and_given_threads_are_taken() -> None:
    from adarray_backends.cuda import tuning

    p = plan(recorded_case("flat").program)
    (step,) = p.steps
    ints = dict(zip(step.kernel.ints, step.ints, strict=True))
    usual = schedule_of(step.kernel, ints, DEVICE)
    for threads, block in ((None, usual.block), (64, 64)):
        tuned = tuning.Tuning(NoGpu(), threads)
        tuned.add(step.kernel, ints, step.buffers)
        (schedule,) = tuned.schedules()
        assert schedule.block == block
    assert schedule == blocks.resized(usual, 64)


def test_kernels_to_be_measured_are_compiled_at_once_and_each_once(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """All schedules go to the compiler together, and equal kernels are measured once."""
    import adarray_backends.cuda
    from adarray_backends.cuda import tuning

    timing: Any = types.ModuleType("adarray_backends.cuda.timing")
    compiled: list[list[str]] = []
    measured: list[str] = []

    def fastest(schedules: Any, texts: Any, *_: Any) -> int:
        assert {t.name for t in texts} <= set(compiled[0])
        measured.append(texts[0].name)
        return int(schedules[-1].block)

    timing.identity = lambda _: "a GPU"
    timing.prepare = lambda texts, _: compiled.append([t.name for t in texts])
    timing.fastest = fastest
    monkeypatch.setitem(sys.modules, "adarray_backends.cuda.timing", timing)
    monkeypatch.setattr(adarray_backends.cuda, "timing", timing, raising=False)
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path))
    p = plan(recorded_case("flat").program)
    (step,) = p.steps
    ints = dict(zip(step.kernel.ints, step.ints, strict=True))
    monkeypatch.setattr(tuning, "MUCH", 1)
    for _ in range(2):  # in the second round, both are known
        tuned = tuning.Tuning(NoGpu())
        tuned.add(step.kernel, ints, step.buffers)
        tuned.add(step.kernel, ints, step.buffers)
        chosen = tuned.schedules()
        assert {s.block for s in chosen} == {blocks.LARGEST}
        assert len(measured) == len(compiled) == 1
    assert len(set(compiled[0])) == len(blocks.CHOICES)


def test_a_gradient_has_both_kinds_of_kernels() -> None:
    g = adarray.value_and_grad(lambda x: np.sum(softmax(x) ** 2))
    r = recorded(g, RNG.normal(size=(50, 45)))
    assert any(s.facts.kernel.totals for s in schedules(r))


def test_the_command_shows_and_clears_what_is_kept(tmp_path: Path, monkeypatch: Any) -> None:
    from adarray_backends.cuda import CudaBackend, disk_cache
    from adarray_native import owned

    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path))
    backend = CudaBackend()
    assert (
        list(backend.cache())[1]
        == "0 kernels for GPUs, 0.0 MiB of at most 512; blocks measured for 0"
    )
    place = disk_cache.folder()
    assert place == tmp_path / "adarray-kernels" / "cuda"
    one, two = "1" * 40, "2" * 40
    for name in (f"{one}.cubin", f"{two}.cubin", f"{one}.block", "mine.txt", "mine.cubin"):
        (place / name).write_text("256")
    assert "2 kernels for GPUs" in list(backend.cache())[1]
    assert "measured for 1" in list(backend.cache())[1]
    assert "removed 2 kernels" in next(iter(backend.cache(clear=True)))
    assert sorted(p.name for p in place.iterdir()) == [owned.MARK, "mine.cubin", "mine.txt"]
