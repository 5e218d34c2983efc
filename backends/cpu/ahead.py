"""Kernels that are compiled while their plan is still being made.

A long program takes about as long to plan as its kernels to compile, and the compiler is
another process. What was compiled here lies in the cache on disk when the plan is done. What
does not compile is left to `Kernels.load`, which says what is wrong.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from adarray_backends.cpu.compiler import (
    allowance,
    late,
    noted,
    processors,
    split,
    start_unit,
    stop,
)
from adarray_backends.cpu.executor import LONG, target_of, text_of
from adarray_backends.cpu.kernels import kernels
from adarray_native import cache as disk

from adarray.base.spans import span
from adarray.base.telling import doing
from adarray.compiler.ir.identity import IdentitySet
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.print_c import printer as cprinter

# Steps of the plan after which the compiler is looked at: that is a call of the system.
POLL = 32


class Unit(NamedTuple):
    """Kernels that a compiler is at work on: their names, and what it will have written."""

    process: subprocess.Popen[bytes]
    target: Path
    names: list[str]


class Ahead:
    """Compiles the kernels of one plan as they are found; a context manager.

    Parameters
    ----------
    library : Library
    threads : int
    precise : bool, optional
        As for `adarray_backends.cpu.executor.executable`.
    """

    def __init__(self, library: Any, threads: int, precise: bool = False) -> None:
        self._target = target_of(library, threads, precise)
        self._table = kernels(library, precise)
        self._cache = disk.default()
        self._files = contextlib.ExitStack()
        self._folder: Path | None = None
        self._seen: IdentitySet[Kernel] = IdentitySet()
        self._keys: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._running: list[Unit] = []
        self._length = self._requests = 0
        self._ended = False

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def take(self, kernel: Kernel) -> None:
        """Compile a kernel, now or when a processor is free beside the one that plans."""
        if self._ended:
            return
        self._requests += 1
        if kernel in self._seen:
            if self._waiting and self._requests % POLL == 0:
                self._go_on()
            return
        self._seen.add(kernel)
        try:
            text = text_of(kernel, self._target)
            name = cprinter.name(text)
            if name in self._keys:
                return
            self._length += len(text)
            if self._length > LONG:  # such a plan has flags of its own
                self.close()
                return
            self._keys[name] = key = self._table.key(text)
            if self._table.lacks(name, key, self._cache):
                self._waiting[name] = text
                self._go_on()
        except Exception:  # whoever wants the kernel will meet it again, and say it
            self.close()

    def _go_on(self) -> None:
        """Begin with what waits, if a processor is free beside the one that plans."""
        self._collect()
        if len(self._running) < max(1, processors() - 1):
            self._start(list(self._waiting))

    def finish(self) -> None:
        """Compile what is left, and put all into the cache."""
        if self._ended:
            return
        try:
            with span("compile", f"{len(self._keys)} kernels, ahead"):
                for names in split(self._waiting) if self._waiting else ():
                    self._start(names)
                self._wait()
                self._collect()
            if self._keys and min(self._keys.values()).startswith("0"):  # as `Kernels.load`
                self._cache.trim()
        except Exception:  # as in `take`
            pass
        finally:
            self.close()

    def _wait(self) -> None:
        """Wait for what is compiling, as long as its compiler has for that."""
        for unit in self._running:
            noted(unit.process)  # it was begun by another thread
        compiler, count = self._table.compiler, len(self._running)
        allowed = allowance(compiler, self._length)
        doing(
            f"{self._length:,} characters of C, of which {count} file{'s' * (count != 1)} are not "
            f"done, with {compiler.version.splitlines()[0]}, which is stopped after {allowed:.0f} s"
        )
        end = time.monotonic() + allowed
        try:
            for unit in self._running:
                unit.process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            late(compiler)

    def close(self) -> None:
        """Stop what is still compiling, and remove its files."""
        self._ended = True
        for unit in self._running:
            stop(unit.process)
        self._running.clear()
        self._files.close()

    def _start(self, names: Iterable[str]) -> None:
        """Let the compiler begin with kernels that wait."""
        if self._folder is None:
            self._folder = self._files.enter_context(self._cache.work())
        mine = list(names)
        source = self._folder / f"ahead{len(self._keys)}-{mine[0]}.c"
        target = source.with_suffix(disk.UNIT)
        table = self._table
        source.write_text(table.head + "\n".join(self._waiting.pop(name) for name in mine))
        process = start_unit(table.compiler, table.flags, source, target)
        self._running.append(Unit(process, target, mine))

    def _collect(self) -> None:
        """Move what is compiled into the cache."""
        running, self._running = self._running, []
        for unit in running:
            status = unit.process.poll()
            if status is None:
                self._running.append(unit)
                continue
            stop(unit.process)
            if status == 0 and unit.target.exists():
                self._cache.add(unit.target, [self._keys[name] for name in unit.names])
                self._table.early.update(unit.names)
