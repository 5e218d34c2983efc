"""Loops of kernels for GPUs that store what they have folded so far: running sums.

Each thread takes a few neighbouring iterations at a time; what threads have is scanned by the
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
from adarray.compiler.print_c.values import TextScope, fixed
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import FLOATS, STORED
from adarray.compiler.schedule.gpu.launch import ITEMS, ZEROS
from adarray.compiler.schedule.gpu.schedules import DeviceScan


def serial(p: CudaPrinter, s: For) -> None:
    """Print a serial loop that every thread runs."""
    start, stop = p.index(s.start), p.index(s.stop)
    p.written(s)
    v = p.fresh("v")
    scope = TextScope()
    p.scopes.append(scope)
    p.bind(s.var, fixed(v))
    p.block(s.body)
    p.scopes.pop()
    if s in p.outline.streaming:  # several loads at once
        p.line("#pragma unroll 16")
    elif s in p.outline.begun:
        p.line(f"#pragma unroll {p.outline.begun[s]}")
    p.braced(f"for (int64_t {v} = {start}; {v} < {stop}; {v}++)", scope)


class RunningFolds:
    """Prints serial loops; threads of a group share those that store what they have folded.

    Parameters
    ----------
    p : CudaPrinter
    second : bool
        Whether this is the second kernel of a scan by all blocks.
    """

    def __init__(self, p: CudaPrinter, second: bool = False) -> None:
        self.p = p
        self.second = second
        self.is_scan = isinstance(p.schedule, DeviceScan)

    def loop(self, s: For) -> None:
        """Print a serial loop."""
        parts = self.p.outline.running.get(s)
        if parts is None:
            serial(self.p, s)
        else:
            self._running(s, *parts)

    def _running(self, s: For, fold: Fold, store: Store) -> None:
        p = self.p
        start, stop = p.index(s.start), p.index(s.stop)
        p.written(s)
        if any(x in p.outline.waits for x in s.body):
            p.wait()
        term, put = self._parts(s, fold, store)
        if self.is_scan:
            start, stop = self._stretch(start, stop)
            if self.second:
                self._from_parts(fold)
            else:
                self._fold_stretch(fold, term, start, stop)
        if not self.is_scan or self.second:
            self._several(fold, term, put, start, stop)
        p.changed(fold.target)
        p.changed(store.buffer)

    def _parts(self, s: For, fold: Fold, store: Store) -> tuple[str, str]:
        """Print what an iteration folds, and where it stores, as functions; return their names."""
        kind, v = STORED[fold.value.dtype], self.p.fresh("v")
        term, put = self.p.fresh("f"), self.p.fresh("f")
        self.p.inside = True
        for name, last in ((term, fold), (put, store)):
            scope = TextScope()
            self.p.scopes.append(scope)
            self.p.bind(s.var, fixed(v))
            self.p.block(tuple(x for x in s.body if isinstance(x, Let)))
            if last is fold:
                self.p.line(f"return {self.p.value(fold.value)};")
            else:
                self.p.line(f"{self.p.memory[store.buffer]}[{self.p.index(store.index)}] = y;")
            self.p.scopes.pop()
            more = "" if last is fold else f", const {kind} y"
            result = kind if last is fold else "void"
            self.p.braced(
                f"const auto {name} = [&](const int64_t {v}{more}) -> {result}", scope, "};"
            )
        self.p.inside = False
        return term, put

    def _stretch(self, start: str, stop: str) -> tuple[str, str]:
        """Print where the iterations of this block begin and end."""
        per, lo, hi = self.p.fresh("m"), self.p.fresh("m"), self.p.fresh("e")
        whole, length = self.p.schedule.block * ITEMS, f"{stop} - {start}"
        self.p.line(
            f"const int64_t {per} = (({length} - 1) / blocks + {whole}) / {whole} * {whole};"
        )
        self.p.line(f"const int64_t {lo} = {start} + blockIdx.x * {per};")
        self.p.line(f"const int64_t {hi} = {lo} + {per} < {stop} ? {lo} + {per} : {stop};")
        return lo, hi

    def _fold_stretch(self, fold: Fold, term: str, start: str, stop: str) -> None:
        """Print the fold of a block's iterations, for those that come after it."""
        kind, x = STORED[fold.value.dtype], self.p.fresh("x")
        lines = TextScope()
        lines.lines += [f"const {kind} y = {term}(k);", f"{x} = {self._sum(fold, x, 'y')};"]
        self.p.line(f"{kind} {x} = {_neutral(fold)};")
        self.p.line("#pragma unroll 8")
        self.p.braced(f"for (int64_t k = {start} + lane; k < {stop}; k += span)", lines)
        self.p.line(f"{x} = {self._together(fold, x)};")
        self.p.line(f"if (lane == 0) (({kind} *)(scratch + {ZEROS}))[blockIdx.x] = {x};")

    def _from_parts(self, fold: Fold) -> None:
        """Print the fold of what the blocks before this one have."""
        kind, x, sofar = STORED[fold.value.dtype], self.p.fresh("x"), self.p.changing[fold.target]
        parts, lines = f"((const {kind} *)(scratch + {ZEROS}))", TextScope()
        lines.lines += [f"const {kind} y = {parts}[k];", f"{x} = {self._sum(fold, x, 'y')};"]
        self.p.line(f"{kind} {x} = {_neutral(fold)};")
        self.p.braced("for (int k = lane; k < (int)blockIdx.x; k += span)", lines)
        self.p.line(f"{x} = {self._together(fold, x)};")
        self.p.line(f"{sofar} = {self._sum(fold, sofar, x)};")

    def _several(self, fold: Fold, term: str, put: str, start: str, stop: str) -> None:
        """Print the loop in which each thread takes neighbouring iterations."""
        kind, sofar, room = STORED[fold.value.dtype], self.p.changing[fold.target], self._room(fold)
        lines, v, x, all_, k = (TextScope(), *map(self.p.fresh, ("v", "x", "x", "k")))
        neutral, combine = _neutral(fold), self.p.combiner(fold.combine, fold.value.dtype)
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
            f"const {kind} y = adarray_before<{self.p.schedule.group}>({own});",
            f"const {kind} z = {self._sum(fold, sofar, 'y')};",
            "#pragma unroll",
            f"{each} if ({v} + u < {stop}) {put}({v} + u, {self._sum(fold, 'z', f'{x}[u]')});",
            f"{sofar} = {self._sum(fold, sofar, all_)};",
        ]
        step = f"(int64_t)span * {ITEMS}"
        self.p.braced(f"for (int64_t {k} = {start}; {k} < {stop}; {k} += {step})", lines)

    def _room(self, fold: Fold) -> str:
        return f"({STORED[fold.value.dtype]} *)room_"

    def _together(self, fold: Fold, x: str) -> str:
        combine = self.p.combiner(fold.combine, fold.value.dtype)
        return f"adarray_together<{self.p.schedule.group}>({x}, {self._room(fold)}, {combine})"

    def _sum(self, fold: Fold, left: str, right: str) -> str:
        return self.p.combined(fold.combine, fold.value.dtype, left, right)


def _neutral(fold: Fold) -> str:
    """Return what changes nothing, not even the sign of a zero."""
    dtype = fold.value.dtype
    zero = fold.combine == "add" and dtype in FLOATS
    text = functions.number(-0.0, dtype) if zero else functions.neutral(fold.combine, dtype)
    return f"({STORED[dtype]}){text}"
