"""Expressions and statements of loop IR as CUDA C, whatever the schedule is.

`LoopPrinters`, which a `CudaPrinter` gets, print who runs which iterations, and where arrays lie.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

from adarray.compiler.ir.loopir import Apply, Fail, Fold, For, Local, Stmt, Store, Var
from adarray.compiler.print_c.statements import Statements
from adarray.compiler.print_c.values import OperandText, fixed
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.scalars.expressions import Dialect
from adarray.compiler.schedule.gpu.loops import index_parts
from adarray.compiler.schedule.gpu.outline import Outline
from adarray.compiler.schedule.gpu.schedules import FlatLoops, SheetRows

# What a GPU makes of floats beyond an integer's range is what processors of Arm make of them.
_SATURATES = platform.machine().lower() in ("x86_64", "amd64")
CUDA = Dialect(bool_type="bool", versions="library", saturates=_SATURATES)
CUDA_FAR = CUDA._replace(far=True)  # with calls out of line


@dataclass(frozen=True)
class LoopPrinters:
    """What prints loops and local arrays; a kernel without them needs none."""

    vector: Callable[[For], None]
    serial: Callable[[For], None] | None = None
    parallel: Callable[[For], None] | None = None
    array: Callable[[Local], None] | None = None


class CudaPrinter(Statements):
    """Prints one kernel by its outline.

    Attributes
    ----------
    counter : str
        The type that counts iterations.
    inside : bool
        Whether a vector loop's iteration is being printed.
    iteration : tuple of str
        The variable of the vector loop that is being printed, and the names in it.
    rooms : int
        Parts of folds that a block combines together.
    """

    def __init__(self, outline: Outline) -> None:
        super().__init__(CUDA_FAR if outline.scalars.far else CUDA)
        self.outline = outline
        self.schedule = outline.schedule
        self.kernel = outline.kernel
        self.dtypes = {b.name: b.dtype for b in self.kernel.buffers}
        self.outs = {b.name for b in self.kernel.buffers if b.access != "in"}
        self.counter = "int" if self.schedule.narrow else "int64_t"
        self.inside = False
        self.iteration: tuple[str, ...] = ()
        self.rooms = 0
        self.parts: LoopPrinters | None = None
        self.parts_of_indices = index_parts(self.kernel)
        for i, b in enumerate(self.kernel.buffers):
            self.memory[b.name] = f"b{i}"
        for i, n in enumerate(self.kernel.ints):
            self.bind(n, fixed(f"n{i}"))

    # -- values ----------------------------------------------------------------------------

    def named(
        self, key: str, dtype: str, text_of: Callable[[], str], varies: bool = True
    ) -> OperandText:
        """Return the value known as `key`; if there is none, print a constant for it."""
        if dtype != "int64" or not self.schedule.small:
            return super().named(key, dtype, text_of, varies)
        operand = self._known(key)
        if operand is None:
            text, name = text_of(), self.fresh("t")
            self.line(f"const int {name} = (int)({text});")
            operand = self.scopes[-1].known[key] = fixed(name)
        return operand

    def apply(self, e: Apply, args: list[OperandText]) -> OperandText:
        """Name the value of a function; a sine and a cosine of one operand come together."""
        scalars = self.outline.scalars
        special = self._compared(e, args) or self._quotient(e, args) or self._part(e, args)
        if special is not None:
            return special
        own = None if scalars.is_quotient(e) else scalars.careful(e)
        if e.name not in ("sin", "cos") or (e.dtype, e.args) not in scalars.pairs:
            if own is None:
                return super().apply(e, args)
            text = f"adarray_{own}(care, {args[-1].text})"
            return self.named(f"{own}: {args[-1].key}", e.dtype, lambda: text)
        return self._sine_and_cosine(e, args[0], own is not None)

    def _sine_and_cosine(self, e: Apply, arg: OperandText, is_careful: bool) -> OperandText:
        keys = [f"{e.dtype} {n} {e.dtype}: {arg.key}" for n in ("sin", "cos")]
        if self._known(keys[0]) is None:
            kind, sine, cosine = STORED[e.dtype], self.fresh("t"), self.fresh("t")
            suffix = self.dialect.library_suffix[e.dtype]
            far = "adarray_far_" if self.outline.scalars.far else ""
            call = "adarray_sincosf(care, " if is_careful else f"{far}sincos{suffix}("
            self.line(f"{kind} {sine}, {cosine};")
            self.line(f"{call}{arg.text}, &{sine}, &{cosine});")
            for key, name in zip(keys, (sine, cosine), strict=True):
                self.scopes[-1].known[key] = fixed(name)
        operand = self._known(keys[e.name == "cos"])
        assert operand is not None
        return operand

    def _quotient(self, e: Apply, args: list[OperandText]) -> OperandText | None:
        """Name a quotient by a number that is the same in all iterations."""
        if not self.inside or not self.outline.scalars.is_quotient(e):
            return None
        key, before = f"divisor: {args[1].key}", self.scopes[-2]
        reciprocal = self._known(key)
        if reciprocal is None:
            name = self.fresh("d")
            before.lines.append(f"const float {name} = adarray_divisor({args[1].text});")
            reciprocal = before.known[key] = fixed(name)
        text = f"adarray_quotientf(care, {args[0].text}, {args[1].text}, {reciprocal.text})"
        return self.named(f"quotient: {args[0].key} {args[1].key}", e.dtype, lambda: text)

    def _part(self, e: Apply, args: list[OperandText]) -> OperandText | None:
        """Name the index of one of the loops that became one."""
        if e not in self.parts_of_indices:
            return None
        kind = "uint32_t" if self.schedule.narrow else "uint64_t"
        text = f"(int64_t)(({kind}){args[0].text} / ({kind}){args[1].text})"
        return self.named(f"part: {args[0].key} {args[1].key}", e.dtype, lambda: text)

    def _compared(self, e: Apply, args: list[OperandText]) -> OperandText | None:
        """Compare the number of an iteration with what is the same in all of them, in 32 bits."""
        if e.name not in ("equal", "not_equal") or not self.iteration or not self.schedule.narrow:
            return None
        own = self.iteration[0]
        for k in (0, 1):
            other = e.args[1 - k]
            same = isinstance(other, Var) and other.name not in self.iteration
            if e.args[k] != Var("int64", own) or not same:
                continue
            key = f"in 32 bits: {args[1 - k].key}"
            operand = self._known(key)
            if operand is None:
                name, before = self.fresh("c"), self.scopes[-2]
                before.lines.append(f"const int {name} = adarray_narrow({args[1 - k].text});")
                operand = before.known[key] = fixed(name)
            sign, name = "==" if e.name == "equal" else "!=", self.fresh("t")
            self.line(f"const _Bool {name} = (int){args[k].text} {sign} {operand.text};")
            return fixed(name)
        return None

    # -- folds -----------------------------------------------------------------------------

    def combiner(self, combine: str, dtype: str) -> str:
        """Return a function that combines two values of a fold, as C++."""
        kind, text = STORED[dtype], self.combined(combine, dtype, "a", "b")
        return f"[](const {kind} a, const {kind} b) -> {kind} {{ return {text}; }}"

    def combined(self, combine: str, dtype: str, left: str, right: str) -> str:
        """Return the text that combines two values in a fold; zeros there have no order."""
        if dtype == "float32" and combine in ("maximum", "minimum"):
            return f"adarray_{combine}_of({left}, {right})"
        return super().combined(combine, dtype, left, right)

    # -- statements ------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Print one statement, after waiting for what other threads of the group did."""
        if not self.inside and s in self.outline.waits:
            self.wait()
        super().statement(s)

    def wait(self) -> None:
        """Print a barrier for the threads of a group."""
        self.line(f"adarray_sync<{self.schedule.group}>();")

    def fail(self, s: Fail) -> None:
        """Leave the function of the iteration, or the kernel."""
        who = "lane"
        if isinstance(self.schedule, FlatLoops):
            who = "threadIdx.x"
        elif isinstance(self.schedule, SheetRows):  # a block has some lanes of a row alone
            who = f"threadIdx.x % {self.schedule.group}"
        self.line(f"if ({who} == 0) atomicExch(fail, {s.code});")
        self.line("return;")

    def store(self, s: Store) -> None:
        """Set an element: in a vector loop every iteration its own, else the first thread."""
        value, index = self.operand(s.value), self.index(s.index)
        only = "" if self.inside or self.schedule.group == 1 else "if (lane == 0) "
        self.line(f"{only}{self.memory[s.buffer]}[{index}] = {value.text};")
        self.changed(s.buffer)
        self.remember(s.buffer, index, value)

    def fold(self, s: Fold) -> None:
        """Combine a value into a scalar, which all threads of a group have, or an element."""
        value = self.value(s.value)
        shared = s.index is not None or s.target in {t.name for t in self.kernel.totals}
        only = "if (lane == 0) " if shared and not self.inside else ""
        if s.target in self.outs:
            assert s.index is not None
            assert s.combine in ("add", "maximum")
            place = f"{self.memory[s.target]} + {self.index(s.index)}"
            kind = f"<{STORED[s.value.dtype]}>" if s.combine == "add" else ""
            call = f"adarray_atomic_{s.combine}{kind}({place}, {value});"
            if s.before:
                assert self.schedule.group == 1
                call = f"{self.changing[s.before]} = {call}"
                self.changed(s.before)
            self.line(f"{only}{call}")
            return
        if s.index is not None:
            place = f"{self.memory[s.target]}[{self.index(s.index)}]"
        else:
            place = self.changing[s.target]
        self.line(f"{only}{place} = {self.combined(s.combine, s.value.dtype, place, value)};")
        self.changed(s.target)

    def array(self, s: Local) -> None:
        """Declare a local array."""
        assert self.parts is not None
        assert self.parts.array is not None
        self.parts.array(s)

    def loop(self, s: For) -> None:
        """Print a loop."""
        assert self.parts is not None
        if s.kind == "vector":
            self.written(s)
            self.parts.vector(s)
        elif s.kind == "parallel":
            assert self.parts.parallel is not None
            self.parts.parallel(s)
        else:
            assert self.parts.serial is not None
            self.parts.serial(s)
        self.written(s)
