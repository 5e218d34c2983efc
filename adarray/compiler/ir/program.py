"""Programs: what `jit` optimises and compiles.

A `Program` is a list of `Value`, each computed by one primitive (`adarray.compiler.ir.primitives`)
from values before it. Values are pure: nothing is written in place here. Every value is,
logically, an array in C order; where its elements lie in memory is decided later.

References
----------
- R. Cytron, J. Ferrante, B. K. Rosen, M. N. Wegman, F. K. Zadeck, "Efficiently computing static
  single assignment form and the control dependence graph", ACM Trans. Program. Lang. Syst. 13
  (1991), 451-490.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from adarray.base.recording import Call
from adarray.compiler.ir.primitives import DType, Primitive, Shape, mnemonic, shown


class Value:
    """One array of a program. Immutable; compared by identity, so that it can be a key.

    Attributes
    ----------
    primitive : Primitive
        What computes it, with its parameters.
    args : tuple of Value
        Its operands.
    shape : tuple of int
    dtype : numpy.dtype
    origin : Call or None
        The recorded call that it came from (operation, file and line), for `explain`.
    """

    __slots__ = ("args", "dtype", "origin", "primitive", "shape")

    def __init__(
        self,
        primitive: Primitive,
        args: tuple[Value, ...],
        shape: Shape,
        dtype: npt.DTypeLike,
        origin: Call | None = None,
    ) -> None:
        self.primitive = primitive
        self.args = args
        self.shape = shape
        self.dtype: DType = np.dtype(dtype)
        self.origin = origin

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory."""
        return self.size * int(self.dtype.itemsize)

    def with_args(self, args: tuple[Value, ...]) -> Value:
        """Return the value that the same primitive makes of other operands of these shapes."""
        return Value(self.primitive, args, self.shape, self.dtype, self.origin)

    def __repr__(self) -> str:
        p = self.primitive
        what = getattr(p, "name", None) or getattr(p, "combine", None) or ""
        return f"<{mnemonic(p)}{' ' if what else ''}{what} {self.dtype}{list(self.shape)}>"


class Program:
    """Values in an order in which they can be computed.

    Attributes
    ----------
    inputs : list of Value
        Made by `ProgramInput`, by index; also those that nothing reads.
    values : list of Value
        All values, operands before their users, inputs included.
    outputs : list of Value
        What the program returns; a value may stand here more than once.
    apart : mapping of Value to int
        Values that only kernels of their own compute, with those of the same number.
    """

    __slots__ = ("apart", "inputs", "outputs", "values")

    def __init__(
        self, inputs: Iterable[Value], values: Iterable[Value], outputs: Iterable[Value]
    ) -> None:
        self.inputs = list(inputs)
        self.values = list(values)
        self.outputs = list(outputs)
        self.apart: Mapping[Value, int] = {}

    def __repr__(self) -> str:
        return f"<program of {len(self.values)} values>"


@lru_cache(1 << 14)
def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of an array of `shape` in C order."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def text(program: Program) -> str:
    """Return a program as lines ``v3 float64[10] = map sin v1``, for people and tests."""
    names = {v: f"v{i}" for i, v in enumerate(program.values)}
    lines = []
    for v, name in names.items():
        definition = " ".join([shown(v.primitive), *(names[a] for a in v.args)])
        lines.append(f"{name} {v.dtype}{list(v.shape)} = {definition}")
    lines.append(f"return {', '.join(names[v] for v in program.outputs)}")
    return "\n".join(lines)
