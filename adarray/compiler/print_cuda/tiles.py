"""Tiles of folds over pairs of rows, as CUDA C: see `adarray.compiler.schedule.gpu.tiles`.

References
----------
- V. Volkov, J. W. Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008.
"""

from __future__ import annotations

from collections.abc import Mapping

from adarray.compiler.ir.loopir import Apply, Expr, Fold, Let, Load, Stmt, Var
from adarray.compiler.print_c.values import OperandText, TextScope, fixed
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.schedule.gpu.tiles import DEPTH, EACH, SIDE, PairFolds

TILE = SIDE * EACH
THREADS = SIDE * SIDE


class TilePrinter:
    """Prints kernels whose blocks compute tiles of results."""

    def __init__(self, p: CudaPrinter) -> None:
        self.p = p

    def tiles(self, t: PairFolds) -> None:
        """Print the loop over the tiles of this block."""
        down, across, deep = (self.p.index(x.stop) for x in (t.loop, t.across, t.inner))
        kind = STORED[t.fold.value.dtype]
        self.p.line(f"const int side = threadIdx.x % {SIDE}, top = threadIdx.x / {SIDE};")
        rooms = [self._room(s.load.dtype) for s in t.staged]
        one = self._step(t)
        self.p.line(f"const unsigned wide_ = (unsigned)(({across} + {TILE - 1}) / {TILE});")
        tiles = f"(unsigned)(({down} + {TILE - 1}) / {TILE}) * wide_"
        self.p.line(
            f"for (unsigned tile = blockIdx.x; tile < {tiles}; tile += (unsigned)blocks) {{"
        )
        self.p.line(f"    const int64_t i0 = (int64_t)(tile / wide_) * {TILE};")
        self.p.line(f"    const int64_t k0 = (int64_t)(tile % wide_) * {TILE};")
        self.p.line(f"    {kind} sums[{EACH}][{EACH}];")
        neutral = functions.neutral(t.fold.combine, t.fold.value.dtype)
        self._start(f"sums[u][w] = {neutral};")
        self.p.line(f"    for (int64_t j0 = 0; j0 < {deep}; j0 += {DEPTH}) {{")
        self.p.line("        __syncthreads();")
        for s, room in zip(t.staged, rooms, strict=True):
            start, end = ("i0", down) if s.left else ("k0", across)
            row = self._row(t, s.first, s.left, self.p.memory[s.load.buffer])
            self.p.line(
                f"        adarray_stage<{THREADS}, {DEPTH}, {TILE}>({room}, {row}, {start}, "
                f"{end}, j0, {deep});"
            )
        self.p.line("        __syncthreads();")
        self.p.line(f"        if ({deep} - j0 >= {DEPTH}) {{")
        self._folds(t, rooms, one, str(DEPTH), "#pragma unroll")
        self.p.line("        } else {")
        self._folds(t, rooms, one, f"(int)({deep} - j0)", "#pragma unroll 1")
        self.p.line("        }")
        self.p.line("    }")
        last = self._result(t)
        self.p.line("    #pragma unroll")
        self.p.line(f"    for (int u = 0; u < {EACH}; u++) {{")
        self.p.line("        #pragma unroll")
        self.p.line(f"        for (int w = 0; w < {EACH}; w++) {{")
        self.p.line(
            f"            const int64_t i = i0 + top * {EACH} + u, k = k0 + side + {SIDE} * w;"
        )
        self.p.line(f"            if (i < {down} && k < {across}) {last}(i, k, sums[u][w]);")
        self.p.line("        }")
        self.p.line("    }")
        self.p.line("}")

    def _room(self, dtype: str) -> str:
        """Print shared memory for a part of an array: elements of rows lie side by side."""
        name = self.p.fresh("s")
        self.p.line(f"alignas(32) __shared__ {STORED[dtype]} {name}[{DEPTH}][{TILE + 4}];")
        return name

    def _start(self, text: str) -> None:
        """Print a statement for each result of a thread."""
        self.p.line("    #pragma unroll")
        self.p.line(f"    for (int u = 0; u < {EACH}; u++)")
        self.p.line("        #pragma unroll")
        self.p.line(f"        for (int w = 0; w < {EACH}; w++) {text}")

    def _row(self, t: PairFolds, first: Expr, left: bool, array: str) -> str:
        """Return a function that gives the first element of a row."""
        scope = TextScope()
        self.p.scopes.append(scope)
        self.p.bind((t.loop if left else t.across).var, fixed("row"))
        text = f"{array} + {self.p.index(first)}"
        self.p.scopes.pop()
        lines = " ".join(scope.lines)
        return f"[&](const int64_t row) {{ {lines} return {text}; }}"

    def _step(self, t: PairFolds) -> str:
        """Print one step of a fold as a function of what it reads."""
        loads: dict[Expr, OperandText] = {}
        parameters = [f"{STORED[t.fold.value.dtype]} &sum"]
        for s in t.staged:
            x = self.p.fresh("x")
            parameters.append(f"const {STORED[s.load.dtype]} {x}")
            loads[s.load] = fixed(x)
        scope, name = TextScope(), self.p.fresh("f")
        lets = {y.name: y.value for y in t.inner.body if isinstance(y, Let)}
        self.p.scopes.append(scope)
        self.p.inside, self.p.load = True, lambda e: loads.get(e) or self.p.element(e)
        for y in t.inner.body:
            if isinstance(y, Fold):
                self.p.line(f"sum = {self._sum(y, lets)};")
            else:
                self.p.statement(y)
        self.p.inside, self.p.load = False, None
        self.p.scopes.pop()
        self.p.braced(f"const auto {name} = [&]({', '.join(parameters)})", scope, "};")
        return name

    def _sum(self, s: Fold, lets: Mapping[str, Expr]) -> str:
        """Return what a fold becomes; products are added without rounding them first."""
        dtype = s.value.dtype
        value = lets.get(s.value.name) if isinstance(s.value, Var) else s.value
        product = isinstance(value, Apply) and value.name == "multiply" and s.combine == "add"
        if product and isinstance(value, Apply) and dtype in ("float32", "float64"):
            a, b = (self.p.value(x) for x in value.args)
            return f"{'fmaf' if dtype == 'float32' else 'fma'}({a}, {b}, sum)"
        return self.p.combined(s.combine, dtype, "sum", self.p.value(s.value))

    def _folds(self, t: PairFolds, rooms: list[str], one: str, count: str, unroll: str) -> None:
        """Print the loop over what lies in shared memory."""
        arguments, lines = ["sums[u][w]"], []
        for s, room in zip(t.staged, rooms, strict=True):
            kind, x = STORED[s.load.dtype], self.p.fresh("y")
            if s.left:  # one for all threads of a row: a pack, whose loads all get
                pack = f"adarray_pack<{kind}, {EACH}>"
                lines.append(f"const {pack} {x} = *(const {pack} *)&{room}[q][top * {EACH}];")
                arguments.append(f"{x}.v[u]")
                continue
            lines.append(f"{kind} {x}[{EACH}];")
            lines.append("#pragma unroll")
            lines.append(f"for (int u = 0; u < {EACH}; u++) {x}[u] = {room}[q][side + {SIDE} * u];")
            arguments.append(f"{x}[w]")
        self.p.line(f"            {unroll}")
        self.p.line(f"            for (int q = 0; q < {count}; q++) {{")
        for text in lines:
            self.p.line(f"                {text}")
        self.p.line("                #pragma unroll")
        self.p.line(f"                for (int u = 0; u < {EACH}; u++)")
        self.p.line("                    #pragma unroll")
        self.p.line(
            f"                    for (int w = 0; w < {EACH}; w++) {one}({', '.join(arguments)});"
        )
        self.p.line("            }")

    def _result(self, t: PairFolds) -> str:
        """Print what is made of one result as a function of its indices and its fold."""
        name, scope = self.p.fresh("f"), TextScope()
        self.p.scopes.append(scope)
        self.p.bind(t.loop.var, fixed("i"))
        self.p.bind(t.last.var, fixed("k"))
        self.p.inside = True
        self.p.load = lambda e: (
            fixed("sum") if isinstance(e, Load) and e.buffer == t.array else self.p.element(e)
        )
        before: list[Stmt] = [s for s in t.loop.body if isinstance(s, Let)]
        for s in (*before, *t.last.body):
            self.p.statement(s)
        self.p.inside, self.p.load = False, None
        self.p.scopes.pop()
        kind = STORED[t.fold.value.dtype]
        head = f"    const auto {name} = [&](const int64_t i, const int64_t k, const {kind} sum)"
        self.p.braced(head, scope, "    };")
        return name
