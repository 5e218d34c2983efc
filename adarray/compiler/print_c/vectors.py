"""Vector loops of loop IR as C, in the form that the schedule chose.

References
----------
- R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001,
  chapters 2 and 5.
- N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993), 783-799
  (sums of lanes and leaves).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adarray.compiler.ir.affine import ONE, ZERO, at, slope
from adarray.compiler.ir.identity import IdentitySet
from adarray.compiler.ir.loopir import Apply, Const, Expr, Fold, For, Let, Load, Store, Var
from adarray.compiler.print_c.values import OperandText, TextScope, fixed
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import CTYPES, FLOATS, MOVED, SIZES, STORED, SUFFIX
from adarray.compiler.schedule.prefetch import ROWS
from adarray.compiler.schedule.vectors import VectorLoop, lane_folds

if TYPE_CHECKING:
    from adarray.compiler.print_c.printer import CPrinter


COMPARISONS = {
    "greater_equal": ">=", "greater": ">", "less": "<", "less_equal": "<=",
    "equal": "==", "not_equal": "!=",
}  # fmt: skip
Lane = tuple[Fold, str, str]  # a fold, its accumulator, its target


class VectorPrinter:
    """Prints one vector loop.

    Parameters
    ----------
    printer : CPrinter
    loop : For
    form : VectorLoop
    """

    def __init__(self, printer: CPrinter, loop: For, form: VectorLoop) -> None:
        self.p = printer
        self.loop = loop
        self.form = form
        self.padded = form.form == "padded"
        self.lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
        self.stored = {s.buffer for s in loop.body if isinstance(s, Store)}
        self.stored |= {s.target for s in loop.body if isinstance(s, Fold)}
        self.lane_folds = IdentitySet(lane_folds(loop))
        self.lanes: list[Lane] = []
        self.var = printer.fresh("v")
        # Of padded loops: lines of a block before the iterations, for its last one, after it.
        self.head: list[str] = []
        self.swap: list[str] = []
        self.tail: list[str] = []
        self.flush: list[str] = []  # after each leaf
        self.pointers: dict[str, str] = {}

    def print(self, start: str, stop: str) -> None:
        """Print the loop from `start` to `stop`."""
        p = self.p
        if self._fills(start, stop):
            return
        low, high = p.fresh("i"), p.fresh("e")
        p.line(f"const int64_t {low} = {start}, {high} = {stop};")
        outside, inside = TextScope(), TextScope()
        p.scopes += [outside, inside]
        p.outside, p.varying, p.load, p.calls = outside, {self.var}, self._load, self.padded
        p.bind(self.loop.var, fixed(self.var))
        self.first = p.fresh("i") if self.form.leaf else ""
        for s in self.loop.body:
            if isinstance(s, Let):
                if not self._compares_place(s):
                    p.let(s)
            elif isinstance(s, Store):
                self._store(s)
            elif isinstance(s, Fold) and s in self.lane_folds:
                self._lane(s)
            elif isinstance(s, Fold):
                self._fold(s)
        self._fetch()
        p.scopes.pop()
        p.scopes.pop()
        p.outside, p.varying, p.load, p.calls = None, set(), None, False
        self._assemble(outside.lines, inside.lines, low, high)

    def _fills(self, start: str, stop: str) -> bool:
        """Print a call that sets a range of elements to one value, if that is the loop."""
        p, body = self.p, self.loop.body
        if len(body) != 1 or not isinstance(body[0], Store):
            return False
        store = body[0]
        if not isinstance(store.value, Const) or store.index != Var("int64", self.loop.var):
            return False
        suffix, value = MOVED[p.dtypes[store.buffer]], p.value(store.value)
        place = f"{p.memory[store.buffer]} + {start}"
        p.line(f"adarray_fill_{suffix}({place}, {stop} - {start}, {value});")
        return True

    def _compares_place(self, s: Let) -> bool:
        """Print a comparison of the loop's variable with a number as one of places in the block.

        Those fit the lanes of float32, int64 takes twice as many and conversions of masks.
        """
        p, e = self.p, s.value
        if not (self.padded and isinstance(e, Apply) and e.name in COMPARISONS):
            return False
        if e.args[0] != Var("int64", self.loop.var) or not isinstance(e.args[1], Const):
            return False
        number = p.value(e.args[1])
        place = self.pointers.get(f"place {number}")
        if place is None:
            place = self.pointers[f"place {number}"] = p.fresh("p")
            distance = f"{number} - {self.first_of_block}"
            self.head.append(f"const int {place} = adarray_place({distance});")
        if "places" not in self.pointers:
            self.pointers["places"] = at = p.fresh("l")
            p.line(f"const int {at} = l < m ? l : m - 1;")
        text = f"{self.pointers['places']} {COMPARISONS[e.name]} {place}"
        p.bind(s.name, p.named(f"bool {text}", "bool", lambda: text))
        return True

    # -- memory ----------------------------------------------------------------------------

    def _load(self, e: Load) -> OperandText:
        p = self.p
        step = slope(e.index, self.loop.var, self.lets)
        if step == ZERO:
            varies = e.buffer in self.stored
            index = p.index(e.index)
            return p.read(e.dtype, e.buffer, index, varies)
        if not self.padded or step is None:
            return p.element(e)
        return self._read(e.dtype, e.buffer, e.index, step)

    def _read(self, dtype: str, buffer: str, index: Expr, step: Expr) -> OperandText:
        """Read through a pointer, which the last block redirects to its padded copy."""
        p = self.p
        text, stride = self._place(index, step, self.first_of_block)
        key = f"{buffer}[{text}]@{p.versions.get(buffer, 0)}"

        def text_of() -> str:
            q = self._input(dtype, buffer, text, stride)
            return q + (" != 0" if dtype == "bool" else "")

        return p.named(key, dtype, text_of)

    def _place(self, index: Expr, step: Expr, place: str) -> tuple[str, str]:
        """Return the index in the pass of C name `place`, and the stride; empty if 1."""
        p = self.p
        first = f"{self.var} first"
        p.scopes[-1].named[first] = fixed(place)
        there = at(index, self.loop.var, Var("int64", first), self.lets)
        return p.index(there), "" if step == ONE else p.index(step)

    @property
    def first_of_block(self) -> str:
        """Name of the block's first iteration."""
        return f"{self.var}b"

    def _input(self, dtype: str, buffer: str, index: str, stride: str) -> str:
        """Return the text of the element of an iteration, read through a pointer."""
        known = self.pointers.get(f"in {buffer}[{index}]")
        if known is not None:
            return known
        p, kind = self.p, STORED[dtype]
        q, d = p.fresh("q"), p.fresh("d")
        self.head.append(f"const {kind} *{q} = {p.memory[buffer]} + {index};")
        element, step = f"{q}[l]", "1"
        if stride:
            step = p.fresh("k")
            self.head.append(f"int64_t {step} = {stride};")
            element = f"{q}[l * {step}]"
        pad = f"adarray_pad_{MOVED[dtype]}({d}, {q}, {step}, m, {self.form.block})"
        self.swap.append(f"{q} = {pad};")
        if stride:
            self.swap.append(f"{step} = 1;")
        self.p.scopes[-2].lines.append(f"{kind} {d}[{self.form.block}];")
        self.pointers[f"in {buffer}[{index}]"] = element
        return element

    def _output(self, dtype: str, buffer: str, index: str, stride: str) -> str:
        """Return the text of the element of an iteration, written through a pointer."""
        known = self.pointers.get(f"out {buffer}[{index}]")
        if known is not None:
            return known
        p, kind = self.p, STORED[dtype]
        q, r, d = p.fresh("q"), p.fresh("r"), p.fresh("d")
        self.head.append(f"{kind} *const {r} = {p.memory[buffer]} + {index}, *{q} = {r};")
        self.swap.append(f"{q} = {d};")
        element = f"{q}[l]"
        if stride:
            step = p.fresh("k")
            self.head.append(f"int64_t {step} = {stride};")
            self.swap.append(f"{step} = 1;")
            element = f"{q}[l * {step}]"
        self.tail.append(f"adarray_unpad_{MOVED[dtype]}({r}, {d}, {stride or 1}, m);")
        self.p.scopes[-2].lines.append(f"{kind} {d}[{self.form.block}];")
        self.pointers[f"out {buffer}[{index}]"] = element
        return element

    def _staged(self, s: Store) -> str:
        """Return the text of the element of an iteration in memory that is then streamed."""
        p, kind = self.p, STORED[s.value.dtype]
        w, room = p.fresh("w"), self.form.leaf + self.form.block
        p.scopes[-2].lines.append(f"{kind} {w}[{room}] __attribute__((aligned(64)));")
        index, _ = self._place(s.index, ONE, self.first)
        place = f"{p.memory[s.buffer]} + {index}"
        self.flush.append(f"adarray_stream({place}, {w}, ({{n}}) * (int64_t)sizeof *{w});")
        if not self.padded:
            return f"{w}[{self.var} - {self.first}]"
        # Padded iterations write beyond what is streamed.
        q = p.fresh("q")
        self.head.append(f"{kind} *const {q} = {w} + ({self.first_of_block} - {self.first});")
        return f"{q}[l]"

    def _fetch(self) -> None:
        """Ask for what the loop's ``ahead`` reads, in every block."""
        p = self.p
        for load, step in self.form.ahead:
            text, _ = self._place(load.index, ONE, self.first_of_block)
            place = f"{p.memory[load.buffer]} + {text} + {ROWS} * {p.index(step)}"
            size = self.form.block * SIZES[load.dtype]
            self.head += [
                f"__builtin_prefetch((const char *)({place}) + {k}, 0, 2);"
                for k in range(0, size, 64)
            ]

    def _store(self, s: Store) -> None:
        p = self.p
        value = p.operand(s.value)
        step = slope(s.index, self.loop.var, self.lets)
        if self.form.stream and s.buffer in p.scheduled.streamed and step == ONE:
            index = p.index(s.index)
            p.line(f"{self._staged(s)} = {value.text};")
        elif not self.padded or step is None or step == ZERO:
            index = p.index(s.index)
            p.line(f"{p.memory[s.buffer]}[{index}] = {value.text};")
        else:
            index, stride = self._place(s.index, step, self.first_of_block)
            element = self._output(p.dtypes[s.buffer], s.buffer, index, stride)
            p.line(f"{element} = {value.text};")
        p.changed(s.buffer)
        p.remember(s.buffer, index, value)

    # -- folds -----------------------------------------------------------------------------

    def _fold(self, s: Fold) -> None:
        """Combine into an element that belongs to the pass alone."""
        p = self.p
        assert s.index is not None
        value, dtype = p.value(s.value), s.value.dtype
        step = slope(s.index, self.loop.var, self.lets)
        if not self.padded or step is None:
            place = f"{p.memory[s.target]}[{p.index(s.index)}]"
            p.line(f"{place} = {p.combined(s.combine, dtype, place, value)};")
        else:
            old = self._read(dtype, s.target, s.index, step).text
            index, stride = self._place(s.index, step, self.first_of_block)
            element = self._output(dtype, s.target, index, stride)
            p.line(f"{element} = {p.combined(s.combine, dtype, old, value)};")
        p.changed(s.target)

    def _lane(self, s: Fold) -> None:
        """Combine into the accumulator of the iteration's lane."""
        p = self.p
        value, dtype = p.value(s.value), s.value.dtype
        a = p.fresh("a")
        if dtype == "bool":
            sign = "&" if self._kind(s)[1] == "minimum" else "|"
            p.line(f"{a}[l] = {a}[l] {sign} ({value} ? 1 : 0);")
        else:
            p.line(f"{a}[l] = {p.combined(s.combine, dtype, f'{a}[l]', value)};")
        if self.padded and s.combine in ("add", "multiply") and dtype != "bool":
            # Lanes of padded iterations get their accumulators back. A condition in the loop
            # would do too, but compilers move calls into it.
            size = self.form.block
            self.swap.append(f"memcpy({a}k, {a}, sizeof {a});")
            self.tail.append(f"adarray_unpad_{MOVED[dtype]}({a} + m, {a}k + m, 1, {size} - m);")
            p.scopes[-2].lines.append(f"{STORED[dtype]} {a}k[{size}];")
        if s.index is None:
            place = p.changing[s.target]
        else:
            place = f"{p.memory[s.target]}[{p.index(s.index)}]"
        self.lanes.append((s, a, place))

    def _kind(self, s: Fold) -> tuple[str, str]:
        """Return dtype and function of the accumulators of a fold.

        Truth values are 0 and 1 as wide as numbers: narrow ones would keep loops scalar.
        """
        if s.value.dtype != "bool":
            return s.value.dtype, s.combine
        least = s.combine in ("logical_and", "multiply", "minimum")
        wide = "int64" if self.padded and self.form.block == 8 else "int32"
        return wide, "minimum" if least else "maximum"

    def _start(self, lanes: list[Lane]) -> list[str]:
        """Return lines that set accumulators."""
        lines = []
        for s, a, _ in lanes:
            value = functions.neutral(s.combine, s.value.dtype)
            lines.append(f"for (int l = 0; l < {self.form.block}; l++) {a}[l] = {value};")
        return lines

    def _finish(self, lanes: list[Lane]) -> list[str]:
        """Return lines that combine accumulators, as a tree, into ``a..r``."""
        lines = []
        for s, a, _ in lanes:
            dtype, combine = self._kind(s)
            # A copy, or the accumulators could not stay in registers.
            lines.append(f"{STORED[dtype]} {a}c[{self.form.block}];")
            lines.append(f"for (int l = 0; l < {self.form.block}; l++) {a}c[l] = {a}[l];")
            call = f"{functions.folder('lanes', combine, dtype)}({a}c, {self.form.block})"
            test = " != 0" if s.value.dtype == "bool" else ""
            lines.append(f"const {CTYPES[s.value.dtype]} {a}r = {call}{test};")
        return lines

    # -- the text --------------------------------------------------------------------------

    def _assemble(self, outside: list[str], inside: list[str], low: str, high: str) -> None:
        p, form = self.p, self.form
        p.line(f"if ({low} < {high}) {{")
        lines = list(outside)
        for s, a, _ in self.lanes:
            if not self._is_carried(s):
                lines.append(self._declared(s, a))
        if form.leaf:
            lines += self._leaves(inside, low, high)
        else:
            passes = self._passes(inside, low, high)
            lines += self._start(self.lanes) + passes + self._finish(self.lanes)
            lines += [self._deliver(s, place, f"{a}r") for s, a, place in self.lanes]
        for text in lines:
            p.line(text if text.startswith("#") else f"    {text}")
        p.line("}")

    def _leaves(self, inside: list[str], low: str, high: str) -> list[str]:
        """Return the loop over leaves, whose sums are added pairwise."""
        p, leaf = self.p, self.form.leaf
        first, last = self.first, p.fresh("e")
        before, after, end = [], [], []
        carried = [x for x in self.lanes if self._is_carried(x[0])]
        lanes = [x for x in self.lanes if not self._is_carried(x[0])]
        for s, a, place in lanes:
            suffix, pairwise = SUFFIX.get(s.value.dtype, ""), s.combine == "add"
            if not (pairwise and s.value.dtype in FLOATS):
                before.append(
                    f"{CTYPES[s.value.dtype]} {a}t = {functions.neutral(s.combine, s.value.dtype)};"
                )
                text = p.combined(s.combine, s.value.dtype, f"{a}t", f"{a}r")
                after.append(f"{a}t = {text};")
                end.append(self._deliver(s, place, f"{a}t"))
            else:
                before.append(f"adarray_pairs_{suffix} {a}t;")
                before.append(f"adarray_pairs_start_{suffix}(&{a}t);")
                after.append(f"adarray_pairs_push_{suffix}(&{a}t, {a}r);")
                end.append(self._deliver(s, place, f"adarray_pairs_sum_{suffix}(&{a}t)"))
        inner = [f"const int64_t {last} = {high} - {first} < {leaf} ? {high} : {first} + {leaf};"]
        passes = self._passes(inside, first, last)
        inner += self._start(lanes) + passes + self._finish(lanes) + after
        if carried:
            inner += self._carry(carried, f"{last} - {first}")
        inner += [text.format(n=f"{last} - {first}") for text in self.flush]
        head = f"for (int64_t {first} = {low}; {first} < {high}; {first} += {leaf}) {{"
        return [*before, head, *_deeper(inner), "}", *end]

    def _is_carried(self, s: Fold) -> bool:
        """Whether the lanes of a fold go on from row to row: those of sums that are totals."""
        return self.form.leaf > 0 and s.target in self.p.pairs

    def _declared(self, s: Fold, a: str) -> str:
        return f"{STORED[self._kind(s)[0]]} {a}[{self.form.block}];"

    def _carry(self, lanes: list[Lane], count: str) -> list[str]:
        """Return lines that add lanes to totals, once they have the terms of a leaf."""
        p = self.p
        terms = p.fresh("c")
        add = self._finish(lanes)
        add += [self._deliver(s, place, f"{a}r") for s, a, place in lanes]
        for s, a, place in lanes:
            end = [*self._finish([(s, a, place)]), self._deliver(s, place, f"{a}r")]
            p.carry(s.target, [self._declared(s, a), *self._start([(s, a, place)])], end)
        p.carry(lanes[0][0].target, [f"int64_t {terms} = 0;"], [])
        full = [*add, *self._start(lanes), f"{terms} = 0;"]
        return [f"{terms} += {count};", f"if ({terms} >= {self.form.leaf}) {{", *_deeper(full), "}"]

    def _deliver(self, s: Fold, place: str, value: str) -> str:
        """Return the line that combines the loop's fold into its target."""
        if s.target in self.p.pairs:
            return f"adarray_pairs_push_{SUFFIX[s.value.dtype]}(&{place}, {value});"
        return f"{place} = {self.p.combined(s.combine, s.value.dtype, place, value)};"

    def _passes(self, inside: list[str], low: str, high: str) -> list[str]:
        """Return the loop over iterations `low` to `high`."""
        v, size = self.var, self.form.block
        if self.form.form == "plain":
            head = f"for (int64_t {v} = {low}; {v} < {high}; {v}++) {{"
            return ["#pragma omp simd", head, *_deeper(inside), "}"]
        if self.padded:
            return self._blocks(inside, low, high)
        i = self.first_of_block
        body = [f"const int64_t {v} = {i} + l;", *inside]
        block = ["#pragma omp simd", f"for (int l = 0; l < {size}; l++) {{", *_deeper(body), "}"]
        if self.head:
            block = ["{", *_deeper([*self.head, *block]), "}"]
        return [
            f"int64_t {i} = {low};",
            f"for (; {i} + {size} <= {high}; {i} += {size})",
            *block,
            f"for (int l = 0; {i} + l < {high}; l++) {{",
            *_deeper(body),
            "}",
        ]

    def _blocks(self, inside: list[str], low: str, high: str) -> list[str]:
        """Return the loop over blocks, the last of which works on padded copies."""
        v, size, b = self.var, self.form.block, self.first_of_block
        clamped = f"const int64_t {v} = {b} + (l < m ? l : m - 1);"
        lines = ["int m = " + f"{size};", *self.head]
        lines.append(f"if ({high} - {b} < {size}) {{")
        lines.append(f"    m = (int)({high} - {b});")
        lines += [f"    {text}" for text in self.swap]
        lines.append("}")
        lines += ["#pragma omp simd", f"for (int l = 0; l < {size}; l++) {{", f"    {clamped}"]
        lines += [*_deeper(inside), "}"]
        if self.tail:
            lines += [f"if (m < {size}) {{", *_deeper(self.tail), "}"]
        head = f"for (int64_t {b} = {low}; {b} < {high}; {b} += {size}) {{"
        return [head, *_deeper(lines), "}"]


def _deeper(lines: list[str]) -> list[str]:
    return [text if text.startswith("#") else f"    {text}" for text in lines]
