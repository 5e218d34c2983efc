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
_REALS = {"f": "float", "d": "double"}
_TYPES = {"forward": "C2C", "inverse": "C2C", "half": "R2C", "whole": "C2R"}
_DIRECTIONS = {"forward": -1, "inverse": 1, "half": 0, "whole": 0}
KERNELS = "laid", "widened", "laid_pairs"
_TEXT = """
typedef long long i64;
typedef %(real)s real;
struct alignas(2 * sizeof(real)) Pair { real x, y; };
struct Box { i64 n[%(axes)d], s[%(axes)d], t[%(axes)d]; };

// Copy a box of elements; where it is longer than what there is, zeros.
template <class From, class To, class F>
__device__ static void lay(const From *from, To *to, const Box &b, i64 axis, i64 have, F f) {
    i64 count = 1;
    for (int k = 0; k < %(axes)d; k++) count *= b.n[k];
    for (i64 e = (i64)blockIdx.x * %(threads)d + threadIdx.x; e < count;
         e += (i64)gridDim.x * %(threads)d) {
        i64 rest = e, of = 0, at = 0;
        bool inside = true;
        for (int k = %(axes)d - 1; k >= 0; k--) {
            if (b.n[k] == 1) continue;
            const i64 q = count >> 31 ? rest / b.n[k] : (i64)((unsigned)rest / (unsigned)b.n[k]);
            const i64 i = rest - q * b.n[k];
            of += i * b.s[k];
            at += i * b.t[k];
            inside = inside && (k != axis || i < have);
            rest = q;
        }
        To x = {};
        if (inside) x = f(from[of]);
        to[at] = x;
    }
}

#define BOX {{n0, n1, n2, n3, n4}, {s0, s1, s2, s3, s4}, {t0, t1, t2, t3, t4}}

extern "C" __global__ void __launch_bounds__(%(threads)d)
laid(const real *from, real *to, i64 n0, i64 n1, i64 n2, i64 n3, i64 n4, i64 s0, i64 s1, i64 s2,
     i64 s3, i64 s4, i64 t0, i64 t1, i64 t2, i64 t3, i64 t4, i64 axis, i64 have) {
    const Box b = BOX;
    lay(from, to, b, axis, have, [](real x) { return x; });
}

extern "C" __global__ void __launch_bounds__(%(threads)d)
widened(const real *from, Pair *to, i64 n0, i64 n1, i64 n2, i64 n3, i64 n4, i64 s0, i64 s1,
        i64 s2, i64 s3, i64 s4, i64 t0, i64 t1, i64 t2, i64 t3, i64 t4, i64 axis, i64 have) {
    const Box b = BOX;
    lay(from, to, b, axis, have, [](real x) { return Pair{x, 0}; });
}

// Conjugated if they are to be, and multiplied by a double whose bits come as an integer.
extern "C" __global__ void __launch_bounds__(%(threads)d)
laid_pairs(const Pair *from, Pair *to, i64 n0, i64 n1, i64 n2, i64 n3, i64 n4, i64 s0, i64 s1,
           i64 s2, i64 s3, i64 s4, i64 t0, i64 t1, i64 t2, i64 t3, i64 t4, i64 axis, i64 have,
           i64 conjugated, i64 bits) {
    const Box b = BOX;
    union { i64 bits; double value; } u;
    u.bits = bits;
    const real scale = (real)u.value, other = conjugated ? -scale : scale;
    lay(from, to, b, axis, have, [=](Pair x) { return Pair{x.x * scale, x.y * other}; });
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
    length: int
    resized: int
    n: int
    conjugated: bool
    scale: float


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
        self.written: list[Record] = []
        self._used = 0  # bytes of workspace
        result, (o,), shape = s.results[0], s.operands, s.values[0].shape
        self.char = "f" if result.dtype.char in "fF" else "d"
        self.to = Array(encoder.place(result), shape, c_strides(shape), result.dtype)
        # What cuFFT reads, and how many numbers it transforms, real ones where there are any.
        at, call = self.call.resized, self.call
        self.wanted = (*o.shape[:at], call.length, *o.shape[at + 1 :])
        self.dtype = np.dtype(self.char if call.kind == "half" else self.char.upper())
        real = call.kind in ("half", "whole")
        last = call.n if real else shape[call.axes[-1]]
        self.lengths = (*(shape[k] for k in call.axes[:-1]), last)

    def records(self) -> list[Record] | None:
        """Return the launches; None if cuFFT or a copy cannot do it."""
        (o,) = self.step.operands
        place = self.encoder.place(o.buffer, o.offset)
        given = Array(place, o.shape, o.strides, o.buffer.dtype)
        laid = _layouts(self._laid(self.wanted), self.to, self.call.axes)
        if laid is not None and self._aligned(laid) and self._align(self.to.place):
            done = self._straight(o, given)
        else:
            done = self._with_axes_last(given)
        return self.written if done else None

    def _straight(self, o: Operand, given: Array) -> bool:
        """Transform an operand where it is, or a copy of it, to where the result belongs."""
        scale = self.call.scale
        laid = _layouts(given, self.to, self.call.axes) if self._serves(o, given) else None
        if laid is None or not self._aligned(laid) or not self._align(given.place):
            lying = self._room(self.wanted, self.dtype)
            if not self._copy_operand(given, lying, scale):
                return False
            given, scale = lying, 1.0
            laid = _layouts(given, self.to, self.call.axes)
        assert laid is not None
        if not self._execute(laid, given, self.to):
            return False
        return self._unchanged(scale) or self._copy(self.to, self.to, self._conjugates, scale)

    def _with_axes_last(self, given: Array) -> bool:
        """Transform a copy of an operand to one of the result, both with the axes last."""
        axes, count = self.call.axes, len(self.to.shape)
        order = [k for k in range(count) if k not in axes] + [*axes]
        wanted = tuple(self.wanted[k] for k in order)
        after = _transposed(self.to, order)
        lying, result = self._room(wanted, self.dtype), self._room(after.shape, after.dtype)
        laid = _layouts(lying, result, tuple(range(count - len(axes), count)))
        assert laid is not None
        into = _transposed(lying, sorted(range(count), key=order.__getitem__))
        return (
            self._copy_operand(given, into, self.call.scale)
            and self._execute(laid, lying, result)
            and self._copy(result, after, self._conjugates)
        )

    # -- the operand -----------------------------------------------------------------------

    def _laid(self, shape: tuple[int, ...]) -> Array:
        """Return an array in C order, which is nowhere."""
        return Array(SlotOffset(-1), shape, c_strides(shape), self.dtype)

    def _serves(self, o: Operand, given: Array) -> bool:
        """Whether cuFFT may have an operand itself."""
        if given.shape != self.wanted or given.dtype != self.dtype:
            return False
        if self.call.kind == "whole":
            return not self.call.conjugated and self._is_private(o)
        return True

    def _is_private(self, o: Operand) -> bool:
        """Whether a step may destroy an operand: a temporary that no later one touches."""
        b, last = o.buffer, self.encoder.last
        if b.kind != "temp" or b.whole is not None:
            return False
        now = last[b]
        mine = self.encoder.plan.steps[now] is self.step
        return mine and all(k <= now for x, k in last.items() if x.whole is b)

    def _aligned(self, laid: _Laid) -> bool:
        """Whether the calls of a plan begin at numbers that cuFFT takes, as far as it counts."""
        size = np.dtype(self.char).itemsize
        steps = {"half": (size, 2 * size), "whole": (2 * size, size)}
        by = steps.get(self.call.kind, (2 * size, 2 * size))
        return not any(n * s % (2 * size) for x in laid.offsets for n, s in zip(x, by, strict=True))

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

    def _execute(self, laid: _Laid, of: Array, to: Array) -> bool:
        """Note the calls of cuFFT; return False if it has no plan for them."""
        kind = self.call.kind
        form = TransformForm(
            _TYPES[kind], self.char, self.lengths, laid.operand, laid.result, laid.count
        )
        plan = self.encoder.gpu.transform(form)
        if plan is None:
            return False
        self.encoder.references.append(plan)
        work = self.encoder.behind(self._used, plan.room)
        for offsets in laid.offsets:
            places = [
                SlotOffset(x.place.slot, x.place.offset + n * x.dtype.itemsize)
                for x, n in zip((of, to), offsets, strict=True)
            ]
            self.written.append(
                FourierRecord(*places, work, plan.number, _DIRECTIONS[kind], plan.functions)
            )
        return True

    @property
    def _conjugates(self) -> bool:
        """Whether the result is conjugated."""
        return self.call.conjugated and self.call.kind == "half"

    def _unchanged(self, scale: float) -> bool:
        """Whether the result is what cuFFT writes."""
        return scale == 1 and not self._conjugates

    # -- copies ----------------------------------------------------------------------------

    def _copy_operand(self, given: Array, to: Array, scale: float) -> bool:
        """Note a copy of the operand, filled up, conjugated and multiplied as it is to be."""
        call = self.call
        if not self._copy(given, to, call.conjugated and call.kind == "whole", scale, call.resized):
            return False
        # Real numbers that become complex ones are multiplied afterwards.
        widened = to.dtype.kind == "c" and given.dtype.kind != "c"
        return not widened or scale == 1 or self._copy(to, to, False, scale)

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array in C order in the workspace."""
        size = math.prod(shape) * dtype.itemsize
        place = self.encoder.behind(self._used, size)
        self._used += -(-size // _ALIGNED) * _ALIGNED
        return Array(place, shape, c_strides(shape), dtype)

    def _copy(
        self, of: Array, to: Array, conjugated: bool = False, scale: float = 1.0, resized: int = -1
    ) -> bool:
        """Note a copy; `of` may be shorter along an axis. Return False if it has many axes."""
        dims = _dims(of, to, resized)
        if len(dims) > AXES:
            return False
        dims = [_Dim(1, 0, 0)] * (AXES - len(dims)) + dims
        axis = next((k for k, d in enumerate(dims) if d.resized), -1)
        have = of.shape[resized] if axis >= 0 else 0
        numbers = [*(d.count for d in dims), *(d.step for d in dims), *(d.other for d in dims)]
        numbers += [axis, have]
        name = "laid"
        if to.dtype.kind == "c":
            name = "laid_pairs" if of.dtype.kind == "c" else "widened"
        if name == "laid_pairs":
            numbers += [int(conjugated), int(np.float64(scale).view(np.int64))]
        function = self.encoder.gpu.fourier_kernel(name, self.char)
        blocks = min(-(-math.prod(to.shape) // THREADS), _BLOCKS)
        arguments = of.place, to.place, *numbers
        self.written.append(KernelRecord(function, (blocks, 1, 1), (THREADS, 1, 1), 0, arguments))
        return True


# -- layouts -----------------------------------------------------------------------------------


class _Dim(NamedTuple):
    """An axis of two arrays at once: their strides."""

    count: int
    step: int
    other: int
    resized: bool = False


class _Laid(NamedTuple):
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
        if d.count == 1 and not d.resized:
            continue
        before = joined[-1] if joined else None
        if (
            before is not None
            and not (d.resized or before.resized)
            and before.step == d.count * d.step
            and before.other == d.count * d.other
        ):
            joined[-1] = _Dim(before.count * d.count, d.step, d.other)
        else:
            joined.append(d)
    return joined


def _dims(of: Array, to: Array, resized: int) -> list[_Dim]:
    """Return the axes of a copy, in the order in which the result lies in memory."""
    dims = [
        _Dim(n, s, t, k == resized and of.shape[k] < n)
        for k, (n, s, t) in enumerate(zip(to.shape, of.strides, to.strides, strict=True))
    ]
    return _joined(sorted(dims, key=lambda d: -d.other))


def _layouts(of: Array, to: Array, axes: tuple[int, ...]) -> _Laid | None:
    """Return how a plan of cuFFT, called a few times at most, reads and writes two arrays.

    None if there is none.
    """
    every = range(len(to.shape))
    both = [_layout(x, axes, [n for k, n in enumerate(x.shape) if k in axes]) for x in (of, to)]
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
    return _Laid(operand, result, largest.count, offsets)


def _layout(
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
