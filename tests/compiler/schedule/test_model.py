"""What kernels should take: few threads are slow, and the floor does not depend on the schedule."""

from __future__ import annotations

import pytest

from adarray.compiler.ir.affine import ZERO
from adarray.compiler.ir.loopir import (
    Const,
    Fold,
    For,
    Kernel,
    Load,
    Local,
    Param,
    Var,
    integer,
)
from adarray.compiler.ir.target import GPU
from adarray.compiler.schedule.gpu.facts import KernelFacts
from adarray.compiler.schedule.gpu.launch import LaunchSizes, launch_of
from adarray.compiler.schedule.gpu.model import LAUNCH, Work, described, predict
from adarray.compiler.schedule.gpu.schedules import RowsByBlock, RowsByWarp
from adarray.compiler.schedule.gpu.span import span_of

STREAM = Work(moved=80e6, flops=30e6)


def test_a_vector_of_all_threads_runs_at_the_rate_of_the_memory() -> None:
    p = predict(LaunchSizes(4224, 512, 8192), 256, STREAM, GPU)
    assert p.limit == "memory"
    assert p.time == pytest.approx(80e6 / 4.1e12 + LAUNCH)
    assert p.time == p.floor
    assert not p.is_poor


def test_ten_blocks_are_too_few() -> None:
    """Slices of a vector, of which a thread had 4096 elements, took 868 microseconds on an H200."""
    p = predict(LaunchSizes(10, 512, 8192), 256, STREAM, GPU)
    assert p.limit == "too few threads"
    assert 0.4e-3 < p.time < 1.2e-3
    assert p.floor == pytest.approx(80e6 / 4.1e12 + LAUNCH)
    assert p.is_poor
    assert described(p).endswith("at least 21.5 us by any schedule: a poor schedule")


def test_blocks_for_one_row_count() -> None:
    few = predict(LaunchSizes(4, 0, 0), 256, STREAM, GPU)
    many = predict(LaunchSizes(4, 0, 0, chunks=64), 256, STREAM, GPU)
    assert many.time < few.time / 8


def test_functions_are_arithmetic() -> None:
    p = predict(LaunchSizes(4224, 0, 0), 256, Work(8e6, 1e9, 1e9), GPU)
    assert p.limit == "arithmetic"
    assert p.floor == p.time


def test_small_kernels_are_launches() -> None:
    p = predict(LaunchSizes(1, 0, 0), 32, Work(64.0, 16.0), GPU)
    assert p.limit == "launch"
    assert described(p) == ("predicted 2.0 us, limited by launch; at least 2.0 us by any schedule")


def test_threads_that_wait_in_turn_are_slow() -> None:
    """A serial loop of 4096 folds, each of a block, took 6 ms on an H200."""
    few, many = LaunchSizes(13, 0, 0), LaunchSizes(4224, 0, 0)
    assert predict(many, 256, STREAM, GPU, span=6e-3).limit == "threads that wait in turn"
    p = predict(few, 1024, STREAM, GPU, span=6e-3)
    assert p.is_poor
    assert p.time == pytest.approx(6e-3 + LAUNCH)


def fold(*, serial: int) -> Kernel:
    """Return a kernel whose rows are folds of 28 terms, so many of them in turn."""
    term = Load("float32", "b", Var("int64", "j"))
    inner = For("j", ZERO, integer(28), (Fold("r", "add", term),), "vector")
    each = (Local("r", "float32", None, Const("float32", 0.0)), inner)
    rows = For("k", ZERO, integer(serial), each, "serial")
    body = (For("i", ZERO, integer(13), (rows,), "parallel"),)
    return Kernel((Param("b", "float32"),), (), (), body)


@pytest.mark.parametrize(("block", "least", "most"), [(1024, 3e-3, 7e-3), (256, 3e-3, 7e-3)])
def test_a_span_counts_the_waits_of_a_row(block: int, least: float, most: float) -> None:
    s = RowsByBlock(KernelFacts(fold(serial=4096), {}), block, True)
    assert least < span_of(s, launch_of(s, GPU), GPU) < most
    alone = RowsByBlock(KernelFacts(fold(serial=1), {}), block, True)
    assert span_of(alone, launch_of(alone, GPU), GPU) < 2e-6


def test_warps_need_no_barrier() -> None:
    facts = KernelFacts(fold(serial=4096), {})
    block, warp = RowsByBlock(facts, 256, True), RowsByWarp(facts, 256, True, 32)
    spans = [span_of(s, launch_of(s, GPU), GPU) for s in (block, warp)]
    assert spans[1] < spans[0] / 2
