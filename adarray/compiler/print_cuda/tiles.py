"""Tiles of folds over pairs of rows, as CUDA C: see `adarray.compiler.schedule.gpu_tiles`.

References
----------
- V. Volkov, J. W. Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008.
"""

from __future__ import annotations

from collections.abc import Mapping

from adarray.compiler.ir.loopir import Apply, Expr, Fold, Let, Load, Stmt, Var
from adarray.compiler.print_c.values import Operand, Scope, fixed
from adarray.compiler.print_cuda.totals import TotalLines
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.functions import STORED
from adarray.compiler.schedule.gpu_tiles import DEPTH, EACH, SIDE, Tiled, is_named

TILE = SIDE * EACH
THREADS = SIDE * SIDE


class TileLoops(TotalLines):
    """Prints kernels whose blocks compute tiles of results."""

    def tiles(self, t: Tiled) -> None:
        """Print the loop over the tiles of this block."""
        down, across, deep = (self.index(x.stop) for x in (t.loop, t.across, t.inner))
        kind = STORED[t.fold.value.dtype]
        self.line(f"const int side = threadIdx.x % {SIDE}, top = threadIdx.x / {SIDE};")
        rooms = [self.tile_room(s.load.dtype) for s in t.staged]
        one = self.tile_step(t)
        self.line(f"const unsigned wide_ = (unsigned)(({across} + {TILE - 1}) / {TILE});")
        tiles = f"(unsigned)(({down} + {TILE - 1}) / {TILE}) * wide_"
        self.line(f"for (unsigned tile = blockIdx.x; tile < {tiles}; tile += (unsigned)blocks) {{")
        self.line(f"    const int64_t i0 = (int64_t)(tile / wide_) * {TILE};")
        self.line(f"    const int64_t k0 = (int64_t)(tile % wide_) * {TILE};")
        self.line(f"    {kind} sums[{EACH}][{EACH}];")
        neutral = functions.neutral(t.fold.combine, t.fold.value.dtype)
        self.tile_start(f"sums[u][w] = {neutral};")
        self.line(f"    for (int64_t j0 = 0; j0 < {deep}; j0 += {DEPTH}) {{")
        self.line("        __syncthreads();")
        for s, room in zip(t.staged, rooms, strict=True):
            start, end = ("i0", down) if s.left else ("k0", across)
            row = self.tile_row(t, s.first, s.left, self.memory[s.load.buffer])
            self.line(
                f"        adarray_stage<{THREADS}, {DEPTH}, {TILE}>({room}, {row}, {start}, "
                f"{end}, j0, {deep});"
            )
        self.line("        __syncthreads();")
        self.line(f"        if ({deep} - j0 >= {DEPTH}) {{")
        self.tile_folds(t, rooms, one, str(DEPTH), "#pragma unroll")
        self.line("        } else {")
        self.tile_folds(t, rooms, one, f"(int)({deep} - j0)", "#pragma unroll 1")
        self.line("        }")
        self.line("    }")
        last = self.tile_result(t)
        self.line("    #pragma unroll")
        self.line(f"    for (int u = 0; u < {EACH}; u++) {{")
        self.line("        #pragma unroll")
        self.line(f"        for (int w = 0; w < {EACH}; w++) {{")
        self.line(
            f"            const int64_t i = i0 + top * {EACH} + u, k = k0 + side + {SIDE} * w;"
        )
        self.line(f"            if (i < {down} && k < {across}) {last}(i, k, sums[u][w]);")
        self.line("        }")
        self.line("    }")
        self.line("}")

    def tile_room(self, dtype: str) -> str:
        """Print shared memory for a part of an array: elements of rows lie side by side."""
        name = self.fresh("s")
        self.line(f"alignas(32) __shared__ {STORED[dtype]} {name}[{DEPTH}][{TILE + 4}];")
        return name

    def tile_start(self, text: str) -> None:
        """Print a statement for each result of a thread."""
        self.line("    #pragma unroll")
        self.line(f"    for (int u = 0; u < {EACH}; u++)")
        self.line("        #pragma unroll")
        self.line(f"        for (int w = 0; w < {EACH}; w++) {text}")

    def tile_row(self, t: Tiled, first: Expr, left: bool, array: str) -> str:
        """Return a function that gives the first element of a row."""
        scope = Scope()
        self.scopes.append(scope)
        self.bind((t.loop if left else t.across).var, fixed("row"))
        text = f"{array} + {self.index(first)}"
        self.scopes.pop()
        lines = " ".join(scope.lines)
        return f"[&](const int64_t row) {{ {lines} return {text}; }}"

    def tile_step(self, t: Tiled) -> str:
        """Print one step of a fold as a function of what it reads."""
        loads: dict[Expr, Operand] = {}
        parameters = [f"{STORED[t.fold.value.dtype]} &sum"]
        for s in t.staged:
            x = self.fresh("x")
            parameters.append(f"const {STORED[s.load.dtype]} {x}")
            loads[s.load] = fixed(x)
        scope, name = Scope(), self.fresh("f")
        lets = {y.name: y.value for y in t.inner.body if isinstance(y, Let)}
        self.scopes.append(scope)
        self.inside, self.load = True, lambda e: loads.get(e) or self.element(e)
        for y in t.inner.body:
            if isinstance(y, Fold):
                self.line(f"sum = {self.tile_sum(y, lets)};")
            else:
                self.statement(y)
        self.inside, self.load = False, None
        self.scopes.pop()
        self.braced(f"const auto {name} = [&]({', '.join(parameters)})", scope, "};")
        return name

    def tile_sum(self, s: Fold, lets: Mapping[str, Expr]) -> str:
        """Return what a fold becomes; products are added without rounding them first."""
        dtype = s.value.dtype
        made = lets.get(s.value.name) if isinstance(s.value, Var) else s.value
        product = isinstance(made, Apply) and made.name == "multiply" and s.combine == "add"
        if product and isinstance(made, Apply) and dtype in ("float32", "float64"):
            a, b = (self.value(x) for x in made.args)
            return f"{'fmaf' if dtype == 'float32' else 'fma'}({a}, {b}, sum)"
        return self.combined(s.combine, dtype, "sum", self.value(s.value))

    def tile_folds(self, t: Tiled, rooms: list[str], one: str, count: str, unroll: str) -> None:
        """Print the loop over what lies in shared memory."""
        arguments, lines = ["sums[u][w]"], []
        for s, room in zip(t.staged, rooms, strict=True):
            kind, x = STORED[s.load.dtype], self.fresh("y")
            if s.left:  # one for all threads of a row: a pack, whose loads all get
                pack = f"adarray_pack<{kind}, {EACH}>"
                lines.append(f"const {pack} {x} = *(const {pack} *)&{room}[q][top * {EACH}];")
                arguments.append(f"{x}.v[u]")
                continue
            lines.append(f"{kind} {x}[{EACH}];")
            lines.append("#pragma unroll")
            lines.append(f"for (int u = 0; u < {EACH}; u++) {x}[u] = {room}[q][side + {SIDE} * u];")
            arguments.append(f"{x}[w]")
        self.line(f"            {unroll}")
        self.line(f"            for (int q = 0; q < {count}; q++) {{")
        for text in lines:
            self.line(f"                {text}")
        self.line("                #pragma unroll")
        self.line(f"                for (int u = 0; u < {EACH}; u++)")
        self.line("                    #pragma unroll")
        self.line(
            f"                    for (int w = 0; w < {EACH}; w++) {one}({', '.join(arguments)});"
        )
        self.line("            }")

    def tile_result(self, t: Tiled) -> str:
        """Print what is made of one result as a function of its indices and its fold."""
        name, scope = self.fresh("f"), Scope()
        self.scopes.append(scope)
        self.bind(t.loop.var, fixed("i"))
        self.bind(t.last.var, fixed("k"))
        self.inside = True
        self.load = lambda e: (
            fixed("sum") if isinstance(e, Load) and e.buffer == t.array else self.element(e)
        )
        before: list[Stmt] = [s for s in t.loop.body if isinstance(s, Let)]
        for s in (*before, *t.last.body):
            if t.total is not None and is_named(s, t.total[0]):
                assert isinstance(s, Fold)
                place = self.changing[t.total[1].name]
                text = self.combined(s.combine, s.value.dtype, place, self.value(s.value))
                self.line(f"{place} = {text};")
            else:
                self.statement(s)
        self.inside, self.load = False, None
        self.scopes.pop()
        kind = STORED[t.fold.value.dtype]
        head = f"    const auto {name} = [&](const int64_t i, const int64_t k, const {kind} sum)"
        self.braced(head, scope, "    };")
        return name
