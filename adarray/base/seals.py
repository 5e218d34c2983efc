"""Memory that is sealed: the kernel notes which of its pages are written to.

Linux keeps this account without a signal or a copy: pages are write-protected through a
userfaultfd, the first write to one lifts its protection (`WP_ASYNC`: the kernel does that by
itself, whoever writes), and `PAGEMAP_SCAN` says which ones were written to (Linux 6.7). Sealing,
asking and ending take microseconds for 80 MB in huge pages, a millisecond in small ones. Where
the kernel has none of this, `seal` returns None.

Protecting pages costs most: the processor forgets where they are. Data that is sealed again
and again without a change stays protected in between; then only asking is left to do.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import struct
import sys
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from adarray.base import protection
from adarray.base.hooks import Hook

if TYPE_CHECKING:
    from cffi import FFI

# Of the system call userfaultfd, where numbers of requests are encoded as below.
_NUMBERS = {"x86_64": 323, "aarch64": 282, "riscv64": 282, "s390x": 355}
_USER_MODE_ONLY = 1
_API, _WRITE_PROTECT = 0xAA, 2
_WP, _WP_UNPOPULATED, _WP_ASYNC = 1 << 0, 1 << 13, 1 << 15  # features
_WRITTEN, _FILE, _PRESENT = 1 << 1, 1 << 2, 1 << 3  # categories of pages
_PAGE = mmap.PAGESIZE
_CHECKED = 1 << 1  # flag: fail where no account is kept
_CHUNK = 21  # seals that may overlap are found by their addresses' bits from here on


# Provides `Account` and `find` in C, as the module ``native/seals.py``; None where it was not
# compiled.
native_hook: Hook[Callable[[], types.ModuleType | None]] = Hook("adarray.backend", lambda: None)


def _request(direction: int, kind: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | kind << 8 | number


_UFFDIO_API = _request(3, 0xAA, 0x3F, 24)
_UFFDIO_REGISTER = _request(3, 0xAA, 0x00, 32)
_UFFDIO_UNREGISTER = _request(2, 0xAA, 0x01, 16)
_UFFDIO_WRITEPROTECT = _request(3, 0xAA, 0x06, 24)
_PAGEMAP_SCAN = _request(3, ord("f"), 16, 96)


class _Kernel:
    """Access of this process to the kernel's account of written pages.

    Raises
    ------
    OSError
        If the kernel does not offer it.
    """

    def __init__(self) -> None:
        number = _NUMBERS.get(platform.machine())
        if sys.platform != "linux" or number is None or sys.maxsize < 1 << 32 or _filtered():
            raise OSError("there is no account of writes")
        import fcntl

        from cffi import FFI

        ffi = FFI()
        ffi.cdef("long syscall(long number, ...);")
        self.ioctl = fcntl.ioctl
        self._ffi = ffi
        flags = ffi.cast("int", os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
        self.descriptor: int = ffi.dlopen(None).syscall(number, flags)
        if self.descriptor < 0:
            raise OSError(ffi.errno, "userfaultfd")
        try:
            wanted = _WP | _WP_UNPOPULATED | _WP_ASYNC
            self.ioctl(self.descriptor, _UFFDIO_API, struct.pack("3Q", _API, wanted, 0))
            self.pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self.descriptor)
            raise
        self._region = ffi.new("uint64_t[3]")
        self._at = int(ffi.cast("uintptr_t", self._region))
        self.native = native_hook.call()
        try:
            self.any_page(self._at & -_PAGE, (self._at & -_PAGE) + _PAGE, _FILE, 0)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file descriptors."""
        os.close(self.descriptor)
        os.close(self.pages)

    def memory(self, address: int, size: int) -> FFI.buffer:
        """Return a view of memory."""
        return self._ffi.buffer(self._ffi.cast("char *", address), size)

    def question(
        self, low: int, high: int, categories: int, inverted: int, flags: int = 0
    ) -> bytearray:
        """Return the request for pages in any of the categories, or outside of those inverted."""
        # The kernel has a short way for what was written to, if that is asked for alone.
        every, some = (categories, 0) if categories == _WRITTEN else (0, categories)
        return bytearray(
            struct.pack(
                "12Q", 96, flags, low, high, 0, self._at, 1, 1, inverted, every, some, categories
            )
        )

    def any_page(self, low: int, high: int, categories: int, inverted: int, flags: int = 0) -> bool:
        """Whether any page answers such a request; see `question`."""
        question = self.question(low, high, categories, inverted, flags)
        return bool(self.ioctl(self.pages, _PAGEMAP_SCAN, question) > 0)

    def account(self, low: int, high: int) -> Account:
        """Return a new account of bytes."""
        if self.native is not None:
            account: Account = self.native.Account(self.pages, low, high, _PAGE)
            return account
        return Account(self, low, high)

    def protect(self, low: int, high: int) -> None:
        self.ioctl(
            self.descriptor, _UFFDIO_REGISTER,
            struct.pack("4Q", low, high - low, _WRITE_PROTECT, 0),
        )  # fmt: skip
        try:
            self.ioctl(self.descriptor, _UFFDIO_WRITEPROTECT, struct.pack("3Q", low, high - low, 1))
        except OSError:
            self.unprotect(low, high)
            raise

    def unprotect(self, low: int, high: int) -> None:
        self.ioctl(self.descriptor, _UFFDIO_UNREGISTER, struct.pack("2Q", low, high - low))


def _filtered() -> bool:
    """Whether system calls are filtered: one that is refused may end the process."""
    with open("/proc/self/status") as file:
        return any(line.startswith("Seccomp:") and line.split()[1] != "0" for line in file)


# Seals of data that looked the same so many times in a row stay when nobody uses them, a few;
# of data that was written to then, they do not for a long time: every page costs a fault.
_STEADY, _UNSTEADY, _RESTING, _HABITS = 2, -32, 64, 256
_SAMPLES, _SAMPLE = 16, 64  # of bytes

_kernel: list[_Kernel | None] = []  # of this process, once it was asked for
_live: dict[int, list[Seal]] = {}  # by the chunks of memory that they lie in
_resting: dict[tuple[int, int], Seal] = {}  # without users, those that rest for longest first
# By addresses: a sample of what was there, and how often it was the same in a row.
_habits: dict[tuple[int, int], tuple[bytes, int]] = {}


def _open_kernel() -> _Kernel | None:
    if not _kernel:
        global find
        try:
            kernel = _Kernel()
        except (OSError, ImportError, AttributeError):
            _kernel.append(None)
        else:
            _kernel.append(kernel)
            find = _find
            if kernel.native is not None:
                find = kernel.native.finder(_resting, np.ndarray)
                protection.use(kernel.native)
            if hasattr(os, "register_at_fork") and not _noted:
                _noted.append(True)
                os.register_at_fork(after_in_child=_forked)
    return _kernel[0]


_noted: list[bool] = []


def _forked() -> None:
    """Forget the account, which is the parent's: a child knows nothing of what was sealed."""
    global find
    protection.lock = threading.RLock()
    if _kernel and _kernel[0] is not None:
        _kernel[0].close()
    _kernel.clear()
    find = _find_first
    _resting.clear()
    _habits.clear()
    for seals in _live.values():
        for x in seals:
            x.account.written = x.forked = True
    _live.clear()


class Account:
    """Whether any of some bytes were written to since `begin`; ``native/cpu/seals.c`` has it in C.

    The first and the last page may hold memory of others, too. They are protected with the rest,
    and only once somebody wrote there, and `shares_pages` is true, are the bytes on them compared.

    Parameters
    ----------
    kernel : _Kernel
    low, high : int
        The bytes, several pages of them.

    Attributes
    ----------
    written : bool
        Whether `changed` has been true.
    shares_pages : bool
    """

    __slots__ = (
        "_end_bytes", "_ends", "_inner", "_kernel", "_low", "_size", "_whole", "shares_pages",
        "written",
    )  # fmt: skip

    def __init__(self, kernel: _Kernel, low: int, high: int) -> None:
        self._kernel, self._low, self._size = kernel, low, high - low
        self.written = self.shares_pages = False
        (first, last), (start, stop) = _pages_of(low, high)
        # Asked and looked at each time; made once.
        self._whole = kernel.question(first, last, _WRITTEN, 0, _CHECKED)
        self._inner = kernel.question(start, stop, _WRITTEN, 0, _CHECKED)
        self._ends = kernel.memory(low, start - low), kernel.memory(stop, high - stop)

    def begin(self) -> None:
        """Begin to watch, once the pages are protected."""
        head, tail = self._ends
        self._end_bytes: tuple[bytes, bytes] = head[:], tail[:]

    def resume(self) -> bool:
        """Begin to watch again after a rest; return False if anything was written meanwhile."""
        if not self.shares_pages:
            if not self._any_written(self._whole):
                return True
            self.shares_pages = True
        if self._any_written(self._inner):
            return False
        self.begin()
        return True

    def changed(self) -> bool:
        """Whether anything was written to the bytes since they were sealed."""
        # No lock: `written` only ever becomes true, also before another seal's pages are protected.
        if self.written:
            return True
        if not self.shares_pages:
            if not self._any_written(self._whole):
                return False
            self.shares_pages = True
        head, tail = self._ends
        if self._any_written(self._inner) or (head[:], tail[:]) != self._end_bytes:
            self.written = True
        return self.written

    def sample(self) -> bytes:
        """Return some of the bytes."""
        memory, step = self._kernel.memory, (self._size - _SAMPLE) // (_SAMPLES - 1)
        return b"".join([memory(self._low + i * step, _SAMPLE)[:] for i in range(_SAMPLES)])

    def _any_written(self, question: bytearray) -> bool:
        """Whether a page was written to, or may have been; a question can be asked again."""
        kernel = self._kernel
        try:
            return bool(kernel.ioctl(kernel.pages, _PAGEMAP_SCAN, question) > 0)
        except OSError:  # another mapping is there now
            return True


def _pages_of(low: int, high: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the pages that bytes lie on, and those that they fill, from and up to addresses."""
    around = low // _PAGE * _PAGE, -(-high // _PAGE) * _PAGE
    return around, (-(-low // _PAGE) * _PAGE, high // _PAGE * _PAGE)


class Seal:
    """Bytes from one address to another that are watched, shared by `users`.

    Attributes
    ----------
    account : Account
    changed : callable
        That of the account, which saves a call.
    """

    __slots__ = (
        "account", "bounds", "changed", "first", "forked", "high", "last", "low", "rests", "start",
        "stop", "users",
    )  # fmt: skip

    def __init__(self, kernel: _Kernel, low: int, high: int) -> None:
        self.low, self.high, self.users = low, high, 1
        self.bounds = low, high
        (self.first, self.last), (self.start, self.stop) = _pages_of(low, high)
        self.forked = self.rests = False
        self.account = account = kernel.account(low, high)
        self.changed: Callable[[], bool] = account.changed

    @property
    def shares_pages(self) -> bool:
        """Whether its first and last page may have been written to beside its bytes."""
        return self.account.shares_pages

    def protected(self) -> tuple[int, int]:
        """Return where the pages begin and end that are the seal's own to protect."""
        return (self.start, self.stop) if self.shares_pages else (self.first, self.last)

    def end(self) -> None:
        """Watch no longer, if this was the last user. Whoever calls it has the lock."""
        self.users -= 1
        if self.users or self.forked:
            return
        if not self.rests or self.account.written:
            self.drop()
            return
        _resting[self.bounds] = self
        if len(_resting) > _RESTING:
            next(iter(_resting.values())).drop()

    def drop(self) -> None:
        """Let the kernel forget what no other seal covers."""
        if _resting.get(self.bounds) is self:
            del _resting[self.bounds]
        for chunk in self.chunks():
            seals = _live[chunk]
            seals.remove(self)
            if not seals:
                del _live[chunk]
        kernel = _open_kernel()
        if kernel is not None:
            for low, high in _without(self.first, self.last, _overlapping(self)):
                with contextlib.suppress(OSError):  # the memory is gone
                    kernel.unprotect(low, high)

    def chunks(self) -> range:
        """Return the numbers of the chunks of memory that it lies in."""
        return range(self.first >> _CHUNK, (self.last - 1 >> _CHUNK) + 1)


def _overlapping(seal: Seal) -> list[Seal]:
    """Return the seals that have pages of this one."""
    seals = {id(x): x for chunk in seal.chunks() for x in _live.get(chunk, ())}
    return [x for x in seals.values() if x.first < seal.last and seal.first < x.last]


def _without(low: int, high: int, others: list[Seal]) -> list[tuple[int, int]]:
    """Return the parts of a range that no seal covers."""
    parts = []
    for x in sorted(others, key=lambda x: x.first):
        if low < x.first:
            parts.append((low, x.first))
        low = max(low, x.last)
    if low < high:
        parts.append((low, high))
    return parts


def bounds(x: np.ndarray) -> tuple[int, int]:
    """Return where the memory of an array without gaps begins and ends."""
    low: int = x.__array_interface__["data"][0]
    return low, low + x.nbytes


def _find_first(x: np.ndarray) -> Seal | None:
    """Find out how seals are found, and find one."""
    with protection.lock:
        kernel = _open_kernel()
    return None if kernel is None else find(x)


def _find(x: np.ndarray) -> Seal | None:
    """Do what `find` does, in Python."""
    if x.dtype.kind not in "biufc" or not x.flags.forc:
        return None
    seal = _resting.get(bounds(x))
    if seal is None or not seal.account.resume():
        return None
    del _resting[seal.bounds]
    return seal


# Takes the seal of an array's bytes out of those that rest, if it can be resumed. Whoever calls it
# has the lock, and becomes its user.
find: Callable[[np.ndarray], Seal | None] = _find_first


def rested(low: int, high: int) -> Seal | None:
    """Return the seal of these bytes that has no user, if nothing was written to them."""
    with protection.lock:
        seal = _resting.pop((low, high), None)
        if seal is None:
            return None
        if seal.account.resume():
            seal.users = 1
            return seal
        seal.drop()
        _habits[low, high] = (b"", _UNSTEADY)
        return None


def seal(low: int, high: int, own: bool) -> Seal | None:
    """Watch the bytes from one address to another, several pages of them, until `Seal.end`.

    Parameters
    ----------
    low, high : int
    own : bool
        Whether the memory is known to be this process's alone. Other memory is looked at: files
        and memory that processes share may be written to where this account does not see it.

    Returns
    -------
    Seal or None
        None if the kernel keeps no account of this memory.
    """
    with protection.lock:
        kernel = _open_kernel()
        if kernel is None or high - low < 3 * _PAGE:
            return None
        try:
            return rested(low, high) or _shared(low, high) or _new_seal(kernel, low, high, own)
        except OSError:
            return None


def _shared(low: int, high: int) -> Seal | None:
    """Return the seal of the same bytes, if there is one and they have not changed since."""
    for x in _live.get(low >> _CHUNK, ()):
        if (x.low, x.high) == (low, high) and not x.changed():
            x.users += 1
            return x
    return None


def _new_seal(kernel: _Kernel, low: int, high: int, own: bool) -> Seal | None:
    """Return a new seal, None where the account does not see all writes."""
    seal = Seal(kernel, low, high)
    if not own and kernel.any_page(seal.first, seal.last, _FILE | _PRESENT, _PRESENT):
        return None
    for x in _overlapping(seal):
        seal.account.shares_pages = True
        if x.last <= seal.start or seal.stop <= x.first:
            continue
        if x.users:  # sealing anew forgets what was noted for it
            x.changed()
        elif x.start < seal.stop and seal.start < x.stop:
            x.drop()
            continue
        x.account.shares_pages = True
    kernel.protect(*seal.protected())
    seal.account.begin()
    sample, (before, count) = seal.account.sample(), _habits.pop((low, high), (b"", 0))
    count = count + 1 if sample == before or count < 0 else 0
    seal.rests = count >= _STEADY
    _habits[low, high] = (sample, count)
    if len(_habits) > _HABITS:
        del _habits[next(iter(_habits))]
    for chunk in seal.chunks():
        _live.setdefault(chunk, []).append(seal)
    return seal
