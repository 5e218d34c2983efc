"""Kernels for GPUs on disk: as private as those of processors, and never trusted blindly."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from adarray_backends.cuda import kept
from adarray_native import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cuda"


def test_a_kernel_is_found_again(folder: Path) -> None:
    assert kept.find("key") is None
    kept.add("key", b"machine code")
    assert kept.find("key") == b"machine code"
    assert kept.find("other") is None
    assert [p.name for p in folder.iterdir()] == ["key.cubin"]
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"short", b"machine cod" + b"e" * 40, b"x" * 500])
def test_a_damaged_kernel_is_compiled_again(folder: Path, damage: bytes) -> None:
    kept.add("key", b"machine code")
    (folder / "key.cubin").write_bytes(damage)
    assert kept.find("key") is None
    kept.add("key", b"machine code")
    assert kept.find("key") == b"machine code"


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    kept.folder()
    cache._open.clear()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=r"cache/cuda cannot be used: other users may write"):
        assert kept.folder() != folder
    kept.add("key", b"machine code")
    assert kept.find("key") == b"machine code"  # in a folder of this process
    assert not list(folder.iterdir())
    cache._open.clear()


def test_kernels_that_were_not_used_for_longest_are_removed(folder: Path) -> None:
    size = len(b"x" * 968) + 32
    for i in range(4):
        kept.add(f"a{i}", b"x" * 968)
        when = time.time() - 10_000 * (4 - i)
        os.utime(folder / f"a{i}.cubin", (when, when))
    assert kept.find("a0") is not None  # which is a use
    choice = folder / f"a{kept.ALGORITHM}"
    choice.write_text("{}")
    os.utime(choice, (0, 0))
    kept.trim(2 * size)
    assert sorted(p.name for p in folder.iterdir()) == ["a.algorithm", "a0.cubin", "a3.cubin"]


def test_where_nothing_can_be_written_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    kept.folder()
    monkeypatch.setattr(Path, "replace", full)
    kept.add("key", b"machine code")
    monkeypatch.undo()
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(folder.parent))
    assert kept.find("key") is None
    assert not list(folder.iterdir())
