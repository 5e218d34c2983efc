"""What the serial and openmp backends share: engines over the compiled kernels.

An engine does what it does better than NumPy and returns NotImplemented for the rest:
other dtypes, mixed ones, subclasses, small arrays. Warnings and errors are NumPy's: when a
kernel raised a floating-point flag that the caller's `np.errstate` wants to hear of, NumPy
computes the result again and reports.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.codegen import eager
from adarray.codegen.eager import Kernel
from adarray.errors import BackendError
from adarray.op import OPS, Op, Reduction
from adarray.scalar import Expr

from adarray_native import blas

ndarray = np.ndarray
FLAGS = (("divide", 1), ("over", 2), ("under", 4), ("invalid", 8))
DTYPES = {np.dtype(d).num: d for d in eager.DTYPES}


class Cutoffs(NamedTuple):
    """Numbers of elements below which something else is faster.

    Parameters
    ----------
    light, heavy : int
        NumPy computes below these: kernels that wait for memory, and kernels that wait
        for arithmetic. A call of C gives up the GIL, which costs more than it gains
        for small arrays.
    fold : int
        The same for reductions.
    light_threads, heavy_threads, fold_threads : int
        One thread computes below these.
    """

    light: int = 32768
    heavy: int = 2048
    fold: int = 32768
    light_threads: int = 131072
    heavy_threads: int = 16384
    fold_threads: int = 131072


class Compiled(NamedTuple):
    """A kernel that is both printed by the current record and in the extension module."""

    kernel: Kernel
    index: int
    cutoff: int
    threads_from: int


class Library:
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
        text = self.ffi.string
        self.maps = {
            text(self.lib.adarray_map_name(i)).decode(): (i, text(self.lib.adarray_map_hash(i)))
            for i in range(self.lib.adarray_map_count())
        }
        self.folds = {
            text(self.lib.adarray_fold_name(i)).decode(): (i, text(self.lib.adarray_fold_hash(i)))
            for i in range(self.lib.adarray_fold_count())
        }
        level = os.environ.get("ADARRAY_SIMD")
        if level is not None:
            self._limit(level)

    def _limit(self, wanted: str) -> None:
        """Use the level named `wanted`, or the best one below it that the processor has."""
        best = self.lib.adarray_level()
        names = [self.level_name(i) for i in range(best + 1)]
        known = ("base", "avx2", "avx512")
        if wanted not in known:
            raise BackendError(
                f"backends serial and openmp: the environment variable ADARRAY_SIMD is "
                f"{wanted!r}; set it to one of {', '.join(known)}, or unset it"
            )
        self.lib.adarray_limit_level(names.index(wanted) if wanted in names else best)

    def level_name(self, level: int) -> str:
        """Return the name of an instruction-set level."""
        return str(self.ffi.string(self.lib.adarray_level_name(level)).decode())

    def find(self, kernel: Kernel | None) -> int | None:
        """Return the number of a printed kernel; None if the compiled one differs."""
        if kernel is None:
            return None
        index, digest = (self.folds if kernel.parts else self.maps).get(kernel.name, (0, b""))
        return index if digest.decode() == kernel.hash else None


def _reported(flags: int) -> bool:
    """Whether the caller's errstate wants to hear of any of the raised flags."""
    handling = np.geterr()
    return any(flags & bit and handling[name] != "ignore" for name, bit in FLAGS)


class CPUEngine:
    """An engine over an extension module.

    Parameters
    ----------
    name : str
        Name of the backend.
    library : Library
    threads : int
    cutoffs : Cutoffs
    """

    def __init__(self, name: str, library: Library, threads: int, cutoffs: Cutoffs) -> None:
        self.name = name
        self.threads = threads
        self.library = library
        self.cutoffs = cutoffs
        self._smallest = min(cutoffs.light, cutoffs.heavy)
        self._map = library.lib.adarray_map
        self._fold = library.lib.adarray_fold
        self._kernels: dict[Any, Compiled | None] = {}
        self._calls: dict[tuple[Op, int], Expr | None] = {}

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
        """Compute ``op.rules[operand](g, *saved)`` in one pass over memory."""
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
        fixed = self._fixed(op, saved[1:]) if op.name in eager.FIXED else None
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
        made = None
        if kernel is not None and index is not None:
            c = self.cutoffs
            limits = (
                (c.fold, c.fold_threads)
                if kernel.parts
                else (c.heavy, c.heavy_threads)
                if kernel.heavy
                else (c.light, c.light_threads)
            )
            made = Compiled(kernel, index, *limits)
        self._kernels[key] = made
        return made

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
        kernel = compiled.kernel
        if operand < 0:
            inputs = [values[int(n[1:])] for n in kernel.inputs]
        else:
            named = _named(values[0], values[1:])
            inputs = [named[n] for n in kernel.inputs]
        arrays = []
        for x in inputs:
            a = x if type(x) is ndarray else _as_array(x, dtype)
            if a is None:
                return NotImplemented
            arrays.append(a)
        return self._run(compiled, arrays, dtype)

    def _run(self, compiled: Compiled, arrays: list[Any], dtype: Any) -> Any:
        """Run a pointwise kernel on arrays."""
        out = _result(arrays, dtype, compiled.cutoff)
        if out is None:
            return NotImplemented
        threads = self.threads if out.size >= compiled.threads_from else 1
        addresses = [id(a) for a in arrays]
        addresses += [0] * (6 - len(addresses))
        flags = self._map(compiled.index, id(out), threads, len(arrays), *addresses)
        if flags and (flags < 0 or _reported(flags)):
            return NotImplemented
        return out

    # -- reductions and products -----------------------------------------------------------

    def call(self, op: Op, values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Compute a reduction or a matrix product."""
        if op.name == "matmul":
            if params or len(values) != 2:
                return NotImplemented
            lib = self.library
            return blas.matmul(lib.lib, lib.ffi, self.threads, values[0], values[1])
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
        kept = [n for i, n in enumerate(x.shape) if not bits >> i & 1]
        fortran = x.ndim > 1 and x.strides[0] < x.strides[-1]
        out = np.empty(kept, x.dtype, order="F" if fortran else "C")
        threads = self.threads if x.size >= compiled.threads_from else 1
        flags = self._fold(compiled.index, id(x), bits, id(out), threads)
        if flags and (flags < 0 or _reported(flags)):
            return NotImplemented
        if params.get("keepdims"):
            return out.reshape([1 if bits >> i & 1 else n for i, n in enumerate(x.shape)], order="A")
        return out if kept else out[()]


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
        if dtype.num == 11 and abs(x) > 3.4e38 and abs(x) != np.inf:
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
    if alike and first.dtype is dtype:
        return np.empty_like(first)
    return np.empty(shape, dtype)


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


def load(backend: str, module: str) -> Library:
    """Return the library of a backend.

    Raises
    ------
    BackendError
        If the extension module is missing or cannot be loaded.
    """
    try:
        return Library(module)
    except ModuleNotFoundError as error:
        if error.name != f"adarray_native.{module}":
            raise
        raise BackendError(
            f"backend {backend!r}: its C module is missing ({error}), because no C compiler "
            "worked when adarray was installed; install one (gcc, with OpenMP for 'openmp') and "
            "reinstall adarray, or use the backend 'numpy'"
        ) from error
    except ImportError as error:
        raise BackendError(
            f"backend {backend!r}: its C module cannot be loaded ({error}); reinstall adarray on "
            "this machine, or use the backend 'numpy'"
        ) from error


def check_count(backend: str, option: str, value: Any, least: int) -> int:
    """Return an option that counts something.

    Raises
    ------
    BackendError
        If it is not an integer, or less than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BackendError(
            f"backend {backend!r}: the option {option} is {value!r}; "
            f"pass an integer of at least {least}"
        )
    return int(value)


def check_options(backend: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    """Refuse options that a backend does not have.

    Raises
    ------
    BackendError
        If there is one.
    """
    for name in sorted(options):
        if name not in known:
            raise BackendError(
                f"backend {backend!r}: unknown option {name!r}; it takes {', '.join(known)}"
            )


def cutoffs(defaults: Cutoffs, value: int | None) -> Cutoffs:
    """Return the cutoffs for the option ``cutoff=``: one number for all, None for measured."""
    return defaults if value is None else Cutoffs(*[value] * len(defaults))


class CPUBackend:
    """What both backends are made of.

    Attributes
    ----------
    name : str
    module : str
        Name of the extension module.
    known : tuple of str
        Options of `engine`.
    """

    name: str
    module: str
    known: tuple[str, ...]

    def __init__(self) -> None:
        self._library: Library | None = None

    @property
    def library(self) -> Library:
        """The extension module, loaded when first asked for."""
        if self._library is None:
            self._library = load(self.name, self.module)
            self.loaded(self._library)
        return self._library

    def loaded(self, library: Library) -> None:
        """Prepare the library that was just loaded."""

    def default_threads(self) -> int:
        """Return the number of threads without an option."""
        return 1

    def engine(self, **options: Any) -> CPUEngine:
        """Return an engine.

        Parameters
        ----------
        threads : int, optional
            Number of threads.
        cutoff : int, optional
            Number of elements below which NumPy computes; by default what measurement
            found, one number for each class of kernels.

        Raises
        ------
        BackendError
            If an option is unknown or wrong, or the C module is missing.
        """
        check_options(self.name, options, self.known)
        threads = options.get("threads")
        cutoff = options.get("cutoff")
        if threads is not None:
            threads = check_count(self.name, "threads", threads, 1)
        if cutoff is not None:
            cutoff = check_count(self.name, "cutoff", cutoff, 0)
        library = self.library
        return CPUEngine(
            self.name, library, threads or self.default_threads(), cutoffs(Cutoffs(), cutoff)
        )

    def info(self) -> dict[str, str]:
        """Return facts to show in ``python -m adarray info``."""
        try:
            library = self.library
        except BackendError as error:
            return {"status": "unavailable", "why": str(error)}
        lib = library.lib
        calls: Callable[[Any], bytes] = library.ffi.string
        return {
            "status": "available",
            "compiler": calls(lib.adarray_compiler()).decode(),
            "simd": library.level_name(lib.adarray_level()),
            "libmvec": ("no", "yes, before glibc 2.35", "yes")[lib.adarray_libmvec()],
            "threads": str(self.default_threads()),
            "kernels": str(len(library.maps) + len(library.folds)),
        }
