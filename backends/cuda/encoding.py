"""Plans as segments that run in one native call each, and steps that Python runs between them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from adarray_backends.cuda import checks, fourier, solvers, tuning
from adarray_backends.cuda.launcher import (
    FLAGS,
    Extent,
    KernelRecord,
    LinalgRecord,
    LtMatmulRecord,
    MatmulRecord,
    Record,
    SlotOffset,
    encode,
)

from adarray.compiler.ir.plan import Buffer, CallStep, KernelStep, MatmulStep, Plan
from adarray.compiler.ir.primitives import Slot
from adarray.compiler.ir.program import c_strides
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.planning.buffers import touched
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu.launch import ZEROS, LaunchSizes, grids, launch_of
from adarray.compiler.schedule.gpu.schedules import ColumnStrips, RegisterRows, Schedule

ARENA, WORKSPACE, REFUSED = range(3)  # slots that every plan has; those of buffers follow
MOST_RECORDS = 64  # of one product
ALIGNED = 16  # bytes: what cuBLASLt is promised
_BITS = 44  # of an offset


class StepSegment(NamedTuple):
    """Steps that follow each other.

    Parameters
    ----------
    first, last : int
        The steps of the plan.
    words : ndarray or None
        What device_launch.c runs; None for one step that Python runs.
    bounds : tuple of int
        Where the launches of each step begin, and the last ones end.
    products : bool
        Whether cuBLAS runs in it.
    may_fail : bool
        Whether a kernel may refuse its data; of segments that follow each other the last one
        is asked, and those that signal.
    signals : int
        The flag in which a kernel says that no other one will any more; 0 if none does.
    linalg : bool
        Whether it calls cuSOLVER, which is launched and never recorded.
    """

    first: int
    last: int
    words: np.ndarray | None
    bounds: tuple[int, ...] = ()
    products: bool = False
    may_fail: bool = False
    signals: int = 0
    linalg: bool = False


class Sized(NamedTuple):
    """A kernel of the plan as it will run."""

    schedule: Schedule
    sizes: LaunchSizes
    text: cuda.KernelText


class CudaEncoder:
    """Prints the kernels of a plan and writes its steps down.

    Parameters
    ----------
    plan : Plan
    gpu : Gpu
    precision : str
        Of products.
    threads : int or None
        Of each block, if they are not to be chosen.
    aligned : bool
        Whether inputs lie at multiples of 16 bytes.

    Attributes
    ----------
    texts : dict
        Printed kernels by name.
    kernels : dict
        `Sized` of each step that is a kernel.
    slots : dict
        The slot of each buffer that is no temporary.
    workspace : int
        Bytes that kernels need beside the plan's buffers, the first `ZEROS` of them zero.
    arena : int
        Bytes of temporaries, with what libraries work in, which lies behind.
    relies : bool
        Whether a segment tests no indices since an earlier one does, so that after an alarm of
        that each segment must be waited for.
    handles : dict
        Slots of the handles of libraries for linear algebra that steps call.
    wants_aligned : set of int
        Slots of inputs that must be aligned for what was written down.
    """

    def __init__(
        self, plan: Plan, gpu: Any, precision: str, threads: int | None = None, aligned: bool = True
    ) -> None:  # fmt: skip
        self.plan = plan
        self.gpu = gpu
        self.target: GpuTarget = gpu.target
        self.precision = precision
        self.threads = threads
        self.aligned = aligned
        self.wants_aligned: set[int] = set()
        self.references: list[Any] = []  # what launches of products need
        self.texts: dict[str, cuda.KernelText] = {}
        self.kernels: dict[int, Sized] = {}
        lasting = [b for b in plan.buffers if b.kind != "temp"]
        self.slots = {b: REFUSED + 1 + i for i, b in enumerate(lasting)}
        self.count = REFUSED + 1 + len(lasting)
        self.handles: dict[str, int] = {}
        self.skewed = {self.slots[b]: b.dtype.itemsize for b in lasting if b.kind == "input"}
        inputs = {b.index: self.slots[b] for b in lasting if b.kind == "input"}
        donors = {self.slots[b]: inputs.get(b.donor, -1) for b in lasting if b.donor >= 0}
        self._input_slots = {slot: slot for slot in self.skewed} | donors
        self._print()
        self.relies = False
        self._flags = 0  # that segments have for their checks
        self._tested: dict[Buffer, int] = {}  # extents by indices that some segment tests
        self._index_inputs = checks.settled_inputs(plan)
        self.texts |= {t.name: t for t in checks.texts_for(plan)}
        # Kernels run one after the other, and each leaves the first bytes zero.
        self.workspace = max((k.sizes.workspace for k in self.kernels.values()), default=ZEROS)
        self.arena = plan.arena

    def _print(self) -> None:
        steps = [(i, s) for i, s in enumerate(self.plan.steps) if isinstance(s, KernelStep)]
        tuned = tuning.Tuning(self.gpu, self.threads)
        for _, s in steps:
            tuned.add(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), s.buffers)
        for (i, s), schedule in zip(steps, tuned.schedules(), strict=True):
            if isinstance(schedule, ColumnStrips | RegisterRows) and schedule.aligned:
                schedule = replace(schedule, aligned=self._begin_with_packs(s))
            text = tuned.text(schedule)
            self.texts[text.name] = text
            self.kernels[i] = Sized(schedule, launch_of(schedule, self.target), text)

    def _begin_with_packs(self, s: KernelStep) -> bool:
        """Whether the arrays of a kernel lie at multiples of 16 bytes; inputs then must."""
        places = [self.place(b) for b in s.buffers]
        slots = {self.input_slot(p.slot) for p in places} - {None}
        if any(p.offset % ALIGNED for p in places) or -1 in slots:
            return False
        if slots and not self.aligned:
            return False
        self.wants_aligned.update(slot for slot in slots if slot is not None)
        return True

    def place(self, buffer: Buffer, elements: int = 0) -> SlotOffset:
        """Return where an element of a buffer is."""
        offset = elements * buffer.dtype.itemsize
        if buffer.kind == "temp":
            return SlotOffset(ARENA, buffer.offset + offset)
        return SlotOffset(self.slots[buffer], offset)

    @cached_property
    def last(self) -> dict[Buffer, int]:
        """The last step that touches each buffer."""
        return {b: i for i, s in enumerate(self.plan.steps) for b in touched(s)}

    def input_slot(self, slot: int) -> int | None:
        """Return the input whose memory a slot is: -1 one unknown, None the plan's own."""
        return self._input_slots.get(slot)

    def handle(self, library: str) -> int:
        """Return the slot of a library's handle."""
        slot = self.handles.setdefault(library, self.count)
        self.count = max(self.count, slot + 1)
        return slot

    def behind(self, used: int, size: int) -> SlotOffset:
        """Return so many bytes behind the temporaries, and behind others that are used."""
        begin = -(-self.plan.arena // 256) * 256 + -(-used // 256) * 256
        self.arena = max(self.arena, begin + size)
        return SlotOffset(ARENA, begin)

    def segments(self, functions: dict[str, Any]) -> list[StepSegment]:
        """Return the steps in their order; `functions` are the compiled kernels by name."""
        segments: list[StepSegment] = []
        run: list[tuple[int, list[Record]]] = []
        for i, s in enumerate(self.plan.steps):
            records = self._records(i, s, functions)
            if records is not None:
                if run and _calls_linalg(run[-1][1]) != _calls_linalg(records):
                    segments += self._closed(run, functions)
                    run = []
                run.append((i, records))
                continue
            segments += self._closed(run, functions)
            run = []
            segments.append(StepSegment(i, i + 1, None))
        return _asked_last(segments + self._closed(run, functions))

    def _closed(
        self, run: list[tuple[int, list[Record]]], functions: dict[str, Any]
    ) -> list[StepSegment]:
        if not run:
            return []
        first, last = run[0][0], run[-1][0] + 1
        launches = [records for _, records in run]
        may_fail, checked = self._checked(first, last, functions)
        if checked is not None:
            after, tests = checked
            if after:
                launches[after - 1] = [*launches[after - 1], *tests]
            else:
                launches[0] = [*tests, *launches[0]]
        records = [r for records_ in launches for r in records_]
        bounds = [0]
        for records_ in launches:
            bounds.append(bounds[-1] + len(records_))
        products = any(isinstance(r, MatmulRecord | LtMatmulRecord) for r in records)
        words = encode(records, self._extents(first, last))
        signals = self._flags if checked is not None else 0
        linalg = _calls_linalg(records)
        return [StepSegment(first, last, words, tuple(bounds), products, may_fail, signals, linalg)]

    def _checked(
        self, first: int, last: int, functions: dict[str, Any]
    ) -> tuple[bool, tuple[int, list[Record]] | None]:
        """Return whether a kernel of some steps may refuse its data, and checks that come before.

        Those are launches with the number of steps that they follow; None if there are none.
        """
        may_fail = {
            i: s
            for i, s in enumerate(self.plan.steps[first:last])
            if isinstance(s, KernelStep) and cuda.may_fail(s.kernel)
        }
        steps = self.plan.steps[first:last]
        if any(isinstance(s, CallStep) and solvers.refuses(s) for s in steps):
            return True, None  # nothing tells before the last one whether it refuses
        if not may_fail:
            return False, None
        if self._flags + 1 == FLAGS:
            return True, None
        found = checks.checks_of(may_fail, last - first, self._index_inputs, self.plan.consts)
        if found is None:
            return True, None
        after, every = found
        # What an earlier segment tests holds, unless that raised an alarm.
        bounds = [b for b in every if self._tested.get(b.buffer, b.extent + 1) > b.extent]
        self.relies = self.relies or len(bounds) < len(every)
        if not after and not bounds:
            return False, None
        self._tested |= {b.buffer: b.extent for b in bounds}
        self._flags += 1
        records: list[Record] = []
        for k, (buffer, extent) in enumerate(bounds):
            text = checks.TEXTS[buffer.dtype.name]
            records.append(
                self._check(functions[text.name], self.place(buffer), buffer.size, extent,
                            k + 1 == len(bounds))
            )  # fmt: skip
        if not bounds:  # says what the kernels before have found
            function = functions[checks.SAYS.name]
            records.append(self._check(function, SlotOffset(WORKSPACE), 0, 1, True))
        return True, (after, records)

    def _check(
        self, function: Any, place: SlotOffset, count: int, extent: int, last: bool
    ) -> KernelRecord:
        """Return the launch of a kernel that checks indices."""
        blocks = checks.blocks_for(count, self.target.sms)
        numbers = count, extent, int(last)
        return KernelRecord(
            self.gpu.address(function, 0), (blocks, 1, 1), (checks.THREADS, 1, 1), 0,
            (place, *numbers, SlotOffset(WORKSPACE), SlotOffset(REFUSED),
             SlotOffset(REFUSED, 4 * self._flags)),
        )  # fmt: skip

    def _records(self, i: int, step: Any, functions: dict[str, Any]) -> list[Record] | None:
        """Return the launches of a step; None if Python runs it."""
        if isinstance(step, CallStep):
            return (
                self._convolution(step)
                or solvers.records(self, step, SlotOffset(REFUSED))
                or fourier.records(self, step)
            )
        if isinstance(step, MatmulStep):
            return self._product(step)
        schedule, sizes, text = self.kernels[i]
        counts = sizes.blocks, sizes.blocks * sizes.chunks
        arguments = (
            *map(self.place, step.buffers), *step.ints,
            SlotOffset(WORKSPACE), SlotOffset(REFUSED), *counts,
        )  # fmt: skip
        records: list[Record] = []
        sizes_of = grids(schedule, sizes, self.target)
        for name in (text.name, *text.followers):
            grid, threads, shared = sizes_of[name.removeprefix(text.name)]
            function = self.gpu.address(functions[name], shared)
            records.append(KernelRecord(function, grid, (threads, 1, 1), shared, arguments))
        return records

    def _product(self, s: MatmulStep) -> list[Record] | None:
        """Return a product as what cuBLAS does, and copies before; None if cuBLAS cannot."""
        added = row = None
        if s.added is not None:
            place = self.place(s.added.buffer, s.added.offset)
            added = AddedMatrix(place, s.added.strides[0], s.scale)
        if s.row is not None:
            row = AddedRow(self.place(s.row.buffer, s.row.offset), s.relu)
        notes = Notes(self, added, row)
        stacks = [
            (notes.address(self.place(o.buffer, o.offset)), o.shape, o.strides)
            for o in (s.a, s.b, s.out)
        ]
        dtype = s.out.buffer.dtype.name
        if not self.gpu.product(stacks, dtype, self.precision, notes):
            return None
        return notes.records if len(notes.records) <= MOST_RECORDS else None

    def _extents(self, first: int, last: int) -> list[Extent]:
        """Return the bytes that libraries read of each slot that is an input."""
        spans: dict[int, tuple[int, int]] = {}
        for s in self.plan.steps[first:last]:
            for o in s.operands if isinstance(s, MatmulStep) else fourier.reads(s):
                if o.buffer.kind != "input" or 0 in o.shape:
                    continue
                reach = [(n - 1) * k for n, k in zip(o.shape, o.strides, strict=True)]
                size = o.buffer.dtype.itemsize
                low = size * (o.offset + sum(r for r in reach if r < 0))
                high = size * (o.offset + sum(r for r in reach if r > 0) + 1)
                slot = self.slots[o.buffer]
                before = spans.get(slot, (low, high))
                spans[slot] = min(before[0], low), max(before[1], high)
        extents = [Extent()] * self.count
        for slot, (low, high) in spans.items():
            extents[slot] = Extent(low, high - low)
        return extents

    def _convolution(self, s: CallStep) -> list[Record] | None:
        """Return a call as kernels if it is a convolution of arrays in C order; else None."""
        name = self.gpu.convolution(s.function)
        if not name or s.args != (Slot(0), Slot(1)) or len(s.results) != 1:
            return None
        buffers = [*(o.buffer for o in s.operands), *s.results]
        dtypes = {b.dtype.name for b in buffers}
        if len(dtypes) > 1 or any(o.strides != c_strides(o.shape) for o in s.operands):
            return None
        notes = Notes(self)
        places = (*(self.place(o.buffer, o.offset) for o in s.operands), self.place(s.results[0]))
        shapes = [o.shape for o in s.operands]
        done = self.gpu.convolve(
            name, [notes.address(p) for p in places], shapes, s.kwargs, dtypes.pop(),
            self.precision, notes,
        )  # fmt: skip
        return notes.records if done else None


def _calls_linalg(records: list[Record]) -> bool:
    return any(isinstance(r, LinalgRecord) for r in records)


def _asked_last(segments: list[StepSegment]) -> list[StepSegment]:
    """Return segments of which the last one before Python runs, or ends, waits for the GPU."""
    asked, pending = [], False
    for i, s in enumerate(segments):
        pending = pending or s.may_fail
        last = i + 1 == len(segments) or segments[i + 1].words is None
        if s.words is not None and not s.signals:
            s = s._replace(may_fail=pending and last)
        asked.append(s)
        pending = pending and not last
    return asked


def _is_address(x: Any) -> bool:
    return isinstance(x, int) and type(x) not in (int, bool)


class AddedMatrix(NamedTuple):
    """A matrix that a product is added to: where it is, distance of rows, the product's factor."""

    place: SlotOffset
    step: int
    scale: float


class AddedRow(NamedTuple):
    """A vector that is added to each row of a product, after which a ReLU may follow."""

    place: SlotOffset
    relu: bool


class Notes:
    """Writes a product down: takes what `cublas.DirectCalls` does, with addresses that are places.

    The upper bits of such an address are a slot, the lower ones bytes from its beginning.
    """

    def __init__(
        self, encoder: CudaEncoder, added: AddedMatrix | None = None, row: AddedRow | None = None
    ) -> None:
        self.encoder = encoder
        self.added = added
        self.row = row
        self.records: list[Record] = []
        self._used = 0  # bytes of `room`

    def address(self, place: SlotOffset) -> int:
        """Return what stands for a place."""
        return ((place.slot + 1) << _BITS) + place.offset + self._skew(place.slot)

    def _skew(self, slot: int) -> int:
        """Return how far an input may lie from a multiple of 16 bytes."""
        size = self.encoder.skewed.get(slot, 0)
        return 0 if self.encoder.aligned else size

    def _place(self, address: int) -> SlotOffset:
        slot = (address + (1 << (_BITS - 1))) >> _BITS
        offset = address - (slot << _BITS)
        return SlotOffset(slot - 1, offset - self._skew(slot - 1))

    def room(self, size: int) -> int:
        """Return the place of so many bytes, for one product at a time."""
        self._used = max(self._used, size)
        return self.address(self._behind(0, size))

    def _behind(self, used: int, size: int) -> SlotOffset:
        """Return so many bytes of workspace behind others that are used."""
        return self.encoder.behind(used, size)

    def copy(
        self, function: Any, grid: tuple[int, int, int], block: tuple[int, int, int],
        args: tuple[int, ...], shared: int = 0,
    ) -> None:  # fmt: skip
        """Note the launch of a kernel; addresses among its arguments are not plain integers."""
        # Addresses are a class of their own; sizes may be NumPy's integers.
        places = [self._place(x) if _is_address(x) else int(x) for x in args]
        first = places[0]
        if isinstance(first, SlotOffset) and first.slot in self.encoder.skewed:
            self.encoder.wants_aligned.add(first.slot)
        address = self.encoder.gpu.address(function, shared)
        self.records.append(KernelRecord(address, grid, block, shared, tuple(places)))

    def keep(self, x: Any) -> None:
        """Keep what the launches need as long as the plan."""
        self.encoder.references.append(x)

    def multiply(self, first: int, second: int, out: int, numbers: tuple[int, ...]) -> None:
        """Note a product."""
        places = [self._place(x) for x in (first, second, out)]
        added, row, gpu = self.added, self.row, self.encoder.gpu
        scale, step = (added.scale, added.step) if added else (1.0, 0)
        every = [*places, *(x.place for x in (added, row) if x)]
        relu = row.relu if row else None
        if all(map(self._may_align, every)) and (
            algorithm := gpu.algorithm(numbers, scale, step, relu)
        ):
            self._align(every)
            self.keep(algorithm)
            workspace = self._behind(self._used, algorithm.workspace)
            both = added.place if added else places[2], workspace, row.place if row else workspace
            self.records.append(LtMatmulRecord(*places, *both, algorithm.words()))
            return
        if added:
            gpu.copy_result(self.address(added.place), out, numbers, self)
        self.records.append(MatmulRecord(*places, numbers, scale, float(added is not None)))
        if row:
            gpu.add_row(out, self.address(row.place), numbers, row.relu, self)

    def _may_align(self, place: SlotOffset) -> bool:
        """Whether cuBLASLt may take a place for a multiple of its alignment."""
        slot = self.encoder.input_slot(place.slot)
        known = slot is None or (slot >= 0 and self.encoder.aligned)
        return place.offset % ALIGNED == 0 and known

    def _align(self, places: list[SlotOffset]) -> None:
        """Note that inputs must lie at multiples of 16 bytes."""
        slots = (self.encoder.input_slot(p.slot) for p in places)
        self.encoder.wants_aligned.update(s for s in slots if s is not None)
