"""Vector loops of kernels for GPUs: their passes are shared by the threads of a group."""

from __future__ import annotations

from adarray.codegen import functions
from adarray.codegen.affine import ZERO, at, slope, terms
from adarray.codegen.cprinter import CPrinter
from adarray.codegen.cvalues import Operand, Scope, fixed
from adarray.codegen.device import LONG, PACK, Form, sheet_width
from adarray.codegen.device_loops import WARP, homes, scattered, walks
from adarray.codegen.functions import SIZES, STORED
from adarray.codegen.loopir import (
    Apply,
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

# What a vector loop loads or stores at neighbouring places: which of both, dtype, statement.
Moved = tuple[str, str, Load | Store]
Partials = list[tuple[Fold, str]]


class GroupLoops(CPrinter):
    """Prints vector loops; `adarray.codegen.cuda.CudaPrinter` prints the rest."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(Scheduled(kernel, Target(precise=True), {}, frozenset()))
        self.form = form
        self.inside = False  # of a vector loop
        # The variable of the vector loop that is being printed, and the names in it.
        self.passing: tuple[str, ...] = ()
        self.borders = 0  # loops of one pass so far
        # Array totals of a sheet, in registers: a pack and an element, for each thread.
        self.held: dict[str, tuple[str, str]] = {}
        self.counter = "int" if form.narrow else "int64_t"
        self.home = homes(kernel)
        found = list(statements(kernel.body))
        self.local = {s.name: s.dtype for s in found if isinstance(s, Local) and s.size}
        # Arrays in shared memory.
        self.near = {name for name, home in self.home.items() if home in form.shared}
        # Of integers, wherever they are named: indices that differ by a number are found so.
        self.lets = {s.name: s.value for s in found if isinstance(s, Let)}
        self.outs = {b.name for b in kernel.buffers if b.access != "in"}
        # Buffers that one statement writes, and none reads.
        stored = [s.buffer for s in found if isinstance(s, Store)]
        self.once = {n for n in self.outs if stored.count(n) == 1} - self.touches(kernel.body)[0]

    # -- what both need --------------------------------------------------------------------

    def combiner(self, combine: str, dtype: str) -> str:
        """Return a function that combines two values of a fold, as C++."""
        kind, text = STORED[dtype], self.combined(combine, dtype, "a", "b")
        return f"[](const {kind} a, const {kind} b) -> {kind} {{ return {text}; }}"

    def combined(self, combine: str, dtype: str, left: str, right: str) -> str:
        """Return the text that combines two values in a fold; zeros there have no order."""
        if dtype == "float32" and combine in ("maximum", "minimum"):
            return f"adarray_{combine}_of({left}, {right})"
        return super().combined(combine, dtype, left, right)

    def touches(self, body: tuple[Stmt, ...]) -> tuple[set[str], set[str]]:
        """Return the memory that statements read and write, of that which threads share."""
        read, written = set(), set()
        for s in statements(body):
            for e in expressions(s):
                read |= {x.buffer for x in walk(e) if isinstance(x, Load)}
            if isinstance(s, Store):
                written.add(s.buffer)
            elif isinstance(s, Fold) and s.index is not None and s.target not in self.outs:
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
        if scattered(s, self.outs):
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
        head, count, who = "0", "0", f"lane < {hi} - {lo}"
        held = [self.held[x.target] for x in s.body if isinstance(x, Fold) and self._holds(x)]
        single = s.var in self.form.single and not held
        if single:
            # Another warp for each such loop, and none of those with most to do.
            warps = 1 << 20 if self.form.kind == "sheet" else self.form.group // WARP
            who = f"lane == span - 1 - {WARP * (self.borders % warps)} % span"
            self.borders += 1
            for text in self._by_itself(packed, bases, one, lo, "0", held):
                self.line(text)
        elif self.width(s, packed) > 1:
            anchors = self._anchors(packed, s, lets)
            width = self.width(s, packed)
            head, count = self._packs(packed, bases, anchors, one, (lo, hi), width, held)
        if not single:
            self._singles(packed, bases, one, lo, hi, head, count, held)
        self.scopes.pop()
        self.braced(f"if ({who})", guarded)
        for fold, c in partial:
            self._gather(fold, c)

    def _singles(
        self, packed: list[Moved], bases: list[str], one: str, lo: str, hi: str, head: str,
        count: str, held: list[tuple[str, str]],
    ) -> None:  # fmt: skip
        """Print the loop over the passes before and after the packs."""
        k, v, scope = self.fresh("k"), self.fresh("v"), Scope()
        at_ = k if count == "0" else f"({k} < {head} ? {k} : {k} + {count})"
        scope.lines.append(f"const {self.counter} {v} = {at_};")
        scope.lines += self._by_itself(packed, bases, one, lo, v, held)
        self.braced(
            f"for ({self.counter} {k} = lane; {k} < {hi} - {lo} - {count}; {k} += span)", scope
        )

    def _holds(self, s: Stmt) -> bool:
        """Whether a statement folds into a total that threads hold in registers."""
        return isinstance(s, Fold) and s.index is not None and s.target in self.held

    def _by_itself(
        self, packed: list[Moved], bases: list[str], one: str, lo: str, v: str,
        held: list[tuple[str, str]],
    ) -> list[str]:  # fmt: skip
        """Return the lines of a pass by itself."""
        lines: list[str] = []
        args, after = [f"{lo} + {v}"], []
        for (kind, dtype, _), base in zip(packed, bases, strict=True):
            if kind == "load":
                args.append(f"{base}[{v}]")
                continue
            y = self.fresh("y")
            lines.append(f"{STORED[dtype]} {y};")
            args.append(y)
            after.append(f"{base}[{v}] = {y};")
        args += [element for _, element in held]
        return [*lines, f"{one}({', '.join(args)});", *after]

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
            if not isinstance(x, Fold) or x.target in totals or x.target in self.outs:
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
        """Return the loads and stores of neighbouring elements of arrays, once each."""
        found: list[Moved] = []
        seen: set[Expr] = set()
        dtypes = {b.name: b.dtype for b in self.kernel.buffers} | self.local
        written = self.touches((s,))[1]
        for x in s.body:
            for e in (y for root in expressions(x) for y in walk(root)):
                if (
                    isinstance(e, Load)
                    and e.buffer in dtypes
                    and e.buffer not in written
                    and e not in seen
                    and walks(e.index, s.var, lets)
                ):
                    seen.add(e)
                    found.append(("load", dtypes[e.buffer], e))
            if isinstance(x, Store) and x.buffer in dtypes and walks(x.index, s.var, lets):
                read = self.touches((s,))[0]
                if (
                    x.buffer not in read
                    and sum(isinstance(y, Store) and y.buffer == x.buffer for y in s.body) == 1
                ):
                    found.append(("store", dtypes[x.buffer], x))
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
        places = {id(f): c for f, c in partial}
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
        for y in s.body:
            if self._holds(y):
                assert isinstance(y, Fold)
                places[id(y)] = self.fresh("x")
                parameters.append(f"{STORED[y.value.dtype]} &{places[id(y)]}")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.passing = (s.var, *(y.name for y in s.body if isinstance(y, Let)))
        self.inside, self.load = True, lambda e: loads.get(e) or self.element(e)
        for y in s.body:
            if isinstance(y, Store) and id(y) in stores:
                self.line(f"{stores[id(y)]} = {self.value(y.value)};")
            elif isinstance(y, Fold) and id(y) in places:
                c = places[id(y)]
                text = self.combined(y.combine, y.value.dtype, c, self.value(y.value))
                self.line(f"{c} = {text};")
            else:
                self.statement(y)
        self.inside, self.load, self.passing = False, None, ()
        self.scopes.pop()
        scope.lines.append(f"(void){v};")
        return scope, parameters

    def _anchors(self, packed: list[Moved], s: For, lets: dict[str, Expr]) -> list[tuple[int, int]]:
        """Return for each load or store which one it lies beside, and by how many elements.

        Of loads that differ by less than a pack, one is made in packs; neighbours take most
        of their elements from it. What has no such neighbour is its own.
        """
        width = self.width(s, packed)
        known: dict[tuple[str, frozenset[tuple[Expr, int]]], list[tuple[int, int]]] = {}
        places = []
        for k, (_, _, x) in enumerate(packed):
            const, multiples = terms(at(x.index, s.var, ZERO, lets), self.lets)
            places.append((const, frozenset(multiples.items())))
            if isinstance(x, Load):
                known.setdefault((x.buffer, places[k][1]), []).append((const, k))
        wanted = {
            p[1]: p[0] for (kind, _, _), p in zip(packed, places, strict=True) if kind == "store"
        }
        found = [(k, 0) for k in range(len(packed))]
        for (_, rest), family in known.items():
            # The one that is aligned where the result is, or else the one in the middle.
            middle = sorted(family)[len(family) // 2][0]
            goal = wanted.get(rest, min(wanted.values(), default=middle))
            if all((const - goal) % width for const, _ in family):
                goal = middle
            straight = [(const, k) for const, k in family if (const - goal) % width == 0]
            for const, k in family:
                near = [(c, a) for c, a in straight if 0 < abs(const - c) < width]
                if near:
                    found[k] = (near[0][1], const - near[0][0])
        return found

    def number_of_pass(self, e: Apply, args: list[Operand]) -> Operand | None:
        """Compare the number of a pass with what is the same in all of them, in 32 bits."""
        if e.name not in ("equal", "not_equal") or not self.passing or not self.form.narrow:
            return None
        own = self.passing[0]
        for k in (0, 1):
            other = e.args[1 - k]
            fixed_ = isinstance(other, Var) and other.name not in self.passing
            if e.args[k] != Var("int64", own) or not fixed_:
                continue
            key = f"in 32 bits: {args[1 - k].key}"
            found = self._known(key)
            if found is None:
                name, before = self.fresh("c"), self.scopes[-2]
                before.lines.append(f"const int {name} = adarray_narrow({args[1 - k].text});")
                found = before.known[key] = fixed(name)
            sign, name = "==" if e.name == "equal" else "!=", self.fresh("t")
            self.line(f"const _Bool {name} = (int){args[k].text} {sign} {found.text};")
            return fixed(name)
        return None

    def _packs(
        self, packed: list[Moved], bases: list[str], anchors: list[tuple[int, int]], one: str,
        bounds: tuple[str, str], width: int, held: list[tuple[str, str]],
    ) -> tuple[str, str]:  # fmt: skip
        """Print the loop over packs of neighbouring passes.

        They begin where the first result, or else operand, is aligned, unless they must stay
        where they are. If then another is not, passes are made one by one, by neighbouring
        threads; those that must stay move the elements of packs one by one. Return how many
        passes come before, and how many it makes.
        """
        lo, hi = bounds
        still = bool(held)
        moves = list(zip(packed, bases, strict=True))
        first = next(
            (b for m, b in moves if m[0] == "store"), bases[anchors[0][0]] if bases else ""
        )
        head, count, straight = self.fresh("h"), self.fresh("m"), self.fresh("w")
        n = f"({hi} > {lo} ? {hi} - {lo} : 0)"
        start = "0" if still else f"adarray_head<{width}>({first}, {n})"
        self.line(f"const {self.counter} {head} = {start};")
        own = [b for k, b in enumerate(bases) if anchors[k] == (k, 0)]
        tests = " & ".join(f"adarray_aligned<{width}>({b} + {head})" for b in own) or "true"
        self.line(f"const bool {straight} = {tests};")
        all_ = f"({n} - {head}) / {width} * {width}"
        self.line(
            f"const {self.counter} {count} = {all_ if still else f'{straight} ? {all_} : 0'};"
        )
        cast, v = f"({self.counter})", self.fresh("v")
        begin, step = f"{head} + {cast}lane * {width}", f"{cast}span * {width}"
        loop = f"for ({self.counter} {v} = {begin}; {v} < {head} + {count}; {v} += {step})"
        if still:
            loop = f"if ({straight}) {loop}"
        self.braced(loop, self._pack(moves, anchors, one, f"{lo} + {v} + u", v, width, "", held))
        if still:
            slow = self._pack(moves, anchors, one, f"{lo} + {v} + u", v, width, "_each", held)
            self.braced(loop.replace(f"({straight})", f"(!{straight})"), slow)
        return head, count

    def _pack(
        self, moves: list[tuple[Moved, str]], anchors: list[tuple[int, int]], one: str,
        pass_: str, v: str, width: int, each: str, held: list[tuple[str, str]],
    ) -> Scope:  # fmt: skip
        """Return the lines of one pack."""
        after: list[str] = []
        scope, args = Scope(), [pass_]
        names = [self.fresh("y") for _ in moves]
        for k, ((kind, dtype, x), base) in enumerate(moves):
            other, d = anchors[k]
            if other != k:
                inside = f"u + {d} >= 0 && u + {d} < {width}"
                args.append(f"{inside} ? {names[other]}.v[u + {d}] : {base}[{v} + u]")
                continue
            scope.lines.append(f"adarray_pack<{STORED[dtype]}, {width}> {names[k]};")
            how = each if each or kind == "load" else self._way(x.buffer)
            line = f"adarray_{kind}{how}({names[k]}, {base} + {v});"
            (scope.lines if kind == "load" else after).append(line)
            args.append(f"{names[k]}.v[u]")
        args += [f"{pack}.v[u]" for pack, _ in held]
        scope.lines.append("#pragma unroll")
        scope.lines.append(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        scope.lines += after
        return scope

    def _way(self, buffer: str) -> str:
        """Return which kind of store writes an array."""
        if buffer in self.near:
            return "_near"
        past = any(b.name == buffer and b.stream for b in self.kernel.buffers)
        return "" if buffer not in self.once else "_past" if past else "_only"

    def width(self, s: For, packed: list[Moved]) -> int:
        """Return how many passes share the widest loads and stores; 1 in long bodies."""
        if any(self._holds(x) for x in s.body):
            return sheet_width(self.kernel, s)
        passes = longest(s, {})
        if len(s.body) > LONG or (passes is not None and passes < 64):
            return 1
        return PACK // max((SIZES[dtype] for _, dtype, _ in packed), default=PACK)
