"""Building values of a program: shapes and dtypes inferred, trivial cases folded."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from adarray.base.recording import Call
from adarray.compiler.ir import complexes, views
from adarray.compiler.ir.interpret_values import function_of
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    ConstantArray,
    DType,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    Primitive,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    Slot,
    UpdateSlice,
    View,
    map_of,
    view_of,
)
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.views import Shape, StridedLayout
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.dtypes import COMPLEX, DTYPES

BOOL = np.dtype(bool)
INT = np.dtype(np.int64)
UINT = np.dtype(np.uint32)
# What arithmetic is printed for; values of other dtypes go through NumPy.
PRINTABLE = frozenset(np.dtype(d) for d in DTYPES if d not in COMPLEX)
# What kernels move, and compute with the parts of.
PAIRS = frozenset(complexes.PART_OF)
# Dtypes that are computed in another one, and this.
WIDE = {np.dtype(d.name): np.dtype(d.wide) for d in DTYPES.values() if d.wide}
# Dtypes whose numbers are computed as others.
_OTHERS = PAIRS.union(WIDE)


class NotExactError(Exception):
    """A number that a dtype does not hold: NumPy compares, warns or raises, so it is called."""


class Weak(NamedTuple):
    """A Python number that is known at run time only: its dtype yields to others' (NEP 50)."""

    value: Value
    kind: type


def converted(x: npt.ArrayLike, dtype: DType) -> np.ndarray:
    """Return an array or number in another dtype."""
    return np.asarray(x).astype(dtype)


class Builder:
    """Makes values, each after those that it reads.

    Attributes
    ----------
    values : list of Value
        All values, in order.
    origin : Call or None
        The recorded call that new values belong to.
    """

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.inputs: list[Value] = []
        self.origin: Call | None = None
        self._consts: dict[Primitive, Value] = {}
        self._numbers: dict[Hashable, Value] = {}  # by type, text and dtype

    def make(
        self,
        primitive: Primitive,
        args: tuple[Value, ...],
        shape: Shape,
        dtype: npt.DTypeLike,
    ) -> Value:
        """Make a value as given."""
        value = Value(primitive, args, shape, dtype, self.origin)
        self.values.append(value)
        return value

    def program(self, outputs: Iterable[Value]) -> Program:
        """Return the program of all values so far."""
        return Program(self.inputs, self.values, outputs)

    # -- leaves ----------------------------------------------------------------------------

    def input(
        self, index: int, shape: Shape, dtype: npt.DTypeLike, strides: Shape | None = None
    ) -> Value:
        """Make input number `index`; C strides if none are given."""
        primitive = ProgramInput(index, c_strides(shape) if strides is None else strides)
        value = self.make(primitive, (), shape, dtype)
        self.inputs.append(value)
        return value

    def const(self, number: object, dtype: npt.DTypeLike) -> Value:
        """Return the constant `number` in `dtype`: one value for all that ask for it."""
        # Written out, numbers of equal value and different bits differ.
        written = (type(number), repr(number), dtype)
        value = self._numbers.get(written)
        if value is None:
            dtype = np.dtype(dtype)
            if dtype in PAIRS:
                z, part = np.asarray(number).astype(dtype), complexes.PART_OF[dtype]
                both = (self.const(p[()], part) for p in (z.real, z.imag))
                value = self._numbers[written] = self.paired(*both)
                return value
            with np.errstate(all="ignore"):
                scalar = np.asarray(number).astype(dtype)[()]
            assert isinstance(scalar, np.generic)
            primitive = Constant(scalar)
            value = self._consts.get(primitive)
            if value is None:
                value = self._consts[primitive] = self.make(primitive, (), (), dtype)
            self._numbers[written] = value
        return value

    def adopt(self, v: Value) -> Value:
        """Return the constant that is equal to a constant of another program: itself at first."""
        first = self._consts.setdefault(v.primitive, v)
        if first is v:
            self.values.append(v)
        return first

    def full(self, shape: Shape, number: object, dtype: npt.DTypeLike) -> Value:
        """Return an array with `number` everywhere."""
        return self.broadcast(self.const(number, dtype), shape)

    def array(self, x: object) -> Value:
        """Return an array of constants: uniform ones and ranges hold no memory."""
        x = np.asarray(x)
        if x.dtype in PAIRS:
            return self.paired(self.array(x.real), self.array(x.imag))
        if x.dtype in PRINTABLE:
            if x.size == 0:
                return self.full(x.shape, 0, x.dtype)
            first = x.flat[0]
            if x.size == 1 or _uniform(x, first):
                return self.full(x.shape, first, x.dtype)
            if x.ndim == 1 and x.dtype.kind in "iu" and x.size > 2 and _is_range(x):
                return self.arange(int(first), int(x[1]) - int(x[0]), x.size, x.dtype)
        if not x.flags.c_contiguous or x.flags.writeable:
            x = x.copy("C")
            x.flags.writeable = False
        return self.make(ConstantArray(x), (), x.shape, x.dtype)

    def iota(self, shape: Shape, axis: int) -> Value:
        """Make an int64 array whose elements are their positions along an axis."""
        return self.make(Iota(axis), (), shape, INT)

    def arange(self, start: int, step: int, n: int, dtype: npt.DTypeLike) -> Value:
        """Return ``start, start + step, ...``, `n` of them."""
        x = self.cast(self.iota((n,), 0), dtype)
        if step != 1:
            x = self.map("multiply", x, self.const(step, dtype))
        return self.map("add", x, self.const(start, dtype)) if start else x

    def value(self, x: object, dtype: npt.DTypeLike | None = None) -> Value:
        """Return an operand, which may be a number or an array, as a value.

        Raises
        ------
        NotExactError
            If it is a number out of the range of `dtype`.
        """
        if isinstance(x, Weak):
            x = x.value
        if not isinstance(x, Value):
            if dtype is not None and not isinstance(x, np.ndarray):
                if isinstance(x, (int, float, np.generic)):
                    if not holds(dtype, x):
                        raise NotExactError
                    return self.const(x, dtype)
                try:
                    x = np.asarray(x, dtype)
                except OverflowError:
                    raise NotExactError from None
            x = self.array(x)
        return x if dtype is None or x.dtype == dtype else self.cast(x, dtype)

    # -- elements --------------------------------------------------------------------------

    def map(self, name: str, *args: Value) -> Value:
        """Apply a scalar function to operands that have its dtypes already."""
        dtype = BOOL if FUNCTIONS[name].gives_truth else args[-1].dtype
        return self.apply(name, args, dtype)

    def apply(self, name: str, args: tuple[Value, ...], dtype: npt.DTypeLike) -> Value:
        """Apply a scalar function whose result has `dtype`."""
        if name == "paired":
            return self.paired(*args)
        shape = args[0].shape
        equal, constant, other = True, False, False
        for a in args:
            if a.dtype in _OTHERS:
                other = True
            if a.shape != shape:
                equal = False
            if isinstance(a.primitive, (Constant, View)) and uniform(a) is not None:
                constant = True
        if other and not PAIRS.isdisjoint([a.dtype for a in args]):
            return complexes.apply(self, name, args, np.dtype(dtype))
        if other and name != "cast":
            args = tuple(map(self.widened, args))
            return self.cast(self.apply(name, args, WIDE.get(np.dtype(dtype), dtype)), dtype)
        if not equal:
            shape = views.broadcast_shape([a.shape for a in args])
        if constant:
            return self._with_constants(name, args, dtype, shape)
        return self.make(map_of(name), args, shape, dtype)

    def _with_constants(
        self, name: str, args: tuple[Value, ...], dtype: npt.DTypeLike, shape: Shape
    ) -> Value:
        consts = [uniform(a) for a in args]
        rest = [a.shape for a, c in zip(args, consts, strict=True) if c is None]
        if name == "cast" and consts[0] is not None and not holds(dtype, number_of(consts[0])):
            # NumPy warns of such a cast: it happens in every call.
            return self.make(map_of(name), args, shape, dtype)
        if not rest:
            return self.full(shape, evaluate(name, dtype, consts), dtype)
        # A uniform operand is one number, unless it alone says how far others spread.
        if rest[0] == shape or views.broadcast_shape(rest) == shape:
            args = tuple([a if c is None else c for a, c in zip(args, consts, strict=True)])
        return self.make(map_of(name), args, shape, dtype)

    def cast(self, x: Value, dtype: npt.DTypeLike) -> Value:
        """Convert elements as `numpy.ndarray.astype` does.

        NumPy itself makes uint32 of floating point: what its loops make of numbers out of
        range depends on where they lie in memory. All others agree with what C compilers do.
        """
        dtype = np.dtype(dtype)
        if x.dtype == dtype:
            return x
        if dtype in PAIRS and (x.dtype in PRINTABLE or x.dtype in PAIRS):
            return complexes.cast(self, x, dtype)
        if x.dtype in PAIRS and dtype == BOOL:
            return complexes.cast(self, x, dtype)
        of_numpy = x.dtype.kind == "f" and dtype == UINT
        if of_numpy or x.dtype not in PRINTABLE or dtype not in PRINTABLE:
            call = PythonCall(converted, (Slot(0), dtype), {})
            return self.make(call, (x,), x.shape, dtype)
        if dtype == BOOL:
            return self.map("not_equal", x, self.const(0, x.dtype))
        return self.apply("cast", (x,), dtype)

    def widened(self, x: Value) -> Value:
        """Return `x` in the dtype in which it is computed."""
        return self.cast(x, WIDE.get(x.dtype, x.dtype))

    # -- complex numbers -------------------------------------------------------------------

    def paired(self, re: Value, im: Value) -> Value:
        """Return the complex numbers of these parts, of one real dtype."""
        shape = views.broadcast_shape([re.shape, im.shape])
        if re.primitive == _REAL_PART and im.primitive == _IMAGINARY_PART:
            (z,) = re.args
            if im.args[0] is z and z.shape == shape:
                return z
        return self.make(map_of("paired"), (re, im), shape, complexes.WHOLE_OF[re.dtype])

    def parts(self, z: Value) -> tuple[Value, Value]:
        """Return the real and imaginary parts of complex numbers."""
        if is_paired(z):
            re, im = z.args
            return self.broadcast(re, z.shape), self.broadcast(im, z.shape)
        part = complexes.PART_OF[z.dtype]
        both = (self.make(p, (z,), z.shape, part) for p in (_REAL_PART, _IMAGINARY_PART))
        re, im = both
        return re, im

    def _by_parts(self, function: Callable[..., Value], *args: Value) -> Value:
        """Return the complex result of a function that moves or adds numbers."""
        re, im = zip(*map(self.parts, args), strict=True)
        return self.paired(function(*re), function(*im))

    # -- layout ----------------------------------------------------------------------------

    def view(self, x: Value, offset: int, strides: Shape, shape: Shape) -> Value:
        """Show elements of `x`; views of views become one where strides can say it."""
        if x.dtype in PAIRS and is_paired(x):
            return self._by_parts(lambda p: self.view(p, offset, strides, shape), x)
        view = views.normal(offset, strides, shape)
        if 0 in shape and not isinstance(x.primitive, Constant):
            return x if x.shape == shape else self.full(shape, 0, x.dtype)
        if view.shape == x.shape and views.is_whole(view, x.size):
            return x
        while isinstance(x.primitive, View):
            inner = StridedLayout(x.primitive.offset, x.primitive.strides, x.shape)
            through = views.compose(view, inner)
            if through is None:
                break
            view, x = through, x.args[0]
            if view.shape == x.shape and views.is_whole(view, x.size):
                return x
        return self.make(view_of(view.offset, view.strides), (x,), shape, x.dtype)

    def reshape(self, x: Value, shape: Shape) -> Value:
        """Give `x` another shape."""
        return x if x.shape == shape else self.view(x, 0, c_strides(shape), shape)

    def broadcast(self, x: Value, shape: Shape) -> Value:
        """Spread `x` over `shape`."""
        if x.shape == shape:
            return x
        return self.view(x, 0, views.broadcast_strides(x.shape, shape), shape)

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        """Reorder the axes of `x`."""
        shape = x.shape
        if tuple(axes) == tuple(range(len(shape))):
            return x
        strides = c_strides(shape)
        return self.view(x, 0, tuple([strides[i] for i in axes]), tuple([shape[i] for i in axes]))

    def slice(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Take ``x[start:stop:step]`` along one axis, of positions in range."""
        places = range(start, stop, step)
        strides = list(c_strides(x.shape))
        offset = start * strides[axis] if places else 0
        strides[axis] *= step
        shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
        return self.view(x, offset, tuple(strides), shape)

    def flip(self, x: Value, axes: Iterable[int]) -> Value:
        """Reverse the order of the elements along axes."""
        strides = list(c_strides(x.shape))
        offset = 0
        for i in axes:
            offset += max(x.shape[i] - 1, 0) * strides[i]
            strides[i] = -strides[i]
        return self.view(x, offset, tuple(strides), x.shape)

    # -- folds and products ----------------------------------------------------------------

    def reduce(self, combine: str, x: Value, axes: Iterable[int], keepdims: bool = False) -> Value:
        """Fold `axes` of `x`."""
        folded = frozenset(axes)
        if x.dtype in PAIRS:
            if combine != "add":
                raise complexes.NoKernelError(combine)
            return self._by_parts(lambda p: self.reduce("add", p, folded, keepdims), x)
        if keepdims:
            shape = tuple(1 if i in folded else n for i, n in enumerate(x.shape))
        else:
            shape = tuple(n for i, n in enumerate(x.shape) if i not in folded)
        count = math.prod(x.shape[i] for i in folded)
        if count == 1:
            return self.reshape(x, shape)
        if count == 0:
            return self.full(shape, NEUTRAL[combine], x.dtype)
        if 0 in shape:
            return self.full(shape, 0, x.dtype)
        long = tuple(i for i in sorted(folded) if x.shape[i] != 1)
        if len(long) < len(folded):  # axes of length 1 need no fold
            short = folded.difference(long)
            others = [i for i in range(x.ndim) if i not in short]
            x = self.reshape(x, tuple(x.shape[i] for i in others))
            long = tuple(others.index(i) for i in long)
        rest = tuple(n for i, n in enumerate(x.shape) if i not in long)
        wide = self.widened(x)
        r = self.make(Reduce(combine, long), (wide,), rest, wide.dtype)
        return self.reshape(self.cast(r, x.dtype), shape)

    def scan(self, combine: str, x: Value, axis: int) -> Value:
        """Fold `x` along an axis, keeping every step."""
        if x.shape[axis] < 2 or x.size == 0:
            return x
        if x.dtype in PAIRS:
            if combine != "add":
                raise complexes.NoKernelError(combine)
            return self._by_parts(lambda p: self.scan("add", p, axis), x)
        wide = self.widened(x)
        r = self.make(PrefixScan(combine, axis), (wide,), x.shape, wide.dtype)
        return self.cast(r, x.dtype)

    def matmul(self, a: Value, b: Value) -> Value:
        """`numpy.matmul` of floating-point or complex arrays of at least one axis each."""
        if a.dtype in PAIRS:
            return complexes.matmul(self, a, b)
        if a.ndim == 1 and b.ndim == 1:
            product = self.map("multiply", self.widened(a), self.widened(b))
            return self.cast(self.reduce("add", product, (0,)), a.dtype)
        if a.ndim == 2 and b.ndim == 2 and 1 in (a.shape[0], b.shape[1]):
            # Matrices of one row or column are vectors.
            left = self.reshape(a, a.shape[1:]) if a.shape[0] == 1 else a
            right = self.reshape(b, b.shape[:1]) if b.shape[1] == 1 else b
            return self.reshape(self.matmul(left, right), (a.shape[0], b.shape[1]))
        if a.ndim > 2 and b.ndim == 2 and a.size:  # a stack by one matrix: one long product
            rows = self.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1]))
            return self.reshape(self.matmul(rows, b), (*a.shape[:-1], b.shape[-1]))
        lead = views.broadcast_shape([a.shape[:-2], b.shape[:-2]])
        shape = lead + a.shape[-2:-1] + (b.shape[-1:] if b.ndim > 1 else ())
        if a.shape[-1] == 0 or 0 in shape:
            return self.full(shape, 0, a.dtype)
        return self.make(Matmul(), (a, b), shape, a.dtype)

    # -- placing and picking ---------------------------------------------------------------

    def update_slice(
        self, base: Value, value: Value, starts: Shape, steps: Shape, add: bool = False
    ) -> Value:
        """Set a box of `base` to `value`, of as many axes, or add to it; steps are positive."""
        if value.size == 0:
            return base
        if value.shape == base.shape:
            return self.map("add", base, value) if add else value
        if base.dtype in PAIRS:
            return self._by_parts(
                lambda p, q: self.update_slice(p, q, starts, steps, add), base, value
            )
        box = UpdateSlice(tuple(starts), tuple(steps), add)
        dtype = base.dtype
        if add:
            base, value = self.widened(base), self.widened(value)
        return self.cast(self.make(box, (base, value), base.shape, base.dtype), dtype)

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Put arrays of one dtype one after the other."""
        full = [p for p in parts if p.shape[axis]]
        if not full:
            return parts[0]
        if len(full) == 1:
            return full[0]
        length = sum(p.shape[axis] for p in full)
        shape = (*full[0].shape[:axis], length, *full[0].shape[axis + 1 :])
        if 0 in shape:
            return self.full(shape, 0, full[0].dtype)
        if full[0].dtype in PAIRS:
            return self._by_parts(lambda *ps: self.concatenate(ps, axis), *full)
        return self.make(Concatenate(axis), tuple(full), shape, full[0].dtype)

    def gather(
        self, x: Value, indices: Sequence[Value], axes: Sequence[int], position: int
    ) -> Value:
        """Pick the elements of `x` at `indices` (int64, broadcast) along `axes`."""
        at = views.broadcast_shape([i.shape for i in indices])
        rest = [n for k, n in enumerate(x.shape) if k not in axes]
        shape = (*rest[:position], *at, *rest[position:])
        if 0 in shape:
            return self.full(shape, 0, x.dtype)
        if x.dtype in PAIRS:
            return self._by_parts(lambda p: self.gather(p, indices, axes, position), x)
        if (
            len(indices) == 1
            and isinstance(indices[0].primitive, Iota)
            and at == (x.shape[axes[0]],)
        ):
            order = [k for k in range(x.ndim) if k not in axes]
            order.insert(position, axes[0])
            return self.transpose(x, order)
        spread = tuple(self.broadcast(i, at) for i in indices)
        return self.make(GatherND(tuple(axes), position), (x, *spread), shape, x.dtype)

    def scatter(
        self,
        base: Value,
        value: Value,
        indices: Sequence[Value],
        axes: Sequence[int],
        position: int,
        add: bool = False,
    ) -> Value:
        """Set elements of `base` at `indices`, or add to them; `value` may broadcast."""
        at = views.broadcast_shape([i.shape for i in indices])
        rest = [n for k, n in enumerate(base.shape) if k not in axes]
        shape = (*rest[:position], *at, *rest[position:])
        if 0 in shape:
            return base
        if base.dtype in PAIRS and (add or is_paired(base)):
            return self._by_parts(
                lambda p, q: self.scatter(p, q, indices, axes, position, add), base, value
            )
        spread = tuple(self.broadcast(i, at) for i in indices)
        primitive, dtype = ScatterND(tuple(axes), position, add), base.dtype
        if add:
            base, value = self.widened(base), self.widened(value)
        args = (base, self.broadcast(value, shape), *spread)
        return self.cast(self.make(primitive, args, base.shape, base.dtype), dtype)


_REAL_PART, _IMAGINARY_PART = map_of("real"), map_of("imag")


def is_paired(x: Value) -> bool:
    """Whether a complex value is made of its parts."""
    return isinstance(x.primitive, Map) and x.primitive.name == "paired"


NEUTRAL: dict[str, int] = {
    "add": 0, "multiply": 1, "logical_and": True, "logical_or": False,
}  # fmt: skip


def holds(dtype: npt.DTypeLike, x: complex | np.generic) -> bool:
    """Whether a dtype has a number, rounded towards zero where it has integers.

    NumPy's integers of other sizes wrap when they are cast, Python's do not.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "iub" or isinstance(x, (bool, np.bool, np.integer)):
        return True
    if dtype.kind == "b":  # NumPy reads Python's ints as C's
        return not isinstance(x, int) or -(1 << 63) <= x < 1 << 63
    if not isinstance(x, int):
        if not isinstance(x, (float, np.floating)) or not math.isfinite(x):
            return False  # complex, or no number
        x = int(x)
    info = np.iinfo(dtype)
    return bool(info.min <= x <= info.max)


def uniform(x: Value) -> Value | None:
    """Return the constant that every element of `x` equals, None if there is none."""
    while isinstance(x.primitive, View):
        x = x.args[0]
    return x if isinstance(x.primitive, Constant) else None


def number_of(x: Value) -> np.generic:
    """Return the number of a constant."""
    assert isinstance(x.primitive, Constant)
    return x.primitive.value


def evaluate(name: str, dtype: npt.DTypeLike, consts: Sequence[Value | None]) -> object:
    """Return what a scalar function gives for constants."""
    numbers = [number_of(c) for c in consts if c is not None]
    with np.errstate(all="ignore"):
        if name == "cast":
            return np.asarray(numbers[0]).astype(dtype)[()]
        return function_of(name)(*numbers)


def _uniform(x: np.ndarray, first: np.generic) -> bool:
    """Whether all elements have the same bits as the first."""
    if (
        0 in x.strides
        and x.base is not None
        and all(s == 0 or n == 1 for s, n in zip(x.strides, x.shape, strict=True))
    ):
        return True
    if x.reshape(-1)[-1] != first and first == first:
        return False
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    return bool((bits == bits.flat[0]).all())


def _is_range(x: np.ndarray) -> bool:
    step = int(x[1]) - int(x[0])
    last = int(x[0]) + step * (x.size - 1)
    return step > 0 and int(x[-1]) == last and bool((np.diff(x) == step).all())
