"""Statements of loop IR as C, but for what depends on who runs them."""

from __future__ import annotations

from adarray.compiler.ir.loopir import (
    Assign,
    Fail,
    Fold,
    For,
    If,
    Let,
    Local,
    Stmt,
    Store,
    Var,
    statements,
)
from adarray.compiler.print_c.values import ExpressionPrinter, OperandText, TextScope, fixed
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import CTYPES


class Statements(ExpressionPrinter):
    """Prints statements into the innermost scope; what runs them prints arrays, folds and loops."""

    dtypes: dict[str, str]

    # -- what depends on who runs them -----------------------------------------------------

    def array(self, s: Local) -> None:
        """Declare a local array."""
        raise NotImplementedError

    def store(self, s: Store) -> None:
        """Set an element of memory; loads of it know its value from here on."""
        raise NotImplementedError

    def fold(self, s: Fold) -> None:
        """Combine a value into a scalar or an element."""
        raise NotImplementedError

    def loop(self, s: For) -> None:
        """Print a loop."""
        raise NotImplementedError

    def fail(self, s: Fail) -> None:
        """Leave the kernel."""
        raise NotImplementedError

    # -- the others ------------------------------------------------------------------------

    def block(self, body: tuple[Stmt, ...]) -> None:
        """Print statements into the innermost scope."""
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """Print one statement."""
        if isinstance(s, Let):
            self.let(s)
        elif isinstance(s, Local):
            self.local(s)
        elif isinstance(s, Assign):
            self.line(f"{self.changing[s.name]} = {self.value(s.value)};")
            self.changed(s.name)
        elif isinstance(s, Store):
            self.store(s)
        elif isinstance(s, Fold):
            self.fold(s)
        elif isinstance(s, For):
            self.loop(s)
        elif isinstance(s, If):
            self.branch(s)
        else:
            self.fail(s)

    def let(self, s: Let) -> None:
        """Bind a name: to a constant, never to a scalar that may change."""
        operand = self.operand(s.value)
        if isinstance(s.value, Var) and s.value.name in self.changing:
            operand = self.named(f"copy {operand.key}", s.value.dtype, lambda: operand.text)
        self.bind(s.name, operand)

    def local(self, s: Local) -> None:
        """Declare a scalar or an array."""
        if s.size is not None:
            self.array(s)
            return
        c = self.fresh("s")
        self.dtypes[s.name] = s.dtype
        init = "0" if s.init is None else self.value(s.init)
        self.line(f"{CTYPES[s.dtype]} {c} = {init};")
        self.changing[s.name] = c
        self.changed(s.name)

    def branch(self, s: If) -> None:
        """Print a branch."""
        condition = self.value(s.condition)
        self.nested(f"if ({condition})", s.body)
        if s.orelse:
            self.nested("else", s.orelse)
        self.written(s)

    # -- text ------------------------------------------------------------------------------

    def nested(self, head: str, body: tuple[Stmt, ...], var: tuple[str, str] | None = None) -> None:
        """Print a block of its own below the line `head`."""
        scope = TextScope()
        self.scopes.append(scope)
        if var is not None:
            self.bind(var[0], fixed(var[1]))
        self.block(body)
        self.scopes.pop()
        self.braced(head, scope)

    def braced(self, head: str, scope: TextScope, end: str = "}") -> None:
        """Print the lines of a scope below `head`."""
        self.line(f"{head} {{")
        for text in scope.lines:
            self.line(text if text.startswith("#") else f"    {text}")
        self.line(end)

    def combined(self, combine: str, dtype: str, left: str, right: str) -> str:
        """Return the text that combines two values in a fold."""
        text = functions.text(combine, [left, right], [dtype, dtype], dtype, self.dialect)
        assert text is not None, combine
        return text

    # -- what is known of memory -----------------------------------------------------------

    def remember(self, buffer: str, index: str, value: OperandText) -> None:
        """Note the value of an element of memory."""
        if value.text == value.key:
            key = f"{buffer}[{index}]@{self.versions[buffer]}"
            self.scopes[-1].known[key] = value

    def written(self, s: Stmt) -> None:
        """Forget what loads knew of everything that `s` writes."""
        for t in statements((s,)):
            if isinstance(t, Assign):
                self.changed(t.name)
            elif isinstance(t, Store):
                self.changed(t.buffer)
            elif isinstance(t, Fold):
                self.changed(t.target)
