"""Folders of our own among the things of others: made, recognised, and emptied of ours alone.

A folder is ours if it carries our mark, a file that is written before the folder gets its
name. Nothing is removed elsewhere, and there only what has a name that we give: a folder is
opened without following a link, what is in it is named relative to that, and folders in it are
emptied file by file. So whatever is moved or linked meanwhile, nothing of others goes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MARK = "CACHEDIR.TAG"  # which programs that make copies of folders know, too
TEXT = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This folder was made by adarray, which removes what it has written into it.\n"
)
# Folders that may belong to others are opened as they are, not where a link leads.
_FOLDER = (
    os.O_RDONLY
    | os.O_CLOEXEC
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)  # fmt: skip
_AGAIN = 20  # times that a folder is claimed which others remove
_FILE = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)

# Says of an entry of a folder whether it is meant; entries know without a call of the system
# whether they are folders.
Which = Callable[["os.DirEntry[str]"], bool]


def wrong_with(folder: Path, follow: bool = False) -> str:
    """Return why a folder is not one for this user alone; "" if it is.

    Parameters
    ----------
    folder : Path
    follow : bool, optional
        Whether it may be a link to a folder, as one that the user has named may be.
    """
    try:
        status = os.stat(folder, follow_symlinks=follow)
    except OSError as error:
        return error.strerror or str(error)
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    return _wrong(status)


def _wrong(status: os.stat_result) -> str:
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & 0o022:
        return "other users may write to it"
    return ""


def claim(folder: Path) -> str:
    """Make a folder that carries our mark, or find one; return what is wrong, if anything.

    What is there already and does not carry the mark is left alone, unless it is an empty
    folder. One that another process is removing is made again.
    """
    why = _claimed(folder)
    for _ in range(_AGAIN):
        if not why or not _going(folder, why):
            break
        time.sleep(0.01)
        why = _claimed(folder)
    return why


def _going(folder: Path, why: str) -> bool:
    """Whether a folder could not be claimed since another process is emptying it."""
    if not folder.parent.is_dir():
        return False
    try:
        vanished = why == os.strerror(errno.ENOENT)
        return vanished or ("not made by" in why and os.listdir(folder) in ([], [MARK]))
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _claimed(folder: Path) -> str:
    try:
        if not os.path.lexists(folder) or (not wrong_with(folder) and not os.listdir(folder)):
            _make(folder)
        if reason := wrong_with(folder):
            return reason
        with opened(folder) as descriptor:
            if descriptor is None:
                return f"it was not made by adarray (it has no {MARK} of adarray's)"
            probe = f"probe-{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            os.close(os.open(probe, flags, 0o600, dir_fd=descriptor))
            os.unlink(probe, dir_fd=descriptor)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _make(folder: Path) -> None:
    """Make a folder with its mark at once: nobody finds it without."""
    fresh = folder.with_name(f".adarray-{secrets.token_hex(8)}")
    os.mkdir(fresh, 0o700)
    mark = fresh / MARK
    try:
        with open(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600), "wb") as file:
            file.write(TEXT)
        with contextlib.suppress(OSError):  # somebody else was first: `claim` looks at theirs
            os.rename(fresh, folder)
    finally:
        with contextlib.suppress(OSError):  # it has its name now
            mark.unlink()
            fresh.rmdir()


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int | None]:
    """Provide a descriptor of a folder of ours; None if it is not ours."""
    ours = None
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, _FOLDER)
            stack.callback(os.close, descriptor)
            if not _wrong(os.fstat(descriptor)) and _text(descriptor) == TEXT:
                ours = descriptor
        yield ours


def _text(descriptor: int) -> bytes:
    """Return the mark of a folder."""
    with open(os.open(MARK, os.O_RDONLY | _FILE, dir_fd=descriptor), "rb") as file:
        return file.read(len(TEXT) + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""


def names(folder: Path, which: Which) -> list[str]:
    """Return the names of those of a folder's entries that `which` accepts, if it is ours."""
    with opened(folder) as descriptor:
        return [] if descriptor is None else _names(descriptor, which)


def files(folder: Path, which: Which) -> dict[str, os.stat_result]:
    """Return those of a folder's entries that `which` accepts, if the folder is ours."""
    files = {}
    with opened(folder) as descriptor:
        for name in [] if descriptor is None else _names(descriptor, which):
            with contextlib.suppress(OSError):  # another process may have removed it
                files[name] = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    return files


def _names(descriptor: int, which: Which) -> list[str]:
    names = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if which(entry):
                    names.append(entry.name)
    return names


def remove(folder: Path, which: Which) -> None:
    """Remove files that `which` accepts from a folder of ours; never a folder."""
    with opened(folder) as descriptor:
        if descriptor is not None:
            _remove(descriptor, which)


def _remove(descriptor: int, which: Which) -> None:
    for name in _names(descriptor, lambda entry: which(entry) and not is_folder(entry)):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=descriptor)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, and no link to one."""
    return entry.is_dir(follow_symlinks=False)


def remove_folder(folder: Path, name: str, which: Which) -> None:
    """Remove files that `which` accepts from a folder in one of ours, and it, if it is empty."""
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        outer = stack.enter_context(opened(folder))
        if outer is None:
            return
        inner = os.open(name, _FOLDER, dir_fd=outer)
        stack.callback(os.close, inner)
        if not _wrong(os.fstat(inner)):
            _remove(inner, which)
            os.rmdir(name, dir_fd=outer)


def give_up(folder: Path) -> None:
    """Remove a folder of ours that holds nothing but its mark."""
    with opened(folder) as descriptor:
        if descriptor is None or os.listdir(descriptor) != [MARK]:
            return
        with contextlib.suppress(OSError):
            os.unlink(MARK, dir_fd=descriptor)
            try:
                os.rmdir(folder)
            except OSError:  # another process has written to it meanwhile
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
                with open(os.open(MARK, flags, 0o600, dir_fd=descriptor), "wb") as file:
                    file.write(TEXT)
