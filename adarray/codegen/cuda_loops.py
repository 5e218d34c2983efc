"""Vector loops of kernels for GPUs: their passes are shared by the threads of a group."""

from __future__ import annotations

from adarray.codegen import functions
from adarray.codegen.affine import ZERO, at, slope
from adarray.codegen.cprinter import CPrinter
from adarray.codegen.cvalues import Operand, Scope, fixed
from adarray.codegen.device import PACK, Form, homes, scattered, walks
from adarray.codegen.functions import SIZES, STORED
from adarray.codegen.loopir import (
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Var,
    statements,
    walk,
)
from adarray.codegen.schedule import Scheduled, Target, expressions, longest

LONG = 100  # statements of a loop whose passes are printed once
# What a vector loop loads or stores at neighbouring places: which of both, dtype, statement.
Moved = tuple[str, str, Load | Store]
Partials = list[tuple[Fold, str]]


class GroupLoops(CPrinter):
    """Prints vector loops; `adarray.codegen.cuda.CudaPrinter` prints the rest."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(Scheduled(kernel, Target(precise=True), {}, frozenset()))
        self.form = form
        self.inside = False  # of a vector loop
        self.counter = "int" if form.narrow else "int64_t"
        self.home = homes(kernel)
        self.outs = {b.name for b in kernel.buffers if b.access != "in"}

    # -- what both need --------------------------------------------------------------------

    def combiner(self, combine: str, dtype: str) -> str:
        """Return a function that combines two values of a fold, as C++."""
        kind, text = STORED[dtype], self.combined(combine, dtype, "a", "b")
        return f"[](const {kind} a, const {kind} b) -> {kind} {{ return {text}; }}"

    def touches(self, body: tuple[Stmt, ...]) -> tuple[set[str], set[str]]:
        """Return the memory that statements read and write, of that which threads share."""
        read, written = set(), set()
        for s in statements(body):
            for e in expressions(s):
                read |= {x.buffer for x in walk(e) if isinstance(x, Load)}
            if isinstance(s, Store):
                written.add(s.buffer)
            elif isinstance(s, Fold) and s.index is not None:
                written.add(s.target)
                read.add(s.target)
        shared = self.outs | {s.name for s in self.statements if isinstance(s, Local) and s.size}
        shared |= {t.name for t in self.kernel.totals if t.size is not None}
        return (
            {self.home.get(n, n) for n in read & shared},
            {self.home.get(n, n) for n in written & shared},
        )

    def braced(self, head: str, scope: Scope, end: str = "}") -> None:
        """Print the lines of a scope below `head`."""
        self.line(f"{head} {{")
        for text in scope.lines:
            self.line(text if text.startswith("#") else f"    {text}")
        self.line(end)

    # -- vector loops ----------------------------------------------------------------------

    def shared_loop(self, s: For) -> None:
        """Print a loop whose passes the threads of the group share."""
        start, stop = self.index(s.start), self.index(s.stop)
        lo, hi = self.fresh("m"), self.fresh("e")
        self.line(f"const {self.counter} {lo} = {start}, {hi} = {stop};")
        if scattered(s):
            self._first_thread(s, lo, hi)
            return
        lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
        partial = self._partials(s, lets)
        packed = self.packed(s, lets)
        body, parameters = self._pass(s, packed, partial)
        one = self.fresh("f")
        self.braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        guarded = Scope()
        self.scopes.append(guarded)
        bases = self._bases(s, packed, lets, lo)
        head, count = "0", "0"
        if self.width(s, packed) > 1:
            sized = {t.name for t in self.kernel.totals if t.size is not None}
            still = self.form.kind == "sheet" and any(
                isinstance(x, Fold) and x.target in sized for x in s.body
            )
            width = self.width(s, packed)
            head, count = self._packs(packed, bases, one, (lo, hi), width, still)
        self._singles(packed, bases, one, lo, hi, head, count)
        self.scopes.pop()
        self.braced(f"if (lane < {hi} - {lo})", guarded)
        for fold, c in partial:
            self._gather(fold, c)

    def _singles(
        self, packed: list[Moved], bases: list[str], one: str, lo: str, hi: str, head: str,
        count: str,
    ) -> None:  # fmt: skip
        """Print the loop over the passes before and after the packs."""
        k, v, scope = self.fresh("k"), self.fresh("v"), Scope()
        at_ = k if count == "0" else f"({k} < {head} ? {k} : {k} + {count})"
        scope.lines.append(f"const {self.counter} {v} = {at_};")
        args, after = [f"{lo} + {v}"], []
        for (kind, dtype, _), base in zip(packed, bases, strict=True):
            if kind == "load":
                args.append(f"{base}[{v}]")
                continue
            y = self.fresh("y")
            scope.lines.append(f"{STORED[dtype]} {y};")
            args.append(y)
            after.append(f"{base}[{v}] = {y};")
        scope.lines += [f"{one}({', '.join(args)});", *after]
        self.braced(
            f"for ({self.counter} {k} = lane; {k} < {hi} - {lo} - {count}; {k} += span)", scope
        )

    def _first_thread(self, s: For, lo: str, hi: str) -> None:
        """Print a loop whose passes may fold into the same element: one thread does it."""
        v = self.fresh("v")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.inside = True
        self.block(s.body)
        self.inside = False
        self.scopes.pop()
        self.braced(f"if (lane == 0) for (int64_t {v} = {lo}; {v} < {hi}; {v}++)", scope)

    def _partials(self, s: For, lets: dict[str, Expr]) -> Partials:
        """Print the threads' accumulators of folds into one place."""
        found = []
        totals = {t.name for t in self.kernel.totals if t.size is None}
        for x in s.body:
            if not isinstance(x, Fold) or x.target in totals:
                continue
            if x.index is not None and slope(x.index, s.var, lets) != ZERO:
                continue
            c = self.fresh("p")
            neutral = functions.neutral(x.combine, x.value.dtype)
            self.line(f"{STORED[x.value.dtype]} {c} = {neutral};")
            found.append((x, c))
        return found

    def _gather(self, s: Fold, c: str) -> None:
        """Print the combination of the threads' accumulators."""
        dtype = s.value.dtype
        combine = self.combiner(s.combine, dtype)
        room = f"({STORED[dtype]} *)room_"
        self.line(f"{c} = adarray_together<{self.form.group}>({c}, {room}, {combine});")
        if s.index is None:
            place, only = self.changing[s.target], ""
        else:
            place, only = f"{self.memory[s.target]}[{self.index(s.index)}]", "if (lane == 0) "
        self.line(f"{only}{place} = {self.combined(s.combine, dtype, place, c)};")
        self.changed(s.target)

    def packed(self, s: For, lets: dict[str, Expr]) -> list[Moved]:
        """Return the loads and stores of neighbouring elements of buffers, once each."""
        found: list[Moved] = []
        seen: set[Expr] = set()
        buffers = {b.name: b for b in self.kernel.buffers}
        written = self.touches((s,))[1]
        for x in s.body:
            for e in (y for root in expressions(x) for y in walk(root)):
                if (
                    isinstance(e, Load)
                    and e.buffer in buffers
                    and e.buffer not in written
                    and e not in seen
                    and walks(e.index, s.var, lets)
                ):
                    seen.add(e)
                    found.append(("load", buffers[e.buffer].dtype, e))
            if isinstance(x, Store) and x.buffer in buffers and walks(x.index, s.var, lets):
                read = self.touches((s,))[0]
                if (
                    x.buffer not in read
                    and sum(isinstance(y, Store) and y.buffer == x.buffer for y in s.body) == 1
                ):
                    found.append(("store", buffers[x.buffer].dtype, x))
        return found

    def _bases(self, s: For, packed: list[Moved], lets: dict[str, Expr], lo: str) -> list[str]:
        """Print pointers to the elements of the first pass."""
        found = []
        self.bind("first_", fixed(lo))
        for kind, dtype, x in packed:
            index = self.index(at(x.index, s.var, Var("int64", "first_"), lets))
            base = self.fresh("q")
            const = "const " if kind == "load" else ""
            self.line(f"{const}{STORED[dtype]} *const {base} = {self.memory[x.buffer]} + {index};")
            found.append(base)
        return found

    def _pass(self, s: For, packed: list[Moved], partial: Partials) -> tuple[Scope, list[str]]:
        """Print one pass as a function of what it loads and stores."""
        v = self.fresh("v")
        parameters = [f"const int64_t {v}"]
        loads: dict[Expr, Operand] = {}
        stores: dict[int, str] = {}
        for kind, dtype, x in packed:
            name = self.fresh("x")
            c = STORED[dtype]
            if kind == "load":
                parameters.append(f"const {c} {name}")
                assert isinstance(x, Load)
                loads[x] = fixed(f"({name} != 0)" if dtype == "bool" else name)
            else:
                parameters.append(f"{c} &{name}")
                stores[id(x)] = name
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.inside, self.load = True, lambda e: loads.get(e) or self.element(e)
        places = {id(f): c for f, c in partial}
        for y in s.body:
            if isinstance(y, Store) and id(y) in stores:
                self.line(f"{stores[id(y)]} = {self.value(y.value)};")
            elif isinstance(y, Fold) and id(y) in places:
                c = places[id(y)]
                text = self.combined(y.combine, y.value.dtype, c, self.value(y.value))
                self.line(f"{c} = {text};")
            else:
                self.statement(y)
        self.inside, self.load = False, None
        self.scopes.pop()
        scope.lines.append(f"(void){v};")
        return scope, parameters

    def _packs(
        self, packed: list[Moved], bases: list[str], one: str, bounds: tuple[str, str],
        width: int, still: bool,
    ) -> tuple[str, str]:  # fmt: skip
        """Print the loop over packs of neighbouring passes.

        They begin where the first result, or else operand, is aligned, unless they must stay
        where they are; what then is not is moved element by element. Return how many passes
        come before, and how many it makes.
        """
        lo, hi = bounds
        moves = list(zip(packed, bases, strict=True))
        (_, dtype, _), base = next((m for m in moves if m[0][0] == "store"), moves[0])
        head, count = self.fresh("h"), self.fresh("m")
        n = f"({hi} > {lo} ? {hi} - {lo} : 0)"
        first = "0" if still else f"adarray_head<{width}>({base}, {n})"
        self.line(f"const {self.counter} {head} = {first};")
        self.line(f"const {self.counter} {count} = ({n} - {head}) / {width} * {width};")
        v, scope, after = self.fresh("v"), Scope(), []
        args = [f"{lo} + {v} + u"]
        for (kind, dtype, _), base in moves:
            straight = self.fresh("w")
            place = f"{base} + {head}"
            self.line(f"const bool {straight} = adarray_aligned<{width}>({place});")
            y = self.fresh("y")
            scope.lines.append(f"adarray_pack<{STORED[dtype]}, {width}> {y};")
            if kind == "load":
                scope.lines.append(f"adarray_load({y}, {base} + {v}, {straight});")
            else:
                after.append(f"adarray_store({y}, {base} + {v}, {straight});")
            args.append(f"{y}.v[u]")
        scope.lines.append("#pragma unroll")
        scope.lines.append(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        scope.lines += after
        cast = f"({self.counter})"
        first, step = f"{head} + {cast}lane * {width}", f"{cast}span * {width}"
        self.braced(
            f"for ({self.counter} {v} = {first}; {v} < {head} + {count}; {v} += {step})", scope
        )
        return head, count

    def width(self, s: For, packed: list[Moved]) -> int:
        """Return how many passes share the widest loads and stores; 1 in long bodies."""
        passes = longest(s, {})
        if len(s.body) > LONG or (passes is not None and passes < 64):
            return 1
        return PACK // max((SIZES[dtype] for _, dtype, _ in packed), default=PACK)
