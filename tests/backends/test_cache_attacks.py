"""What others have in the folder of the cache stays, whatever its name and whatever is linked."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

from adarray.__main__ import main
from adarray.backend import load
from adarray.errors import BackendError

cache = pytest.importorskip("adarray_native.cache")
owned = pytest.importorskip("adarray_native.owned")
kernels = pytest.importorskip("adarray_backends.cpu.kernels")

HEX = "0123456789abcdef" * 2
OLD = (1.0, 1.0)  # seconds since 1970: older than anything that is kept


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the user names."""
    folder = tmp_path / "things"
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(folder))
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(cache, "_open", {})
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def engine() -> Any:
    try:
        return load("serial").engine()
    except BackendError as error:
        pytest.skip(str(error))


def _compile(engine: Any) -> Any:
    """Compile a kernel that was never compiled before."""
    kernels._kernels.clear()
    executable = engine.executable(plans.scaled_plan(5, kernel=plans.unique()))
    assert np.all(executable([np.zeros(5), 1.0])[0] >= 1)
    return executable


def _everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return type and content of all that is in a folder, by its path there."""
    files = {}
    for path in sorted(folder.rglob("*")):
        told = path.lstat()
        if stat.S_ISLNK(told.st_mode):
            data = os.readlink(path).encode()
        else:
            data = path.read_bytes() if stat.S_ISREG(told.st_mode) else b""
        files[str(path.relative_to(folder))] = (stat.S_IFMT(told.st_mode), data)
    return files


# Names as the cache gives them now, as it gave them once, and names like those.
SIMILAR = [
    f"{HEX}.so", f"{HEX}.kernel", f"{HEX}0.so", "libmine.so", f"{HEX.upper()}.so", "x.kernel",
    "work-", "work-projects", "work-abcdefgh", f"work-1-{HEX}", "work-1-x", "lock-0", "lock-smith",
    "lock-00", "failed", f"failed-{HEX}.c", "failed-mine.c", "cuda", f"{HEX}{HEX[:8]}.cubin",
    "mine.cubin", f"{HEX}{HEX[:8]}.block", "mine.algorithm", "adarray", "notes.txt", ".hidden",
    owned.MARK, "probe-mine", "adk_0.cu", "mine.cu",
]  # fmt: skip


def _fill(folder: Path, names: list[str], rng: random.Random, elsewhere: Path) -> None:
    """Put files, folders and links of others into a folder."""
    for name in names:
        path = folder / name
        if path.exists():
            continue
        kind = rng.choice(["file", "folder", "link", "link to a folder", "hard link", "dangling"])
        if kind == "file":
            path.write_text(f"of others: {name}")
        elif kind == "folder":
            path.mkdir()
            for inner in [*rng.sample(SIMILAR, 4), "unit0.c"]:
                (path / inner).write_text(f"of others, within: {inner}")
        elif kind == "link":
            path.symlink_to(elsewhere / "file.so")
        elif kind == "link to a folder":
            path.symlink_to(elsewhere)
        elif kind == "hard link":
            os.link(elsewhere / "file.so", path)
        else:
            path.symlink_to("nothing")
        if kind in ("file", "folder"):
            os.utime(path, OLD)


def _elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("file.so", "unit0.c", f"{HEX}.so", f"{HEX}.kernel"):
        (folder / name).write_text(f"elsewhere: {name}")
    return folder


def _all_removals(engine: Any) -> None:
    _compile(engine)
    current = cache.default()
    cache.Cache(current.folder, limit=0).trim()
    _compile(engine)
    assert main(["cache"]) == 0
    assert main(["cache", "--clear"]) == 0


@pytest.mark.parametrize("seed", range(6))
def test_nothing_of_others_goes(engine: Any, named: Path, tmp_path: Path, seed: int) -> None:
    elsewhere = _elsewhere(tmp_path)
    _fill(named, SIMILAR, random.Random(seed), elsewhere)
    before, away = _everything(named), _everything(elsewhere)
    _all_removals(engine)
    assert _everything(named) == before
    assert _everything(elsewhere) == away


@pytest.mark.parametrize("seed", range(6))
def test_nothing_of_others_goes_from_our_own_folder(
    engine: Any, named: Path, tmp_path: Path, seed: int
) -> None:
    elsewhere = _elsewhere(tmp_path)
    assert cache.prepare() == {}
    own = named / cache.OWN
    ours = {f"{HEX}.so", f"{HEX}.kernel", "lock-0", f"failed-{HEX}.c", f"work-1-{HEX}", owned.MARK}
    names = [n for n in SIMILAR if n not in ours]
    _fill(own, names, random.Random(seed), elsewhere)
    before, away = _everything(own), _everything(elsewhere)
    _all_removals(engine)
    assert _everything(own) == before
    assert _everything(elsewhere) == away


@pytest.mark.parametrize("kind", ["folder", "marked", "link", "dangling", "file", "fifo"])
def test_what_has_our_name_and_not_our_mark_is_not_used(
    engine: Any, named: Path, tmp_path: Path, kind: str
) -> None:
    elsewhere = _elsewhere(tmp_path)
    own = named / cache.OWN
    if kind in ("folder", "marked"):
        shutil.copytree(elsewhere, own)
        if kind == "marked":  # by another program
            (own / owned.MARK).write_bytes(owned.TEXT[:44])
        why = "it was not made by adarray"
    elif kind in ("link", "dangling"):
        own.symlink_to(elsewhere if kind == "link" else tmp_path / "nothing")
        why = "it is a link"
    else:
        own.write_text("of others") if kind == "file" else os.mkfifo(own)
        why = "it is not a directory"
    before, away = _everything(named), _everything(elsewhere)
    with pytest.warns(RuntimeWarning, match=f"kernel cache .*{cache.OWN} cannot be used: {why}"):
        _compile(engine)
    assert main(["cache", "--clear"]) == 0
    assert _everything(named) == before
    assert _everything(elsewhere) == away
    cache._open.clear()


def test_a_marked_folder_behind_a_link_is_not_emptied(named: Path, tmp_path: Path) -> None:
    """The mark is looked for in the folder itself."""
    other = tmp_path / "other" / cache.OWN
    other.parent.mkdir()
    assert owned.claim(other) == ""
    (other / f"{HEX}.so").write_text("another cache")
    (named / cache.OWN).symlink_to(other)
    cache.Cache(named / cache.OWN, limit=0).clear()
    cache.Cache(named / cache.OWN, limit=0).trim()
    cache.Cache(named / cache.OWN).forget(named / cache.OWN / f"{HEX}.so")
    assert (other / f"{HEX}.so").read_text() == "another cache"


def test_an_empty_folder_with_our_name_is_taken(engine: Any, named: Path) -> None:
    (named / cache.OWN).mkdir(mode=0o700)
    _compile(engine)
    assert (named / cache.OWN / owned.MARK).read_bytes() == owned.TEXT
    assert len(list((named / cache.OWN).glob("*.so"))) == 1


def test_links_in_the_place_of_our_files_are_not_followed(
    engine: Any, named: Path, tmp_path: Path
) -> None:
    elsewhere = _elsewhere(tmp_path)
    assert cache.prepare() == {}
    own = named / cache.OWN
    for digit in "0123456789abcdef":
        (own / f"lock-{digit}").symlink_to(elsewhere / "file.so")
    (own / f"work-1-{HEX[:16]}").symlink_to(elsewhere)
    data = b"as the name says"
    (elsewhere / "data").write_bytes(data)
    name = cache.digest(data) + ".so"
    (own / name).symlink_to(elsewhere / "data")
    (own / f"{HEX}.kernel").symlink_to(name)
    away = _everything(elsewhere)
    assert cache.Cache(own).find([HEX]) == {}
    _compile(engine)
    assert main(["cache", "--clear"]) == 0
    assert _everything(elsewhere) == away


def test_the_old_place_is_left_alone(engine: Any, named: Path) -> None:
    """Caches once lay in the named folder itself: they are ignored, and stay."""
    unit = f"{cache.digest(b'old')}.so"
    (named / unit).write_bytes(b"old")
    (named / f"{HEX}.kernel").symlink_to(unit)
    (named / "cuda").mkdir()
    (named / "cuda" / f"{HEX}{HEX[:8]}.cubin").write_bytes(b"old")
    before = _everything(named)
    assert main(["cache"]) == 0
    _all_removals(engine)
    assert _everything(named) == before


@pytest.mark.parametrize("kind", ["link", "dangling", "open", "file"])
def test_a_shared_folder_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """In the folder for temporary files, anybody may have taken our name first."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("ADARRAY_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def homeless(self: Path) -> Path:
        if str(self).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return self

    monkeypatch.setattr(Path, "expanduser", homeless)
    monkeypatch.setattr(cache, "_open", {})
    elsewhere = _elsewhere(tmp_path)
    shared = tmp_path / f"adarray-{os.geteuid()}"
    assert cache.usual_folder() == shared / cache.OWN
    if kind == "open":
        shared.mkdir()
        shared.chmod(0o777)
    elif kind == "file":
        shared.write_text("")
    else:
        shared.symlink_to(elsewhere if kind == "link" else tmp_path / "nothing")
    away = _everything(elsewhere)
    assert list(cache.prepare()) == [shared]
    used = cache.default().folder
    assert not used.is_relative_to(shared)
    assert owned.wrong_with(used) == ""
    assert _everything(elsewhere) == away
    assert not (tmp_path / "nothing").exists()


def test_the_named_folder_may_be_a_link(engine: Any, named: Path, tmp_path: Path) -> None:
    """A user may have a cache on another disk; only what we make ourselves is no link."""
    named.rmdir()
    there = tmp_path / "disk"
    there.mkdir(mode=0o700)
    named.symlink_to(there)
    _compile(engine)
    assert (there / cache.OWN / owned.MARK).exists()


def test_a_cache_that_is_removed_while_it_is_used_is_made_again(
    engine: Any, named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compile(engine)
    shutil.rmtree(named / cache.OWN)
    _compile(engine)
    assert len(list((named / cache.OWN).glob("*.so"))) == 1
    compiled = kernels.compile_units
    count = iter([True])

    def interfered(*args: Any) -> None:
        if next(count, False):
            shutil.rmtree(named)
        compiled(*args)

    monkeypatch.setattr(kernels, "compile_units", interfered)
    _compile(engine)
    assert len(list((named / cache.OWN).glob("*.so"))) == 1


def test_emptying_while_others_write(engine: Any, named: Path) -> None:
    """Every kernel works, and nothing of others goes, while the cache is emptied in turns."""
    note = named / "note.so"
    note.write_text("mine")
    done = threading.Event()

    def empty() -> None:
        while not done.is_set():
            list(cache.clear())
            cache.Cache(cache.usual_folder(), limit=0).trim()

    emptier = threading.Thread(target=empty)
    emptier.start()
    said = ""
    try:
        for _ in range(4):
            _compile(engine)
    except BackendError as error:  # removed twice in a row
        said = str(error)
    finally:
        done.set()
        emptier.join()
    assert not said or "make room there" in said
    assert note.read_text() == "mine"


def test_work_of_a_living_process_stays(named: Path) -> None:
    assert cache.prepare() == {}
    result = cache.Cache(cache.usual_folder())
    reference = subprocess.Popen([sys.executable, "-c", ""])
    reference.wait()
    dead = result.folder / f"work-{reference.pid}-{HEX[:16]}"
    dead.mkdir()
    with result.work() as folder:
        (folder / "unit0.c").write_text("")
        result.clear()
        assert (folder / "unit0.c").exists()
        assert not dead.exists()
    assert not folder.exists()


def test_things_of_others_in_work_stay(named: Path) -> None:
    assert cache.prepare() == {}
    with cache.Cache(cache.usual_folder()).work() as folder:
        (folder / "unit0.c").write_text("")
        (folder / "thesis.tex").write_text("mine")
    assert [p.name for p in folder.iterdir()] == ["thesis.tex"]


def test_folders_that_cannot_be_written_to(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(os, "mkdir", read_only)
    assert cache.prepare() == {named / cache.OWN: "Read-only file system"}
    monkeypatch.undo()
    monkeypatch.setenv("ADARRAY_CACHE_DIR", str(named))
    assert cache.prepare() == {}
    real = os.open

    def no_new(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_CREAT:
            read_only()
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", no_new)
    assert cache.prepare() == {named / cache.OWN: "Read-only file system"}


def test_processes_that_claim_at_once(named: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from adarray_native import owned\n"
        "print(repr(owned.claim(Path(sys.argv[1]))))"
    )
    own = named / cache.OWN
    results = [
        subprocess.Popen([sys.executable, "-P", "-c", code, str(own)], stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    assert [p.communicate()[0].strip() for p in results] == [b"''"] * 6
    assert sorted(p.name for p in named.iterdir()) == [cache.OWN]
    assert [p.name for p in own.iterdir()] == [owned.MARK]
