"""Which algorithm of cuBLASLt a large product is computed with: measured once, and stored.

cuBLAS's own choice may take half as long again as the best one. A product that is large is run,
when it is first met, with each algorithm that cuBLASLt proposes and as cuBLAS runs it, on memory
that holds nothing of the user's. Algorithms add in different orders, so results differ in
their last bits: the choice is kept on disk, under the product's sizes and layout, the GPU, its
driver and the library, and the first one that was kept is taken by every process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import cupy
import numpy as np
from adarray_backends.cuda import cublas, disk_cache, lt, tuning
from adarray_backends.cuda.lt import Algorithm, LtMatmul, MatmulForm
from adarray_native import cache

MOST = 12  # algorithms that are measured
WORDS = 8  # that an algorithm is
LARGE = 1 << 17  # multiply-adds of a product from which on it is measured
# Multiply-adds from which on products that round no operand are left to the library: its choices
# for the eight of a step with matrices of 4096 x 8192 took 1.3 % longer than the best.
EXACT_MOST = 1 << 35
ROUNDS = 4  # of which the fastest two count; the first warms up
ROUND_MS = 0.4  # that the runs of one algorithm take in a round
_SIZES = {0: 4, 1: 8, 2: 2, 14: 2}  # bytes, by cudaDataType
_lock = threading.Lock()
_choices: dict[tuple[int, MatmulForm], LtMatmul | None] = {}


def chosen(form: MatmulForm) -> LtMatmul | None:
    """Return a product ready to run on the current device; None: let cuBLAS compute it.

    Those that add something are None only where nothing can be measured or cuBLASLt knows no
    algorithm.
    """
    key = cupy.cuda.runtime.getDevice(), form
    try:
        return _choices[key]
    except KeyError:
        pass
    with _lock:
        if key not in _choices:
            try:
                _choices[key] = _choose(form)
            except _UnableError:
                return None
        return _choices[key]


class _UnableError(Exception):
    """Nothing can be measured now."""


def _choose(form: MatmulForm) -> LtMatmul | None:
    _, _, m, n, k, *_, count, kind, _, compute = form.numbers
    exact = cublas.is_exact(kind, compute)
    worth = m * n * k >= LARGE and (m * n * k < EXACT_MOST or not exact) and tuning.enabled()
    if count > 1 or lt.library() is None or not (worth or form.added or form.epilogue):
        return None
    matmul = LtMatmul(form)
    if not worth:
        first = matmul.proposals(1)
        return _checked(matmul, first[0]) if first else None
    name = _name(form)
    known = _read(name)
    if known is None:
        proposals = matmul.proposals(MOST)
        if not proposals:
            return None
        known = _keep(name, _fastest(matmul, proposals))
    algorithm = known.algorithm
    if algorithm is None or not matmul.suits(algorithm):
        return None
    return _checked(matmul, algorithm)


def _checked(matmul: LtMatmul, algorithm: Algorithm) -> LtMatmul | None:
    """Return the product by an algorithm; None if a maximum with zero hides what is no number.

    Raises
    ------
    _UnableError
        As `_memory`.
    """
    matmul.take(algorithm)
    if matmul.form.epilogue != lt.ROW_RELU:
        return matmul
    memory = _memory(matmul.form)
    memory.second.fill(np.nan)
    memory.out.fill(0)
    status = memory.run(matmul, cupy.cuda.get_current_stream().ptr)
    # On the host: CuPy would compile kernels for seconds.
    return matmul if status == 0 and bool(np.isnan(memory.out.get()).all()) else None


# -- measuring -----------------------------------------------------------------------------


def _fastest(matmul: LtMatmul, proposals: list[Algorithm]) -> Algorithm | None:
    """Return the fastest algorithm, where it is clearly faster than the usual way.

    That is cuBLAS's own choice, None, and the first proposal for products that add something.

    Raises
    ------
    _UnableError
        As `_memory`.
    """
    form = matmul.form
    memory = _memory(form)
    plain = not (form.added or form.epilogue)
    bench = _bench(cupy.cuda.runtime.getDevice())

    def by_lt(algorithm: Algorithm) -> bool:
        matmul.take(algorithm)
        return memory.run(matmul, bench.ptr) == 0

    def by_cublas() -> bool:
        places = (x.data.ptr for x in (memory.first, memory.second, memory.out))
        with bench:
            cublas.DIRECT.plainly(*places, form.numbers)
        return True

    calls: list[Callable[[], bool]] = [lambda a=a: by_lt(a) for a in proposals]  # type: ignore[misc]
    choices: list[Algorithm | None] = [*proposals]
    if plain:
        calls.append(by_cublas)
        choices.append(None)
    cupy.cuda.get_current_stream().synchronize()
    times = _times(calls, bench)
    if min(map(min, times)) == float("inf"):
        raise _UnableError
    return choices[tuning.fastest(times, len(calls) - 1 if plain else 0)]


class _Memory(NamedTuple):
    """Both operands of a product, its result, a matrix and a row that are added, a workspace."""

    first: Any
    second: Any
    out: Any
    added: Any
    row: Any
    workspace: Any

    def run(self, matmul: LtMatmul, stream: int) -> int:
        """Run a product; return cuBLAS's status."""
        if matmul.form.epilogue:
            matmul.place_row(self.row.data.ptr)
        first, second, out, added = (
            x.data.ptr for x in (self.first, self.second, self.out, self.added)
        )
        return matmul.run(first, second, out, added, self.workspace.ptr, stream)


def _memory(form: MatmulForm) -> _Memory:
    """Return memory to try a product on.

    Raises
    ------
    _UnableError
        If a stream is being captured, or memory is short.
    """
    if cupy.cuda.get_current_stream().is_capturing():
        raise _UnableError
    try:
        return _Memory(*_filled(form), cupy.cuda.alloc(lt.WORKSPACE))
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise _UnableError from error


def _filled(form: MatmulForm) -> list[Any]:
    """Return arrays for a product: numbers of all sizes and signs."""
    op_a, op_b, m, n, k, lda, _, ldb, _, ldc, _, _, kind, out_kind, _ = form.numbers
    sizes = [
        (lda * (m if op_a else k), kind),
        (ldb * (k if op_b else n), kind),
        (ldc * n, out_kind),
        (form.added * n, out_kind),
        (m if form.epilogue else 0, out_kind),
    ]
    arrays = []
    for size, which in sizes:
        x = cupy.arange(size, dtype=np.float32)
        cupy.multiply(x, np.float32(0.618034), out=x)
        cupy.sin(x, out=x)
        if which == 14:  # bfloat16: the upper halves
            x = cupy.ascontiguousarray(x.view(np.uint16)[1::2])
        elif _SIZES[which] != 4:
            x = x.astype(np.float16 if which == 2 else np.float64)
        arrays.append(x)
    return arrays


@functools.cache
def _bench(device: int) -> Any:  # noqa: ARG001
    """Return the stream that products are measured on; its handle is that of its address."""
    return cupy.cuda.Stream(non_blocking=True)


def _times(calls: list[Callable[[], bool]], stream: Any) -> list[list[float]]:
    """Return the milliseconds of one run of each call in every round; inf if it fails.

    Calls are nodes of graphs, as plans have them.
    """
    times = [[float("inf")] * ROUNDS for _ in calls]
    events = [cupy.cuda.Event() for _ in range(2)]

    def elapsed(call: Callable[[], Any]) -> float:
        events[0].record(stream)
        call()
        events[1].record(stream)
        events[1].synchronize()
        return float(cupy.cuda.get_elapsed_time(*events))

    able = [i for i, call in enumerate(calls) if call()]
    stream.synchronize()
    graphs = {}
    for i in able:
        count = max(1, min(32, int(ROUND_MS / max(elapsed(calls[i]), 1e-3))))
        stream.begin_capture()
        for _ in range(count):
            calls[i]()
        graphs[i] = stream.end_capture(), count
    for j in range(ROUNDS):
        for i, (graph, count) in graphs.items():
            times[i][j] = elapsed(lambda g=graph: g.launch(stream)) / count  # type: ignore[misc]
    return times


# -- choices that were made ---------------------------------------------------------------


class _Choice(NamedTuple):
    """What was found for a product; None is cuBLAS's own choice."""

    algorithm: Algorithm | None


def _name(form: MatmulForm) -> str:
    """Return the name of the file with the choice for a product."""
    from adarray_backends.cuda import timing

    machine = timing.machine(cupy.cuda.runtime.getDevice())
    about = form._replace(scale=1.0), machine, lt.version()
    return f"{hashlib.sha256(repr(about).encode()).hexdigest()[:40]}{disk_cache.ALGORITHM}"


def _read(name: str) -> _Choice | None:
    """Return the choice that was kept; None if there is none, or only a damaged one."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        x = json.loads((disk_cache.folder() / name).read_text(encoding="utf-8"))
        if x["words"] is None:
            return _Choice(None)
        words, workspace = tuple(map(int, x["words"])), int(x["workspace"])
        if len(words) == WORDS and 0 <= workspace <= lt.WORKSPACE:
            return _Choice(Algorithm(words, workspace))
    return None


def _keep(name: str, algorithm: Algorithm | None) -> _Choice:
    """Keep a choice, unless another process did; return the one that is kept."""
    words, workspace = (None, 0) if algorithm is None else algorithm
    with contextlib.suppress(OSError):
        path = disk_cache.folder() / name
        own = path.with_name(f"{cache.WORK}{os.getpid()}-{name}")
        own.write_text(json.dumps({"words": words, "workspace": workspace}), encoding="utf-8")
        try:
            os.link(own, path)
        except FileExistsError:
            if _read(name) is None:  # damaged
                own.replace(path)
        finally:
            own.unlink(missing_ok=True)
    return _read(name) or _Choice(algorithm)
