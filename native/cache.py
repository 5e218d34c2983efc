"""The cache of compiled kernels on disk.

A unit is a shared library of kernels; its name is a hash of its content, so that damage
shows. Every kernel has a symbolic link to its unit, named by all that its machine code
depends on. Files appear by renaming and are never changed: processes need no lock to read,
and of two that write the same kernel, the last one wins.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

try:
    import fcntl
except ImportError:  # no locks: processes may compile the same kernels at the same time
    fcntl = None  # type: ignore[assignment]

VARIABLE = "ADARRAY_CACHE_DIR"
LIMIT = 512 << 20  # bytes
STALE = 3600.0  # seconds after which what a dead process was writing is removed
RECENT = 3600.0  # seconds for which a use is not noted again
UNIT, LINK, WORK = ".so", ".kernel", "work-"


class Entry(NamedTuple):
    """A unit on disk."""

    path: Path
    size: int
    used: float


def digest(data: bytes) -> str:
    """Return a name for content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def usual_folder() -> Path:
    """Return the folder that is used unless it cannot be: ADARRAY_CACHE_DIR, or the user's."""
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted:
        return Path(wanted).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    if base and os.path.isabs(base):
        return Path(base) / "adarray"
    try:
        return Path("~/.cache/adarray").expanduser()
    except RuntimeError:  # no home directory, as in a container that a user without a name runs
        return Path(tempfile.gettempdir()) / f"adarray-{os.geteuid()}"


def _private(folder: Path) -> str:
    """Make a folder for this user alone; return what is wrong with it, if anything."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.stat(folder)
        if not stat.S_ISDIR(found.st_mode):
            return "it is not a directory"
        if found.st_uid != os.geteuid():
            return "it belongs to another user"
        if found.st_mode & 0o022:
            return "other users may write to it"
        handle, probe = tempfile.mkstemp(dir=folder, prefix=WORK)
        os.close(handle)
        os.unlink(probe)
    except OSError as error:
        return error.strerror or str(error)
    return ""


class Cache:
    """Compiled kernels in a folder.

    Parameters
    ----------
    folder : Path
        It must be private to this user; see `default`.
    limit : int, optional
        Bytes from which on the units that were not used for longest are removed.
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    # -- reading -----------------------------------------------------------------------------

    def find(self, keys: Iterable[str]) -> dict[str, Path]:
        """Return the units that hold kernels, by the kernels' keys; without those unknown."""
        found = {}
        sound: dict[str, bool] = {}
        for key in keys:
            try:
                name = os.readlink(self.folder / (key + LINK))
            except OSError:
                continue
            if name not in sound:
                sound[name] = self._sound(name)
            if sound[name]:
                found[key] = self.folder / name
        return found

    def _sound(self, name: str) -> bool:
        """Whether a unit holds what its name says; note its use, or remove it."""
        path = self.folder / name
        if path.parent != self.folder:  # no link of ours leads elsewhere
            return False
        try:
            data = path.read_bytes()
            if digest(data) + UNIT == name:
                if time.time() - path.stat().st_mtime > RECENT:
                    os.utime(path)
                return True
        except OSError:
            return False
        self.forget(path)
        return False

    def forget(self, unit: Path) -> None:
        """Remove a unit that is damaged or cannot be loaded."""
        with contextlib.suppress(OSError):
            unit.unlink()

    # -- writing -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def work(self) -> Iterator[Path]:
        """Provide a folder for files on their way, in the same file system."""
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=WORK))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Keep other processes from compiling the same kernels; where locks do not work, don't."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                # A few files that stay: removing a lock that somebody waits for is no lock.
                descriptor = os.open(
                    self.folder / f"lock-{key[:1]}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
                stack.callback(os.close, descriptor)
                if fcntl is not None:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def add(self, unit: Path, keys: Iterable[str]) -> Path:
        """Move a unit out of a `work` folder into the cache; return where it is."""
        os.chmod(unit, 0o700)
        path = self.folder / (digest(unit.read_bytes()) + UNIT)
        os.replace(unit, path)
        for i, key in enumerate(keys):
            link = unit.with_name(f"{unit.name}-{i}")
            os.symlink(path.name, link)
            os.replace(link, self.folder / (key + LINK))
        return path

    def keep_failed(self, source: Path) -> Path:
        """Keep the source of a unit that did not compile, with its log; return its path."""
        folder = self.folder / "failed"
        folder.mkdir(mode=0o700, exist_ok=True)
        kept = folder / f"{digest(source.read_bytes())}{source.suffix}"
        for path in (source.with_suffix(".log"), source):
            if path.exists():
                os.replace(path, kept.with_suffix(path.suffix))
        return kept

    # -- housekeeping ------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return the units, those used last at the end."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                if not file.name.endswith(UNIT):
                    continue
                with contextlib.suppress(OSError):
                    told = file.stat(follow_symlinks=False)
                    found.append(Entry(Path(file.path), told.st_size, told.st_mtime))
        return sorted(found, key=lambda entry: (entry.used, entry.path))

    def kernels(self) -> int:
        """Return the number of kernels."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            return sum(file.name.endswith(LINK) for file in files)
        return 0

    def trim(self) -> None:
        """Remove units until the rest is within the limit, links to nothing, and dead work."""
        units = self.entries()
        total = sum(entry.size for entry in units)
        removed = False
        for entry in units:
            if total <= self.limit:
                break
            self.forget(entry.path)
            total -= entry.size
            removed = True
        if removed:
            self._remove(lambda file: file.name.endswith(LINK) and not os.path.exists(file.path))
        dead = time.time() - STALE
        self._remove(lambda file: file.name.startswith(WORK) and file.stat().st_mtime < dead)

    def clear(self) -> None:
        """Remove everything that `Cache` made."""
        known = (UNIT, LINK)
        self._remove(
            lambda file: (
                file.name.endswith(known)
                or file.name.startswith((WORK, "lock-"))
                or file.name == "failed"
            )
        )

    def _remove(self, which: Any) -> None:
        with contextlib.suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                with contextlib.suppress(OSError):
                    if not which(file):
                        continue
                    if file.is_dir(follow_symlinks=False):
                        shutil.rmtree(file.path, ignore_errors=True)
                    else:
                        os.unlink(file.path)


_open: dict[tuple[str | None, ...], Cache] = {}


def _temporary() -> Cache:
    """Return a cache that lasts as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="adarray-"))
    made = Cache(folder)
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not a forked child
            shutil.rmtree(folder, ignore_errors=True)

    weakref.finalize(made, remove)
    return made


def default(part: str = "") -> Cache:
    """Return the cache of this process: the usual folder, or where that is unsafe, another.

    Parameters
    ----------
    part : str, optional
        A folder in it, for kernels of another kind.

    Notes
    -----
    Code is loaded from the cache, so a folder that another user owns or may write to is
    refused. A folder that ADARRAY_CACHE_DIR names is not given up silently.
    """
    names = (VARIABLE, "XDG_CACHE_HOME", "HOME")
    key = (part, *(os.environ.get(name) for name in names))
    if key not in _open:
        usual = usual_folder()
        folder = usual / part
        wrong = {f: why for f in (usual, folder) if (why := _private(f))}
        if wrong and os.environ.get(VARIABLE, "").strip():
            first, why = next(iter(wrong.items()))
            warnings.warn(
                f"jit: the kernel cache {first} cannot be used: {why}; kernels are compiled "
                f"anew in every process; set {VARIABLE} to a folder of your own",
                RuntimeWarning,
                stacklevel=2,
            )
        _open[key] = _temporary() if wrong else Cache(folder)
    return _open[key]


def report() -> Iterator[str]:
    """Yield lines about the cache, for ``python -m adarray cache``."""
    folder = usual_folder()
    yield f"folder: {folder}"
    if folder.exists():
        wrong = _private(folder)
        if wrong:
            yield f"not used: {wrong}; every process compiles its own kernels"
    cache = Cache(folder)
    units = cache.entries()
    size = sum(entry.size for entry in units)
    yield f"kernels: {cache.kernels()} in {len(units)} files"
    yield f"size: {size / (1 << 20):.1f} MiB of at most {LIMIT >> 20}"
    failed = sorted((folder / "failed").glob("*.c"))
    if failed:
        yield f"did not compile: {len(failed)}, see {folder / 'failed'}"


def clear() -> Iterator[str]:
    """Empty the cache; yield a line that says so."""
    folder = usual_folder()
    cache = Cache(folder)
    count, size = cache.kernels(), sum(entry.size for entry in cache.entries())
    cache.clear()
    yield f"removed {count} kernels, {size / (1 << 20):.1f} MiB, from {folder}"
