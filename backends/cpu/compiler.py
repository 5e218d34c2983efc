"""The C compiler that makes kernels at run time: finding it, its flags, running it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import adarray_native
from adarray_native.flags import FLAGS

from adarray.base.telling import PROGRESS, doing
from adarray.errors import BackendError, CompileError

NAMES = ("cc", "gcc", "clang")
PATIENCE = 20.0  # seconds for any unit, and some more for
RATE = 4000  # characters of it in a second: it takes a 20th of that where nothing else runs,
LONGEST = 180.0  # but not more than so many
UNIT = 100_000  # characters that a unit holds at most, unless one kernel has more
ABREAST = 8  # units that are compiled side by side, at most
ANSWER = 10.0  # seconds for a compiler to say what it is
HUNG = 5.0  # seconds for one that has taken too long before
X86 = platform.machine().lower() in ("x86_64", "amd64")

# The levels of build.py below the processor's best one, by name.
LEVELS = {
    "base": (),
    "avx2": ("-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mf16c"),
}
# Passes of gcc that move a call out of the loop that is to be vector code, into a branch
# (sinking) or in front of one (partial redundancy elimination), or that make a branch of one
# comparison out of several (threading of jumps): the loop stays scalar then.
LOOPS = ("-fno-tree-sink", "-fno-tree-pre", "-fno-thread-jumps")
# In the place of -O3 for plans with much text: half the time to compile, up to twice the
# time to run, though most kernels lose less than a tenth.
QUICK = ("-O1", "-ftree-loop-vectorize", "-fvect-cost-model=dynamic", "-fstrict-aliasing")


class Compiler(NamedTuple):
    """A C compiler that answers.

    Parameters
    ----------
    command : tuple of str
        What it is called by.
    version : str
        What it says about itself.
    kind : {"gcc", "clang", "zig"}
    """

    command: tuple[str, ...]
    version: str
    kind: str

    @property
    def libmvec(self) -> int:
        """Which vector functions its kernels use: none, those before glibc 2.35, or all."""
        name, number = platform.libc_ver()
        if self.kind != "gcc" or not X86 or name != "glibc":
            return 0
        parts = tuple(int(n) for n in number.split(".")[:2])
        return 2 if parts >= (2, 35) else 1 if parts >= (2, 22) else 0

    def flags(self, level: str, limited: bool, quick: bool = False) -> list[str]:
        """Return the flags for a unit of kernels.

        Parameters
        ----------
        level : str
            Name of the level of vector instructions.
        limited : bool
            Whether the processor could do more.
        quick : bool, optional
            Whether compiling fast matters more than running fast.
        """
        if limited and X86:
            machine = list(LEVELS[level])
        elif X86 or self.kind == "gcc":
            machine = ["-march=native"]
        else:
            machine = ["-mcpu=native"]
        if level == "avx512":
            machine.append("-mprefer-vector-width=512")
        speed = QUICK if quick else ("-O3",)
        usual = [flag for flag in FLAGS if flag != "-O3"]
        special = LOOPS if self.kind == "gcc" else ()
        return [*usual, *speed, *special, "-w", "-fPIC", "-shared", "-fopenmp-simd", *machine]


_ENDS = "jit: nothing is compiled any more, since the program ends"
_lock = threading.Lock()
_known: dict[tuple[str | None, ...], Compiler | str] = {}
_hung: set[Compiler] = set()  # those that have taken too long: nobody waits so long again


def _words(command: str) -> list[str]:
    """Return the words of a command, itself if quotes in it do not match."""
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _identified(command: Sequence[str]) -> Compiler | str:
    """Ask a command what it is; return why not if it does not answer."""
    path = shutil.which(command[0]) if command else None
    if path is None:
        return "which does not run"
    doing(f"asking {path} what it is")
    try:
        told = subprocess.run(
            [path, *command[1:], "--version"],
            capture_output=True, text=True, errors="replace", timeout=ANSWER, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return "which does not run"
    except subprocess.TimeoutExpired:
        return f"which has not said within {ANSWER:.0f} seconds what it is (--version)"
    if told.returncode != 0 or not told.stdout.strip():
        return "which does not run"
    kind = "clang" if "clang" in told.stdout.lower() else "gcc"
    return Compiler((path, *command[1:]), told.stdout.strip(), kind)


def _zig() -> Compiler | None:
    """Return the compiler of the wheel ziglang."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    try:
        number = version("ziglang")
    except PackageNotFoundError:
        number = "of unknown version"
    return Compiler((sys.executable, "-m", "ziglang", "cc"), f"zig cc (ziglang {number})", "zig")


def _search() -> Compiler | str:
    """Return the compiler, or what was tried."""
    wanted = os.environ.get("ADARRAY_CC", "").strip()
    if wanted:
        # Somebody who names a compiler wants that one or none.
        compiler = _identified(_words(wanted))
        if isinstance(compiler, str):
            return f"the environment variable ADARRAY_CC is {wanted!r}, {compiler}"
        return compiler
    usual = os.environ.get("CC", "").strip()
    for command in [_words(usual)] * bool(usual) + [[name] for name in NAMES]:
        compiler = _identified(command)
        if isinstance(compiler, Compiler):
            return compiler
    return _zig() or "none of $ADARRAY_CC, $CC, cc, gcc, clang and the package ziglang is here"


def find() -> Compiler:
    """Return the C compiler of this machine, looked up once.

    Raises
    ------
    BackendError
        If there is none.
    """
    key = tuple(os.environ.get(name) for name in ("ADARRAY_CC", "CC", "PATH"))
    with _lock:
        compiler = _known.get(key)
    if compiler is None:  # nobody waits for the lock meanwhile, nor is it held by a fork
        searched = _search()
        with _lock:
            compiler = _known.setdefault(key, searched)
    if isinstance(compiler, str):
        raise BackendError(
            f"jit: no C compiler, {compiler}; install gcc or clang, or `pip install adarray[jit]`; "
            "without one, compiled functions run step by step with NumPy"
        )
    return compiler


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split(texts: dict[str, str], parts: int | None = None) -> list[list[str]]:
    """Share kernels out among units that are compiled side by side.

    Parameters
    ----------
    texts : dict
        Source of each kernel by name.
    parts : int, optional
        Number of units, unless these were longer than `UNIT`; by default the processors that
        this process may use.

    Returns
    -------
    list of list of str
        Names; the units are of about the same length of text.
    """
    # A unit costs some 50 ms whatever is in it.
    total = sum(map(len, texts.values()))
    parts = min(parts or processors(), ABREAST, 1 + total // 12_000)
    parts = min(max(parts, -(-total // UNIT)), max(1, len(texts)))
    units: list[list[str]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for name in sorted(texts, key=lambda n: -len(texts[n])):
        smallest = sizes.index(min(sizes))
        if sizes[smallest] and sizes[smallest] + len(texts[name]) > UNIT:
            smallest = len(units)
            units.append([])
            sizes.append(0)
        units[smallest].append(name)
        sizes[smallest] += len(texts[name])
    return [unit for unit in units if unit]


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing (is the disk full?)"])[0]


def _failed(compiler: Compiler, source: Path, why: str) -> CompileError:
    return CompileError(
        f"jit: {compiler.version.splitlines()[0]} did not compile {source}: {why}; report this "
        "with the file, or set ADARRAY_CC to another compiler (the call runs step by step "
        "meanwhile)",
        str(source),
    )


def start_unit(
    compiler: Compiler, flags: list[str], source: Path, target: Path
) -> subprocess.Popen[bytes]:
    """Begin to compile a source into a shared library; what is said goes to ``.log``.

    Whoever begins it ends it, by `stop`.

    Raises
    ------
    BackendError
        If the program ends.
    """
    progress = PROGRESS.get()
    if progress is not None and progress.ended:
        raise BackendError(_ENDS)
    command = [
        *compiler.command,
        *flags,
        *adarray_native.INCLUDE_CPU,
        "-o",
        str(target),
        str(source),
        "-lm",
    ]
    with open(source.with_suffix(".log"), "wb") as log:
        try:
            # A group of its own: compilers run others, which end with them, and an interrupt
            # from the keyboard is for the program alone.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                process_group=0,
            )  # fmt: skip
        except OSError as error:
            raise _failed(compiler, source, str(error)) from error
    noted(process)
    return process


def noted(process: subprocess.Popen[bytes]) -> None:
    """Have a compiler end with what it is at work on here."""
    progress = PROGRESS.get()
    if progress is not None:
        progress.stops[process] = lambda: _kill(process)
        if progress.ended:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a compiler, with all that it has begun."""
    progress = PROGRESS.get()
    if progress is not None:
        progress.stops.pop(process, None)
    if process.poll() is None:
        _kill(process)
        process.kill()
        process.wait()


def _unlock() -> None:
    """Give a forked child a new lock: a thread that it has not got may hold the old one."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def allowance(compiler: Compiler, length: int) -> float:
    """Return how many seconds a compiler has for a unit with so many characters."""
    usual = min(PATIENCE + length / RATE, max(PATIENCE, LONGEST))
    return min(HUNG, usual) if compiler in _hung else usual


def late(compiler: Compiler) -> None:
    """Note that a compiler has taken too long."""
    _hung.add(compiler)


def _ended(status: int, source: Path) -> str:
    """Return why a compiler did not do its work."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"it was killed ({name}; is memory short?)"
    return _first_error(source.with_suffix(".log").read_text(errors="replace"))


def _is_whole(target: Path) -> bool:
    """Whether a file is a shared library to its end: one that is cut off kills who loads it.

    All parts that the head of an ELF file names lie in the file. Of others the loader can tell.
    """
    data = target.read_bytes() if target.is_file() else b""
    if data[:6] != b"\x7fELF\x02\x01":  # 64 bits, little end first
        return True
    if len(data) < 64:
        return False
    segments, sections = struct.unpack_from("<QQ", data, 32)
    size, count, section, number = struct.unpack_from("<4H", data, 54)
    ends = [sections + section * number, segments + size * count]
    if max(ends) > len(data):
        return False
    for i in range(count):
        offset, _, _, length = struct.unpack_from("<4Q", data, segments + i * size + 8)
        ends.append(offset + length)
    return max(ends) <= len(data)


class _Running(NamedTuple):
    """A unit that is being compiled, and until when."""

    process: subprocess.Popen[bytes]
    source: Path
    target: Path
    end: float


def _done(running: list[_Running]) -> list[_Running]:
    """Return the units that have ended, or whose time has, after waiting for one."""
    while True:
        now = time.monotonic()
        ended = [u for u in running if u.process.poll() is not None or now >= u.end]
        if ended:
            return ended
        wait_for([u.process for u in running], min(u.end for u in running) - now)


def wait_for(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait until one of some processes may have ended, at most so long.

    `subprocess` polls, and is late by up to 50 ms; a descriptor of a process is not.
    """
    with contextlib.suppress(AttributeError, OSError), contextlib.ExitStack() as stack:
        ends = select.poll()
        for process in processes:
            descriptor = os.pidfd_open(process.pid)
            stack.callback(os.close, descriptor)
            ends.register(descriptor, select.POLLIN)
        ends.poll(max(0.0, 1000 * seconds))
        return
    # Another system, or too many files are open.
    with contextlib.suppress(subprocess.TimeoutExpired):  # of several, look at each
        processes[0].wait(seconds if len(processes) == 1 else min(0.02, seconds))


def _outcome(unit: _Running) -> str:
    """Return why a unit that has ended did not compile; "" if it did."""
    status = unit.process.returncode
    if status is not None and (status != 0 or not unit.target.exists()):
        return _ended(status, unit.source)
    if status is not None and not _is_whole(unit.target):
        return f"{unit.target.name} is no whole shared library (is the disk full?)"
    return ""


def compile_units(
    compiler: Compiler, flags: list[str], sources: Sequence[Path], targets: Sequence[Path]
) -> None:
    """Compile each source into the shared library beside it in `targets`, side by side.

    Raises
    ------
    CompileError
        If one does not compile; its output lies beside the source, as ``.log``.
    BackendError
        If the program ends.
    """
    lengths = [source.stat().st_size for source in sources]
    allowed = allowance(compiler, max(lengths, default=0))
    several = len(sources) != 1
    doing(
        f"{sum(lengths):,} characters of C in {len(sources)} file{'s' * several}, with "
        f"{compiler.version.splitlines()[0]}, which is stopped after {allowed:.0f} s"
        f"{' for a file' * several}"
    )
    waiting = list(zip(sources, targets, strict=True))[::-1]
    running: list[_Running] = []
    problem: CompileError | None = None
    try:
        while running or (waiting and problem is None):
            while waiting and problem is None and len(running) < max(2, min(processors(), ABREAST)):
                source, target = waiting.pop()
                process = start_unit(compiler, flags, source, target)
                running.append(_Running(process, source, target, time.monotonic() + allowed))
            for unit in _done(running):
                running.remove(unit)
                why = _outcome(unit)
                if unit.process.returncode is None:
                    late(compiler)
                    why = f"it took over {allowed:.0f} seconds, after which nobody waits for it"
                stop(unit.process)
                problem = problem or (_failed(compiler, unit.source, why) if why else None)
    finally:
        for unit in running:  # there was an interrupt
            stop(unit.process)
    progress = PROGRESS.get()
    if progress is not None and progress.ended:
        raise BackendError(_ENDS)
    if problem is not None:
        raise problem
    _hung.discard(compiler)
