"""Expressions of loop IR as C statements: every distinct value is named once.

The caller says where statements go and how loads are written; nothing is decided here. Names are
given in order of appearance, so kernels that are equal up to names have the same text.

References
----------
- P. Briggs, K. D. Cooper, L. T. Simpson, "Value numbering", Software: Practice and Experience 27
  (1997), 701-724.
"""

from __future__ import annotations

from collections.abc import Callable

from adarray.compiler.ir.loopir import Apply, Const, Expr, Load, Var
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.dtypes import CTYPES
from adarray.compiler.scalars.expressions import C, Dialect, library_name

# Functions of indices: plain signed arithmetic, which compilers follow.
_INDEX = {"add": "+", "subtract": "-", "multiply": "*"}


class OperandText(tuple[str, str]):
    """A value: its C text, a name or a literal, and what tells it from others."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """C text."""
        return self[0]

    @property
    def key(self) -> str:
        """The text and, for what changes, a number that grows with every change."""
        return self[1]


def fixed(text: str) -> OperandText:
    """Return the operand of a name or literal whose value never changes."""
    return OperandText((text, text))


class TextScope:
    """One block of C text."""

    __slots__ = ("known", "lines", "named")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[str, OperandText] = {}  # by what computes it
        self.named: dict[str, OperandText] = {}  # by the name that loop IR gives it


class ExpressionPrinter:
    """Prints expressions into the innermost scope.

    Parameters
    ----------
    dialect : Dialect
    libmvec : int
        Vector functions to agree with in scalar code; 0 for none.
    """

    def __init__(self, dialect: Dialect = C, libmvec: int = 0) -> None:
        self.dialect = dialect
        self.libmvec = libmvec
        self.scopes = [TextScope()]
        self.versions: dict[str, int] = {}
        self.count = 0
        self.memory: dict[str, str] = {}  # C names of buffers and arrays
        self.changing: dict[str, str] = {}  # C names of scalars that are assigned
        # Hooks of vector loops: what depends on the loop variable, where the rest goes.
        self.outside: TextScope | None = None
        self.varying: set[str] = set()
        self.load: Callable[[Load], OperandText] | None = None
        self.calls = False  # whether vector functions are called in the loop

    # -- scopes ----------------------------------------------------------------------------

    def fresh(self, letter: str) -> str:
        """Return a new C name."""
        self.count += 1
        return f"{letter}{self.count}"

    def line(self, text: str) -> None:
        """Add a line to the innermost scope."""
        self.scopes[-1].lines.append(text)

    def bind(self, name: str, operand: OperandText) -> None:
        """Let `name` of loop IR stand for a value."""
        self.scopes[-1].named[name] = operand

    def lookup(self, name: str) -> OperandText:
        """Return the value that a name stands for."""
        if name in self.changing:
            text = self.changing[name]
            return OperandText((text, f"{text}@{self.versions.get(name, 0)}"))
        for scope in reversed(self.scopes):
            if name in scope.named:
                return scope.named[name]
        raise KeyError(name)

    def changed(self, name: str) -> None:
        """Note that memory or a scalar was written."""
        self.versions[name] = self.versions.get(name, 0) + 1

    def _known(self, key: str) -> OperandText | None:
        for scope in reversed(self.scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    # -- values ----------------------------------------------------------------------------

    def value(self, expr: Expr) -> str:
        """Return the name or literal of the value of `expr`, after printing what it takes."""
        return self.operand(expr).text

    def operand(self, expr: Expr) -> OperandText:
        """Return the value of `expr`."""
        done: dict[int, OperandText] = {}
        stack = [(expr, False)]
        while stack:
            e, ready = stack.pop()
            if id(e) in done:
                continue
            if isinstance(e, Apply) and not ready:
                stack.append((e, True))
                stack += [(a, False) for a in reversed(e.args)]
                continue
            done[id(e)] = self._one(e, done)
        return done[id(expr)]

    def _one(self, e: Expr, done: dict[int, OperandText]) -> OperandText:
        if isinstance(e, Const):
            return fixed(functions.number(e.value, e.dtype, self.dialect))
        if isinstance(e, Var):
            return self.lookup(e.name)
        if isinstance(e, Load):
            return self.load(e) if self.load else self.element(e)
        assert isinstance(e, Apply)
        return self.apply(e, [done[id(a)] for a in e.args])

    def apply(self, e: Apply, args: list[OperandText]) -> OperandText:
        """Name the value of a function."""
        dtypes = [a.dtype for a in e.args]
        key = f"{e.dtype} {e.name} {' '.join(dtypes)}: {', '.join(a.key for a in args)}"
        varies = self.outside is None or any(a.key in self.varying for a in args)

        def text_of() -> str:
            texts = [a.text for a in args]
            exact = not functions.is_vector_call(e.name, e.dtype, self.libmvec)
            if self.outside is not None and varies:
                chosen = self._in_vectors(e, args)
                if chosen is not None:
                    return chosen
            if exact or (self.outside is not None and varies):
                text = functions.text(e.name, texts, dtypes, e.dtype, self.dialect)
                assert text is not None, e
                return text
            called = library_name(FUNCTIONS[e.name], e.dtype, self.dialect)
            return f"adarray_one_{called}({', '.join(texts)})"

        return self.named(key, e.dtype, text_of, varies)

    def _in_vectors(self, e: Apply, args: list[OperandText]) -> str | None:
        """Return the text of a function that is printed otherwise in vector loops."""
        texts = [a.text for a in args]
        if e.name == "where":
            fixed_truth = args[0].key not in self.varying  # which gcc makes no vector of
            return self._selected(e.dtype, args) if self.calls or fixed_truth else None
        if e.name == "cast":
            return functions.wide_cast(texts[0], e.args[0].dtype, e.dtype) if self.calls else None
        return functions.by_lane(e.name, texts, e.dtype)

    def _selected(self, dtype: str, args: list[OperandText]) -> str | None:
        """Return the text of ``where`` in a vector loop, without a branch."""
        texts = [a.text for a in args]
        if dtype == "bool" or args[0].key in self.varying:
            return functions.selected(texts, dtype)
        mask = self.named(
            f"mask {args[0].key}", "int64", lambda: f"adarray_mask({texts[0]})", varies=False
        )
        return functions.selected([mask.text, *texts[1:]], dtype, mask=True)

    def named(
        self, key: str, dtype: str, text_of: Callable[[], str], varies: bool = True
    ) -> OperandText:
        """Return the value known as `key`; if there is none, print a constant for it.

        In vector loops, what does not vary is printed before the loop.
        """
        known = self._known(key)
        if known is not None:
            return known
        scope = self.scopes[-1] if varies or self.outside is None else self.outside
        text = text_of()
        name = self.fresh("t")
        scope.lines.append(f"const {CTYPES[dtype]} {name} = {text};")
        operand = scope.known[key] = fixed(name)
        if varies and self.outside is not None:
            self.varying.add(name)
        return operand

    def element(self, e: Load) -> OperandText:
        """Name an element of memory."""
        return self.read(e.dtype, e.buffer, self.index(e.index))

    def read(self, dtype: str, buffer: str, index: str, varies: bool = True) -> OperandText:
        """Name element `index` of a buffer."""
        key = f"{buffer}[{index}]@{self.versions.get(buffer, 0)}"
        test = " != 0" if dtype == "bool" else ""
        return self.named(key, dtype, lambda: f"{self.memory[buffer]}[{index}]{test}", varies)

    def index(self, expr: Expr) -> str:
        """Return an index as one text."""
        if isinstance(expr, Apply) and expr.dtype == "int64":
            if expr.name in _INDEX:
                left, right = (self.index(a) for a in expr.args)
                return f"({left} {_INDEX[expr.name]} {right})"
            if expr.name == "negative":
                return f"(-{self.index(expr.args[0])})"
            if expr.name in ("minimum", "maximum"):
                sign = "<" if expr.name == "minimum" else ">"
                left, right = (self.index(a) for a in expr.args)
                return f"({left} {sign} {right} ? {left} : {right})"
        return self.value(expr)
