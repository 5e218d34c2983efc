"""Loops of kernels for GPUs that store what they have folded so far: running sums.

Each thread takes a few neighbouring passes at a time; what threads have is scanned by the
group. A long loop that is a whole kernel is shared by all blocks, in two kernels: blocks fold
stretches of it, then begin with what lies before their stretch. The order is the same in
every run, unlike that of scans whose blocks look back for what is done.

References
----------
- G. E. Blelloch, "Prefix sums and their applications", report CMU-CS-90-190, Carnegie Mellon
  University, 1990.
- S. Sengupta, M. Harris, Y. Zhang, J. D. Owens, "Scan primitives for GPU computing", Graphics
  Hardware 2007.
- D. Merrill, M. Garland, "Single-pass parallel prefix scan with decoupled look-back", report
  NVR-2016-002, NVIDIA 2016.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Fold, For, Let, Store
from adarray.compiler.print_c.values import Scope, fixed
from adarray.compiler.print_cuda.loops import GroupLoops
from adarray.compiler.print_cuda.waits import Waits
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.functions import FLOATS, STORED
from adarray.compiler.schedule.gpu import ITEMS, ZEROS
from adarray.compiler.schedule.gpu_loops import running


class RunningLoops(GroupLoops):
    """Prints serial loops."""

    waits: Waits
    second = False  # of the two kernels of a scan by all blocks

    def serial(self, s: For) -> None:
        """Print a serial loop; threads of a group share one that stores what it has folded."""
        shared = self.form.group > 1 and self.form.kind in ("rows", "alone", "scan")
        found = running(s) if shared else None
        if found is not None:
            self._running(s, *found)
            return
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        v = self.fresh("v")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.block(s.body)
        self.scopes.pop()
        if running(s) is not None:  # several loads at once
            self.line("#pragma unroll 16")
        self.braced(f"for (int64_t {v} = {start}; {v} < {stop}; {v}++)", scope)

    def _running(self, s: For, fold: Fold, store: Store) -> None:
        start, stop = self.index(s.start), self.index(s.stop)
        self.written(s)
        if any(id(x) in self.waits.before for x in s.body):
            self.line(f"adarray_sync<{self.form.group}>();")
        term, put = self._parts(s, fold, store)
        if self.form.kind == "scan":
            start, stop = self._stretch(start, stop)
            folds = self._from_parts if self.second else self._fold_stretch
            folds(fold, term, start, stop)
        if self.form.kind != "scan" or self.second:
            self._turns(fold, term, put, start, stop)
        self.changed(fold.target)
        self.changed(store.buffer)

    def _parts(self, s: For, fold: Fold, store: Store) -> tuple[str, str]:
        """Print what a pass folds, and where it stores, as functions; return their names."""
        kind, v = STORED[fold.value.dtype], self.fresh("v")
        term, put = self.fresh("f"), self.fresh("f")
        self.inside = True
        for name, last in ((term, fold), (put, store)):
            scope = Scope()
            self.scopes.append(scope)
            self.bind(s.var, fixed(v))
            self.block(tuple(x for x in s.body if isinstance(x, Let)))
            if last is fold:
                self.line(f"return {self.value(fold.value)};")
            else:
                self.line(f"{self.memory[store.buffer]}[{self.index(store.index)}] = y;")
            self.scopes.pop()
            more = "" if last is fold else f", const {kind} y"
            result = kind if last is fold else "void"
            self.braced(
                f"const auto {name} = [&](const int64_t {v}{more}) -> {result}", scope, "};"
            )
        self.inside = False
        return term, put

    def _stretch(self, start: str, stop: str) -> tuple[str, str]:
        """Print where the passes of this block begin and end."""
        per, lo, hi = self.fresh("m"), self.fresh("m"), self.fresh("e")
        turn = self.form.block * ITEMS
        self.line(
            f"const int64_t {per} = (({stop} - {start} - 1) / blocks + {turn}) / {turn} * {turn};"
        )
        self.line(f"const int64_t {lo} = {start} + blockIdx.x * {per};")
        self.line(f"const int64_t {hi} = {lo} + {per} < {stop} ? {lo} + {per} : {stop};")
        return lo, hi

    def _fold_stretch(self, fold: Fold, term: str, start: str, stop: str) -> None:
        """Print the fold of a block's passes, for those that come after it."""
        kind, x = STORED[fold.value.dtype], self.fresh("x")
        lines = Scope()
        lines.lines += [f"const {kind} y = {term}(k);", f"{x} = {self._sum(fold, x, 'y')};"]
        self.line(f"{kind} {x} = {_neutral(fold)};")
        self.line("#pragma unroll 8")
        self.braced(f"for (int64_t k = {start} + lane; k < {stop}; k += span)", lines)
        self.line(f"{x} = {self._together(fold, x)};")
        self.line(f"if (lane == 0) (({kind} *)(scratch + {ZEROS}))[blockIdx.x] = {x};")

    def _from_parts(self, fold: Fold, term: str, start: str, stop: str) -> None:  # noqa: ARG002
        """Print the fold of what the blocks before this one have."""
        kind, x, sofar = STORED[fold.value.dtype], self.fresh("x"), self.changing[fold.target]
        parts, lines = f"((const {kind} *)(scratch + {ZEROS}))", Scope()
        lines.lines += [f"const {kind} y = {parts}[k];", f"{x} = {self._sum(fold, x, 'y')};"]
        self.line(f"{kind} {x} = {_neutral(fold)};")
        self.braced("for (int k = lane; k < (int)blockIdx.x; k += span)", lines)
        self.line(f"{x} = {self._together(fold, x)};")
        self.line(f"{sofar} = {self._sum(fold, sofar, x)};")

    def _turns(self, fold: Fold, term: str, put: str, start: str, stop: str) -> None:
        """Print the loop in which each thread takes neighbouring passes."""
        kind, sofar, room = STORED[fold.value.dtype], self.changing[fold.target], self._room(fold)
        lines, v, x, all_, k = (Scope(), *map(self.fresh, ("v", "x", "x", "k")))
        neutral, combine = _neutral(fold), self.combiner(fold.combine, fold.value.dtype)
        next_ = self._sum(fold, f"{x}[u - 1]", f"{x}[u]")
        each = f"for (int u = 0; u < {ITEMS}; u++)"
        own = f"{x}[{ITEMS - 1}], {neutral}, {room}, {all_}, {combine}"
        lines.lines += [
            f"const int64_t {v} = {k} + (int64_t)lane * {ITEMS};",
            f"{kind} {x}[{ITEMS}], {all_};",
            "#pragma unroll",
            f"{each} {x}[u] = {v} + u < {stop} ? {term}({v} + u) : {neutral};",
            "#pragma unroll",
            f"for (int u = 1; u < {ITEMS}; u++) {x}[u] = {next_};",
            f"const {kind} y = adarray_before<{self.form.group}>({own});",
            f"const {kind} z = {self._sum(fold, sofar, 'y')};",
            "#pragma unroll",
            f"{each} if ({v} + u < {stop}) {put}({v} + u, {self._sum(fold, 'z', f'{x}[u]')});",
            f"{sofar} = {self._sum(fold, sofar, all_)};",
        ]
        step = f"(int64_t)span * {ITEMS}"
        self.braced(f"for (int64_t {k} = {start}; {k} < {stop}; {k} += {step})", lines)

    def _room(self, fold: Fold) -> str:
        return f"({STORED[fold.value.dtype]} *)room_"

    def _together(self, fold: Fold, x: str) -> str:
        combine = self.combiner(fold.combine, fold.value.dtype)
        return f"adarray_together<{self.form.group}>({x}, {self._room(fold)}, {combine})"

    def _sum(self, fold: Fold, left: str, right: str) -> str:
        return self.combined(fold.combine, fold.value.dtype, left, right)


def _neutral(fold: Fold) -> str:
    """Return what changes nothing, not even the sign of a zero."""
    dtype = fold.value.dtype
    zero = fold.combine == "add" and dtype in FLOATS
    text = functions.number(-0.0, dtype) if zero else functions.neutral(fold.combine, dtype)
    return f"({STORED[dtype]}){text}"
