"""What kernels should take: few threads are slow, and the floor does not depend on the schedule."""

from __future__ import annotations

import pytest

from adarray.compiler.ir.target import GPU
from adarray.compiler.schedule.gpu.launch import LaunchSizes
from adarray.compiler.schedule.gpu.model import LAUNCH, Work, described, predict

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
