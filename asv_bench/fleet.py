"""Workers side by side: one process per engine, asked in turn, round by round."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from asv_bench.engines import PEERS, TEXTS

WORKER = Path(__file__).with_name("worker.py")
SETTLE_S = 0.03  # the threads of the engine that ran before stop spinning
ROUND_S = 0.15  # measuring time of one engine in one round
PATIENCE_S = 600.0  # for one answer; compilers may take minutes
QUIET = 0.1  # cores that others may use while an engine is timed, or it is timed again
ATTEMPTS = 3


def progress(text: str) -> None:
    """Tell those who wait what is being done."""
    print(text, file=sys.stderr, flush=True)


def busy_s(pid: int | None = None) -> float:
    """Return the seconds of CPU used so far, by one process or by all; 0 if unknown.

    Of all processes those on the cores that this one may use count.
    """
    stat = Path("/proc/stat" if pid is None else f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    if pid is not None:
        ticks = stat.read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    cores = {f"cpu{n}" for n in os.sched_getaffinity(0)}
    total = 0
    for line in stat.read_text().splitlines():
        name, *fields = line.split()
        if name in cores:
            user, nice, system, _idle, _wait, *rest = map(int, fields)
            total += user + nice + system + sum(rest[:3])  # interrupts, what a hypervisor took
    return total / os.sysconf("SC_CLK_TCK")


class Failed(Exception):  # noqa: N818  (an outcome that tables show)
    """An engine could not do a workload; the text says why."""


class Result(NamedTuple):
    """The measurements of one engine for one workload.

    Parameters
    ----------
    times : list of list of float
        Median times in s, one list per round, one time per prepared call.
    ratios : list of float
        Median ratio of the first call to the last, per round.
    others : list of float
        Cores that other processes used meanwhile, per round.
    error : str
        Why there are no times; empty if there are.
    prepared : dict
        What the worker said when the workload was ready.
    """

    times: list[list[float]]
    ratios: list[float]
    others: list[float]
    error: str = ""
    prepared: dict[str, Any] = {}  # noqa: RUF012  (never changed)

    @property
    def median(self) -> float:
        """Median over the rounds of the first call's time, in s."""
        return statistics.median(row[0] for row in self.times)


def runnable(text: str) -> str:
    """Return the interpreter that an option names, if there is one of that name."""
    if shutil.which(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no program that can be run")
    return text


def present(text: str) -> Path:
    """Return the file that an option names, if it is there."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return Path(text)


def interpreter(engine: str, peer_python: str) -> str:
    """Return the Python that runs an engine."""
    return peer_python if engine in PEERS or engine in TEXTS else sys.executable


class Member:
    """One worker process.

    Parameters
    ----------
    name : str
        The engine.
    python : str
        Interpreter that runs it.
    threads : int
    env : dict, optional
        Environment variables beside the inherited ones.
    patience : float, optional
        Seconds to wait for an answer.
    worker : Path, optional
        The script that answers.
    """

    def __init__(
        self,
        name: str,
        python: str,
        threads: int,
        env: dict[str, str] | None = None,
        patience: float = PATIENCE_S,
        worker: Path = WORKER,
    ) -> None:
        self.name = name
        self.python = python
        self.threads = threads
        self.env = env or {}
        self.patience = patience
        self.worker = worker
        self.version = ""
        self.absent = ""
        self.start()

    def start(self) -> None:
        """Start the process and hear its version."""
        one = str(1 if self.name.endswith("-serial") else self.threads)
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), one)
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `close`)
        # -P keeps the working directory, and so the source tree, off sys.path: an
        # installed adarray with its compiled modules is what is measured.
        self.process = subprocess.Popen(
            [self.python, "-P", str(self.worker), self.name, str(self.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            env={**os.environ, **limits, **self.env},
        )
        try:
            hello = self._answer()
        except Failed as error:
            hello = {"absent": str(error)}
        self.version = hello.get("version", "")
        self.absent = hello.get("absent", "")
        if self.absent:
            self.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the worker's answer.

        Raises
        ------
        Failed
            If the engine raised, crashed, or took too long; a worker that is gone is
            replaced.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self._answer()
        except (Failed, BrokenPipeError) as error:
            self.close()
            self.start()
            raise Failed(str(error)) from None
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def measure(self) -> tuple[dict[str, Any], float]:
        """Return the times of one round, and the cores that others used meanwhile.

        A round that others disturbed is taken again; of all attempts the quietest counts.
        """
        rounds = []
        for attempt in range(ATTEMPTS):
            time.sleep(SETTLE_S * (1 + 10 * attempt))
            start, busy, own = time.perf_counter(), busy_s(), busy_s(self.process.pid)
            answer = self.ask(do="measure", seconds=ROUND_S)
            elapsed = time.perf_counter() - start
            others = busy_s() - busy - (busy_s(self.process.pid) - own)
            rounds.append((max(others, 0.0) / elapsed, attempt, answer))
            if rounds[-1][0] <= QUIET:
                break
        others, _, answer = min(rounds)
        return answer, others

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(self.patience):
                self.process.kill()
                raise Failed(f"no answer in {self.patience:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.stderr.seek(0)
            last = self.stderr.read().strip().splitlines()[-1:]
            raise Failed(f"the process ended with status {code}: {' '.join(last)}")
        return json.loads(line)  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process: it stops at the end of its requests."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.stderr.close()


class Fleet:
    """The engines of one run.

    Parameters
    ----------
    engines : list of str
        Names, see `asv_bench.engines.make`.
    peer_python : str
        Interpreter whose environment holds the peers.
    threads : int
        Number of threads of each engine that has a choice.
    rounds : int
        How often each engine is asked per workload.
    progress : callable, optional
        Told what is measured next.
    patience : float, optional
        Seconds to wait for one answer.
    worker : Path, optional
        The script that answers.
    pythons : dict, optional
        Interpreters by engine, where it is not the one of `interpreter`.
    budget : float, optional
        Seconds after which no further round of a workload begins.
    """

    def __init__(
        self,
        engines: list[str],
        peer_python: str,
        threads: int,
        rounds: int,
        progress: Any = None,
        patience: float = PATIENCE_S,
        worker: Path = WORKER,
        pythons: dict[str, str] | None = None,
        budget: float = math.inf,
    ) -> None:
        pythons = pythons or {}
        self.budget = budget
        self.rounds = rounds
        self.others: list[float] = []
        self.progress = progress or (lambda _: None)
        self.members = {
            name: Member(
                name,
                pythons.get(name) or interpreter(name, peer_python),
                threads,
                patience=patience,
                worker=worker,
            )
            for name in engines
        }

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *error: object) -> None:
        for member in self.members.values():
            if not member.absent:
                member.close()

    def race(
        self, kind: str, name: str, engines: list[str] | None = None, **options: Any
    ) -> dict[str, Result]:
        """Measure one workload on all engines (or on `engines`), interleaved in rounds."""
        self.progress(f"{kind}: {name}")
        results: dict[str, Result] = {}
        ready: list[Member] = []
        reference: list[float] | None = None
        for member in self.members.values():
            if engines is not None and member.name not in engines:
                continue
            if member.absent:
                results[member.name] = Result([], [], [], "absent")
                continue
            try:
                answer = member.ask(do="prepare", kind=kind, name=name, **options)
                reference = agreed(answer["digest"], reference)
            except Failed as error:
                results[member.name] = Result([], [], [], str(error))
                continue
            results[member.name] = Result([], [], [], prepared=answer)
            ready.append(member)
        order = random.Random(0)
        start = time.perf_counter()
        for n in range(self.rounds):
            if n and time.perf_counter() - start > self.budget:
                break
            order.shuffle(ready)  # no engine always follows the same other
            for member in list(ready):
                try:
                    answer, others = member.measure()
                except Failed as error:
                    results[member.name] = Result([], [], [], str(error))
                    ready.remove(member)
                    continue
                results[member.name].times.append(answer["times"])
                results[member.name].ratios.append(answer["ratio"])
                results[member.name].others.append(others)
                self.others.append(others)
        return results


def agreed(
    digest: list[float] | None, reference: list[float] | None, tolerance: float = 1e-3
) -> list[float] | None:
    """Return the reference after comparing a result with it.

    Raises
    ------
    Failed
        If the engine computed something else: its time would mean nothing.
    """
    if digest is None or reference is None:
        return reference or digest
    shared = min(len(digest), len(reference))  # NumPy computes the value alone
    largest = 1e-2 * max(map(abs, reference[:shared]))
    for i, (a, b) in enumerate(zip(digest[:shared], reference[:shared], strict=True)):
        # A value, and then of each gradient its norm and a projection: judged by the norm.
        scale = max(abs(b), largest if i == 0 else abs(reference[i - (i + 1) % 2]))
        if not abs(a - b) <= tolerance * scale:
            raise Failed(f"computed {a:.6g}, the reference {b:.6g}")
    return digest if len(digest) > len(reference) else reference


def ratio(a: Result, b: Result) -> float | None:
    """Return how long `a` took in units of `b`: the median over rounds.

    Rounds in which other processes disturbed one of the two count only where fewer
    than three are without.
    """
    if a.error or b.error:
        return None
    rounds = list(zip(a.times, b.times, a.others, b.others, strict=True))
    quiet = [r for r in rounds if max(r[2:]) <= QUIET]
    return statistics.median(x[0] / y[0] for x, y, *_ in (quiet if len(quiet) > 2 else rounds))


_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def import_times(repeats: int = 15) -> dict[str, list[float]]:
    """Return the times in s to import numpy and adarray, each in a fresh interpreter."""
    times: dict[str, list[float]] = {"numpy": [], "adarray": []}
    for _ in range(repeats + 1):
        for module, samples in times.items():
            done = subprocess.run(
                [sys.executable, "-P", "-c", _IMPORT.format(module)],
                capture_output=True,
                text=True,
                check=True,
            )
            samples.append(float(done.stdout))
    return {module: samples[1:] for module, samples in times.items()}  # the first reads from disk
