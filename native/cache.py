"""The cache of compiled kernels on disk.

A unit is a shared library of kernels; its name is a hash of its content, so that damage
shows. Every kernel has a symbolic link to its unit, named by all that its machine code
depends on. Files appear by renaming and are never changed: processes need no lock to read,
and of two that write the same kernel, the last one wins.

All of it lies in a folder of its own, which carries our mark (see `adarray_native.owned`), in
the folder that the user names. Only files in it with names that we give are ever removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from adarray_native import owned

try:
    import fcntl
except ImportError:  # no locks: processes may compile the same kernels at the same time
    fcntl = None  # type: ignore[assignment]

VARIABLE = "ADARRAY_CACHE_DIR"
OWN = "adarray-kernels"  # our folder in the one that the user names
LIMIT = 512 << 20  # bytes
LEFT = 7 / 8  # of the limit, once a cache that exceeded it is trimmed
STALE = 3600.0  # seconds after which what a dead process was writing is removed
RECENT = 3600.0  # seconds for which a use is not noted again
UNIT, LINK, WORK = ".so", ".kernel", "work-"
_UNITS = re.compile(r"[0-9a-f]{32}\.so")
_LINKS = re.compile(r"[0-9a-f]{32}\.kernel")
_WORKS = re.compile(r"work-([0-9]+)-[0-9a-f]{16}")
_REST = re.compile(r"lock-[0-9a-f]|failed-[0-9a-f]{32}\.(c|log)|probe-[0-9a-f]{16}")
# What lies in a folder of work: sources, and what compilers make of them.
_SOURCES = re.compile(r"(unit[0-9]*|ahead[0-9]+-adk_[0-9a-f]+)\.[A-Za-z0-9._-]+")


class Entry(NamedTuple):
    """A unit on disk."""

    path: Path
    size: int
    used: float


def digest(data: bytes) -> str:
    """Return a name for content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def named_folder() -> Path:
    """Return the folder that is ours to use: ADARRAY_CACHE_DIR, or the user's usual one."""
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted:
        with contextlib.suppress(RuntimeError):  # ~ of a user whom nobody knows
            return Path(wanted).expanduser().absolute()
        return Path(wanted).absolute()
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    if base and os.path.isabs(base):
        return Path(base) / "adarray"
    try:
        return Path("~/.cache/adarray").expanduser()
    except RuntimeError:  # no home directory, as in a container that a user without a name runs
        return _shared_folder()


def _shared_folder() -> Path:
    """Return this user's folder in the one for temporary files, where anybody may be first."""
    return Path(tempfile.gettempdir()) / f"adarray-{os.geteuid()}"


def usual_folder() -> Path:
    """Return our own folder in the one that the user names."""
    return named_folder() / OWN


def _private(folder: Path) -> str:
    """Make the folder that the user names; return why it is not for this user alone, if so."""
    # Where anybody may write, a link is not followed: it need not be the user's.
    follow = folder != _shared_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return owned.wrong_with(folder, follow) or error.strerror or str(error)
    return owned.wrong_with(folder, follow)


def prepare(part: str = "") -> dict[Path, str]:
    """Make our folder, and a folder in it; return what is wrong with those that are unsafe."""
    own = usual_folder()
    checks = [(own.parent, _private), (own, owned.claim)]
    if part:
        checks.append((own / part, owned.claim))
    for folder, check in checks:
        if why := check(folder):
            return {folder: why}
    return {}


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
        paths = {}
        sound: dict[str, bool] = {}
        for key in keys:
            try:
                name = os.readlink(self.folder / (key + LINK))
            except OSError:
                continue
            if name not in sound:
                sound[name] = self._sound(name)
            if sound[name]:
                paths[key] = self.folder / name
        return paths

    def _sound(self, name: str) -> bool:
        """Whether a unit holds what its name says; note its use, or remove it."""
        path = self.folder / name
        if path.parent != self.folder:  # no link of ours leads elsewhere
            return False
        try:
            if digest(_read(path)) + UNIT == name:
                if time.time() - path.stat().st_mtime > RECENT:
                    os.utime(path)
                return True
        except OSError:
            return False
        self.forget(path)
        return False

    def forget(self, unit: Path) -> None:
        """Remove a unit that is damaged or cannot be loaded."""
        if _UNITS.fullmatch(unit.name):
            owned.remove(self.folder, lambda entry: entry.name == unit.name)

    # -- writing -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def work(self) -> Iterator[Path]:
        """Provide a folder for files on their way, in the same file system."""
        folder = self.folder / f"{WORK}{os.getpid()}-{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            self._remove_work(folder.name)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Keep other processes from compiling the same kernels; where locks do not work, don't."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                # A few files that stay: removing a lock that somebody waits for is no lock.
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
                descriptor = os.open(self.folder / f"lock-{key[:1]}", flags, 0o600)
                _locks.add(descriptor)
                stack.callback(_unlock, descriptor)
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
        destination = self.folder / f"failed-{digest(source.read_bytes())}{source.suffix}"
        for path in (source.with_suffix(".log"), source):
            if path.exists():
                os.replace(path, destination.with_suffix(path.suffix))
        return destination

    # -- housekeeping ------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return the units, those used last at the end."""
        entries = [
            Entry(self.folder / name, told.st_size, told.st_mtime)
            for name, told in owned.files(self.folder, _is(_UNITS)).items()
        ]
        return sorted(entries, key=lambda entry: (entry.used, entry.path))

    def kernels(self) -> int:
        """Return the number of kernels."""
        return len(owned.names(self.folder, _is(_LINKS)))

    def failed(self) -> int:
        """Return the number of sources that did not compile."""
        return sum(name.endswith(".c") for name in owned.names(self.folder, _is(_REST)))

    def trim(self) -> None:
        """Where units exceed the limit, remove those that were used least recently.

        Also links to nothing, and dead work. Some more go than exceed it: each time that a full
        cache is trimmed takes as long as the cache is large.
        """
        units = self.entries()
        total = sum(entry.size for entry in units)
        removed: set[str] = set()
        if total > self.limit:
            for entry in units:
                if total <= LEFT * self.limit:
                    break
                removed.add(entry.path.name)
                total -= entry.size
        if removed:
            is_link = _is(_LINKS)
            owned.remove(self.folder, lambda entry: entry.name in removed)
            owned.remove(
                self.folder,
                lambda entry: is_link(entry) and not (self.folder / entry.name).exists(),
            )
        self._remove_works(time.time() - STALE)

    def clear(self) -> None:
        """Remove everything that `Cache` made, but for what other processes are working on."""
        self._remove_works(time.time() - STALE, dead=True)
        for names in (_UNITS, _LINKS, _REST):
            owned.remove(self.folder, _is(names))
        owned.give_up(self.folder)

    def _remove_works(self, before: float, dead: bool = False) -> None:
        """Remove work that is older, and that of processes that are gone, if asked for."""

        def which(entry: os.DirEntry[str]) -> bool:
            match = _WORKS.fullmatch(entry.name)
            if match is None or not owned.is_folder(entry):
                return False
            began = entry.stat(follow_symlinks=False).st_mtime
            return began < before or (dead and not _alive(int(match[1])))

        for name in owned.names(self.folder, which):
            self._remove_work(name)

    def _remove_work(self, name: str) -> None:
        owned.remove_folder(self.folder, name, _is(_SOURCES))


_locks: set[int] = set()  # descriptors of the locks that this process holds or waits for


def _unlock(descriptor: int) -> None:
    if descriptor in _locks:
        _locks.remove(descriptor)
        os.close(descriptor)


def _leave_locks() -> None:
    """Close the locks of the parent, in a forked child: they would last as long as it does."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks)


def _is(names: re.Pattern[str]) -> owned.Which:
    """Return what accepts files and links of these names."""
    return lambda entry: bool(names.fullmatch(entry.name)) and not owned.is_folder(entry)


def _read(path: Path) -> bytes:
    """Return what a file holds; raise OSError for a link."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        return file.read()


def _alive(process: int) -> bool:
    """Whether there is a process of this number, which may be another user's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


_open: dict[tuple[str | None, ...], Cache] = {}


def _temporary() -> Cache:
    """Return a cache that lasts as long as this process."""
    outer = Path(tempfile.mkdtemp(prefix="adarray-"))
    folder = outer / OWN
    owned.claim(folder)
    cache = Cache(folder)
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not a forked child
            shutil.rmtree(outer, ignore_errors=True)  # which nobody else knows

    weakref.finalize(cache, remove)
    return cache


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
    if key not in _open or not os.path.isdir(_open[key].folder):  # removed meanwhile
        wrong = prepare(part)
        if wrong and os.environ.get(VARIABLE, "").strip():
            first, why = next(iter(wrong.items()))
            warnings.warn(
                f"jit: the kernel cache {first} cannot be used: {why}; kernels are compiled "
                f"anew in every process; set {VARIABLE} to a folder of your own",
                RuntimeWarning,
                stacklevel=2,
            )
        _open[key] = _temporary() if wrong else Cache(usual_folder() / part)
    return _open[key]


def report() -> Iterator[str]:
    """Yield lines about the cache, for ``python -m adarray cache``."""
    folder = usual_folder()
    yield f"folder: {folder}"
    if folder.exists():
        for wrong in prepare().values():
            yield f"not used: {wrong}; every process compiles its own kernels"
    cache = Cache(folder)
    units = cache.entries()
    size = sum(entry.size for entry in units)
    yield f"kernels: {cache.kernels()} in {len(units)} files"
    yield f"size: {size / (1 << 20):.1f} MiB of at most {LIMIT >> 20}"
    if failed := cache.failed():
        yield f"did not compile: {failed}, see {folder / 'failed-*.c'}"


def clear() -> Iterator[str]:
    """Empty the cache; yield a line that says so."""
    folder = usual_folder()
    cache = Cache(folder)
    count, size = cache.kernels(), sum(entry.size for entry in cache.entries())
    cache.clear()
    yield f"removed {count} kernels, {size / (1 << 20):.1f} MiB, from {folder}"
