"""Storage: which memory holds the values of a plan."""

from __future__ import annotations

import numpy as np

from adarray.compiler.ir.domains import Access, linear
from adarray.compiler.ir.plan import Buffer, Operand
from adarray.compiler.ir.primitives import ConstantArray, ProgramInput
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.uses import Uses


class Storage:
    """The buffers of a plan in the making.

    Parameters
    ----------
    uses : Uses

    Attributes
    ----------
    buffers : dict
        Buffer of each value that lies in memory.
    all_buffers : list of Buffer
        All of them, in the order in which they were added.
    consts : list of ndarray
    inside : dict
        By buffer that is a stretch of another one: that one, and where in it the stretch
        begins, in bytes.
    divided : set of Buffer
        Those that others are stretches of.
    """

    def __init__(self, uses: Uses) -> None:
        self.uses = uses
        self.buffers: dict[Value, Buffer] = {}
        self.all_buffers: list[Buffer] = []
        self.consts: list[np.ndarray] = []
        self.inside: dict[Buffer, tuple[Buffer, int]] = {}
        self.divided: set[Buffer] = set()

    def memory_of(self, operand: Value) -> Value:
        """Return the value whose memory a library call reads as its operand."""
        root = self.uses.access(operand).root
        return operand if self.uses.is_inline(root) else root

    def add(self, value: Value, buffer: Buffer) -> Buffer:
        """Let a buffer hold a value."""
        self.buffers[value] = buffer
        self.all_buffers.append(buffer)
        return buffer

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer that holds a value."""
        known = self.buffers.get(value)
        if known is not None:
            return known
        if isinstance(value.primitive, ConstantArray):
            array = value.primitive.value
            self.consts.append(array)
            buffer = Buffer("const", value.dtype, value.size, len(self.consts) - 1)
            return self.add(value, buffer)
        return self.add(value, Buffer("temp", value.dtype, value.size))

    def operand(self, access: Access, shape: tuple[int, ...]) -> Operand:
        """Return an operand in the memory of a root."""
        root = access.root
        if isinstance(root.primitive, ProgramInput) and access.maps is not None:
            at = linear(access.maps, root.primitive.strides)
            coefs = dict(at.terms)
            strides = tuple(coefs.get(a, 0) for a in range(len(shape)))
            return Operand(self.buffer(root), at.const, shape, strides)
        return Operand(self.buffer(root), access.offset, shape, access.strides)

    def operand_of(self, value: Value) -> Operand:
        """Return the operand of a value that lies in memory, or is a view of one that does."""
        if value in self.buffers or isinstance(value.primitive, ConstantArray):
            strides = (
                value.primitive.strides
                if isinstance(value.primitive, ProgramInput)
                else c_strides(value.shape)
            )
            return Operand(self.buffer(value), 0, value.shape, strides)
        return self.operand(self.uses.access(value), value.shape)

    def memory_operand(self, value: Value) -> Operand:
        """Return what a library call reads as its operand."""
        memory = self.memory_of(value)
        if memory is value:
            return self.operand_of(value)
        return self.operand(self.uses.access(value), value.shape)
