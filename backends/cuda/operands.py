"""The arrays of one run of a plan: what is given, made, looked at and returned."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from adarray_backends.cuda.encoding import Encoder
from adarray_backends.cuda.instances import Instance, Instances

from adarray.codegen.plan import CallStep, DotStep, Operand
from adarray.program import Slot, c_strides

MADE, GIVEN, LOOK, COPY = range(4)  # what a result is
_LEAST = 512  # bytes that CuPy's pool gives at least
_APART = 128  # bytes: results that share a block begin at multiples
_EARLY = 64 << 10  # bytes of results that are allocated before the run that writes them


class Run(NamedTuple):
    """One run: its instance, the inputs and the arrays of its results."""

    instance: Instance
    arrays: list[Any]
    made: list[Any]


class Block(NamedTuple):
    """Memory of results: bytes, and for each result its number, its slot and its place."""

    size: int
    parts: list[tuple[int, int, int]]


class Operands:
    """How a plan's buffers are arrays.

    Parameters
    ----------
    gpu : Gpu
    encoder : Encoder
    instances : Instances
    """

    def __init__(self, gpu: Any, encoder: Encoder, instances: Instances) -> None:
        self.gpu = gpu
        self._alloc = gpu.alloc
        self.plan = plan = encoder.plan
        self.slots = slots = encoder.slots
        self.instances = instances
        self.inputs = [
            (slots[id(b)], b.index, b.size, np.dtype(b.dtype))
            for b in plan.buffers
            if b.kind == "input"
        ]
        outputs = [b for b in plan.buffers if b.kind == "output"]
        readers = {id(b): sum(o.buffer is b for o in plan.outputs) for b in outputs}
        # Results that are whole buffers are made in their shape; others are looks at them.
        whole = {
            id(o.buffer): o.shape
            for o in plan.outputs
            if readers.get(id(o.buffer)) == 1
            and o.offset == 0
            and o.buffer.size == math.prod(o.shape)
            and o.strides == c_strides(o.shape)
        }
        self.made = [
            (slots[id(b)], whole.get(id(b), (b.size,)), np.dtype(b.dtype))
            for b in outputs
            if b.donor < 0
        ]
        self.donated = [(slots[id(b)], b.donor) for b in outputs if b.donor >= 0]
        self.bytes = sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in self.made)
        self._fresh = {slot: i for i, (slot, _, _) in enumerate(self.made)}
        blocks = self._grouped()
        self._early = [b for b in blocks if b.size <= _EARLY]
        self._late = [b for b in blocks if b.size > _EARLY]
        given = dict(self.donated)
        self.results: list[tuple[int, int]] = []
        for o in plan.outputs:
            slot = slots.get(id(o.buffer), -1)
            if id(o.buffer) in whole:
                made = slot in self._fresh
                found = (MADE, self._fresh[slot]) if made else (GIVEN, given[slot])
            else:
                found = (COPY if readers.get(id(o.buffer), 2) > 1 else LOOK, 0)
            self.results.append(found)
        self.plain = self.results == [(MADE, i) for i in range(len(self.made))]

    def _grouped(self) -> list[Block]:
        """Return the memory of the results.

        Those that together take no more than the least that an allocator gives share a block.
        """
        blocks: list[Block] = []
        small: list[tuple[int, int, int]] = []
        used = 0
        for i, (slot, shape, dtype) in enumerate(self.made):
            size = math.prod(shape) * dtype.itemsize
            room = -(-size // _APART) * _APART
            if used + room > _LEAST:
                blocks.append(Block(size, [(i, slot, 0)]))
            else:
                small.append((i, slot, used))
                used += room
        return [*blocks, *([Block(used, small)] if small else [])]

    def _placed(self, x: Instance, blocks: list[Block], places: list[Any]) -> None:
        """Allocate results; write their addresses down."""
        for size, parts in blocks:
            memory = self._alloc(size)
            for i, slot, offset in parts:
                place = memory + offset if offset else memory
                places[i] = place
                x.addresses[slot] = place.ptr

    def begin(self, arrays: list[Any]) -> tuple[Instance, list[Any]]:
        """Write the addresses of a run down; return its instance and the memory of its results."""
        stream = self.gpu.stream().ptr
        x = self.instances.take(stream)
        addresses, numbers = x.addresses, False
        for i, (slot, index, size, dtype) in enumerate(self.inputs):
            a = arrays[index]
            try:
                addresses[slot] = a.data.ptr
            except AttributeError:
                if size != 1 or np.ndim(a) != 0:
                    raise self._unfit(index, size, dtype) from None
                addresses[slot] = self.instances.number(x, i, a)
                numbers = True
                continue
            if a.size != size or a.dtype != dtype:
                raise self._unfit(index, size, dtype)
        if numbers:
            self.gpu.send(x.numbers.ptr, x.values, stream)
        places = x.ready
        if places is None:
            places = [None] * len(self.made)
            self._placed(x, self._early, places)
        x.ready = None
        if self._late:
            self._placed(x, self._late, places)
        for slot, index in self.donated:
            a = arrays[index]
            if not isinstance(a, self.gpu.ndarray) or not a.flags.c_contiguous:
                raise TypeError(f"compiled plan: input {index} is donated, and no array in C order")
            addresses[slot] = a.data.ptr
        return x, places

    def arrays(self, places: list[Any]) -> list[Any]:
        """Return the arrays of results in their memory."""
        ndarray = self.gpu.ndarray
        return [
            ndarray(shape, dtype, place)
            for (_, shape, dtype), place in zip(self.made, places, strict=True)
        ]

    def prepare(self, x: Instance) -> None:
        """Allocate small results of the next run, while the GPU is busy with this one."""
        if not self._early:
            return
        places: list[Any] = [None] * len(self.made)
        try:
            self._placed(x, self._early, places)
        except self.gpu.out_of_memory:
            return  # the next run says so
        x.ready = places

    def _unfit(self, index: int, size: int, dtype: np.dtype[Any]) -> TypeError:
        return TypeError(
            f"compiled plan: input {index} is not the array of {size} elements of {dtype} on "
            f"GPU {self.gpu.index} that the plan was made for; make a plan for this signature"
        )

    def look(self, o: Operand, run: Run) -> Any:
        """Return an operand or a result as an array."""
        b, offset = o.buffer, o.offset * o.buffer.dtype.itemsize
        if b.kind == "temp":
            base, offset = run.instance.arena, offset + b.offset
        elif b.kind == "const":
            base = self.instances.consts[b.index].data
        elif b.kind == "input" or b.donor >= 0:
            given = run.arrays[b.index if b.kind == "input" else b.donor]
            if isinstance(given, self.gpu.ndarray):
                base = given.data
            else:
                base = run.instance.numbers
                offset = int(run.instance.addresses[self.slots[id(b)]]) - base.ptr
        else:
            base = run.made[self._fresh[self.slots[id(b)]]].data
        strides = tuple(n * b.dtype.itemsize for n in o.strides)
        return self.gpu.look(base, offset, o.shape, b.dtype, strides)

    def collect(self, run: Run) -> list[Any]:
        """Return the results."""
        found = []
        for o, (how, i) in zip(self.plan.outputs, self.results, strict=True):
            if how == MADE:
                found.append(run.made[i])
            elif how == GIVEN:
                found.append(run.arrays[i])
            else:
                look = self.look(o, run)
                found.append(look.copy() if how == COPY else look)
        return found

    def multiply(self, s: DotStep, run: Run, precision: str) -> None:
        """Run a product that cuBLAS cannot do in one call."""
        a, b, out = (self.look(o, run) for o in (s.a, s.b, s.out))
        self.gpu.multiply(a, b, out, precision)

    def call(self, s: CallStep, run: Run) -> None:
        """Call a function on the GPU's arrays as the library does, and store what it returns."""
        values = []
        for o in s.operands:
            look = self.look(o, run)
            # What lies in memory that is used again is not the function's to keep.
            values.append(look.copy() if o.buffer.kind in ("temp", "output") else look)

        def arguments(given: list[Any]) -> tuple[Any, Any]:
            return _filled(s.args, given), _filled(s.kwargs, given)

        made = self.gpu.call(s.function, values, arguments)
        for b, value in zip(s.results, made, strict=True):
            self.look(Operand(b, 0, (b.size,), (1,)), run)[...] = value.ravel()


def _filled(x: Any, values: list[Any]) -> Any:
    """Return arguments with their operands in place."""
    if isinstance(x, Slot):
        return values[x.index]
    if isinstance(x, (tuple, list)):
        return type(x)(_filled(y, values) for y in x)
    if isinstance(x, dict):
        return {k: _filled(y, values) for k, y in x.items()}
    return x
