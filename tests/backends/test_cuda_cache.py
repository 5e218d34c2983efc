"""Kernels for GPUs on disk: as private as those of processors, and never trusted blindly."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from adarray_backends.cuda import disk_cache
from adarray_native import cache, owned

KEY = "5e" * 20  # as long as a hash


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "adarray-kernels" / "cuda"


def test_a_kernel_is_found_again(folder: Path) -> None:
    assert disk_cache.find(KEY) is None
    disk_cache.add(KEY, b"machine code")
    assert disk_cache.find(KEY) == b"machine code"
    assert disk_cache.find("other") is None
    assert sorted(p.name for p in folder.iterdir()) == [f"{KEY}.cubin", owned.MARK]
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"short", b"machine cod" + b"e" * 40, b"x" * 500])
def test_a_damaged_kernel_is_compiled_again(folder: Path, damage: bytes) -> None:
    disk_cache.add(KEY, b"machine code")
    (folder / f"{KEY}.cubin").write_bytes(damage)
    assert disk_cache.find(KEY) is None
    disk_cache.add(KEY, b"machine code")
    assert disk_cache.find(KEY) == b"machine code"


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    disk_cache.folder()
    cache._open.clear()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=r"kernels/cuda cannot be used: other users may write"):
        assert disk_cache.folder() != folder
    disk_cache.add(KEY, b"machine code")
    assert disk_cache.find(KEY) == b"machine code"  # in a folder of this process
    assert [p.name for p in folder.iterdir()] == [owned.MARK]
    cache._open.clear()


def test_kernels_that_were_not_used_for_longest_are_removed(folder: Path) -> None:
    size = len(b"x" * 968) + 32
    for i in range(4):
        disk_cache.add(f"{i:040}", b"x" * 968)
        when = time.time() - 10_000 * (4 - i)
        os.utime(folder / f"{i:040}.cubin", (when, when))
    assert disk_cache.find("0" * 40) is not None  # which is a use
    choice = folder / f"{9:040}{disk_cache.ALGORITHM}"
    choice.write_text("{}")
    os.utime(choice, (0, 0))
    disk_cache.trim(2 * size)
    left = [f"{0:040}.cubin", f"{3:040}.cubin", f"{9:040}.algorithm", owned.MARK]
    assert sorted(p.name for p in folder.iterdir()) == left


def test_where_nothing_can_be_written_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    disk_cache.folder()
    monkeypatch.setattr(Path, "replace", full)
    disk_cache.add(KEY, b"machine code")
    monkeypatch.undo()
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(folder.parent.parent))
    assert disk_cache.find(KEY) is None
    assert [p.name for p in folder.iterdir()] == [owned.MARK]
