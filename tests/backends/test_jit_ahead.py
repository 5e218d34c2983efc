"""Kernels that are compiled while their plan is being made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

import adarray
from adarray.backend import load
from adarray.compiler.ir.plan import KernelStep
from adarray.errors import BackendError, CompileError
from adarray.jitting.tree import build

ahead = pytest.importorskip("adarray_backends.cpu.ahead")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache in this test."""
    from adarray_backends.cpu import kernels

    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_kernels", {})  # nothing is in memory
    return tmp_path / "cache" / "adarray-kernels"


@pytest.fixture
def engine(folder: Path) -> Any:
    try:
        engine = load("serial").engine()
        engine.executable(plans.plan([], [], []))
    except BackendError as error:
        pytest.skip(str(error))
    return engine


def _never(*_: Any) -> None:
    raise AssertionError("kernels are compiled a second time")


def _kernels(plan: Any) -> list[Any]:
    return [s.kernel for s in plan.steps if isinstance(s, KernelStep)]


def _left(folder: Path) -> list[str]:
    """Return the names of folders that work has left behind."""
    return [p.name for p in folder.iterdir() if p.is_dir()]


def test_kernels_are_ready_when_the_plan_is(
    engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_plans = [plans.scaled_plan(5, kernel=plans.unique()) for _ in range(5)]
    with engine.ahead() as early:
        for _ in range(40):
            for plan in new_plans:
                for kernel in _kernels(plan):
                    early.take(kernel)
        early.finish()
    monkeypatch.setattr("adarray_backends.cpu.kernels.compile_units", _never)
    for plan in new_plans:
        executable = engine.executable(plan)
        assert (executable.compiled, executable.from_disk, executable.in_memory) == (1, 0, 0)
        assert np.all(executable([np.zeros(5), 1.0])[0] >= 1)
    assert _left(folder) == []


def test_nothing_is_compiled_that_is_there(
    engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = plans.scaled_plan(5, kernel=plans.unique()), plans.scaled_plan(5)
    engine.executable(one)
    engine.executable(two)
    monkeypatch.setattr(ahead, "start_unit", _never)
    for forgotten in (False, True):
        if forgotten:
            monkeypatch.setattr("adarray_backends.cpu.kernels._kernels", {})
        with engine.ahead() as early:
            for plan in (one, two):
                early.take(*_kernels(plan))
            early.finish()
    assert engine.executable(one).from_disk == 1


def test_without_the_end_nothing_is_left(engine: Any, folder: Path) -> None:
    with engine.ahead() as early:
        early.take(plans.unique())
        (unit,) = early._running
    assert unit.process.returncode is not None
    assert _left(folder) == []
    early.take(plans.unique())
    early.finish()
    assert early._running == []


def test_what_does_not_compile_is_said_later(
    engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adarray_backends.cpu import executor

    monkeypatch.setattr(executor.cprinter, "source", lambda *_: "int64_t adk_f(char")
    monkeypatch.setattr(executor, "_printed", {})
    plan = plans.scaled_plan(5, kernel=plans.unique())
    with engine.ahead() as early:
        early.take(*_kernels(plan))
        early.finish()
    with pytest.raises(CompileError):
        engine.executable(plan)
    with engine.ahead() as early:  # what was refused is not tried again
        early.take(*_kernels(plan))
        assert early._running == []


def test_long_texts_are_left_to_the_end(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LONG", 10)
    monkeypatch.setattr(ahead, "start_unit", _never)
    with engine.ahead() as early:
        early.take(plans.unique())
        early.finish()


def test_a_full_disk_is_said_later(
    engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, os.strerror(28))

    with engine.ahead() as early, monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        early.take(plans.unique())
        early.finish()
    assert _left(folder) == []


def test_long_functions_compile_while_they_are_planned(
    engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "LONG", 20)
    monkeypatch.setattr("adarray_backends.cpu.kernels.compile_units", _never)

    def f(x: Any, w: Any) -> Any:
        for k in range(3):
            x = np.tanh(x @ w) + x[::-1] * k
        return np.sum(x * x)

    x, w = np.linspace(0, 1, 2000).reshape(40, 50), np.linspace(-0.1, 0.1, 2500).reshape(50, 50)
    step = adarray.value_and_grad(f, argnums=(0, 1))
    with adarray.use("serial"):
        jitted = adarray.jit(step)
        for _ in range(3):
            value, gradients = jitted(x, w)
        (node,) = jitted.path(x, w)
    assert node.executable.compiled == len(node.executable.sources()) > 1
    expected, by = step(x, w)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    for g, e in zip(gradients, by, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-11, atol=1e-13)
    assert _left(folder) == []
