"""What runs of a plan need on each stream: memory for temporaries, addresses, and runners."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from adarray_backends.cuda import launcher
from adarray_backends.cuda.checks import ALARM
from adarray_backends.cuda.encoding import ARENA, REFUSED, WORKSPACE, CudaEncoder, StepSegment
from adarray_backends.cuda.launcher import GraphCounts, RecordingStream, Runner

GRAPHS = 8  # for one stream: memory of callers that repeat use the same few addresses
LASTING = 256 << 20  # bytes of temporaries that are kept from run to run in any case
LARGE = 16  # times the spare memory of a GPU, a part of it that all larger ones may take
STREAMS = 8  # whose memory is kept
WIDEST = 16  # bytes of a number
_ALIGNED = 256  # bytes
_large: WeakKeyDictionary[Instance, int] = WeakKeyDictionary()  # that keep much: bytes
_large_lock = threading.Lock()
_PER_THREAD = 2  # the address of the stream that every thread has for itself


class Instance:
    """What one run at a time on one stream needs.

    Attributes
    ----------
    key : object
        Of the stream.
    stream : cffi pointer
    addresses : cffi array
        Of each slot.
    arena, workspace, numbers : memory or None
    flag : Flag
    blas : object
        Owner of the stream's cuBLAS handle and of the memory that products work in.
    owners : list
        Of handles of libraries for linear algebra.
    runners : list of Runner or None
        Of each segment.
    recorder : RecordingStream or None
    ready : list or None
        Memory for the small results of the next run.
    sets : list of Set
        Memory of results of the last runs.
    stages : list
        Memory for copies of what products read.
    values : ndarray
        Of inputs that are numbers, with a view of each in `views`.
    """

    __slots__ = (
        "__weakref__",
        "addresses",
        "arena",
        "blas",
        "flag",
        "key",
        "numbers",
        "owners",
        "ready",
        "recorder",
        "runners",
        "sets",
        "stages",
        "stream",
        "values",
        "views",
        "workspace",
    )  # fmt: skip

    def __init__(self, key: Any, stream: Any, addresses: Any) -> None:
        self.key = key
        self.stream = stream
        self.addresses = addresses
        self.arena: Any = None
        self.workspace: Any = None
        self.flag: Any = None
        self.blas: Any = None
        self.owners: list[Any] = []
        self.runners: list[Any] = []
        self.recorder: Any = None
        self.numbers: Any = None
        self.ready: list[Any] | None = None
        self.sets: list[Any] = []
        self.stages: list[Any] = []
        self.values: Any = None
        self.views: list[Any] = []


class Instances:
    """The instances of a plan that do not run.

    Parameters
    ----------
    gpu : Gpu
    encoder : CudaEncoder
    segments : list of StepSegment
    graphs : bool
        Whether runs are captured and replayed.
    """

    def __init__(
        self, gpu: Any, encoder: CudaEncoder, segments: list[StepSegment], graphs: bool
    ) -> None:
        self.gpu = gpu
        self.encoder = encoder
        self.segments = segments
        plan = encoder.plan
        self.arena = encoder.arena
        self.graphs = graphs
        self.products = any(s.products for s in segments)
        self.functions = gpu.functions(self.products)
        self.consts = [gpu.upload(np.asarray(c)) for c in plan.consts]
        self.inputs = [np.dtype(b.dtype) for b in plan.buffers if b.kind == "input"]
        self.idle: dict[Any, list[Instance]] = {}
        self.lock = threading.Lock()

    def take(self, stream: int) -> Instance:
        """Return an instance for a stream, which nobody else uses."""
        key = stream if stream != _PER_THREAD else (stream, threading.get_ident())
        try:
            x = self.idle[key].pop()
        except (KeyError, IndexError):
            x = self._new(key, stream)
        if x.arena is None:
            x.arena = self.gpu.alloc(max(self.arena, 1))
            x.addresses[ARENA] = x.arena.ptr
        return x

    def keep(self, x: Instance) -> None:
        """Keep an instance for the next run."""
        if not self._keeps_arena(x):
            x.arena = None
        try:
            self.idle[x.key].append(x)
        except KeyError:
            with self.lock:
                while len(self.idle) >= STREAMS:
                    self.idle.pop(next(iter(self.idle)), None)
                self.idle.setdefault(x.key, []).append(x)

    def _keeps_arena(self, x: Instance) -> bool:
        """Whether the temporaries of an instance stay where they are until the next run."""
        if self.arena <= LASTING:
            return True
        with _large_lock:
            if x not in _large:
                if self.arena + sum(_large.values()) > LARGE * self.gpu.spare():
                    return False
                _large[x] = self.arena
            return True

    def _new(self, key: Any, stream: int) -> Instance:
        gpu, encoder, ffi = self.gpu, self.encoder, launcher.native().ffi
        addresses = ffi.new("uint64_t[]", encoder.count)
        x = Instance(key, ffi.cast("void *", stream), addresses)
        x.workspace, x.flag = gpu.zeros(encoder.workspace), gpu.flag()
        addresses[WORKSPACE], addresses[REFUSED] = x.workspace.ptr, x.flag.device
        for b in encoder.plan.buffers:
            if b.kind == "const":
                addresses[encoder.slots[b]] = self.consts[b.index].data.ptr
        blas, x.blas = gpu.blas() if self.products else (0, None)
        for name, slot in encoder.handles.items():
            addresses[slot], owner = gpu.blas() if name == "cublas" else gpu.solver()
            x.owners.append(owner)
        for s in self.segments:
            runner = None
            if s.words is not None:
                refused = x.flag.host if s.may_fail else 0
                checked = x.flag.host + 4 * s.signals if s.signals else 0
                runner = Runner(s.words, self.functions, addresses, refused, blas, checked)
                if self.graphs and not s.linalg:
                    runner.lib.adarray_device_limit(runner.handle, GRAPHS)
            x.runners.append(runner)
        x.values = np.zeros(len(self.inputs) * WIDEST, np.uint8)
        x.views = [
            x.values[i * WIDEST : i * WIDEST + d.itemsize].view(d)
            for i, d in enumerate(self.inputs)
        ]
        return x

    def number(self, x: Instance, i: int, value: Any) -> int:
        """Write down input `i`, a number; return the address that it will be sent to."""
        if x.numbers is None:
            x.numbers = self.gpu.alloc(x.values.nbytes)
        x.views[i][0] = value
        return int(x.numbers.ptr) + i * WIDEST

    def alarmed(self, x: Instance) -> bool:
        """Whether a check of the last run has found that a kernel may refuse its data."""
        flags = launcher.native().ffi.cast("int *", x.flag.host)
        return any(flags[s.signals] == ALARM for s in self.segments if s.signals)

    def record(self, x: Instance) -> None:
        """Let the runs of an instance be recorded as graphs from now on."""
        ffi = launcher.native().ffi
        try:
            x.recorder = self.gpu.recorder(self.products)
        except self.gpu.out_of_memory:  # launches do, too
            x.recorder = RecordingStream(0, 0, ffi.NULL)
        stream, blas = (ffi.cast("void *", p) for p in (x.recorder.stream, x.recorder.blas))
        for r, s in zip(x.runners, self.segments, strict=True):
            if r is not None and not s.linalg:
                lib = r.lib
                lib.adarray_device_record_on(r.handle, stream, blas, x.recorder.busy, GRAPHS)

    def stage(self, x: Instance, runner: Runner) -> int:
        """Find memory for a copy of an input of products that is elsewhere all the time."""
        slot = runner.lib.adarray_device_restless(runner.handle)
        extent = runner.extent(slot)
        try:
            memory = self.gpu.alloc(extent.bytes + _ALIGNED)
        except self.gpu.out_of_memory:
            address = 0
        else:
            x.stages.append(memory)
            # As far from a multiple of 256 as what is copied is from the array's first element.
            address = memory.ptr + extent.low % _ALIGNED
        return int(runner.lib.adarray_device_stage(runner.handle, x.stream, slot, address))

    def counts(self) -> GraphCounts:
        """Return what happened with graphs on all streams."""
        per_runner = [r.counts() for xs in self.idle.values() for x in xs for r in x.runners if r]
        return GraphCounts(
            *(sum(column) for column in zip(GraphCounts(), *per_runner, strict=True))
        )
