"""The cache of compiled kernels: safe, shared by processes, repaired, bounded, emptied."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

from adarray.__main__ import main
from adarray.backend import load
from adarray.errors import BackendError, CompileError

cache = pytest.importorskip("adarray_native.cache")
owned = pytest.importorskip("adarray_native.owned")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache in this test."""
    from adarray_backends.cpu import kernels

    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_kernels", {})  # nothing is in memory
    return tmp_path / "cache" / "adarray-kernels"


def _engine(name: str = "serial") -> Any:
    try:
        engine = load(name).engine()
        engine.executable(plans.plan([], [], []))
    except BackendError as error:
        pytest.skip(str(error))
    return engine


def _forget_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do as a new process would."""
    from adarray_backends.cpu import kernels

    monkeypatch.setattr(kernels, "_kernels", {})


def _works(executable: Any) -> bool:
    x = np.linspace(0, 1, 5)
    return bool(np.all(executable([x, 1.0])[0] >= 1))


def test_kernels_are_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine()
    one, two = plans.unique(), plans.unique()
    first = engine.executable(plans.scaled_plan(5, kernel=one))
    assert (first.compiled, first.from_disk, first.in_memory) == (1, 0, 0)
    assert not first.from_cache
    again = engine.executable(plans.scaled_plan(6, kernel=one))
    assert (again.compiled, again.from_disk, again.in_memory) == (0, 0, 1)
    _forget_memory(monkeypatch)
    engine.executable(plans.scaled_plan(5, kernel=two))
    third = engine.executable(plans.scaled_plan(5, kernel=one))
    assert (third.compiled, third.from_disk, third.in_memory) == (0, 1, 0)
    assert third.from_cache
    assert _works(first)
    assert _works(third)


def test_kernels_of_several_plans_are_compiled_together(folder: Path) -> None:
    engine = _engine()
    new_plans = [plans.scaled_plan(5, kernel=plans.unique()) for _ in range(3)]
    engine.prepare(new_plans)
    assert [engine.executable(p).in_memory for p in new_plans] == [1, 1, 1]
    assert len(list(folder.glob("*.so"))) == 1
    engine.prepare([])


def test_what_kernels_depend_on_is_in_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, kernel = _engine(), plans.unique()
    new_plan = plans.scaled_plan(5, kernel=kernel)
    assert engine.executable(new_plan).compiled == 1
    assert engine.executable(new_plan, precise=True).compiled == 1
    lib = engine.library.lib
    level = lib.adarray_level()
    try:
        if lib.adarray_limit_level(0) != level:
            limited = engine.executable(new_plan)
            assert limited.compiled == 1
            assert _works(limited)
    finally:
        lib.adarray_limit_level(level)
    _forget_memory(monkeypatch)
    from adarray_backends.cpu import kernels

    monkeypatch.setattr(kernels, "ABI", kernels.ABI + 1)
    assert engine.executable(new_plan).compiled == 1


def test_files_are_private(folder: Path) -> None:
    engine = _engine()
    engine.executable(plans.scaled_plan(5, kernel=plans.unique()))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = sorted(p.name for p in folder.iterdir())
    names.remove(owned.MARK)
    assert [n for n in names if not n.endswith((".so", ".kernel")) and n[:5] != "lock-"] == []
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.parametrize("what", ["writable by others", "a file", "below a file"])
def test_unsafe_folders_are_refused(folder: Path, what: str) -> None:
    engine = _engine()
    from adarray_native import cache

    named = folder.parent
    if what == "writable by others":
        named.mkdir(exist_ok=True)
        named.chmod(0o777)
    else:
        named.rmdir() if named.exists() else None
        named.write_text("")
        if what == "below a file":
            os.environ["ADARRAY_CACHE_DIR"] = str(named / "below")
    cache._open.clear()
    with pytest.warns(RuntimeWarning, match="kernel cache .* cannot be used"):
        executable = engine.executable(plans.scaled_plan(5, kernel=plans.unique()))
    assert _works(executable)
    assert not named.is_dir() or list(named.iterdir()) == []
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        assert _works(engine.executable(plans.scaled_plan(5, kernel=plans.unique())))
    cache._open.clear()


def test_a_folder_of_somebody_else_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.prepare() == {}
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert cache.prepare() == {folder.parent: "it belongs to another user"}
    assert owned.claim(folder) == "it belongs to another user"


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "removed", "dangling", "away"])
def test_damaged_entries_are_built_again(
    folder: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, kernel = _engine(), plans.unique()
    engine.executable(plans.scaled_plan(5, kernel=kernel))
    (unit,) = folder.glob("*.so")
    (link,) = folder.glob("*.kernel")
    # The damage comes into a new file: this process has the old one mapped.
    data = unit.read_bytes()
    unit.unlink()
    if damage == "truncated":
        unit.write_bytes(data[: len(data) // 2])
    elif damage == "changed":
        unit.write_bytes(data[:3000] + bytes([data[3000] ^ 1]) + data[3001:])
    elif damage == "empty":
        unit.write_bytes(b"")
    elif damage == "dangling":
        link.unlink()
        link.symlink_to("0" * 32 + ".so")
    elif damage == "away":
        away = folder.parent / unit.name
        away.write_bytes(data)
        link.unlink()
        link.symlink_to(f"../{unit.name}")
    _forget_memory(monkeypatch)
    executable = engine.executable(plans.scaled_plan(5, kernel=kernel))
    assert executable.compiled == 1
    assert _works(executable)
    _forget_memory(monkeypatch)
    assert engine.executable(plans.scaled_plan(5, kernel=kernel)).from_disk == 1


def test_a_sound_file_that_cannot_be_loaded_is_built_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, kernel = _engine(), plans.unique()
    engine.executable(plans.scaled_plan(5, kernel=kernel))
    (link,) = folder.glob("*.kernel")
    other = b"\x7fELF of another machine"
    name = cache.digest(other) + ".so"
    (folder / name).write_bytes(other)
    link.unlink()
    link.symlink_to(name)
    _forget_memory(monkeypatch)
    executable = engine.executable(plans.scaled_plan(5, kernel=kernel))
    assert executable.compiled == 1
    assert _works(executable)
    assert not (folder / name).exists()


_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, plans
from adarray.backend import load
engine = load("serial").engine()
x = np.linspace(0, 1, 50)
total, compiled = 0.0, 0
for factor in map(float, sys.argv[2:]):
    executable = engine.executable(plans.scaled_plan(50, kernel=plans.scaled(factor=factor)))
    total += float(executable([x, 1.0])[1])
    compiled += executable.compiled
print(round(total, 6), compiled)
"""


@pytest.mark.slow
def test_many_processes_at_once(folder: Path) -> None:
    _engine()
    support = str(Path(plans.__file__).parent)
    factors = [str(3 + i / 64) for i in range(4)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", _PROCESS, support, *factors[i:], *factors[:i]],
            stdout=subprocess.PIPE, text=True,
        )
        for i in range(4)
    ]  # fmt: skip
    results = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert len({total for total, _ in results}) == 1
    # Those that came second to a kernel waited for it.
    assert sum(int(compiled) for _, compiled in results) == len(factors)
    assert list(folder.glob("work-*")) == []


def test_the_size_is_bounded(folder: Path) -> None:
    assert cache.prepare() == {}
    bounded = cache.Cache(folder, limit=2500)
    units = []
    for i in range(4):
        with bounded.work() as work:
            unit = work / "unit.so"
            unit.write_bytes(bytes([i]) * 1000)
            units.append(bounded.add(unit, [f"{i}" * 32]))
        os.utime(units[-1], (i, i + 1))
    # Of the old ones, the first is used again.
    assert set(bounded.find(["0" * 32])) == {"0" * 32}
    dead = folder / f"work-1-{0:016x}"
    dead.mkdir()
    (dead / "unit0.so").write_bytes(b"")
    os.utime(dead, (0, 0))
    with bounded.work() as alive:
        bounded.trim()
        assert alive.exists()
    assert [unit.exists() for unit in units] == [True, False, False, True]
    assert bounded.kernels() == 2
    assert not dead.exists()
    assert sum(entry.size for entry in bounded.entries()) <= 2500


def test_a_cache_that_is_trimmed_has_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.prepare() == {}
    bounded = cache.Cache(folder, limit=10_000)
    for i in range(20):
        with bounded.work() as work:
            unit = work / "unit.so"
            unit.write_bytes(bytes([i]) * 1000)
            os.utime(bounded.add(unit, [f"{i:032x}"]), (i, i + 1))
    listings = []
    names = owned._names
    monkeypatch.setattr(owned, "_names", lambda *args: listings.append(1) or names(*args))
    bounded.trim()
    assert len(listings) < 8  # however many are removed
    assert sorted(int(bounded.find([f"{i:032x}"]) != {}) for i in range(20)) == [0] * 12 + [1] * 8
    bounded.trim()
    assert bounded.kernels() == 8


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.Cache, "add", full)
    with pytest.raises(BackendError, match=r"No space left on device.*ADARRAY_CACHE_DIR"):
        engine.executable(plans.scaled_plan(5, kernel=plans.unique()))


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = _engine()
    engine.executable(plans.scaled_plan(5, kernel=plans.unique()))
    assert main(["cache"]) == 0
    told = capsys.readouterr().out
    assert f"folder: {folder}" in told
    assert "kernels: 1 in 1 files" in told
    assert main(["cache", "--clear"]) == 0
    assert "removed 1 kernels" in capsys.readouterr().out
    assert not folder.exists()
    assert main(["cache"]) == 0
    assert "kernels: 0 in 0 files" in capsys.readouterr().out


def test_clearing_leaves_the_files_of_others(folder: Path) -> None:
    assert cache.prepare() == {}
    (folder / "notes.txt").write_text("mine")
    list(cache.clear())
    assert (folder / "notes.txt").read_text() == "mine"


def test_the_usual_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path / "one"))
    assert cache.usual_folder() == tmp_path / "one" / cache.OWN
    monkeypatch.delenv("ADARRAY_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    assert cache.usual_folder() == tmp_path / "two" / "adarray" / cache.OWN
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.usual_folder() == tmp_path / ".cache" / "adarray" / cache.OWN


def _trivial(i: int) -> str:
    """Return a kernel that only says its number."""
    return (
        f"int64_t adk_{i:x}(char *const *p, const int64_t *n, char *s, int64_t b, int t)\n"
        f"{{ return {i}; }}\nint64_t adk_{i:x}_scratch(const int64_t *n) {{ return {i}; }}\n"
    )


def test_loading_a_plan_of_100_kernels_is_quick(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adarray_backends.cpu import kernels

    engine = _engine()
    texts = {f"adk_{i:x}": _trivial(i) for i in range(100)}
    result = kernels.kernels(engine.library).load(texts)
    assert result.compiled == 100
    best = 1.0
    for _ in range(5):
        _forget_memory(monkeypatch)
        begun = time.perf_counter()
        loaded = kernels.kernels(engine.library).load(texts)
        best = min(best, time.perf_counter() - begun)
        assert loaded.from_disk == 100
    assert best < 0.05
    lib, ffi = engine.library.lib, engine.library.ffi
    for i in (0, 99):
        function = loaded.functions[f"adk_{i:x}"]
        assert lib.adarray_jit_workspace(function.workspace, ffi.NULL) == i


def test_a_failed_source_is_kept(folder: Path) -> None:
    from adarray_backends.cpu import kernels

    engine = _engine()
    bad = {"adk_0": "int64_t adk_0(void) { return oh; }\n"}
    with pytest.raises(CompileError, match="did not compile") as caught:
        kernels.kernels(engine.library).load(bad)
    source = Path(caught.value.source)
    assert source.parent == folder
    assert source.name.startswith("failed-")
    assert "return oh;" in source.read_text()
    assert "oh" in source.with_suffix(".log").read_text()
    assert str(source) in str(caught.value)
    assert "did not compile: 1" in "\n".join(cache.report())


def test_what_did_not_compile_is_not_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adarray_backends.cpu import kernels

    engine = _engine()
    table = kernels.kernels(engine.library)
    bad = {"adk_1": "int64_t adk_1(void) { return ah; }\n"}
    with pytest.raises(CompileError) as first:
        table.load(bad)

    def again(*_: Any) -> None:
        raise AssertionError("compiled again")

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "compile_units", again)
        with pytest.raises(CompileError) as second:
            table.load({**bad, "adk_2": "int64_t adk_2(void) { return 2; }\n"})
    assert str(second.value) == str(first.value)
    assert second.value.source == first.value.source
    good = {"adk_1": _trivial(1)}  # the same name, another text
    assert table.load(good).compiled == 1


def test_without_a_home(tmp_path: Path) -> None:
    """A cache that nobody asked for is given up silently, and its substitute is removed."""
    _engine()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import plans, numpy as np\n"
        "from adarray.backend import load; from adarray_native import cache\n"
        "run = load('serial').engine().executable(plans.scaled_plan(5))\n"
        "assert run([np.zeros(5), 1.0])[1] == 5\n"
        "print(cache.default().folder)"
    )
    (tmp_path / "file").write_text("")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ADARRAY_"))}
    environment["HOME"] = str(tmp_path / "file")
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code, str(Path(plans.__file__).parent)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip()).exists()
