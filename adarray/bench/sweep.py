"""The studies within a time: what is short comes first, what does not fit is left out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import adarray
from adarray.bench import report
from adarray.bench.measure import ONCE_S, Data, Measurement, network_row, size_row
from adarray.bench.studies import NUMPY, OF_LIBRARIES, ORDER, parameters

SIZES = (16, 64, 256, 1024, 4096)
WIDTHS = (32, 128, 512, 1024, 2048)
THREADS = (32, 64, 128, 256, 512, 1024)
STUDIES = ("sizes", "threads", "network")
GPU = "cuda"
# Parts of the time that studies get; what one does not need is the next one's.
SHARES = {"sizes": 0.5, "threads": 0.3, "network": 0.2}
CALLS = 2  # of each pass, at least, if they are short
STEPS = 5  # of the network, at least


@dataclass(frozen=True)
class BenchOptions:
    """The options of the command line.

    Attributes
    ----------
    backends : tuple of str
        Backends to measure; empty: NumPy by itself, and serial, openmp and cuda, as far as they
        work here.
    studies : tuple of {"sizes", "threads", "network"}
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
    seconds : float or None
        For measuring; None for as long as is usual with the backends.
    redraw : Path or None
        A file ``bench.json`` to make tables and pictures of, without measuring.
    """

    backends: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    sizes: tuple[int, ...] = SIZES
    widths: tuple[int, ...] = WIDTHS
    dtype: str = "float32"
    output: Path = Path()
    seconds: float | None = None
    redraw: Path | None = None


class Task(NamedTuple):
    """One measurement: of an operation or the network, on a backend.

    `size` are rows and columns of matrices, or the width of layers.
    """

    study: str
    name: str
    backend: str
    size: int
    threads: int | None = None

    def __str__(self) -> str:
        """Return words for the user."""
        of = "layers of" if self.study == "network" else "on rows of"
        blocks = f", blocks of {self.threads}" if self.threads else ""
        return f"{self.backend}: {self.name} {of} {self.size}{blocks}"


@dataclass
class Sweep:
    """Measurements, one after the other.

    Attributes
    ----------
    options : BenchOptions
    working : list of str
        Backends.
    seconds : float
        For all of them.
    changed : callable
        Called with all rows where some were added, and with the names of the studies that
        are complete since the last call.
    rows : list of Measurement
    left_out : list of Task
        What did not fit into the time.
    """

    options: BenchOptions
    working: list[str]
    seconds: float
    changed: Callable[[list[Measurement], Sequence[str]], None]
    rows: list[Measurement] = field(default_factory=list)
    left_out: list[Task] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin the clock."""
        self._begun = perf_counter()
        self._end = self._until = self._begun + self.seconds
        self._data = Data(self.options.dtype)
        self._to_do = 0  # measurements of the study that runs
        self._walls: dict[str, float] = {}  # of the last network of each backend

    def run(self) -> None:
        """Measure everything that fits."""
        chosen = self.options.studies or STUDIES
        studies = {"sizes": self._sizes, "threads": self._threads, "network": self._network}
        names = [s for s in STUDIES if s in chosen and (s != "threads" or GPU in self.working)]
        for i, name in enumerate(names):
            part = SHARES[name] / sum(SHARES[s] for s in names[i:])
            now = perf_counter()
            self._until = now + (self._end - now) * part
            studies[name]()
            self.changed(self.rows, [name])
        late, self.left_out = self.left_out, []
        if late:  # studies after them may have left them time
            self._until, self._to_do = self._end, len(late)
            for task in late:
                self._measure(task)
            self.changed(self.rows, sorted({t.study for t in late if t not in self.left_out}))
        for task in self.left_out:
            self._say(f"left out, since it would take too long: {task}")

    def _quick_first(self) -> list[str]:
        """Return the backends, those that usually take the least time first."""
        return sorted(self.working, key=lambda b: -ORDER.index(b) if b in ORDER else 0)

    # -- studies ---------------------------------------------------------------------------

    def _sizes(self) -> None:
        """Measure every operation, on small matrices first."""
        sizes = sorted(set(self.options.sizes))
        self._to_do = len(sizes) * len(self.working) * len(self.options.operators)
        for n in sizes:
            for backend in self._quick_first():
                self._operations(backend, n)

    def _operations(self, backend: str, n: int) -> None:
        """Measure the operations on one backend, those that take longest last."""
        self._say(f"{backend}: {len(self.options.operators)} operations on {n} x {n}")
        tasks = [Task("sizes", name, backend, n) for name in self.options.operators]
        for task in sorted(tasks, key=self._expected):
            self._measure(task)
        self.changed(self.rows, [])

    def _threads(self) -> None:
        """Measure every operation with blocks of every size."""
        n = max(self.options.sizes)
        names = self.options.operators
        counts = self.options.threads or THREADS
        self._to_do = len(names) * len(counts)
        if "sizes" not in (self.options.studies or STUDIES) and report.BASE in self.working:
            self._to_do += len(names)
            self._operations(report.BASE, n)  # to compare with
        for name in names:
            self._say(f"{GPU}: {name} on {n} x {n}, {len(counts)} sizes of blocks")
            for count in counts:
                self._measure(Task("threads", name, GPU, n, count))
            self.changed(self.rows, [])

    def _network(self) -> None:
        """Measure the network, the small ones first."""
        widths = sorted(set(self.options.widths))
        self._to_do = len(widths) * len(self.working)
        for width in widths:
            for backend in self._quick_first():
                self._say(f"{backend}: network, layers of {width}")
                self._measure(Task("network", "network", backend, width))
            self.changed(self.rows, [])

    def _measure(self, task: Task) -> None:
        """Measure, if there is time."""
        start = perf_counter()
        remaining = self._until - start
        allowed = max(0.0, remaining) / max(1, self._to_do)
        self._to_do -= 1
        if self._expected(task) > remaining:
            self.left_out.append(task)
            return
        options = {"threads_per_block": task.threads} if task.threads else {}
        # NumPy by itself, as users call it: no backend is in between, nor its threads.
        with nullcontext() if task.backend == NUMPY else adarray.use(task.backend, **options):
            if task.study == "network":
                row = network_row(task.backend, task.size, self.options.dtype, allowed)
                self._walls[task.backend] = perf_counter() - start
            else:
                row = size_row(*task, self._data, allowed)
        self.rows.append(row)

    # -- time ------------------------------------------------------------------------------

    def _expected(self, task: Task) -> float:
        """Return the seconds that measuring takes at least; 0 if nothing is known.

        By the largest size that was measured.
        """
        study = "sizes" if task.study == "threads" else task.study
        head = study, task.name, task.backend
        known = [r for r in self.rows if (r.study, r.name, r.backend) == head]
        if not known:
            return 0.0
        last = max(known, key=lambda r: r.n)
        if study == "network":  # compilation takes as long as that of the last one
            more = last.forward * (parameters(task.size) / last.n - 1)
            return self._walls[task.backend] + STEPS * more
        power = 3 if task.name in OF_LIBRARIES else 2
        passes = (t * (task.size / last.n) ** power for t in (last.forward, last.backward))
        return sum(t if t > ONCE_S else CALLS * t for t in passes)

    def _say(self, text: str) -> None:
        print(f"[{perf_counter() - self._begun:4.0f} s] {text}", file=sys.stderr, flush=True)
