"""Statements of threads' loop IR as lines of text; C and CUDA C differ in what they override."""

from __future__ import annotations

from adarray.compiler.ir.loopir import Assign, Const, Expr, For, If, Let, Local, Store
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    Comment,
    Pop,
    Push,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
)
from adarray.kernels.texts import CTYPES, STORED, Texts, number


class ThreadPrinter:
    """Prints statements.

    Attributes
    ----------
    lines : list of str
    """

    def __init__(self) -> None:
        self.text = Texts()
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self.depth + text if text else "")

    def nested(self, head: str, body: tuple[Stmt, ...]) -> None:
        """Print a block below the line `head`."""
        self.line(f"{head} {{")
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line("}")

    def block(self, body: tuple[Stmt, ...]) -> None:
        """Print statements."""
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """Print one statement."""
        if isinstance(s, Let):
            self.let(s.name, s.value.dtype, self.text(s.value))
        elif isinstance(s, Local):
            self.local(s)
        elif isinstance(s, Assign):
            self.line(f"{self.text.names.get(s.name, s.name)} = {self.text(s.value)};")
        elif isinstance(s, Store):
            self.line(f"{self.element(s.buffer, s.index)} = {self.text(s.value)};")
        elif isinstance(s, Atomic):
            self.atomic(s)
        elif isinstance(s, If):
            self.nested(f"if ({self.text(s.condition)})", s.body)
            if s.orelse:
                self.nested("else", s.orelse)
        elif isinstance(s, For):
            self.vector(s)
            head = f"int64_t {s.var} = {self.text(s.start)}; {s.var} < {self.text(s.stop, 11)}"
            self.nested(f"for ({head}; {s.var}++)", s.body)
        elif isinstance(s, While):
            self.nested(f"while ({self.text.names.get(s.condition, s.condition)})", s.body)
        elif isinstance(s, Barrier):
            self.barrier(s)
        elif isinstance(s, WarpOp):
            self.warp_op(s)
        elif isinstance(s, Push):
            self.push(s.value)
        elif isinstance(s, Pop):
            self.pop(s)
        elif isinstance(s, Comment):
            self.line(f"// {s.text}")
        else:
            raise AssertionError(s)

    def vector(self, s: For) -> None:
        """Print what lets a compiler add up in any order."""

    def tables(self, kernel: ThreadKernel) -> None:
        """Print arrays of constants."""
        for t in kernel.tables:
            values = ", ".join(number(Const(t.dtype, v)) for v in t.values)
            self.line(f"const {STORED[t.dtype]} {t.name}[{len(t.values)}] = {{{values}}};")

    def let(self, name: str, dtype: str, value: str) -> None:
        """Print the declaration of a name that does not change."""
        if name in self.text.names:
            self.line(f"{self.text.names[name]} = {value};")
        else:
            self.line(f"const {CTYPES[dtype]} {name} = {value};")

    def local(self, s: Local) -> None:
        """Print the declaration of a variable or an array."""
        known = self.text.names.get(s.name)
        if s.size is not None:
            assert isinstance(s.size, Const)
            if known is None:
                self.line(f"{STORED[s.dtype]} {s.name}[{s.size.value}];")
            if s.init is not None:
                name = known or s.name
                self.line(f"for (int32_t i_ = 0; i_ < {s.size.value}; i_++) {name}[i_] = 0;")
            return
        init = "0" if s.init is None else self.text(s.init)
        self.line(f"{known} = {init};" if known else f"{CTYPES[s.dtype]} {s.name} = {init};")

    def element(self, buffer: str, index: Expr) -> str:
        """Return the text of an element."""
        return f"{self.text.memory(buffer)}[{self.text(index)}]"

    def combined(self, s: Atomic, place: str) -> str:
        """Return what an atomic operation sets an element to."""
        value = self.text(s.value, 13)
        if s.combine == "add":
            return f"{place} + {value}"
        return f"{place} {'<' if s.combine == 'minimum' else '>'} {value} ? {place} : {value}"

    def barrier(self, s: Barrier) -> None:
        """Print a barrier."""
        raise NotImplementedError

    def warp_op(self, s: WarpOp) -> None:
        """Print an operation of a warp."""
        raise NotImplementedError

    def atomic(self, s: Atomic) -> None:
        """Print an atomic operation."""
        raise NotImplementedError

    def push(self, value: Expr) -> None:
        """Print how a value gets onto the tape."""
        raise NotImplementedError

    def pop(self, s: Pop) -> None:
        """Print how a value comes off the tape."""
        raise NotImplementedError
