"""Plans: what an executable does, step by step, in which memory.

A plan is made by the last passes (fusion, buffers) and run by a backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from adarray.base.types import Function
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.primitives import DType
from adarray.compiler.ir.program import Value

BufferKind: TypeAlias = Literal["input", "const", "output", "temp"]


class Buffer:
    """A stretch of memory that holds one value, in C order unless it is an input.

    Attributes
    ----------
    kind : {"input", "const", "output", "temp"}
    index : int
        Of the program's input or output; position in `Plan.consts`; unused for ``temp``.
    dtype : numpy.dtype
    size : int
        Number of elements.
    offset : int
        Place in the arena in bytes, a multiple of 64; for ``temp`` only, -1 before the
        buffer pass.
    donor : int
        Of an output that lies in the memory of an input: the input's number; else -1.
    whole : Buffer or None
        The one of which it is a stretch; for ``temp`` only.
    """

    __slots__ = ("donor", "dtype", "index", "kind", "offset", "size", "whole")

    def __init__(self, kind: BufferKind, dtype: DType, size: int, index: int = -1) -> None:
        self.kind = kind
        self.dtype = dtype
        self.size = size
        self.index = index
        self.offset = -1
        self.donor = -1
        self.whole: Buffer | None = None

    def __repr__(self) -> str:
        at = self.index if self.kind != "temp" else self.offset
        return f"<{self.kind} {at}: {self.size} {self.dtype}>"


class KernelStep(NamedTuple):
    """Run a compiled kernel.

    Parameters
    ----------
    kernel : loopir.Kernel
        Extents, strides and offsets are not in it: they are its integer arguments.
    buffers : tuple of Buffer
        One for each buffer parameter of the kernel.
    ints : tuple of int
        One for each integer parameter, in the kernel's order.
    values : tuple of Value
        What is computed, for `explain`.
    work : float
        Estimated nanoseconds on one thread, for the choice of a number of threads.
    """

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    ints: tuple[int, ...]
    values: tuple[Value, ...]
    work: float


class Operand(NamedTuple):
    """A strided view of a buffer: offset and strides in elements.

    The strides of an input are those that the plan's signature has.
    """

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class MatmulStep(NamedTuple):
    """``out = a @ b`` for matrices with leading axes; `out` is in C order.

    With `added`, a matrix in C order like `out`, it is ``out = added + scale * (a @ b)``. With
    `row`, a vector, it is ``out = a @ b + row``, and with `relu` what of that is not negative.
    """

    a: Operand
    b: Operand
    out: Operand
    values: tuple[Value, ...]
    added: Operand | None = None
    scale: float = 1.0
    row: Operand | None = None
    relu: bool = False

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What is read."""
        return tuple(o for o in (self.a, self.b, self.added, self.row) if o is not None)


class CallStep(NamedTuple):
    """Call a Python function on arrays; its results are copied into buffers."""

    function: Function
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    operands: tuple[Operand, ...]
    results: tuple[Buffer, ...]
    values: tuple[Value, ...]


Step = KernelStep | MatmulStep | CallStep


class Note(NamedTuple):
    """Why a value and one that reads it are in different steps, for `explain`."""

    first: Value
    second: Value
    reason: str


class Plan(NamedTuple):
    """An executable in the making.

    Parameters
    ----------
    steps : tuple of Step
    buffers : tuple of Buffer
    consts : tuple of ndarray
    outputs : tuple of Operand
        Where the results lie. Results that share a buffer with an input or with each
        other are copied by the runtime.
    arena : int
        Bytes of memory for temporaries.
    notes : tuple of Note
    """

    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    consts: tuple[np.ndarray, ...]
    outputs: tuple[Operand, ...]
    arena: int
    notes: tuple[Note, ...] = ()
