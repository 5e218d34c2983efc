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
    ABREAST,
    UNIT,
    allowance,
    late,
    noted,
    processors,
    split,
    start_unit,
    stop,
    wait_for,
)
from adarray_backends.cpu.executor import LONG, target_of, text_of
from adarray_backends.cpu.kernels import Kernels, kernels
from adarray_native import cache as disk

from adarray.base.spans import span
from adarray.base.telling import doing
from adarray.compiler.ir.identity import IdentityMap, IdentitySet
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.print_c import printer as cprinter

# Steps of the plan after which the compiler is looked at: that is a call of the system.
POLL = 32


class Unit(NamedTuple):
    """Kernels that a compiler is at work on: their keys by name, and what it will have written."""

    process: subprocess.Popen[bytes]
    target: Path
    keys: dict[str, str]
    table: Kernels


class Ahead:
    """Compiles the kernels of plans as they are found; a context manager.

    Parameters
    ----------
    library : Library
    threads : int
    precise : bool, optional
        As for `adarray_backends.cpu.executor.executable`.
    """

    def __init__(self, library: Any, threads: int, precise: bool = False) -> None:
        self._target = target_of(library, threads, precise)
        # For plans with little text, and for long ones: those have flags of their own.
        self._tables = kernels(library, precise), kernels(library, precise, quick=True)
        self._cache = disk.default()
        self._files = contextlib.ExitStack()
        self._folder: Path | None = None
        self._texts: IdentityMap[Kernel, tuple[str, str]] = IdentityMap()  # with names
        self._keys: set[str] = set()  # of all that is, or was, to be compiled here
        self._waiting: tuple[dict[str, str], dict[str, str]] = {}, {}  # texts by name
        self._running: list[Unit] = []
        self._total = self._requests = self._begun = 0
        self._ended = False
        self.next_plan()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def next_plan(self) -> None:
        """Take the kernels of another plan from now on."""
        self._seen: IdentitySet[Kernel] = IdentitySet()
        self._plan: dict[str, str] = {}  # texts by name
        self._own: set[str] = set()  # names of those that no plan before had
        self._length = 0

    def take(self, kernel: Kernel) -> None:
        """Compile a kernel, now or when a processor is free beside the one that plans."""
        if self._ended:
            return
        self._requests += 1
        try:
            if kernel in self._seen:
                if self._requests % POLL == 0:
                    self._go_on()
                return
            self._seen.add(kernel)
            entry = self._texts.get(kernel)
            if entry is None:
                text = text_of(kernel, self._target)
                entry = self._texts[kernel] = cprinter.name(text), text
            name, text = entry
            if name in self._plan:
                return
            was_long = self._length > LONG
            self._plan[name] = text
            self._length += len(text)
            if self._length > LONG and not was_long:
                self._lengthen()
            else:
                self._want(name, text)
            self._go_on()
        except Exception:  # whoever wants the kernel will meet it again, and say it
            self.close()

    def _want(self, name: str, text: str) -> None:
        """Let a kernel of the present plan wait for the compiler, if there is none yet."""
        is_long = self._length > LONG
        table = self._tables[is_long]
        key = table.key(text)
        if key not in self._keys and table.lacks(name, key, self._cache):
            self._keys.add(key)
            self._own.add(name)
            self._total += len(text)
            self._waiting[is_long][name] = text

    def _lengthen(self) -> None:
        """Begin anew with the kernels of the present plan, as one that is long."""
        for name in self._own:
            self._waiting[False].pop(name, None)
        for unit in [u for u in self._running if self._own.issuperset(u.keys)]:
            stop(unit.process)
            self._running.remove(unit)
        self._own.clear()
        for name, text in self._plan.items():
            self._want(name, text)

    def _go_on(self) -> None:
        """Begin with what waits, if a processor is free beside the one that plans."""
        if not any(self._waiting):
            return
        self._collect()
        if len(self._running) < max(1, processors() - 1):
            is_long = not self._waiting[False]
            names, length = [], 0
            for name, text in self._waiting[is_long].items():
                if names and length + len(text) > UNIT:
                    break
                names.append(name)
                length += len(text)
            self._start(is_long, names)

    def finish(self) -> None:
        """Compile what is left, and put all into the cache."""
        if self._ended:
            return
        try:
            with span("compile", f"{len(self._keys)} kernels, ahead"):
                self._wait()
            if self._keys and min(self._keys).startswith("0"):  # as `Kernels.load`
                self._cache.trim()
        except Exception:  # as in `take`
            pass
        finally:
            self.close()

    def _wait(self) -> None:
        """Wait for what is compiling, as long as its compiler has for that, and for the rest."""
        for unit in self._running:
            noted(unit.process)  # it was begun by another thread
        remaining = [
            (is_long, names)
            for is_long in (False, True)
            if self._waiting[is_long]
            for names in split(self._waiting[is_long])
        ]
        compiler, count = self._tables[0].compiler, len(self._running) + len(remaining)
        allowed = allowance(compiler, self._total)
        doing(
            f"{self._total:,} characters of C, of which {count} file{'s' * (count != 1)} are not "
            f"done, with {compiler.version.splitlines()[0]}, which is stopped after {allowed:.0f} s"
        )
        end = time.monotonic() + allowed
        while self._running or remaining:
            while remaining and len(self._running) < max(2, min(processors(), ABREAST)):
                self._start(*remaining.pop(0))
            patience = end - time.monotonic()
            if patience <= 0.0:
                late(compiler)
                return
            wait_for([unit.process for unit in self._running], patience)
            self._collect()

    def close(self) -> None:
        """Stop what is still compiling, and remove its files."""
        self._ended = True
        for unit in self._running:
            stop(unit.process)
        self._running.clear()
        self._files.close()

    def _start(self, is_long: bool, names: Iterable[str]) -> None:
        """Let the compiler begin with kernels that wait."""
        if self._folder is None:
            self._folder = self._files.enter_context(self._cache.work())
        table, waiting = self._tables[is_long], self._waiting[is_long]
        texts = {name: waiting.pop(name) for name in names}
        source = self._folder / f"ahead{self._begun}-{next(iter(texts))}.c"
        target = source.with_suffix(disk.UNIT)
        self._begun += 1
        source.write_text(table.head + "\n".join(texts.values()))
        process = start_unit(table.compiler, table.flags, source, target)
        keys = {name: table.key(text) for name, text in texts.items()}
        self._running.append(Unit(process, target, keys, table))

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
                self._cache.add(unit.target, list(unit.keys.values()))
                unit.table.early.update(unit.keys)
