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


def test_plans_with_much_text_have_flags_of_their_own(
    engine: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adarray_backends.cpu import executor

    kernels = [plans.unique() for _ in range(3)]
    flags: list[str] = []
    start = ahead.start_unit

    def noted(compiler: Any, own: list[str], *paths: Path) -> Any:
        flags.append("-O3" if "-O3" in own else "quick")
        return start(compiler, own, *paths)

    monkeypatch.setattr(ahead, "start_unit", noted)
    length = len(executor.text_of(kernels[0], executor.target_of(engine.library, 1, False)))
    for module in (ahead, executor):
        monkeypatch.setattr(module, "LONG", 5 * length // 2)
    shared, long = plans.scaled_plan(5, kernel=kernels[0]), plans.scaled_plan(5, kernel=kernels[1])
    with engine.ahead() as early:
        early.take(kernels[0])
        early.next_plan()
        for kernel in kernels:  # the last of which makes this plan long
            early.take(kernel)
        early.finish()
        assert set(flags) == {"-O3", "quick"}
        names = [early._texts[k][0] for k in kernels]
        assert names[0] in early._tables[0].early  # for the plan before
        assert early._tables[1].early.issuperset(names)
    monkeypatch.setattr("adarray_backends.cpu.kernels.compile_units", _never)
    assert engine.executable(shared).compiled == 1
    monkeypatch.setattr(executor, "LONG", 10)
    assert engine.executable(long).compiled == 1
    assert _left(folder) == []


def test_units_are_not_longer_than_others(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    start = ahead.start_unit

    def noted(compiler: Any, flags: list[str], source: Path, target: Path) -> Any:
        sizes.append(source.read_text().count("int64_t adk_"))
        return start(compiler, flags, source, target)

    monkeypatch.setattr(ahead, "start_unit", noted)
    monkeypatch.setattr(ahead, "UNIT", 1)
    monkeypatch.setattr(ahead, "processors", lambda: 64)
    with engine.ahead() as early:
        for _ in range(4):
            early.take(plans.unique())
        early.finish()
    assert len(sizes) == 4
    assert len(set(sizes)) == 1


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
