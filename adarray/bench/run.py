"""The command: finds the backends that work, measures within the time, writes the tables."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import adarray
from adarray.backend import load
from adarray.base.errors import BackendError
from adarray.bench import picture, report
from adarray.bench.measure import Measurement
from adarray.bench.studies import ORDER
from adarray.bench.sweep import GPU, BenchOptions, Sweep

# Seconds that measuring takes at most, unless the user says how many.
USUAL_S, USUAL_WITH_GPU_S = 50.0, 80.0
INTERRUPTED = 130  # exit status, as shells have it


def bench(options: BenchOptions) -> int:
    """Run the studies and return the exit status.

    It is 2 if a backend that was asked for does not work here, 1 if none does, 130 if the
    user interrupted it; what was measured until then is written.
    """
    if options.redraw is not None:
        rows, facts = report.read(options.redraw)
        _finish(rows, facts, options.output, picture.STUDIES)
        return 0
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
    return _measured(options, working)


def _measured(options: BenchOptions, working: list[str]) -> int:
    """Measure, and write everything; return the exit status."""
    facts = _facts(working, options.dtype)
    drawn: set[str] = set()  # studies whose pictures are complete
    pictures = picture.available()

    def changed(rows: list[Measurement], studies: Sequence[str]) -> None:
        for _ in report.write(rows, facts, options.output):
            pass
        if pictures:
            for path in picture.draw(rows, options.output, studies):
                print(f"wrote {path}", flush=True)
            drawn.update(studies)

    usual = USUAL_WITH_GPU_S if GPU in working else USUAL_S
    sweep = Sweep(options, working, options.seconds or usual, changed)
    status = 0
    try:
        with _stopped_by_signals():
            sweep.run()
    except KeyboardInterrupt:
        print("interrupted: what was measured is written", file=sys.stderr)
        status = INTERRUPTED
    undrawn = [s for s in picture.STUDIES if s not in drawn]
    _finish(sweep.rows, facts, options.output, undrawn)
    return status


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Take SIGTERM, as of ``timeout``, for an interruption by the keyboard."""

    def stop(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _finish(
    rows: list[Measurement], facts: dict[str, Any], folder: Path, studies: Sequence[str]
) -> None:
    """Print the tables, and write them and the pictures of some studies."""
    print(report.text(rows, facts))
    for path in report.write(rows, facts, folder):
        print(f"wrote {path}")
    if not picture.available():
        print(f"matplotlib is not installed: no pictures ({picture.HOW_TO_GET})")
        return
    for path in picture.draw(rows, folder, studies):
        print(f"wrote {path}")


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


def _facts(working: list[str], dtype: str) -> dict[str, Any]:
    """Return the versions and hardware that the times depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts: dict[str, Any] = {
        "adarray": adarray.__version__,
        "Python": platform.python_version(),
        "processor": _processor(),
        "cores": cores,
    }
    if GPU in working:
        facts["GPU"] = load(GPU).info().get("devices", "unknown")
    return {**facts, "dtype": dtype}


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
