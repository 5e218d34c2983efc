"""Finding and running the C compiler that makes kernels at run time."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

from adarray.backend import load
from adarray.errors import BackendError, CompileError

compiler = pytest.importorskip("adarray_backends.cpu.compiler")
kernels = pytest.importorskip("adarray_backends.cpu.kernels")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test find compilers and make kernels as a new process would."""
    monkeypatch.setattr(compiler, "_known", {})
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path / "cache"))


def _engine() -> Any:
    try:
        return load("serial").engine()
    except BackendError as error:
        pytest.skip(str(error))


def _script(path: Path, text: str) -> str:
    """Make a program of some lines of shell; return its path."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o700)
    return str(path)


def _real() -> str:
    path = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if path is None:
        pytest.skip("no C compiler here")
    return path


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine()
    monkeypatch.setenv("ADARRAY_CC", "/nonexistent/cc")
    with pytest.raises(BackendError, match=r"ADARRAY_CC is '/nonexistent/cc'.*install gcc"):
        engine.executable(plans.scaled_plan(5))


def test_nothing_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ADARRAY_CC", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="no C compiler, none of"):
        compiler.find()


def test_the_order_of_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cc", "gcc", "mine", "usual"):
        _script(folder / name, f'echo "{name} 1.0 $1"')
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CC", "usual -flag")
    monkeypatch.setenv("ADARRAY_CC", "mine")
    assert compiler.find().version == "mine 1.0 --version"
    monkeypatch.delenv("ADARRAY_CC")
    assert compiler.find().command == (str(folder / "usual"), "-flag")
    monkeypatch.setenv("CC", "absent")  # not named for us alone: try the next one
    assert compiler.find().version == "cc 1.0 --version"
    (folder / "cc").unlink()
    _script(folder / "cc", "exit 1")
    compiler._known.clear()
    assert compiler.find().version == "gcc 1.0 --version"


def test_kinds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text, kind in (("Debian clang version 14", "clang"), ("cc (Debian 12.2.0)", "gcc")):
        monkeypatch.setenv("ADARRAY_CC", _script(tmp_path / f"my-{kind}", f'echo "{text}"'))
        assert compiler.find().kind == kind
    for name in ("ADARRAY_CC", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    there = importlib.machinery.ModuleSpec("ziglang", None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: there)
    path = compiler.find()
    assert path.kind == "zig"
    assert path.command == (sys.executable, "-m", "ziglang", "cc")


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = _engine()
    script = (
        'case "$1" in --version) echo "broken 1.0";; *) echo "x.c:1: error: no" >&2; exit 3;; esac'
    )
    monkeypatch.setenv("ADARRAY_CC", _script(tmp_path / "broken", script))
    with pytest.raises(CompileError, match=r"broken 1.0 did not compile .*error: no") as caught:
        engine.executable(plans.scaled_plan(5))
    source = Path(caught.value.source)
    assert "adk_" in source.read_text()
    assert source.with_suffix(".log").read_text() == "x.c:1: error: no\n"


def test_a_compiler_that_makes_nothing_of_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = _engine()
    script = 'case "$1" in --version) echo "odd 1.0";; *) while [ "$1" != -o ]; do shift; done; '
    script += 'echo junk > "$2";; esac'
    monkeypatch.setenv("ADARRAY_CC", _script(tmp_path / "odd", script))
    with pytest.raises(BackendError, match="cannot be loaded"):
        engine.executable(plans.scaled_plan(5))


@pytest.mark.skipif(sys.platform != "linux", reason="no ELF files here")
@pytest.mark.parametrize("size", [40, 63, 64, 2000, 3000, -1])
def test_a_library_that_is_cut_off_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    """As on a full disk: the process got a SIGBUS from reading what was not there."""
    script = f'''case "$1" in --version) exec {_real()} "$@";; esac
        {_real()} "$@" || exit 1
        while [ "$1" != -o ]; do shift; done
        head -c {size} "$2" > "$2.cut" && mv "$2.cut" "$2"'''
    monkeypatch.setenv("ADARRAY_CC", _script(tmp_path / "short", script))
    with pytest.raises(CompileError, match=r"is no whole shared library \(is the disk full\?\)"):
        _engine().executable(plans.scaled_plan(5))


def test_a_compiler_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiler, "PATIENCE", 0.2)
    slow = compiler.Compiler((_script(tmp_path / "slow", "exec sleep 60"),), "slow 1.0", "gcc")
    source = tmp_path / "unit.c"
    source.write_text("")
    with pytest.raises(CompileError, match=r"slow 1.0 did not compile .*: it took over"):
        compiler.compile_units(slow, [], [source], [tmp_path / "unit.so"])


def test_an_interrupt_stops_the_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[Any] = []
    start = compiler.start_unit

    def noted(*args: Any) -> Any:
        begun.append(start(*args))
        return begun[-1]

    def interrupted(processes: Any, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler, "start_unit", noted)
    monkeypatch.setattr(compiler, "wait_for", interrupted)
    slow = compiler.Compiler((_script(tmp_path / "slow", "exec sleep 60"),), "slow 1.0", "gcc")
    sources = [tmp_path / "one.c", tmp_path / "two.c"]
    for source in sources:
        source.write_text("")
    with pytest.raises(KeyboardInterrupt):
        compiler.compile_units(slow, [], sources, [s.with_suffix(".so") for s in sources])
    assert [process.returncode for process in begun] == [-9, -9]


@pytest.mark.parametrize("descriptors", [True, False])
def test_the_end_of_the_first_compiler_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, descriptors: bool
) -> None:
    if not descriptors:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    commands = [["sleep", "60"], ["sleep", "0.2"]]
    processes = [subprocess.Popen(c) for c in commands]
    begun = time.monotonic()
    try:
        compiler.wait_for(processes, 0.01)
        assert processes[1].poll() is None
        while processes[1].poll() is None:
            compiler.wait_for(processes, 50.0)
        assert time.monotonic() - begun < 40.0
        assert processes[0].poll() is None
        compiler.wait_for(processes, 50.0)  # one that has ended ends the wait
        assert time.monotonic() - begun < 40.0
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_compiler_that_is_gone(tmp_path: Path) -> None:
    reference = compiler.Compiler((str(tmp_path / "gone"),), "gone 1.0", "gcc")
    source = tmp_path / "unit.c"
    source.write_text("")
    with pytest.raises(CompileError, match="No such file"):
        compiler.compile_units(reference, [], [source], [tmp_path / "unit.so"])


def test_flags() -> None:
    gcc = compiler.Compiler(("gcc",), "gcc 12", "gcc")
    clang = compiler.Compiler(("clang",), "clang 14", "clang")
    for result in (gcc, clang):
        flags = result.flags("avx512", False)
        assert "-ffp-contract=off" in flags
        assert "-O3" in flags
        assert not any("fast-math" in flag for flag in flags)
        assert "-O3" not in result.flags("avx512", False, quick=True)
    assert "-fno-tree-sink" in gcc.flags("base", True)
    assert "-fno-tree-sink" not in clang.flags("base", True)
    if compiler.X86:
        assert "-march=native" in gcc.flags("avx2", False)
        assert "-march=native" not in gcc.flags("avx2", True)
        assert "-mavx2" in gcc.flags("avx2", True)
    assert clang.libmvec == 0


def test_units_are_of_one_size() -> None:
    texts = {f"k{i}": "x" * (1000 * (i + 1)) for i in range(20)}
    units = compiler.split(texts, 2)
    assert sorted(name for unit in units for name in unit) == sorted(texts)
    sizes = [sum(len(texts[name]) for name in unit) for unit in units]
    assert max(sizes) - min(sizes) <= 2000
    assert compiler.split({"k": "x"}, 4) == [["k"]]
    assert len(compiler.split({"a": "x", "b": "x"}, 4)) == 1  # too short to share


def test_no_unit_is_long_unless_one_kernel_is() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        texts = {f"k{i}": "x" * int(n) for i, n in enumerate(rng.integers(1, 60_000, 60))}
        texts["long"] = "x" * (2 * compiler.UNIT)
        units = compiler.split(texts, 2)
        assert sorted(name for unit in units for name in unit) == sorted(texts)
        sizes = {tuple(unit): sum(len(texts[name]) for name in unit) for unit in units}
        assert sizes.pop(("long",)) == 2 * compiler.UNIT
        assert max(sizes.values()) <= compiler.UNIT
        assert len(units) <= 2 + 2 * sum(map(len, texts.values())) // compiler.UNIT


def test_many_units_are_compiled_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alive: list[Any] = []
    most = []
    start = compiler.start_unit

    def noted(*given: Any) -> Any:
        alive.append(start(*given))
        most.append(sum(process.poll() is None for process in alive))
        return alive[-1]

    monkeypatch.setattr(compiler, "start_unit", noted)
    monkeypatch.setattr(compiler, "processors", lambda: 3)
    copy = 'while [ "$1" != -o ]; do shift; done; sleep 0.05; cp "$3" "$2"'
    copied = compiler.Compiler((_script(tmp_path / "copy", copy),), "copy 1.0", "gcc")
    sources = [tmp_path / f"unit{i}.c" for i in range(9)]
    for i, source in enumerate(sources):
        source.write_text(f"unit {i}")
    targets = [source.with_suffix(".so") for source in sources]
    compiler.compile_units(copied, [], sources, targets)
    assert [t.read_text() for t in targets] == [f"unit {i}" for i in range(9)]
    assert len(alive) == 9
    assert max(most) == 3


def test_nothing_is_begun_after_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[Any] = []
    start = compiler.start_unit
    monkeypatch.setattr(compiler, "start_unit", lambda *given: begun.append(1) or start(*given))
    monkeypatch.setattr(compiler, "processors", lambda: 1)
    broken = compiler.Compiler((_script(tmp_path / "no", "exit 3"),), "no 1.0", "gcc")
    sources = [tmp_path / f"unit{i}.c" for i in range(9)]
    for source in sources:
        source.write_text("")
    with pytest.raises(CompileError, match=r"no 1.0 did not compile .*unit\d.c"):
        compiler.compile_units(broken, [], sources, [s.with_suffix(".so") for s in sources])
    assert len(begun) <= 3


@pytest.mark.parametrize("level", [0, 1, 2])
def test_lower_levels_compute_the_same(level: int) -> None:
    engine = _engine()
    lib = engine.library.lib
    best = lib.adarray_level()
    if level > best:
        pytest.skip("this processor has no such level")
    x = np.linspace(-5, 5, 1001)
    run = engine.executable(plans.scaled_plan(x.size))
    try:
        lib.adarray_limit_level(level)
        limited = engine.executable(plans.scaled_plan(x.size))
    finally:
        lib.adarray_limit_level(best)
    np.testing.assert_allclose(limited([x, 2.0])[0], run([x, 2.0])[0], rtol=4e-16)


def test_precise_kernels_call_the_c_library() -> None:
    engine = _engine()
    x = np.linspace(-5, 5, 1001)
    (y, _) = engine.executable(plans.scaled_plan(x.size), precise=True)([x, 1.0])
    exact = np.exp(x.astype(np.longdouble))
    assert np.abs((y - exact) / np.spacing(exact.astype(float))).max() <= 0.55


def test_kernels_use_vector_functions(tmp_path: Path) -> None:
    """Nothing keeps gcc from calling libmvec, whatever passes a new version brings."""
    path = compiler.find()
    if path.libmvec < 1:
        pytest.skip("no libmvec here")
    engine = _engine()
    engine.executable(plans.scaled_plan(5, kernel=plans.unique()))
    (unit,) = (tmp_path / "cache" / "adarray-kernels").glob("*.so")
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm here")
    told = subprocess.run([nm, "-D", unit], capture_output=True, text=True, check=True).stdout
    assert "_ZGV" in told


def test_many_kernels_compile_side_by_side() -> None:
    engine = _engine()
    from adarray_backends.cpu.executor import _print

    from adarray.compiler.ir.target import CpuTarget

    texts: dict[str, str] = {}
    for _ in range(8):
        texts |= _print(plans.scaled_plan(5, kernel=plans.unique()), CpuTarget())[1]
    loaded = kernels.kernels(engine.library, quick=True).load(texts)
    assert loaded.compiled == 8
    assert set(loaded.functions) == set(texts)


def test_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    engine = _engine()
    for name in ("ADARRAY_CC", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compiler, "NAMES", ())
    assert compiler.find().kind == "zig"
    x = np.linspace(-5, 5, 1001)
    (y, total) = engine.executable(plans.scaled_plan(x.size))([x, 1.0])
    np.testing.assert_allclose(y, np.exp(x), rtol=4e-16)
    np.testing.assert_allclose(total, np.exp(x).sum(), rtol=1e-14)


def test_a_compiler_that_has_hung_is_not_waited_for_as_long_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compiler, "PATIENCE", 0.4)
    monkeypatch.setattr(compiler, "HUNG", 0.1)
    monkeypatch.setattr(compiler, "_hung", set())
    slow = compiler.Compiler((_script(tmp_path / "slow", "exec sleep 60"),), "slow 1.0", "gcc")
    source = tmp_path / "unit.c"
    source.write_text("")
    allowed = []
    wait = compiler.wait_for

    def noted(processes: Any, seconds: float) -> None:
        allowed.append(seconds)
        wait(processes, seconds)

    monkeypatch.setattr(compiler, "wait_for", noted)
    for _ in range(2):
        with pytest.raises(CompileError, match="after which nobody waits for it"):
            compiler.compile_units(slow, [], [source], [tmp_path / "unit.so"])
    assert allowed[1] <= 0.1 < allowed[0]


@pytest.mark.parametrize("command", ['"unbalanced', "''", "no/such/thing", "\\"])
def test_commands_that_are_nonsense(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("ADARRAY_CC", command)
    with pytest.raises(BackendError, match="the environment variable ADARRAY_CC is"):
        compiler.find()
    monkeypatch.delenv("ADARRAY_CC")
    monkeypatch.setenv("CC", command)
    _real()
    assert compiler.find().command  # another one
