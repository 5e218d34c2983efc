"""The studies, one after the other, on every backend that works here."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adarray
from adarray.backend import load
from adarray.bench import picture, report
from adarray.bench.measure import Row, network_row, size_row
from adarray.errors import BackendError

ORDER = ("serial", "openmp", "cuda")
SIZES = (16, 64, 256, 1024, 4096)
WIDTHS = (32, 128, 512, 1024, 2048)
THREADS = (32, 64, 128, 256, 512, 1024)
STUDIES = ("threads", "sizes", "network")
GPU = "cuda"


@dataclass(frozen=True)
class Options:
    """What the command line says.

    Attributes
    ----------
    backends : tuple of str
        Backends to measure; empty: serial, openmp and cuda, as far as they work here.
    studies : tuple of {"threads", "sizes", "network"}
        Empty: all.
    operators : tuple of str
        Names of operations.
    threads : tuple of int
        Threads of a block; empty: some from 32 to 1024, where there is a GPU.
    sizes, widths : tuple of int
        Rows and columns of matrices, and widths of the network's layers.
    dtype : {"float32", "float64"}
    output : Path
        Folder of tables and pictures.
    """

    backends: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    sizes: tuple[int, ...] = SIZES
    widths: tuple[int, ...] = WIDTHS
    dtype: str = "float32"
    output: Path = Path()


def bench(options: Options) -> int:
    """Run the studies and return the exit status.

    It is 2 if a backend that was asked for does not work here, 1 if none does.
    """
    working, missing = _working(options.backends or ORDER)
    if (options.threads or options.studies == ("threads",)) and GPU not in working:
        why = missing.get(GPU, f"--backend leaves {GPU} out")
        print(
            f"bench: threads of a block are those of a GPU, which cannot be measured: {why}; "
            "leave --threads-per-block out, or take --study sizes",
            file=sys.stderr,
        )
        return 2
    if options.backends and missing:
        print(f"bench: {'; '.join(missing.values())}", file=sys.stderr)
        return 2
    for name, reason in missing.items():
        print(f"without {name}: {reason}", file=sys.stderr)
    if not working:
        print(
            "bench: no backend to measure; `python -m adarray info` says why, and "
            "`pip install adarray` brings numpy, serial and openmp",
            file=sys.stderr,
        )
        return 1
    rows = list(_measured(options, working))
    facts = _facts(working, options.dtype)
    print(report.text(rows, facts))
    for path in report.write(rows, facts, options.output):
        print(f"wrote {path}")
    if not picture.available():
        print(f"matplotlib is not installed: no pictures ({picture.HOW_TO_GET})")
        return 0
    for path in picture.draw(rows, options.output):
        print(f"wrote {path}")
    return 0


def _working(names: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Return the backends that work here, and why the others do not."""
    working, missing = [], {}
    for name in names:
        try:
            adarray.use(name)
            working.append(name)
        except BackendError as error:
            missing[name] = str(error)
    return working, missing


def _measured(options: Options, working: list[str]) -> Iterator[Row]:
    """Measure; say on standard error what is next."""
    studies = options.studies or STUDIES
    for backend in working:
        with adarray.use(backend):
            if "sizes" in studies:
                for name in options.operators:
                    _say(f"{backend}: {name}")
                    for n in options.sizes:
                        yield size_row("sizes", name, backend, None, n, options.dtype)
            elif backend == report.BASE and "threads" in studies:  # to compare with
                for name in options.operators:
                    _say(f"{backend}: {name}")
                    n = _swept(options)
                    yield size_row("sizes", name, backend, None, n, options.dtype)
            if "network" in studies:
                for width in options.widths:
                    _say(f"{backend}: network, layers of {width}")
                    yield network_row(backend, width, options.dtype)
    if GPU in working and "threads" in studies:
        for count in options.threads or THREADS:
            with adarray.use(GPU, threads_per_block=count):
                _say(f"{GPU}: blocks of {count} threads")
                for name in options.operators:
                    yield size_row("threads", name, GPU, count, _swept(options), options.dtype)


def _swept(options: Options) -> int:
    """Return the size of the matrices that the threads of a block are varied for."""
    return max(options.sizes)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _facts(working: list[str], dtype: str) -> dict[str, Any]:
    """Return what the times depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found: dict[str, Any] = {
        "adarray": adarray.__version__,
        "Python": platform.python_version(),
        "processor": _processor(),
        "cores": cores,
    }
    if GPU in working:
        found["GPU"] = load(GPU).info().get("devices", "unknown")
    return {**found, "dtype": dtype}


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
