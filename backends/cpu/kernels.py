"""Kernels printed at run time, as addresses of functions: compiled, or out of the cache."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import platform
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import adarray_native
import numpy as np
from adarray_backends.cpu.compiler import Compiler, compile_units, find, split
from adarray_native import cache as disk

from adarray.base.spans import span
from adarray.base.telling import doing
from adarray.errors import BackendError, CompileError

ABI = 1  # of kernels: counts up when jit.c calls them in another way
_HEAD = '#include "kernel.h"\n'
_PRECISE = "#define ADARRAY_PRECISE\n"


class Functions(NamedTuple):
    """Addresses of a kernel's functions.

    Parameters
    ----------
    run : int
        The kernel itself.
    workspace : int
        How much memory of its own a thread needs.
    """

    run: int
    workspace: int


class LoadedKernels(NamedTuple):
    """Where kernels came from.

    Parameters
    ----------
    functions : dict
        By name.
    compiled, from_disk, in_memory : int
        Numbers of kernels.
    seconds : float
        Time to compile and load them.
    """

    functions: dict[str, Functions]
    compiled: int
    from_disk: int
    in_memory: int
    seconds: float


@functools.cache
def machine() -> str:
    """Return what machine code may depend on, beside the compiler: the processor."""
    lines = [platform.machine(), platform.system(), *platform.libc_ver()]
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if not line.strip():
                    break
                if line.startswith(("model", "flags", "Features", "CPU part")):
                    lines.append(line)
    except OSError:
        features = np._core._multiarray_umath.__cpu_features__  # type: ignore[attr-defined]
        lines.append(repr(sorted(features.items())))
    return "\n".join(lines)


@functools.cache
def headers() -> bytes:
    """Return a hash of the headers that kernels include, directly or through others."""
    digest = hashlib.blake2b(digest_size=16)
    names = ["kernel.h"]
    for name in names:
        text = adarray_native.source(name).read_bytes()
        digest.update(name.encode() + b"\0" + text + b"\0")
        included = re.findall(rb'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE)
        names += [new for new in map(bytes.decode, included) if new not in names]
    return digest.digest()


def _remedy(wrong: str) -> str:
    """Return what to do about a unit that cannot be loaded."""
    if "map segment" in wrong or "Operation not permitted" in wrong:
        return f"is the file system mounted noexec? set {disk.VARIABLE} to a folder on another one"
    return "set ADARRAY_CC to a compiler that makes programs for this machine"


class Kernels:
    """The kernels of one extension module, for one set of flags.

    Parameters
    ----------
    library : Library
        The extension module that loads them.
    precise : bool
        Whether they call the C library's scalar functions only.
    quick : bool
        Whether compiling fast matters more than running fast.
    """

    def __init__(self, library: Any, precise: bool, quick: bool) -> None:
        self.compiler: Compiler = find()
        self.library = library
        self.precise = precise
        lib = library.lib
        level = lib.adarray_level()
        limited = level < lib.adarray_best_level()
        self.level: str = library.level_name(level)
        self.flags = self.compiler.flags(self.level, limited, quick)
        self.head = (_PRECISE if precise else "") + _HEAD
        # Several threads may load at once: those that want the same kernels meet in the cache.
        self._functions: dict[str, Functions] = {}
        # Kernels by name that `adarray_backends.cpu.ahead` has compiled and nobody has loaded yet.
        self.early: set[str] = set()
        # Units that did not compile, by their kernels' keys: they are not tried again.
        self._failed: dict[frozenset[str], CompileError] = {}
        told = (str(ABI), *self.compiler.command, self.compiler.version, *self.flags, machine())
        self._salt = "\0".join((*told, self.head)).encode() + headers()

    def key(self, text: str) -> str:
        """Return the name in the cache of the kernel with this source."""
        return disk.digest(self._salt + text.encode())

    def lacks(self, name: str, key: str, cache: disk.Cache) -> bool:
        """Whether a kernel is not there, and was not refused by the compiler."""
        if name in self._functions or any(key in unit for unit in tuple(self._failed)):
            return False
        return key not in cache.find([key])

    def load(self, texts: dict[str, str]) -> LoadedKernels:
        """Return the functions of kernels, given by name and source.

        Raises
        ------
        CompileError
            If one does not compile.
        """
        begun = time.perf_counter()
        from_disk = compiled = 0
        missing = {n: t for n, t in texts.items() if n not in self._functions}
        if missing:
            cache = disk.default()
            keys = {name: self.key(text) for name, text in missing.items()}
            with span("load", "kernels"):
                from_disk = self._find(cache, keys)
            if from_disk < len(missing):
                more, compiled = self._make(cache, missing, keys)
                from_disk += more
            early = len(self.early.intersection(missing))
            self.early.difference_update(missing)
            from_disk, compiled = from_disk - early, compiled + early
        functions = {name: self._functions[name] for name in texts}
        in_memory = len(texts) - from_disk - compiled
        return LoadedKernels(functions, compiled, from_disk, in_memory, time.perf_counter() - begun)

    def _find(self, cache: disk.Cache, keys: dict[str, str]) -> int:
        """Load what the cache has; return the number of kernels."""
        wanted = {name: key for name, key in keys.items() if name not in self._functions}
        units: dict[Path, list[str]] = {}
        on_disk = cache.find(wanted.values())
        for name, key in wanted.items():
            if key in on_disk:
                units.setdefault(on_disk[key], []).append(name)
        count = 0
        for path, names in units.items():
            if self._load_unit(path, names):
                cache.forget(path)
            else:
                count += len(names)
        return count

    def _load_unit(self, path: Path, names: Iterable[str]) -> str:
        """Load a unit and note its kernels; return what went wrong."""
        ffi, lib = self.library.ffi, self.library.lib
        unit = lib.adarray_jit_load(bytes(path))
        if not unit:
            return str(ffi.string(lib.adarray_jit_error()).decode(errors="replace"))
        for name in names:
            run = lib.adarray_jit_symbol(unit, name.encode())
            workspace = lib.adarray_jit_symbol(unit, f"{name}_scratch".encode())
            if not run or not workspace:
                return f"it has no function {name}"
            self._functions[name] = Functions(run, workspace)
        return ""

    def _make(
        self, cache: disk.Cache, texts: dict[str, str], keys: dict[str, str]
    ) -> tuple[int, int]:
        """Compile and load what is missing; return how many another process made meanwhile."""
        try:
            try:
                return self._make_in(cache, texts, keys)
            except FileNotFoundError:  # somebody has removed the folder, or files in it
                return self._make_in(disk.default(), texts, keys)
        except OSError as error:
            raise BackendError(
                f"jit: kernels cannot be written to {cache.folder} ({error}); make room there, or "
                f"set {disk.VARIABLE} to another folder"
            ) from error

    def _make_in(
        self, cache: disk.Cache, texts: dict[str, str], keys: dict[str, str]
    ) -> tuple[int, int]:
        first = min(keys.values())
        doing("waiting for another process, or thread, that compiles")
        with cache.lock(first):
            others = self._find(cache, keys)
            missing = {n: t for n, t in texts.items() if n not in self._functions}
            if missing:
                self._refuse({keys[name] for name in missing})
                with span("compile", f"{len(missing)} kernels"):
                    self._compile(cache, missing, keys)
        if first.startswith("0"):  # one time in 16: it looks at every file
            cache.trim()
        return others, len(missing)

    def _refuse(self, keys: set[str]) -> None:
        """Raise again what was raised when a unit of kernels among these did not compile."""
        for unit, error in tuple(self._failed.items()):
            if unit <= keys:
                raise CompileError(str(error), error.source)

    def _compile(self, cache: disk.Cache, texts: dict[str, str], keys: dict[str, str]) -> None:
        units = split(texts)
        with cache.work() as folder:
            sources = [folder / f"unit{i}.c" for i in range(len(units))]
            targets = [source.with_suffix(disk.UNIT) for source in sources]
            for source, names in zip(sources, units, strict=True):
                source.write_text(self.head + "\n".join(texts[name] for name in names))
            try:
                compile_units(self.compiler, self.flags, sources, targets)
            except CompileError as error:
                failed = Path(error.source)
                if not failed.exists():
                    raise FileNotFoundError(
                        errno.ENOENT, "removed meanwhile", str(failed)
                    ) from None
                source_path = str(cache.keep_failed(failed))
                failure = CompileError(str(error).replace(str(failed), source_path), source_path)
                unit = units[sources.index(failed)]
                self._failed[frozenset(keys[name] for name in unit)] = failure
                raise failure from None
            for target, names in zip(targets, units, strict=True):
                path = cache.add(target, [keys[name] for name in names])
                wrong = self._load_unit(path, names)
                if wrong and not path.exists():
                    raise FileNotFoundError(errno.ENOENT, "removed meanwhile", str(path))
                if wrong:
                    raise BackendError(
                        f"jit: {path}, just compiled, cannot be loaded: {wrong}; {_remedy(wrong)}"
                    )


_kernels: dict[tuple[Any, ...], Kernels] = {}
_lock = threading.Lock()


def kernels(library: Any, precise: bool = False, quick: bool = False) -> Kernels:
    """Return the kernels of an extension module for the present compiler and level.

    Raises
    ------
    BackendError
        If there is no C compiler.
    """
    key = (library, precise, quick, find(), library.lib.adarray_level())
    with _lock:
        if key not in _kernels:
            _kernels[key] = Kernels(library, precise, quick)
        return _kernels[key]


def _unlock() -> None:
    """Give a forked child a new lock: a thread that it has not got may hold the old one."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
