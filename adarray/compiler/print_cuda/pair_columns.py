"""Folds of pairs over rows, as CUDA C: see `adarray.compiler.schedule.gpu.pair_columns`.

References
----------
- L. Nyland, M. Harris, J. Prins, "Fast N-body simulation with CUDA", GPU Gems 3, 2007, chapter 31.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Fold, Let, Var
from adarray.compiler.print_c.values import TextScope, fixed
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.print_cuda.totals import Totals
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import CTYPES, STORED
from adarray.compiler.schedule.gpu.pair_columns import WARP, NamedValue, PairColumns
from adarray.compiler.schedule.gpu.schedules import ColumnFolds

UNROLLED = 40  # statements of a pair, up to which several rows are begun at once


class PairColumnsPrinter:
    """Prints kernels whose threads have columns in registers."""

    def __init__(self, p: CudaPrinter, s: ColumnFolds) -> None:
        self.p = p
        self.s = s
        self.pairs: PairColumns = s.pairs

    def print(self, totals: Totals) -> None:
        """Print the kernel but for what combines the parts of blocks."""
        p, pairs, width, threads = self.p, self.pairs, self.s.width, self.s.threads
        rows, columns = p.index(pairs.loop.stop), p.index(pairs.across.stop)
        p.line(
            f"const int64_t first_ = (int64_t)blockIdx.y * {threads * width} + lane % {threads};"
        )
        self._struct("alignas(16) row_", pairs.rows)
        self._struct("column_", pairs.columns)
        p.line(f"__shared__ row_ rows_[{self.s.block}];")
        p.line(f"row_ *const own_ = rows_ + threadIdx.x / {WARP} * {WARP};")
        p.line(f"column_ columns_[{width}];")
        own = f"first_ + u * {threads}"
        last = f"{own} < {columns} ? {own} : {columns} - 1"
        scope = self._side(pairs.across.var, last, pairs.of_columns, pairs.columns, "columns_[u]")
        p.line("#pragma unroll")
        p.braced(f"for (int u = 0; u < {width}; u++)", scope)
        sums = [self._sums(s.combine, s.value.dtype) for s in pairs.folds]
        one = self._pair()
        scope = TextScope()
        p.scopes.append(scope)
        p.line(f"adarray_sync<{WARP}>();")
        side = self._side(pairs.loop.var, "begin + lane", pairs.of_rows, pairs.rows, "own_[lane]")
        p.braced(f"if (begin + lane < {rows})", side)
        p.line(f"adarray_sync<{WARP}>();")
        p.line(f"const int count = {rows} - begin < {WARP} ? (int)({rows} - begin) : {WARP};")
        p.line(f"#pragma unroll {4 if len(pairs.of_pairs) <= UNROLLED else 1}")
        parts = WARP // threads
        each = "int q = 0; q < count; q++"
        if parts > 1:
            each = f"int q = lane / {threads}; q < count; q += {parts}"
        p.line(f"for ({each}) {{")
        p.line("    const row_ row = own_[q];")
        p.line("    #pragma unroll")
        arguments = ", ".join(["row", "columns_[u]", *(f"{x}[u]" for x in sums)])
        p.line(f"    for (int u = 0; u < {width}; u++) {one}({arguments});")
        p.line("}")
        p.scopes.pop()
        p.braced(
            f"for (int64_t begin = group * {WARP}; begin < {rows}; begin += groups * {WARP})", scope
        )
        for s, x in zip(pairs.folds, sums, strict=True):
            totals.end_columns(s.target, x, threads, width)

    def _struct(self, name: str, fields: tuple[NamedValue, ...]) -> None:
        """Declare what a row or a column has."""
        members = [f"{CTYPES[x.dtype]} v{k};" for k, x in enumerate(fields)] or ["int none;"]
        self.p.line(f"struct {name} {{ {' '.join(members)} }};")

    def _side(
        self, var: str, index: str, lets: tuple[Let, ...], fields: tuple[NamedValue, ...], to: str
    ) -> TextScope:
        """Return what computes the values of a row or a column, and stores them."""
        p, scope, v = self.p, TextScope(), self.p.fresh("v")
        p.scopes.append(scope)
        p.line(f"const int64_t {v} = {index};")
        p.bind(var, fixed(v))
        for s in lets:
            p.let(s)
        values = [p.lookup(x.name).text for x in fields] or ["0"]
        kinds = [CTYPES[x.dtype] for x in fields] or ["int"]
        texts = ", ".join(f"({kind}){x}" for kind, x in zip(kinds, values, strict=True))
        p.line(f"{to} = {{{texts}}};")
        p.scopes.pop()
        return scope

    def _sums(self, combine: str, dtype: str) -> str:
        """Declare what a thread has of a total; return its name."""
        p, name, kind = self.p, self.p.fresh("s"), STORED[dtype]
        p.line(f"{kind} {name}[{self.s.width}];")
        neutral = functions.neutral(combine, dtype)
        p.line("#pragma unroll")
        p.line(f"for (int u = 0; u < {self.s.width}; u++) {name}[u] = {neutral};")
        return name

    def _pair(self) -> str:
        """Print what a pair adds to the sums of its column as a function."""
        p, pairs, one, scope = self.p, self.pairs, self.p.fresh("f"), TextScope()
        parameters = ["const row_ &row", "const column_ &column"]
        p.scopes.append(scope)
        for fields, of in ((pairs.rows, "row"), (pairs.columns, "column")):
            for k, x in enumerate(fields):
                p.bind(x.name, fixed(f"{of}.v{k}"))
        p.inside = True
        for s in pairs.of_pairs:
            if s.name not in pairs.fused:
                p.let(s)
        for f in pairs.folds:
            name, dtype = p.fresh("x"), f.value.dtype
            parameters.append(f"{STORED[dtype]} &{name}")
            p.line(f"{name} = {self._folded(f, name)};")
        p.inside = False
        p.scopes.pop()
        p.braced(f"const auto {one} = [&]({', '.join(parameters)})", scope, "};")
        return one

    def _folded(self, f: Fold, name: str) -> str:
        """Return what a sum becomes; products are added without rounding them first."""
        dtype = f.value.dtype
        if not isinstance(f.value, Var) or f.value.name not in self.pairs.fused:
            return self.p.combined(f.combine, dtype, name, self.p.value(f.value))
        a, b = map(self.p.value, self.pairs.fused[f.value.name].args)
        return f"{'fmaf' if dtype == 'float32' else 'fma'}({a}, {b}, {name})"
