"""Discrete Fourier transforms written down as steps of a plan: cuFFT, and copies beside it.

cuFFT is called by native code, as launches and in graphs. What its layout of batches cannot say
(axes between two others, for one) is copied to where it can; a transform from half the
frequencies to real numbers destroys its operand, which is copied unless no other step reads it.

References
----------
- NVIDIA, "cuFFT API Reference", 2025 (advanced data layout, work areas, CUDA graphs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from adarray_backends.cuda.launcher import FourierRecord, KernelRecord, Record, SlotOffset

from adarray.compiler.ir.plan import CallStep, Operand
from adarray.compiler.ir.primitives import Slot
from adarray.compiler.ir.program import c_strides
from adarray.compiler.rewrite.fourier import Kind, fourier

if TYPE_CHECKING:
    from adarray_backends.cuda.encoding import CudaEncoder

THREADS = 256
LOOPS = 4  # calls of one plan that are cheaper than copies
AXES = 5  # of arrays that are copied, once those that follow each other are one
_BLOCKS = 2048
_ALIGNED = 256  # bytes
NOWHERE = SlotOffset(-1)  # the address 0
_REALS = {"f": "float", "d": "double"}
_TYPES = {"forward": "C2C", "inverse": "C2C", "half": "R2C", "whole": "C2R"}
_DIRECTIONS = {"forward": -1, "inverse": 1, "half": 0, "whole": 0}
KERNELS = "laid", "laid_pairs"
_TEXT = """
typedef long long i64;
typedef %(real)s real;
struct alignas(2 * sizeof(real)) Pair { real x, y; };
struct Box { i64 n[%(axes)d], s[%(axes)d], t[%(axes)d]; };

// Copy a box of elements.
template <class T> __device__ static void lay(const T *from, T *to, const Box &b) {
    i64 count = 1;
    for (int k = 0; k < %(axes)d; k++) count *= b.n[k];
    for (i64 e = (i64)blockIdx.x * %(threads)d + threadIdx.x; e < count;
         e += (i64)gridDim.x * %(threads)d) {
        i64 rest = e, of = 0, at = 0;
        for (int k = %(axes)d - 1; k >= 0; k--) {
            if (b.n[k] == 1) continue;
            const i64 q = count >> 31 ? rest / b.n[k] : (i64)((unsigned)rest / (unsigned)b.n[k]);
            const i64 i = rest - q * b.n[k];
            of += i * b.s[k];
            at += i * b.t[k];
            rest = q;
        }
        to[at] = from[of];
    }
}

#define BOX {{n0, n1, n2, n3, n4}, {s0, s1, s2, s3, s4}, {t0, t1, t2, t3, t4}}

extern "C" __global__ void __launch_bounds__(%(threads)d)
laid(const real *from, real *to, i64 n0, i64 n1, i64 n2, i64 n3, i64 n4, i64 s0, i64 s1, i64 s2,
     i64 s3, i64 s4, i64 t0, i64 t1, i64 t2, i64 t3, i64 t4) {
    const Box b = BOX;
    lay(from, to, b);
}

extern "C" __global__ void __launch_bounds__(%(threads)d)
laid_pairs(const Pair *from, Pair *to, i64 n0, i64 n1, i64 n2, i64 n3, i64 n4, i64 s0, i64 s1,
           i64 s2, i64 s3, i64 s4, i64 t0, i64 t1, i64 t2, i64 t3, i64 t4) {
    const Box b = BOX;
    lay(from, to, b);
}
"""


class FourierText(NamedTuple):
    """The kernels for one dtype as text: the name of the first one, and those of the others."""

    name: str
    followers: tuple[str, ...]
    text: str


def text_of(char: str) -> FourierText:
    """Return the kernels for float32 or float64, "f" or "d"."""
    sizes = {"real": _REALS[char], "threads": THREADS, "axes": AXES}
    return FourierText(KERNELS[0], KERNELS[1:], _TEXT % sizes)


class Layout(NamedTuple):
    """Where the numbers of a batch of transforms are, in elements.

    Number ``(x, y)`` of transform ``b`` is ``b*distance + (x*embed[1] + y)*step`` from the first.
    """

    embed: tuple[int, ...]
    step: int
    distance: int


class TransformForm(NamedTuple):
    """What a plan of cuFFT is made for.

    Parameters
    ----------
    kind : {"C2C", "R2C", "C2R"}
    char : {"f", "d"}
        Of real numbers.
    lengths : tuple of int
    operand, result : Layout
    count : int
    """

    kind: str
    char: str
    lengths: tuple[int, ...]
    operand: Layout
    result: Layout
    count: int


class Array(NamedTuple):
    """Where an array is: strides in elements."""

    place: SlotOffset
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class _Call(NamedTuple):
    """The arguments of `fourier` behind the first one."""

    kind: Kind
    axes: tuple[int, ...]
    n: int


def reads(s: Any) -> tuple[Operand, ...]:
    """Return what cuFFT may read in a step."""
    return s.operands if isinstance(s, CallStep) and s.function is fourier else ()


def records(encoder: CudaEncoder, s: CallStep) -> list[Record] | None:
    """Return a call as launches if it is a transform that is covered; else None."""
    if s.function is not fourier or s.args[:1] != (Slot(0),):
        return None
    return _Steps(encoder, s).records()


class _Steps:
    """Writes the launches of one transform down."""

    def __init__(self, encoder: CudaEncoder, s: CallStep) -> None:
        self.encoder = encoder
        self.step = s
        self.call = _Call(*s.args[1:])  # type: ignore[arg-type]
        self.launches: list[Record] = []
        self._used = 0  # bytes of workspace
        result, shape, call = s.results[0], s.values[0].shape, self.call
        self.char = "f" if result.dtype.char in "fF" else "d"
        self.to = Array(encoder.place(result), shape, c_strides(shape), result.dtype)
        # How many numbers are transformed, real ones where there are any.
        real = call.kind in ("half", "whole")
        last = call.n if real else shape[call.axes[-1]]
        self.lengths = (*(shape[k] for k in call.axes[:-1]), last)

    def records(self) -> list[Record] | None:
        """Return the launches; None if cuFFT or a copy cannot do it."""
        (o,) = self.step.operands
        operand = Array(self.encoder.place(o.buffer, o.offset), o.shape, o.strides, o.buffer.dtype)
        layout = _batch_layout(
            operand._replace(strides=c_strides(o.shape)), self.to, self.call.axes
        )
        if layout is not None and self._aligned(layout) and self._align(self.to.place):
            done = self._straight(operand, self.call.kind != "whole" or self._is_private(o))
        else:
            done = self._with_axes_last(operand)
        return self.launches if done else None

    def _straight(self, operand: Array, may_be_lost: bool) -> bool:
        """Transform an operand where it is, or a copy of it, to where the result belongs."""
        layout = _batch_layout(operand, self.to, self.call.axes) if may_be_lost else None
        if layout is None or not self._aligned(layout) or not self._align(operand.place):
            copy = self._room(operand.shape, operand.dtype)
            if not self._copy(operand, copy):
                return False
            operand, layout = copy, _batch_layout(copy, self.to, self.call.axes)
        assert layout is not None
        return self._execute(layout, operand, self.to)

    def _with_axes_last(self, operand: Array) -> bool:
        """Transform a copy of an operand to one of the result, both with the axes last."""
        axes, count = self.call.axes, len(self.to.shape)
        order = [k for k in range(count) if k not in axes] + [*axes]
        before, after = _transposed(operand, order), _transposed(self.to, order)
        copy, result = (self._room(x.shape, x.dtype) for x in (before, after))
        layout = _batch_layout(copy, result, tuple(range(count - len(axes), count)))
        assert layout is not None
        return (
            self._copy(before, copy)
            and self._execute(layout, copy, result)
            and self._copy(result, after)
        )

    # -- the operand -----------------------------------------------------------------------

    def _is_private(self, o: Operand) -> bool:
        """Whether a step may destroy an operand: a temporary that no later one touches."""
        b, last = o.buffer, self.encoder.last
        if b.kind != "temp" or b.whole is not None:
            return False
        now = last[b]
        mine = self.encoder.plan.steps[now] is self.step
        return mine and all(k <= now for x, k in last.items() if x.whole is b)

    def _aligned(self, layout: _BatchLayout) -> bool:
        """Whether the calls of a plan begin at numbers that cuFFT takes, as far as it counts."""
        size = np.dtype(self.char).itemsize
        steps = {"half": (size, 2 * size), "whole": (2 * size, size)}
        by = steps.get(self.call.kind, (2 * size, 2 * size))
        return not any(
            n * s % (2 * size) for x in layout.offsets for n, s in zip(x, by, strict=True)
        )

    def _align(self, place: SlotOffset) -> bool:
        """Whether a place is a multiple of a complex number; inputs then must lie at such ones."""
        slot = self.encoder.input_slot(place.slot)
        if place.offset % (2 * np.dtype(self.char).itemsize):
            return False
        if slot == -1 or (slot is not None and not self.encoder.aligned):
            return False
        if slot is not None:
            self.encoder.wants_aligned.add(slot)
        return True

    # -- the transform ---------------------------------------------------------------------

    def _execute(self, layout: _BatchLayout, of: Array, to: Array) -> bool:
        """Note the calls of cuFFT; return False if it has no plan for them."""
        kind = self.call.kind
        form = TransformForm(
            _TYPES[kind], self.char, self.lengths, layout.operand, layout.result, layout.count
        )
        plan = self.encoder.gpu.transform(form)
        if plan is None:
            return False
        self.encoder.references.append(plan)
        # An address that is also the operand's or the result's makes cuFFT fail, without room, too.
        work = self.encoder.behind(self._used, plan.room) if plan.room else NOWHERE
        for offsets in layout.offsets:
            places = [
                SlotOffset(x.place.slot, x.place.offset + n * x.dtype.itemsize)
                for x, n in zip((of, to), offsets, strict=True)
            ]
            self.launches.append(
                FourierRecord(*places, work, plan.number, _DIRECTIONS[kind], plan.functions)
            )
        return True

    # -- copies ----------------------------------------------------------------------------

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array in C order in the workspace."""
        size = math.prod(shape) * dtype.itemsize
        place = self.encoder.behind(self._used, size)
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return Array(place, shape, c_strides(shape), dtype)

    def _copy(self, of: Array, to: Array) -> bool:
        """Note a copy; return False if it has many axes."""
        dims = [_Dim(*x) for x in zip(to.shape, of.strides, to.strides, strict=True)]
        dims = _joined(sorted(dims, key=lambda d: -d.other))
        if len(dims) > AXES:
            return False
        dims = [_Dim(1, 0, 0)] * (AXES - len(dims)) + dims
        name = "laid_pairs" if to.dtype.kind == "c" else "laid"
        function = self.encoder.gpu.fourier_kernel(name, self.char)
        blocks = min(-(-math.prod(to.shape) // THREADS), _BLOCKS)
        arguments = of.place, to.place, *(n for numbers in zip(*dims, strict=True) for n in numbers)
        self.launches.append(KernelRecord(function, (blocks, 1, 1), (THREADS, 1, 1), 0, arguments))
        return True


# -- layouts -----------------------------------------------------------------------------------


class _Dim(NamedTuple):
    """An axis of two arrays at once: its extent and their strides."""

    count: int
    step: int
    other: int


class _BatchLayout(NamedTuple):
    """Operand and result of one plan, and how far each call of it begins from the first number."""

    operand: Layout
    result: Layout
    count: int
    offsets: list[tuple[int, int]]


def _transposed(x: Array, order: Sequence[int]) -> Array:
    shape = tuple(x.shape[k] for k in order)
    return Array(x.place, shape, tuple(x.strides[k] for k in order), x.dtype)


def _joined(dims: list[_Dim]) -> list[_Dim]:
    """Return axes, of which those that follow each other without gaps on both sides are one."""
    joined: list[_Dim] = []
    for d in dims:
        if d.count == 1:
            continue
        if joined and joined[-1][1:] == (d.count * d.step, d.count * d.other):
            joined[-1] = _Dim(joined[-1].count * d.count, d.step, d.other)
        else:
            joined.append(d)
    return joined


def _batch_layout(of: Array, to: Array, axes: tuple[int, ...]) -> _BatchLayout | None:
    """Return how a plan of cuFFT, called a few times at most, reads and writes two arrays.

    None if there is none.
    """
    every = range(len(to.shape))
    both = [_storage(x, axes, [n for k, n in enumerate(x.shape) if k in axes]) for x in (of, to)]
    if both[0] is None or both[1] is None:
        return None
    dims = _joined(
        [_Dim(to.shape[k], of.strides[k], to.strides[k]) for k in every if k not in axes]
    )
    if any(d.step <= 0 or d.other <= 0 for d in dims):
        return None
    largest = max(dims, key=lambda d: d.count, default=_Dim(1, 0, 0))
    offsets = [(0, 0)]
    for d in dims:
        if d is not largest:
            offsets = [
                (x + i * d.step, y + i * d.other) for x, y in offsets for i in range(d.count)
            ]
            if len(offsets) > LOOPS:
                return None
    distances = [
        largest.step or math.prod(of.shape[k] for k in axes),
        largest.other or math.prod(to.shape[k] for k in axes),
    ]
    operand, result = (Layout(*x, distance) for x, distance in zip(both, distances, strict=True))
    return _BatchLayout(operand, result, largest.count, offsets)


def _storage(
    x: Array, axes: tuple[int, ...], lengths: list[int]
) -> tuple[tuple[int, ...], int] | None:
    """Return cuFFT's extents of storage and the step of an array; None if it has none."""
    strides = [x.strides[k] for k in axes]
    step = strides[-1] if lengths[-1] > 1 else 1
    if step <= 0:
        return None
    embed = [lengths[-1]]
    inner = step  # from one number to the next along the axis after
    for n, length, stride in zip(lengths[-2::-1], lengths[:0:-1], strides[-2::-1], strict=True):
        stride = stride if n > 1 else length * inner
        if stride % inner or stride // inner < length:
            return None
        embed[0] = stride // inner
        embed.insert(0, n)
        inner = stride
    return tuple(embed), step
