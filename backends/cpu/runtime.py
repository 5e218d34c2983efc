"""What the serial and openmp backends share: engines over the compiled kernels.

An engine does what it does better than NumPy and returns NotImplemented for the rest:
other dtypes, mixed ones, subclasses, small arrays. Warnings and errors are NumPy's: when a
kernel raised a floating-point flag that the caller's `np.errstate` wants to hear of, NumPy
computes the result again and reports.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from adarray_backends.cpu import blas

from adarray.base.environment import wrong
from adarray.base.op import OPS, Op, Reduction
from adarray.base.scalar import ScalarExpr
from adarray.compiler.ir.target import CPU
from adarray.compiler.scalars import eager
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.eager import EagerKernel
from adarray.errors import BackendError
from adarray.runtime import CompilingEngine, FaultHandler

if TYPE_CHECKING:
    from adarray_backends.cpu.ahead import Ahead
    from adarray_backends.cpu.executor import CpuExecutable

    from adarray.compiler.ir.plan import Plan

ndarray = np.ndarray
_ARRAY_API: Any = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
FLAGS = (("divide", 1), ("over", 2), ("under", 4), ("invalid", 8))
DTYPES = {np.dtype(d).num: d for d in eager.DTYPES}
# Arguments of the C function that stand for no operand.
_PADDING = tuple((0,) * (6 - n) for n in range(7))
DOUBLE, SINGLE = np.dtype(np.float64).num, np.dtype(np.float32).num


class Cutoffs(NamedTuple):
    """Numbers of elements below which something else is faster.

    Parameters
    ----------
    light, fused, heavy, fold : int
        NumPy computes below these: kernels that wait for memory, derivatives for which
        NumPy goes over memory several times, kernels that wait for arithmetic, and reductions. A
        call of C gives up the GIL, which costs more than it gains for small arrays.
    light_threads, heavy_threads, fold_threads : int
        One thread computes below these.
    product, vector_product : int
        Numbers of multiplications below which NumPy computes a product of matrices, and
        of a matrix and a vector.
    """

    light: int = 65536
    fused: int = 8192
    heavy: int = 4096
    fold: int = 16384
    light_threads: int = 131072
    heavy_threads: int = 32768
    fold_threads: int = 131072
    product: int = blas.MATRIX_CUTOFF
    vector_product: int = blas.VECTOR_CUTOFF


class Compiled(NamedTuple):
    """A kernel that is both printed by the current record and in the extension module.

    Parameters
    ----------
    number : int
        Its place in the module.
    take : tuple of int
        Positions of its inputs in ``operands`` or, for a rule, in ``(g, out, *operands)``.
    cutoff, threads_from : int
        From how many elements on it is used, and from how many on with threads.
    """

    number: int
    take: tuple[int, ...]
    cutoff: int
    threads_from: int


class KernelLibrary:
    """An extension module and the tables of its kernels.

    Parameters
    ----------
    name : str
        Name of the module in `adarray_native`.

    Raises
    ------
    ImportError
        If it is not there or cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        module = importlib.import_module(f"adarray_native.{name}")
        self.ffi: Any = module.ffi
        self.lib: Any = module.lib
        lib = self.lib
        self.maps = {
            self.text(lib.adarray_map_name(i)): (i, self.text(lib.adarray_map_hash(i)))
            for i in range(lib.adarray_map_count())
        }
        self.folds = {
            self.text(lib.adarray_fold_name(i)): (i, self.text(lib.adarray_fold_hash(i)))
            for i in range(lib.adarray_fold_count())
        }
        self.libmvec: int = lib.adarray_libmvec()
        # Array memory to keep at most: an eighth of the machine's, and no more than 2 GiB.
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.lib.adarray_pool_limit(min(1 << 31, memory // 8))
        level = os.environ.get("ADARRAY_SIMD", "").strip()
        if level:
            self._limit(level)

    def _limit(self, wanted: str) -> None:
        """Use the level named `wanted`, or the best one below it that the processor has."""
        best = self.lib.adarray_level()
        names = [self.level_name(i) for i in range(best + 1)]
        known = ("base", "avx2", "avx512")
        if wanted not in known:
            raise BackendError(
                f"backends serial and openmp: {wrong('ADARRAY_SIMD', wanted, ', '.join(known))}"
            )
        self.lib.adarray_limit_level(names.index(wanted) if wanted in names else best)

    def text(self, pointer: Any) -> str:
        """Return the string that C holds at `pointer`."""
        return str(self.ffi.string(pointer).decode())

    def level_name(self, level: int) -> str:
        """Return the name of an instruction-set level."""
        return self.text(self.lib.adarray_level_name(level))

    def find(self, kernel: EagerKernel | None) -> int | None:
        """Return the number of a printed kernel; None if the compiled one differs."""
        if kernel is None:
            return None
        index, digest = (self.folds if kernel.parts else self.maps).get(kernel.name, (0, ""))
        return index if digest == kernel.hash else None


def _numpy_has_wide(name: str, dtype: str) -> bool:
    """Whether NumPy computes the ufunc `name` with 512-bit vectors on this machine."""
    info = np.lib.introspect.opt_func_info(func_name=f"^{name}$", signature=f"^{dtype}$")
    used = " ".join(str(entry.get("current")) for by in info.values() for entry in by.values())
    return "AVX512" in used or "X86_V4" in used


def _reported(flags: int, out: Any = None) -> bool:
    """Whether the caller's errstate wants to hear of any of the raised flags.

    Vector functions raise some flags for nothing, such as that of exp(-inf). A forward
    kernel passes its result `out`: if that is finite, nothing was divided by zero,
    overflowed or was invalid.
    """
    handling: Mapping[str, Any] = np.geterr()
    if not any(flags & bit and handling[name] != "ignore" for name, bit in FLAGS):
        return False
    underflow = flags & 4 and handling["under"] != "ignore"
    return bool(underflow or out is None or not np.isfinite(out).all())


class CPUEngine(CompilingEngine):
    """An engine over an extension module.

    Parameters
    ----------
    name : str
        Name of the backend.
    library : KernelLibrary
    threads : int
    cutoffs : Cutoffs
    """

    def __init__(self, name: str, library: KernelLibrary, threads: int, cutoffs: Cutoffs) -> None:
        self.name = name
        self.threads = threads
        self.library = library
        self.cutoffs = cutoffs
        self._smallest = min(cutoffs.fused, cutoffs.heavy)
        self._map = library.lib.adarray_map
        self._fold = library.lib.adarray_fold
        self._kernels: dict[Any, Compiled | None] = {}
        self._calls: dict[tuple[Op, int], ScalarExpr | None] = {}

    # -- compiled plans --------------------------------------------------------------------

    any_thread = True
    target = CPU

    def executable(
        self, plan: Plan, precise: bool = False, rerun: FaultHandler | None = None
    ) -> CpuExecutable:
        """Compile a plan; see `adarray_backends.cpu.executor.executable`."""
        from adarray_backends.cpu.executor import executable  # only jit needs it

        return executable(self.library, self.threads, plan, precise, rerun, self)

    def prepare(self, plans: Iterable[Plan], precise: bool = False) -> None:
        """Compile the kernels of several plans together, before `executable` asks for them."""
        from adarray_backends.cpu.executor import prepare

        prepare(self.library, self.threads, plans, precise)

    def ahead(self, precise: bool = False) -> Ahead:
        """Return what compiles kernels while their plan is being made."""
        from adarray_backends.cpu.ahead import Ahead

        return Ahead(self.library, self.threads, precise)

    language = "C"  # of what `compile_source` takes

    def compile_source(
        self,
        text: str,
        name: str,
        shared: int = 0,  # noqa: ARG002
        alone: bool = False,
    ) -> Callable[[int], None]:
        """Compile ``void name(void *data)``; return what calls it with an address.

        Where there are several threads, each of them calls it with the same address, and they
        share the work by what they find there, unless the caller is `alone`. The text defines
        ``name_scratch`` too, as kernels of plans do.
        """
        from adarray_backends.cpu.sources import compiled  # only kernels of users need it

        return compiled(self.library, 1 if alone else self.threads, text, name)

    # -- memory ----------------------------------------------------------------------------

    def enter(self) -> int:
        """Let the pool serve NumPy's arrays in this context; return what `leave` needs."""
        return int(self.library.lib.adarray_pool_enter(id(_ARRAY_API)))

    def leave(self, token: int) -> None:
        """Restore the allocator that was there before `enter`."""
        self.library.lib.adarray_pool_leave(id(_ARRAY_API), token)

    def trim(self) -> None:
        """Give the system what the pool keeps."""
        self.library.lib.adarray_pool_trim()

    # -- pointwise -----------------------------------------------------------------------

    def pointwise(self, op: Op, values: tuple[Any, ...]) -> Any:
        """Compute the pointwise operation `op` on `values` with broadcasting."""
        size = 1
        for x in values:
            if type(x) is ndarray:
                size *= x.size
        if size < self._smallest:
            return NotImplemented
        fixed = self._fixed(op, values) if op.name in eager.FIXED else None
        return self._compute(op, -1, fixed, values)

    def derivative(self, op: Op, operand: int, g: Any, saved: tuple[Any, ...]) -> Any:
        """Compute ``op.rules[operand](g, *saved)`` going over memory once."""
        if type(g) is not ndarray or g.size < self._smallest:
            return NotImplemented
        key = (op, operand)
        if key not in self._calls:
            self._calls[key] = eager.single_call(op, operand)
        expr = self._calls[key]
        if expr is not None:
            named = _named(g, saved)
            args = (a.value if a.op == "const" else named[a.value] for a in expr.args)
            return self.pointwise(OPS[expr.op], tuple(args))
        fixed = None
        if op.name in eager.FIXED:
            fixed = self._fixed(op, saved[1:])
            exponent = saved[1 + eager.FIXED[op.name][0]]
            if fixed is None and type(exponent) is float and g.dtype.num != DOUBLE:
                # NumPy subtracts 1 from a Python number in float64.
                return NotImplemented
        return self._compute(op, operand, fixed, (g, *saved))

    def _fixed(self, op: Op, values: tuple[Any, ...]) -> int | None:
        """Return which of the values with kernels of their own an operand has."""
        operand, fixed = eager.FIXED[op.name]
        value = values[operand]
        if (type(value) is int or type(value) is float) and value in fixed:
            return fixed.index(value)
        return None

    def _kernel(self, op: Op, operand: int, fixed: int | None, dtype: str) -> Compiled | None:
        """Return the kernel of an operation (operand -1) or of one of its rules."""
        key = (op, operand, fixed, dtype)
        try:
            return self._kernels[key]
        except KeyError:
            pass
        if isinstance(op.lower, Reduction):
            kernel = eager.reduction(op, dtype)
        elif operand < 0:
            kernel = eager.forward(op, dtype, fixed)
        else:
            kernel = eager.derivative(op, operand, dtype, fixed)
        index = self.library.find(kernel)
        compiled = None
        if kernel is not None and index is not None:
            # Positions in (operands), or in (g, out, *operands).
            first = 0 if operand < 0 else 2
            places = {"g": 0, "out": 1, **{f"x{i}": first + i for i in range(op.arity)}}
            take = tuple(places[x] for x in kernel.inputs)
            compiled = Compiled(index, take, *self._limits(op, operand, dtype, kernel))
        self._kernels[key] = compiled
        return compiled

    def _limits(self, op: Op, operand: int, dtype: str, kernel: EagerKernel) -> tuple[int, int]:
        """Return from how many elements on a kernel is used, and from how many on threads are."""
        c = self.cutoffs
        if kernel.parts:
            return c.fold, c.fold_threads
        if not kernel.heavy:
            return c.light if operand < 0 else c.fused, c.light_threads
        if operand < 0 and c == Cutoffs():
            wide = _numpy_has_wide(op.name, dtype)
            if wide and self.threads > 1:
                return c.heavy_threads, c.heavy_threads
            # One thread gains nothing over NumPy's own wide vectors, or even loses, and
            # nothing from a function that the C library has for one element at a time.
            f = FUNCTIONS.get(op.name)
            scalar = f is not None and f.is_heavy and not 0 < f.libmvec <= self.library.libmvec
            faster = f is not None and wide and dtype in f.faster_in_numpy
            if self.threads == 1 and (scalar or faster):
                return sys.maxsize, sys.maxsize
            if wide:
                return c.light, c.heavy_threads
        return c.heavy, c.heavy_threads

    def _compute(self, op: Op, operand: int, fixed: int | None, values: tuple[Any, ...]) -> Any:
        """Run a forward kernel on ``values = operands``, or a rule's on ``(g, out, *operands)``."""
        for x in values:
            if type(x) is ndarray and x.dtype.num in DTYPES:
                dtype = x.dtype
                break
        else:
            return NotImplemented
        compiled = self._kernel(op, operand, fixed, DTYPES[dtype.num])
        if compiled is None:
            return NotImplemented
        arrays = []
        for i in compiled.take:
            x = values[i]
            a = x if type(x) is ndarray else _as_array(x, dtype)
            if a is None:
                return NotImplemented
            arrays.append(a)
        out = _result(arrays, dtype, compiled.cutoff)
        if out is None:
            return NotImplemented
        threads = self.threads if out.size >= compiled.threads_from else 1
        count = len(arrays)
        flags = self._map(
            compiled.number, id(out), threads, count, *map(id, arrays), *_PADDING[count]
        )
        if flags and (flags < 0 or _reported(flags, out if operand < 0 else None)):
            return NotImplemented
        return out

    # -- reductions and products -----------------------------------------------------------

    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute a reduction or a matrix product."""
        if op.name == "matmul":
            if params or len(values) != 2:
                return NotImplemented
            lib, c = self.library, self.cutoffs
            return blas.matmul(lib.lib, lib.ffi, self.threads, *values, c.product, c.vector_product)
        if isinstance(op.lower, Reduction):
            return self._reduce(op, values[0], params)
        return NotImplemented

    def _reduce(self, op: Op, x: Any, params: dict[str, Any]) -> Any:
        """Compute a reduction over any axes."""
        if type(x) is not ndarray or x.size < self.cutoffs.fold or x.size == 0:
            return NotImplemented
        dtype = DTYPES.get(x.dtype.num)
        if dtype is None or params.get("dtype") is not None:
            return NotImplemented
        bits = _axis_bits(params.get("axis"), x.ndim)
        compiled = self._kernel(op, -1, None, dtype)
        if not bits or compiled is None:
            return NotImplemented
        if params.get("keepdims"):
            shape = [1 if bits >> i & 1 else n for i, n in enumerate(x.shape)]
        else:
            shape = [n for i, n in enumerate(x.shape) if not bits >> i & 1]
        fortran = False
        if not x.flags.c_contiguous:
            steps = [
                abs(s) for i, s in enumerate(x.strides) if not bits >> i & 1 and x.shape[i] > 1
            ]
            fortran = steps == sorted(steps)
            if not fortran and steps != sorted(steps, reverse=True):
                return NotImplemented  # NumPy gives the result an order of its own
            fortran = fortran and len(steps) > 1
        out = np.empty(shape, x.dtype, order="F" if fortran else "C")
        threads = self.threads if x.size >= compiled.threads_from else 1
        flags = self._fold(compiled.number, id(x), bits, id(out), threads)
        if flags and (flags < 0 or _reported(flags)):
            return NotImplemented
        return out if shape else out[()]


def _named(g: Any, saved: tuple[Any, ...]) -> dict[str, Any]:
    """Return what a rule's symbols stand for."""
    named = {"g": g, "out": saved[0]}
    for i, x in enumerate(saved[1:]):
        named[f"x{i}"] = x
    return named


def _as_array(x: Any, dtype: Any) -> Any:
    """Return a number as an array of `dtype`; None where NumPy would promote or complain."""
    kind = type(x)
    if kind is float:
        if dtype.num == SINGLE and abs(x) > 3.4e38 and abs(x) != np.inf:
            return None
    elif kind is int:
        if abs(x) > 1 << 53:
            return None
    elif kind is not dtype.type:
        return None
    return np.array(x, dtype)


def _result(arrays: list[Any], dtype: Any, cutoff: int) -> Any:
    """Return an empty array for the result, in the memory order NumPy would choose.

    None where the shapes do not broadcast, or the result is below `cutoff`, empty or 0-d.
    """
    first = arrays[0]
    shape = first.shape
    alike = True  # all operands have the layout of the first one, or one element
    for a in arrays[1:]:
        if a.shape != shape:
            if a.ndim == 0:
                continue
            if first.ndim == 0:
                first, shape = a, a.shape
                continue
            try:
                shape = np.broadcast_shapes(*(x.shape for x in arrays))
            except ValueError:
                return None  # NumPy words the error
            alike = False
            break
        if a.strides != first.strides:
            alike = False
    size = 1
    for n in shape:
        size *= n
    if size < cutoff or size == 0 or not shape:
        return None
    if alike and first.dtype is dtype and first.flags.forc:
        return np.empty_like(first)
    for a in arrays:
        if not a.flags.c_contiguous:  # NumPy's own choice, by all strides together
            return _allocated(arrays, dtype)
    return np.empty(shape, dtype)


def _allocated(arrays: list[Any], dtype: Any) -> Any:
    """Return an empty array for the result, as NumPy's own loops make it."""
    count = len(arrays)
    with np.nditer(
        [*arrays, None],
        [],
        [["readonly"]] * count + [["writeonly", "allocate"]],
        [None] * count + [dtype],
    ) as loop:
        return loop.operands[count]


def _axis_bits(axis: Any, ndim: int) -> int:
    """Return the reduced axes as bits; 0 where NumPy should look at them."""
    if axis is None:
        return (1 << ndim) - 1
    bits = 0
    for a in axis if type(axis) is tuple else (axis,):
        if not isinstance(a, int | np.integer) or not -ndim <= a < ndim or bits >> (a % ndim) & 1:
            return 0
        bits |= 1 << int(a % ndim)
    return bits
